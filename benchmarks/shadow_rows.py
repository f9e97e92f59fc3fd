"""The rows of `benchmarks/shadow.py`: what a shadow costs a live engine, of a tiny model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row, ratio_row, row_of
from benchmarks.shadow import ARMS, LAYERS_TIMES, Bench, deeper, paired

from kvgate.adapters.cpu_engine.engine import prepare_environment

OFF = "of the engine without a shadow"


def rows(quick: bool) -> Iterator[Row]:
    """Ratios to the engine without a shadow."""
    return rows_of(LAYERS_TIMES[0], quick)


def rows_of(layers_times: int, quick: bool) -> Iterator[Row]:
    """The same, of a model with so many times the layers."""
    rounds, requests = (1, 8) if quick else (10, 24)
    prepare_environment()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(deeper("gemma-3", layers_times, Path(folder)), requests, Path(folder))
        bench.measure("off")
        for arm in ARMS:
            watched, off = zip(*paired(bench, arm, rounds), strict=True)
            for what, field in (
                ("step time", "step_seconds"),
                ("step processor time", "step_cpu_seconds"),
                ("requests a second", "requests_per_second"),
            ):
                taken = [getattr(each, field) for each in watched], [getattr(each, field) for each in off]
                yield ratio_row(f"{arm}: {what}", *taken, OFF)
            yield row_of(f"{arm}: step", [1000 * each.step_seconds for each in watched], "ms")
