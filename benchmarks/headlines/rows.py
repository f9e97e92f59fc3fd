"""The rows of the headline table, as far as they are simulated anew: hit rates in per cent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.harness import Row, row_of
from benchmarks.headlines.__main__ import figures
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import jobs_of, lines_of

from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job, run_all

QUICK = 1
"""How many figures a quick run simulates."""
ARM = "reference"
"""Who serves them here; `python -m benchmarks.headlines` asks every arm."""


def _keep(store: Store, job: Job, _place: int, result: Result) -> None:
    store.put(job, result)


def rows(quick: bool) -> Iterator[Row]:
    """One row for each case of each figure, as the reference serves it."""
    found = figures()
    for figure in found[:QUICK] if quick else found:
        store = Store(None)
        for job in jobs_of([figure]):
            if job.arm == ARM:
                run_all([job], 1, partial(_keep, store, job))
        for line in lines_of([figure], store):
            for result in line.results:
                if result is not None:
                    percent = line.case.percent(result)
                    yield row_of(f"{figure.number}, {line.case.name}: published {figure.published}", [percent], "% hit")
