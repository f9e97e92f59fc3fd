"""Counters next to vLLM's own: what the shadows of this server observed, read when metrics are scraped.

Engines run in processes of their own, and vLLM exports its metrics from another. So the counters are read from the
small status files that shadows write, at the moment at which they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvgate.shadow.status import Status, is_fresh, read_all

_COUNTS = {
    "calls": "Calls of the block manager that were observed.",
    "judged": "Calls that the reference was compared with.",
    "lost": "Calls that were left out, because the shadow was too slow.",
    "unwritten": "Calls that could not be written to disk.",
    "differences": "Differences from the reference with the known findings.",
}
_LABELS = ["engine", "shadow", "mode"]
"""``engine`` is vLLM's own label, the index of the engine; ``shadow`` is the name of its files."""
_exposed: set[Path] = set()


def expose(folder: Path) -> None:
    """Export the status of the shadows in ``folder`` with this process's metrics, if it exports any."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    if folder not in _exposed:
        _exposed.add(folder)
        REGISTRY.register(StatusCollector(folder))


class StatusCollector:
    """Reads the files when it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> Iterator[Any]:
        """Nothing yet: files are read when the counters are collected."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """One counter for each count, by engine; nothing, rather than to make the other metrics fail."""
        try:
            found = [(status, self._is_watching(status)) for status in read_all(self.folder)]
            families = list(_families(found))
        except Exception:
            return iter(())
        return iter(families)

    def _is_watching(self, status: Status) -> bool:
        """Whether a shadow follows now: a shadow that was killed leaves its last status file."""
        return status.state == "watching" and is_fresh(self.folder, status)


def _families(found: Sequence[tuple[Status, bool]]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    watching = GaugeMetricFamily(
        "kvgate_shadow_watching", "Whether an engine is followed now: 1, or 0.", labels=_LABELS
    )
    stalled = GaugeMetricFamily(
        "kvgate_shadow_stalled", "Requests that make no progress now, and should.", labels=_LABELS
    )
    blocks = CounterMetricFamily("kvgate_shadow_lost_blocks", "Blocks that are lost, as far as named.", labels=_LABELS)
    for status, is_watching in found:
        watching.add_metric(_labels(status), float(is_watching))
        stalled.add_metric(_labels(status), len(status.stalled))
        blocks.add_metric(_labels(status), len(status.lost_blocks))
    yield from (watching, stalled, blocks)
    for name, text in _COUNTS.items():
        family = CounterMetricFamily(f"kvgate_shadow_{name}", text, labels=_LABELS)
        for status, _ in found:
            family.add_metric(_labels(status), getattr(status, name))
        yield family
    declared = CounterMetricFamily(
        "kvgate_shadow_declared", "How often a known finding of vLLM acted.", labels=["engine", "shadow", "finding"]
    )
    for status, _ in found:
        for finding, count in status.declared.items():
            declared.add_metric([*_labels(status)[:2], finding], count)
    yield declared


def _labels(status: Status) -> list[str]:
    return ["" if status.engine_index is None else str(status.engine_index), status.engine, status.mode]
