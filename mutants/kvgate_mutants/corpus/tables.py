"""What the corpus says, as tables: for a terminal, for a page, and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import asdict
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvgate_mutants.corpus.bug import Bug, Contrast, Sort, Trial
from kvgate_mutants.corpus.probe import Result, State
from kvgate_mutants.corpus.running import state_of

COLUMNS = (
    "defect",
    "class",
    "code",
    "what it is",
    "control",
    "by",
    "guarantee",
    "operations",
    "seconds",
    "drawn",
    "what the gate says",
)
NUMBERS = ("operations", "seconds")
WIDTH = 240
"""How wide a line is where there is no terminal, in characters."""


def rows(bug: Bug, results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """A row for each trial of a defect that was run, or was to be."""
    for result in results:
        if result.bug != bug.id:
            continue
        name = f"{bug.number} {bug.id}"
        lead = name, bug.kind.value, result.code, *kinds(bug.trials[result.trial])
        if result.state is State.CAUGHT:
            said = f"{result.says} (finding {result.finding})" if result.finding else result.says
            figures = (str(result.operations), f"{result.seconds:.3f}", drawn(result))
            yield *lead, result.detector, result.statement, *figures, said
        else:
            told = f"{result.state.value.upper()}: {result.says}"
            yield *lead, "", "", "", "", "", told
    if not bug.trials:
        yield f"{bug.number} {bug.id}", bug.kind.value, *[""] * 8, f"NOT CAUGHT: {bug.not_caught}"


def kinds(trial: Trial) -> tuple[str, str]:
    """What is run in a trial, and what its control is."""
    return trial.sort.value + (", elsewhere" if trial.elsewhere else ""), trial.control.contrast.value


def drawn(result: Result) -> str:
    """How soon drawn cases found it: operations and seconds."""
    if result.drawn == "found":
        return f"{result.drawn_operations} in {result.drawn_seconds:.1f} s"
    return f"not in {result.drawn_seconds:.0f} s" if result.drawn else ""


def summary(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """How many were caught and by what, in one line."""
    states = {bug.id: state_of(bug, results) for bug in bugs if bug.trials}
    caught = [bug for bug in bugs if states.get(bug.id) is State.CAUGHT]
    best = [sort_of(bug) for bug in caught]
    themselves = best.count(Sort.PUBLISHED) + best.count(Sort.REINTRODUCED)
    elsewhere = sum(bug_is_elsewhere(bug) for bug in caught)
    told = [
        f"{themselves} of {len(bugs)} defects caught: {best.count(Sort.PUBLISHED)} in published code, "
        f"{best.count(Sort.REINTRODUCED)} by a mutant re-introducing it ({elsewhere} of these in another program than "
        "the reported)",
        f"beside them {best.count(Sort.ANALOGUE)} by an analogue alone, {best.count(Sort.BY_HAND)} by a contract "
        "violated by hand",
    ]
    slowest = max((result.seconds for result in results if result.state is State.CAUGHT), default=0.0)
    if slowest:
        told.append(f"the slowest in {slowest:.1f} s once its system was loaded")
    became = list(states.values())
    for state, words in (
        (State.NOT_CAUGHT, "not caught that should be"),
        (State.PARTLY_RUN, "partly run, and not counted as caught"),
        (State.NOT_RUN, "not run"),
    ):
        if state in became:
            told.append(f"{became.count(state)} {words}")
    if len(states) < len(bugs):
        told.append(f"{len(bugs) - len(states)} not caught by anything, each with the reason")
    alike = sum(all(each.control.contrast is Contrast.OTHER_SETTINGS for each in bug.trials) for bug in caught)
    if alike:
        told.append(f"{alike} of all caught with no control but other settings")
    return "; ".join(told)


def sort_of(bug: Bug) -> Sort:
    """What says most of a defect's trials: published code, if one of them runs it."""
    present = {trial.sort for trial in bug.trials}
    return next(sort for sort in Sort if sort in present)


def bug_is_elsewhere(bug: Bug) -> bool:
    """Whether a defect is re-introduced, and in another program only."""
    return sort_of(bug) is Sort.REINTRODUCED and all(
        each.elsewhere for each in bug.trials if each.sort is Sort.REINTRODUCED
    )


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
        "| # | defect | class | affected | code that was run | what it is | control | "
        "found by | guarantee | operations | seconds | drawn |",
        "|--:|---|---|---|---|---|---|---|---|--:|--:|--:|",
    ]
    for bug in bugs:
        lead = f"| {bug.number} | [{bug.id}](#{bug.id}) | {bug.kind.value} | {bug.affected}"
        for _name, _kind, code, sort, control, by, statement, operations, seconds, by_chance, said in rows(
            bug, results
        ):
            found = by or said.partition(":")[0].lower()
            lines.append(
                f"{lead} | {code or 'none'} | {sort} | {control} | {found} | {statement} | {operations} | {seconds} "
                f"| {by_chance} |"
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
                "sort": bug.trials[result.trial].sort.value,
                "elsewhere": bug.trials[result.trial].elsewhere,
                "control_kind": bug.trials[result.trial].control.contrast.value,
                "why_mutant": bug.trials[result.trial].why_mutant or None,
                "remark": bug.trials[result.trial].remark or None,
            }
            for result in results
            if result.bug == bug.id
        ],
    }
