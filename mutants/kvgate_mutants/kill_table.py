"""The kill table: of every mutant what found it, how soon, and how small a case is that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from attrs import frozen

from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED
from kvgate.kernel.text import counted
from kvgate.report.document import Column, Report, Section, Story, columns
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutation_run import Kill, MutantResult

COLUMNS = (
    *columns("mutant", "killed by", "statement"),
    *(
        Column("operations"),
        Column("seconds", ".1f"),
        Column("smallest case", optional=True),
        Column("what is broken"),
        Column("before", optional=True),
    ),
    *(Column("equivalent", shown=False), Column("violates", shown=False), Column("kills", shown=False)),
)
"""Operations are those of the block manager; the smallest case is counted in what was done to it, or to the engine."""


@frozen
class Killed:
    """What became of one set of mutants."""

    title: str
    """What the mutants were injected into."""
    alarm: Kill | None
    """What was found without a mutant."""
    results: tuple[MutantResult, ...]

    @property
    def expected(self) -> tuple[MutantResult, ...]:
        """The mutants that can be found."""
        return tuple(each for each in self.results if each.mutant.equivalent is None)

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """Those that were not."""
        return tuple(each for each in self.results if each.survived)

    @property
    def exposed(self) -> tuple[MutantResult, ...]:
        """Those that are equivalent to the original, and were still distinguished from it."""
        return tuple(each for each in self.results if each.mutant.equivalent and each.kills["gate"])

    @property
    def sound(self) -> bool:
        """Whether nothing was found without a mutant, and with one exactly what can be found."""
        return not (self.alarm or self.survivors or self.exposed)


def section_of(killed: Killed) -> Section:
    """The table of what one set of mutants was injected into."""
    alone = [name for name in (killed.results[0].kills if killed.results else ()) if name != "gate"]
    notes = [summary(killed)]
    if alone:
        seen = ", ".join(f"{name} {sum(each.kills[name] is not None for each in killed.expected)}" for name in alone)
        notes.append(f"alone, of {len(killed.expected)}: {seen}")
    notes += _argued(killed)
    rows = tuple((*_row(each), *(_operations(each.kills[name]) for name in alone)) for each in killed.results)
    shown = (*COLUMNS, *(Column(f"{name} alone") for name in alone))
    return Section(alarm_line(killed), shown, rows, notes=tuple(notes))


def _argued(killed: Killed) -> list[str]:
    """Of each that was not found, why not."""
    return [
        *(
            f"{each.mutant.name} is equivalent: {each.mutant.equivalent}"
            for each in killed.results
            if each.mutant.equivalent
        ),
        *(f"{each.mutant.name} survives: {each.mutant.survives}" for each in killed.survivors if each.mutant.survives),
    ]


def _operations(kill: Kill | None) -> int | None:
    return None if kill is None else kill.operations


def _row(result: MutantResult) -> tuple[Any, ...]:
    mutant, kill = result.mutant, result.kills["gate"]
    tail = (
        *(mutant.sentence, mutant.before, mutant.equivalent, mutant.statement),
        {name: None if kill is None else _record(kill) for name, kill in result.kills.items()},
    )
    if kill is None:
        return mutant.name, "equivalent" if mutant.equivalent else "SURVIVED", *(None,) * 4, *tail
    return mutant.name, kill.by, kill.statement or "-", kill.operations, kill.seconds, kill.operations_left, *tail


def report_of(finished: Sequence[Killed], interrupted: bool) -> Report:
    """The report: a table for each set, and below Found what makes it worth nothing."""
    found = [Story(alarm_line(each)) for each in finished if each.alarm is not None]
    found += [
        Story(f"{result.mutant.name} SURVIVED: {result.mutant.sentence}")
        for each in finished
        for result in each.survivors
    ]
    found += [
        Story(f"{result.mutant.name} was found, and is listed as equivalent: {result.mutant.equivalent}")
        for each in finished
        for result in each.exposed
    ]
    expected, left = sum(len(each.expected) for each in finished), sum(len(each.survivors) for each in finished)
    unsound = DIVERGENCE if found else INTERRUPTED if interrupted else AGREEMENT
    return Report(
        command="mutants",
        outcome=f"{expected - left} of {expected} mutants killed",
        exit_code=unsound,
        ended="interrupted" if interrupted else "completed",
        tested=tuple(map(section_of, finished)),
        found=tuple(found),
        found_noun="survivor or false alarm",
    )


def summary(killed: Killed) -> str:
    """The table in one line."""
    kills = [kill for each in killed.results if (kill := each.kills["gate"]) is not None]
    found = f"{len(killed.expected) - len(killed.survivors)} of {len(killed.expected)} killed"
    parts = [f"{found}, {len(killed.results) - len(killed.expected)} equivalent"]
    if kills:
        seconds = [kill.seconds for kill in kills]
        parts.append(f"the slowest took {max(seconds):.1f} s, the median {median(seconds):.1f} s")
    left = [kill.operations_left for kill in kills if kill.operations_left is not None]
    if left:
        parts.append(f"smallest cases: median {median(left):g} operations, the longest {max(left)}")
    return "; ".join(parts)


def alarm_line(killed: Killed) -> str:
    """What was found without a mutant."""
    if killed.alarm is None:
        return f"{killed.title}: nothing found"
    return f"{killed.title}: FOUND {getattr(killed.alarm.found, 'divergence', killed.alarm.found)}"


def _record(kill: Kill) -> dict[str, object]:
    return {
        "by": kill.by,
        "statement": kill.statement,
        "operations": kill.operations,
        "seconds": round(kill.seconds, 2),
        **({} if kill.smallest is None else {"smallest": kill.operations_left}),
    }


def list_of(mutants: Iterable[Mutant]) -> Section:
    """The mutants, without what finds them."""
    head = (*columns("name", "violates", "needs"), Column("before", optional=True), *columns("sentence", "equivalent"))
    rows = tuple(
        (each.name, each.statement, " ".join(each.needs), each.before, each.sentence, each.equivalent)
        for each in mutants
    )
    return Section("", head, rows)


def list_page(section: Section, command: str, data: str) -> tuple[str, str]:
    """The list as a page, and its data file ``data``."""
    lines = (
        "# Mutants",
        "",
        f"{counted(len(section.rows), 'mutant')}: [{data}]({data}).",
        "",
        f"Written by `{command}`.",
        "",
    )
    return "\n".join(lines), section.csv()


def page(tables: Sequence[Killed], command: str, data: str) -> tuple[str, str]:
    """The sums of the tables as a page, and the rows as its data file ``data``."""
    rows = tuple(
        (killed.title, *_row(each), each.mutant.equivalent or (each.mutant.survives if each.survived else None))
        for killed in tables
        for each in killed.results
    )
    section = Section("", (Column("set"), *COLUMNS, Column("argument", optional=True)), rows)
    return "\n".join(_page(tables, command, data)), section.csv()


def _page(tables: Sequence[Killed], command: str, data: str) -> Iterator[str]:
    yield "# The kill table"
    yield ""
    yield "Known faults, injected one at a time, and what found each. Operations are counted over all cases until the"
    yield "fault was seen, a smallest case in what was done to the system. The machine had other work."
    yield f"Each mutant has a row in [{data}]({data})."
    yield ""
    yield from (f"- {alarm_line(killed)}. {summary(killed)}." for killed in tables)
    yield ""
    yield f"Written by `{command}`, as seen; not edited."
    yield ""
