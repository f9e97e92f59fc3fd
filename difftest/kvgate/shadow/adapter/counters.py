"""Counters next to vLLM's own: what the shadows of this server observed, read when metrics are scraped.

Engines run in processes of their own, and vLLM exports its metrics from another. So the counters are read from the
small status files that shadows write, at the moment at which they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvgate.shadow.status import Status, is_fresh, read_all

_COUNTS: dict[str, tuple[str, str]] = {
    "calls": ("calls", "Calls of the block manager that were observed."),
    "judged": ("judged", "Calls that the reference was compared with."),
    "lost": ("lost", "Calls that were left out, because the shadow was too slow."),
    "unwritten": ("unwritten", "Calls that could not be written to disk."),
    "differences": ("differences", "Differences from the reference with the known findings."),
    "lost_blocks": ("blocks_lost", "Blocks that were found to be lost."),
}
"""By metric: the count of a status, and what it is."""
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
            found = [self._seen(status) for status in read_all(self.folder)]
            families = list(_families(found))
        except Exception:
            return iter(())
        return iter(families)

    def _seen(self, status: Status) -> tuple[Status, bool, bool]:
        """A status, whether its shadow follows now, and whether it was written just now.

        A shadow that was killed leaves its last status file.
        """
        is_recent = is_fresh(self.folder, status)
        return status, status.state == "watching" and is_recent, is_recent


def _families(found: Sequence[tuple[Status, bool, bool]]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    watching = GaugeMetricFamily(
        "kvgate_shadow_watching", "Whether an engine is followed now: 1, or 0.", labels=_LABELS
    )
    stalled = GaugeMetricFamily(
        "kvgate_shadow_stalled",
        "Requests that make no progress now, and should; 0 if that is not known.",
        labels=_LABELS,
    )
    for status, is_watching, is_recent in found:
        watching.add_metric(_labels(status), float(is_watching))
        stalled.add_metric(_labels(status), len(status.stalled) if is_recent else 0)
    yield from (watching, stalled)
    for name, (attribute, text) in _COUNTS.items():
        family = CounterMetricFamily(f"kvgate_shadow_{name}", text, labels=_LABELS)
        for status, *_ in found:
            family.add_metric(_labels(status), getattr(status, attribute))
        yield family
    declared = CounterMetricFamily(
        "kvgate_shadow_declared", "How often a known finding of vLLM acted.", labels=["engine", "shadow", "finding"]
    )
    for status, *_ in found:
        for finding, count in status.declared.items():
            declared.add_metric([*_labels(status)[:2], finding], count)
    yield declared


def _labels(status: Status) -> list[str]:
    return ["" if status.engine_index is None else str(status.engine_index), status.engine, status.mode]
