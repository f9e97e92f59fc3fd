"""Counters next to vLLM's own: what the shadows of this server observed, read when metrics are scraped.

Engines run in processes of their own, and vLLM exports its metrics from another. So the counters are read from the
small status files that shadows write, at the moment at which they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvgate.shadow.status import Status, path_of, read_all

_COUNTS = {
    "calls": "Calls of the block manager that were observed.",
    "judged": "Calls that the reference was compared with.",
    "lost": "Calls that were left out, because the shadow was too slow.",
    "unwritten": "Calls that could not be written to disk.",
    "differences": "Differences from the reference with the known findings.",
}
FRESH_SECONDS = 10.0
"""The status is written twice a second: an older one is no longer written by any process."""
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
        if status.state != "watching":
            return False
        try:
            age_seconds = time.time() - path_of(self.folder, status.engine).stat().st_mtime
        except OSError:
            return False
        # A clock that was set back makes an old file one of the future.
        return abs(age_seconds) < FRESH_SECONDS


def _families(found: Sequence[tuple[Status, bool]]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    watching = GaugeMetricFamily(
        "kvgate_shadow_watching", "Whether an engine is followed now: 1, or 0.", labels=["engine", "mode"]
    )
    for status, is_watching in found:
        watching.add_metric([status.engine, status.mode], float(is_watching))
    yield watching
    for name, text in _COUNTS.items():
        family = CounterMetricFamily(f"kvgate_shadow_{name}", text, labels=["engine", "mode"])
        for status, _ in found:
            family.add_metric([status.engine, status.mode], getattr(status, name))
        yield family
    declared = CounterMetricFamily(
        "kvgate_shadow_declared", "How often a known finding of vLLM acted.", labels=["engine", "finding"]
    )
    for status, _ in found:
        for finding, count in status.declared.items():
            declared.add_metric([status.engine, finding], count)
    yield declared
