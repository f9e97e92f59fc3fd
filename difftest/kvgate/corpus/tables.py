"""What the corpus says, as tables: for a terminal, for a page, and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import asdict
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvgate.corpus.bug import Bug
from kvgate.corpus.running import state_of
from kvgate.corpus.trying import Result, State

COLUMNS = ("defect", "class", "code", "by", "guarantee", "operations", "seconds", "drawn", "what the gate says")
NUMBERS = ("operations", "seconds")
WIDTH = 240
"""How wide a line is where there is no terminal, in characters."""


def rows(bug: Bug, results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """A row for each trial of a defect that was run, or was to be."""
    for result in results:
        if result.bug != bug.id:
            continue
        name = f"{bug.number} {bug.id}"
        if result.state is State.CAUGHT:
            said = f"{result.says} (finding {result.finding})" if result.finding else result.says
            figures = (str(result.operations), f"{result.seconds:.3f}", drawn(result))
            yield name, bug.kind.value, result.code, result.detector, result.statement, *figures, said
        else:
            told = f"{result.state.value.upper()}: {result.says}"
            yield name, bug.kind.value, result.code, "", "", "", "", "", told
    if not bug.trials:
        yield f"{bug.number} {bug.id}", bug.kind.value, "", "", "", "", "", "", f"NOT CAUGHT: {bug.not_caught}"


def drawn(result: Result) -> str:
    """How soon drawn cases found it: operations and seconds."""
    if result.drawn == "found":
        return f"{result.drawn_operations} in {result.drawn_seconds:.1f} s"
    return f"not in {result.drawn_seconds:.0f} s" if result.drawn else ""


def summary(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """How many were caught, in one line."""
    states = [state_of(bug, results) for bug in bugs if bug.trials]
    told = [
        f"{states.count(State.CAUGHT)} of {len(bugs)} defects caught, {_published(bugs, results)} in published code"
    ]
    slowest = max((result.seconds for result in results if result.state is State.CAUGHT), default=0.0)
    if slowest:
        told.append(f"the slowest in {slowest:.1f} s once its system was loaded")
    if State.NOT_CAUGHT in states:
        told.append(f"{states.count(State.NOT_CAUGHT)} not caught that should be")
    if State.NOT_RUN in states:
        told.append(f"{states.count(State.NOT_RUN)} not run")
    explained = sum(not bug.trials for bug in bugs)
    if explained:
        told.append(f"{explained} that nothing catches, each with the reason")
    return "; ".join(told)


def _published(bugs: Sequence[Bug], results: Sequence[Result]) -> int:
    """How many are caught in code as it was published, with nothing planted."""
    by_id = {bug.id: bug for bug in bugs}
    caught = [each for each in results if each.state is State.CAUGHT]
    as_published = {each.bug for each in caught if not by_id[each.bug].trials[each.trial].mutants}
    return sum(state_of(bug, results) is State.CAUGHT for bug in bugs if bug.id in as_published)


def show(bugs: Sequence[Bug], results: Sequence[Result]) -> None:
    """The table on a terminal, a line for each trial; what does not fit is cut, and whole in the other formats."""
    console = Console(width=WIDTH) if not Console().is_terminal else Console()
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True)
    for column in COLUMNS[:-1]:
        table.add_column(column, justify="right" if column in NUMBERS else "left", no_wrap=True)
    table.add_column(COLUMNS[-1], overflow="ellipsis", no_wrap=True, ratio=1)
    for bug in bugs:
        for row in rows(bug, results):
            table.add_row(*map(escape, row))
    console.print(table)
    console.print(f"{summary(bugs, results)}", markup=False)
    console.print("one of them again: kvgate corpus ID; in full: --format json", markup=False)


def markdown(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """The table for a page, with links and commands."""
    lines = [
        "| # | defect | class | affected | code that was run | found by | guarantee | operations | seconds | drawn |",
        "|--:|---|---|---|---|---|---|--:|--:|--:|",
    ]
    for bug in bugs:
        lead = f"| {bug.number} | [{bug.id}](#{bug.id}) | {bug.kind.value} | {bug.affected}"
        for _name, _kind, code, by, statement, operations, seconds, by_chance, said in rows(bug, results):
            found = by or said.partition(":")[0].lower()
            lines.append(
                f"{lead} | {code or 'none'} | {found} | {statement} | {operations} | {seconds} | {by_chance} |"
            )
    return "\n".join(lines)


def document(bugs: Sequence[Bug], results: Sequence[Result]) -> dict[str, object]:
    """Everything, for programs."""
    return {
        "format": "kvgate-corpus",
        "version": 1,
        "defects": [_record(bug, results) for bug in bugs],
        "summary": summary(bugs, results),
    }


def _record(bug: Bug, results: Sequence[Result]) -> Mapping[str, object]:
    return {
        "number": bug.number,
        "id": bug.id,
        "class": bug.kind.value,
        "title": bug.title,
        "link": bug.link,
        "affected": bug.affected,
        "state": state_of(bug, results).value,
        "not_caught": bug.not_caught or None,
        "command": f"kvgate corpus {bug.id}",
        "trials": [
            {
                **{name: value for name, value in asdict(result).items() if name not in ("bug", "state")},
                "state": result.state.value,
                "why_mutant": bug.trials[result.trial].why_mutant or None,
            }
            for result in results
            if result.bug == bug.id
        ],
    }
