"""The newest rows of each benchmark: the page with when each was measured, the data file, and a form for terminals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from benchmarks.harness import Row, figure
from benchmarks.history import Entry, State
from benchmarks.registry import BENCHMARKS

from kvgate.kernel.data_file import csv_text

HEAD = """# Benchmarks

Written by `python -m benchmarks`. [benchmarks.csv](benchmarks.csv) has every row: medians of rounds, with the least and
the largest round. Only a ratio means something on another machine: the arms of a ratio were measured in turn, in one
run. Nothing here is asserted.

| benchmark | what it measures | rows | seconds | measured | commit | machine |
|---|---|--:|--:|---|---|---|
"""
NAMES = ("benchmark", "what", "median", "unit", "least", "largest", "rounds")
COLUMNS = "| what | median | unit | least to largest | rounds |\n|---|---:|---|---:|---:|"


def page(entries: Iterable[Entry]) -> str:
    """What was measured, a row for each benchmark, in the order of the registry."""
    by_name = {entry.name: entry for entry in entries}
    lines = [_summary(by_name[name]) for name in BENCHMARKS if name in by_name]
    return HEAD + "".join((*lines, _missing(by_name)))


def _missing(by_name: Collection[str]) -> str:
    missing = [name for name in BENCHMARKS if name not in by_name]
    return f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""


def _summary(entry: Entry) -> str:
    state = "" if entry.state is State.COMPLETE else f", {entry.state.value}"
    cells = (entry.name, BENCHMARKS[entry.name].what, str(len(entry.rows)), f"{entry.seconds:,.0f}")
    when = f"{entry.when[:10]}{', quick' * entry.quick}{state}"
    return f"| {' | '.join((*cells, when, entry.commit or '', entry.machine.describe()))} |\n"


def data(entries: Iterable[Entry]) -> str:
    """The data file: every row of every benchmark."""
    by_name = {entry.name: entry for entry in entries}
    return csv_text(NAMES, (_cells(name, row) for name in BENCHMARKS if name in by_name for row in by_name[name].rows))


def _cells(name: str, row: Row) -> tuple[str, ...]:
    return name, row.what, figure(row.value), row.unit, figure(row.least), figure(row.largest), str(row.rounds)


def markdown(entries: Iterable[Entry]) -> str:
    """All of it for a terminal."""
    by_name = {entry.name: entry for entry in entries}
    parts = ("\n".join(_part(by_name[name])) + "\n" for name in BENCHMARKS if name in by_name)
    return "\n".join(parts) + _missing(by_name)


def _part(entry: Entry) -> Iterator[str]:
    """One benchmark."""
    ended = "" if entry.state is State.COMPLETE else f", {entry.state.value} after {len(entry.rows)} rows"
    quick = ", quick" if entry.quick else ""
    code = f", commit {entry.commit}" if entry.commit else ""
    yield f"## {entry.name}: {BENCHMARKS[entry.name].what}"
    yield ""
    yield f"{entry.when}{code}, {entry.machine.describe()}, {entry.seconds:,.0f} s{quick}{ended}."
    yield ""
    yield COLUMNS
    yield from (line_of(row) for row in entry.rows)


def line_of(row: Row) -> str:
    """One row."""
    spread = f"{figure(row.least)} to {figure(row.largest)}" if row.rounds > 1 else "-"
    return f"| {_cell(row.what)} | {figure(row.value)} | {_cell(row.unit)} | {spread} | {row.rounds} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
