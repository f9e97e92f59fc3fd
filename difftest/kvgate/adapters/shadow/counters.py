"""Counters next to vLLM's own: what the shadows of this server have seen, read when somebody asks for metrics.

Engines run in processes of their own, and vLLM tells its metrics in another. So the counters are read from the small
status files that shadows write, at the moment at which they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvgate.shadow.status import read_all

_COUNTS = {
    "calls": "Calls of the block manager that were observed.",
    "judged": "Calls that the reference was compared with.",
    "lost": "Calls that were left out, because the shadow fell behind.",
    "unwritten": "Calls that could not be written to disk.",
    "differences": "Differences from the reference that no finding explains.",
}
_exposed: set[Path] = set()


def expose(folder: Path) -> None:
    """Have the status of the shadows in ``folder`` told with this process's metrics, if it tells any."""
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
        """Nothing yet: files are read when there is something to tell."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """One counter for each count, by engine."""
        from prometheus_client.core import CounterMetricFamily

        found = list(read_all(self.folder))
        for name, text in _COUNTS.items():
            family = CounterMetricFamily(f"kvgate_shadow_{name}", text, labels=["engine", "mode"])
            for status in found:
                family.add_metric([status.engine, status.mode], getattr(status, name))
            yield family
        declared = CounterMetricFamily(
            "kvgate_shadow_declared", "Differences that a finding of vLLM explains.", labels=["engine", "finding"]
        )
        for status in found:
            for finding, count in status.declared.items():
                declared.add_metric([status.engine, finding], count)
        yield declared
