"""The rows of the headline table, as far as they are simulated anew: hit rates in per cent."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.headlines.__main__ import figures
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import jobs_of, lines_of
from benchmarks.row import Row, row_of

from kvgate.simulation.sweep import run_all

QUICK = 1
"""How many figures a quick run simulates."""
ARM = "reference"
"""Who serves them here; `python -m benchmarks.headlines` asks every arm."""


def rows(quick: bool) -> Iterator[Row]:
    """One row for each case of each figure, as the reference serves it."""
    found = figures()
    for figure in found[:QUICK] if quick else found:
        store = Store(None)
        jobs = [job for job in jobs_of([figure]) if job.arm == ARM]
        run_all(jobs, 1, lambda place, result, jobs=jobs, store=store: store.put(jobs[place], result), lambda _: None)
        for line in lines_of([figure], store):
            for result in line.results:
                if result is not None:
                    percent = line.case.percent(result)
                    yield row_of(f"{figure.number}, {line.case.name}: published {figure.published}", [percent], "% hit")
