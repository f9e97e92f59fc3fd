"""The rows of `benchmarks/shadow.py`: what a shadow costs a live engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Row, ratio_row
from benchmarks.shadow import ARMS, LAYERS_TIMES, Bench, deeper, paired

from kvgate.adapters.cpu_engine.engine import prepare_environment

REQUESTS = 24
"""So many that a checkpoint falls into every round."""
OFF = "of the engine without a shadow"


def rows(quick: bool) -> Iterator[Row]:
    """Every arm's rounds, each set against the one beside it that had no shadow."""
    return rows_of(LAYERS_TIMES[0], quick)


def deeper_rows(quick: bool) -> Iterator[Row]:
    """The same, of a model with more layers, whose step is nearer to a real one's."""
    return rows_of(LAYERS_TIMES[1], quick)


def rows_of(layers_times: int, quick: bool) -> Iterator[Row]:
    """The same, of a model with so many times the layers."""
    rounds = 1 if quick else 10
    prepare_environment()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(deeper("gemma-3", layers_times, Path(folder)), REQUESTS, Path(folder))
        bench.measure("off")
        for arm in ARMS:
            ours, off = zip(*paired(bench, arm, rounds), strict=True)
            for what, field in (("step", "step_seconds"), ("processor time of a step", "step_cpu_seconds")):
                spent, base = ([getattr(each, field) for each in side] for side in (ours, off))
                yield ratio_row(f"{arm}: {what}", spent, base, OFF)
            paces = [[each.requests_per_second for each in side] for side in (ours, off)]
            yield ratio_row(f"{arm}: requests a second", paces[0], paces[1], OFF)
