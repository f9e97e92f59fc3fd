"""The kill table: of every mutant what found it, how soon, and how small a case is that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from attrs import frozen

from kvgate_mutants.mutation_run import Kill, MutantResult

COLUMNS = ("mutant", "killed by", "statement", "operations", "seconds", "smallest case")
"""What a row says. Operations are those of the block manager; the smallest case is counted in what was done to it, or
to the engine."""


@frozen
class Killed:
    """What became of one zoo."""

    title: str
    """What the mutants were planted in."""
    alarm: Kill | None
    """What was found without a mutant."""
    prey: tuple[MutantResult, ...]

    @property
    def expected(self) -> tuple[MutantResult, ...]:
        """The mutants that can be found."""
        return tuple(each for each in self.prey if each.mutant.equivalent is None)

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        """Those that were not."""
        return tuple(each for each in self.prey if each.survived)

    @property
    def exposed(self) -> tuple[MutantResult, ...]:
        """Those that nobody can tell from the original, and somebody did."""
        return tuple(each for each in self.prey if each.mutant.equivalent and each.kills["gate"])

    @property
    def sound(self) -> bool:
        """Whether nothing was found without a mutant, and with one exactly what can be found."""
        return not (self.alarm or self.survivors or self.exposed)


def row(prey: MutantResult) -> tuple[str, ...]:
    """What the table says of one mutant."""
    kill = prey.kills["gate"]
    if kill is None:
        return prey.mutant.name, "equivalent" if prey.mutant.equivalent else "SURVIVED", "", "", "", ""
    left = kill.operations_left
    return (
        prey.mutant.name,
        kill.by,
        kill.statement or "-",
        str(kill.operations),
        f"{kill.seconds:.1f}",
        "" if left is None else str(left),
    )


def summary(killed: Killed) -> str:
    """The table in one line."""
    kills = [kill for each in killed.prey if (kill := each.kills["gate"]) is not None]
    found = f"{len(killed.expected) - len(killed.survivors)} of {len(killed.expected)} killed"
    parts = [f"{found}, {len(killed.prey) - len(killed.expected)} equivalent"]
    if kills:
        seconds = [kill.seconds for kill in kills]
        parts.append(f"the slowest took {max(seconds):.1f} s, the median {median(seconds):.1f} s")
    left = [kill.operations_left for kill in kills if kill.operations_left is not None]
    if left:
        parts.append(f"smallest cases: median {median(left):g} operations, the longest {max(left)}")
    return "; ".join(parts)


def alarm_told(killed: Killed) -> str:
    """What was found without a mutant."""
    if killed.alarm is None:
        return f"{killed.title}: nothing found"
    return f"{killed.title}: FOUND {getattr(killed.alarm.found, 'divergence', killed.alarm.found)}"


def record(prey: MutantResult) -> dict[str, object]:
    """One mutant as a document."""
    return {
        "mutant": prey.mutant.name,
        "statement": prey.mutant.statement,
        "equivalent": prey.mutant.equivalent,
        "kills": {name: None if kill is None else _record(kill) for name, kill in prey.kills.items()},
    }


def _record(kill: Kill) -> dict[str, object]:
    return {
        "by": kill.by,
        "statement": kill.statement,
        "operations": kill.operations,
        "seconds": round(kill.seconds, 2),
        **({} if kill.smallest is None else {"smallest": kill.operations_left}),
    }


def page(tables: Sequence[Killed], command: str) -> str:
    """The tables as a Markdown file."""
    return "\n".join(_page(tables, command))


def _page(tables: Sequence[Killed], command: str) -> Iterator[str]:
    yield "# The kill table"
    yield ""
    yield "Known faults, planted one at a time, and what found each. Operations are those of the block manager, over"
    yield "all cases until the fault was seen; seconds are those of the hunt, on a machine with other work beside it."
    yield "The smallest case is counted in what is done to the block manager, or to the engine of a broken scheduler."
    yield ""
    yield f"Written by `{command}`, as seen; not edited."
    for killed in tables:
        yield from ("", f"## {killed.title}", "", f"{alarm_told(killed)}. {summary(killed)}.", "")
        yield f"| {' | '.join((*COLUMNS, 'what is broken'))} |"
        yield "|---|---|---|--:|--:|--:|---|"
        for prey in killed.prey:
            yield f"| {' | '.join((*row(prey), prey.mutant.sentence))} |"
        equivalent = [each for each in killed.prey if each.mutant.equivalent]
        if equivalent:
            yield ""
            yield from (f"- {each.mutant.name} is equivalent: {each.mutant.equivalent}" for each in equivalent)
    yield ""
