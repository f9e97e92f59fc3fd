"""The corpus as a report: a row for each trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import asdict

from kvgate.kernel.output import AGREEMENT, DIVERGENCE, FAULT, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.report.document import Column, Report, Section, Story, columns
from kvgate_mutants.corpus.bug import Bug, Contrast, Sort, Trial
from kvgate_mutants.corpus.probe import Result, State
from kvgate_mutants.corpus.running import state_of

COLUMNS = (
    *columns("defect", "class", "code", "kind", "control", "by", "guarantee"),
    *(Column("operations"), Column("seconds", ".3f"), Column("drawn", optional=True), Column("result")),
    *(Column(name, shown=False) for name in ("state", "trial", "version", "detail")),
)


def rows(bug: Bug, results: Sequence[Result]) -> Iterator[tuple[Any, ...]]:
    """A row for each trial of a defect that was run, or was to be."""
    for result in results:
        if result.bug != bug.id:
            continue
        lead = f"{bug.number} {bug.id}", bug.kind.value, result.code, *kinds(bug.trials[result.trial])
        tail = result.state.value, result.trial, result.version or None, _detail(bug, result)
        if result.state is State.CAUGHT:
            said = f"{result.says} (finding {result.finding})" if result.finding else result.says
            figures = result.operations, result.seconds, drawn(result)
            yield *lead, result.detector, result.statement, *figures, said, *tail
        else:
            yield *lead, *(None,) * 5, f"{result.state.value.upper()}: {result.says}", *tail
    if not bug.trials:
        yield (
            f"{bug.number} {bug.id}",
            bug.kind.value,
            *(None,) * 8,
            f"NOT CAUGHT: {bug.not_caught}",
            State.NOT_CAUGHT.value,
            *(None,) * 3,
        )


def _detail(bug: Bug, result: Result) -> dict[str, Any]:
    """Everything else of a trial, for programs."""
    trial = bug.trials[result.trial]
    return {
        **{name: value for name, value in asdict(result).items() if name not in ("bug", "state")},
        "sort": trial.sort.value,
        "elsewhere": trial.elsewhere,
        "control_kind": trial.control.contrast.value,
        "why_mutant": trial.why_mutant or None,
        "remark": trial.remark or None,
    }


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
    reported = [
        f"{themselves} of {len(bugs)} defects caught: {best.count(Sort.PUBLISHED)} in published code, "
        f"{best.count(Sort.REINTRODUCED)} by a mutant re-introducing it ({elsewhere} of these in another program than "
        "the reported)",
        f"in addition {best.count(Sort.ANALOGUE)} by an analogue alone, {best.count(Sort.BY_HAND)} by a contract "
        "violated by hand",
    ]
    slowest = max((result.seconds for result in results if result.state is State.CAUGHT), default=0.0)
    if slowest:
        reported.append(f"the slowest in {slowest:.1f} s once its system was loaded")
    became = list(states.values())
    for state, words in (
        (State.NOT_CAUGHT, "not caught that should be"),
        (State.PARTLY_RUN, "partly run, and not counted as caught"),
        (State.NOT_RUN, "not run"),
    ):
        if state in became:
            reported.append(f"{became.count(state)} {words}")
    if len(states) < len(bugs):
        reported.append(f"{len(bugs) - len(states)} not caught by anything, each with the reason")
    alike = sum(all(each.control.contrast is Contrast.OTHER_SETTINGS for each in bug.trials) for bug in caught)
    if alike:
        reported.append(f"{alike} of all caught with no control but other settings")
    return "; ".join(reported)


def sort_of(bug: Bug) -> Sort:
    """What says most of a defect's trials: published code, if one of them runs it."""
    present = {trial.sort for trial in bug.trials}
    return next(sort for sort in Sort if sort in present)


def bug_is_elsewhere(bug: Bug) -> bool:
    """Whether a defect is re-introduced, and in another program only."""
    return sort_of(bug) is Sort.REINTRODUCED and all(
        each.elsewhere for each in bug.trials if each.sort is Sort.REINTRODUCED
    )


def report_of(bugs: Sequence[Bug], results: Sequence[Result], interrupted: bool = False) -> Report:
    """The report: a row for each trial, and all defects for programs."""
    defects = tuple(
        (
            *(bug.number, bug.id, bug.kind.value, bug.title, bug.link, bug.affected, state_of(bug, results).value),
            *(bug.not_caught or None, f"kvgate corpus {bug.id}"),
        )
        for bug in bugs
    )
    names = ("number", "id", "class", "title", "link", "affected", "state", "not_caught", "command")
    return Report(
        command="corpus",
        outcome=summary(bugs, results),
        exit_code=_exit_code(bugs, results, interrupted),
        ended="interrupted" if interrupted else "completed",
        tested=(
            Section("", COLUMNS, tuple(row for bug in bugs for row in rows(bug, results)), keys=3),
            Section("defects", columns(*names), defects, shown=False),
        ),
        found=tuple(
            Story(
                f"{result.bug}, {result.code}: {result.state.value}: {result.says}",
                severity="error" if result.state is State.NOT_CAUGHT else "warning",
                again=f"kvgate corpus {result.bug}",
            )
            for result in results
            if result.state is not State.CAUGHT
        ),
        found_noun="missed defect",
    )


def _exit_code(bugs: Sequence[Bug], results: Sequence[Result], interrupted: bool) -> int:
    states = {state_of(bug, results) for bug in bugs if bug.trials}
    if interrupted:
        return INTERRUPTED
    if State.NOT_CAUGHT in states:
        return DIVERGENCE
    if any(result.state is State.FAULT for result in results):
        return FAULT
    return NOT_EXHAUSTIVE if states & {State.NOT_RUN, State.PARTLY_RUN} else AGREEMENT


def list_of(bugs: Sequence[Bug]) -> Report:
    """What there is."""
    entries = tuple(
        (
            *(bug.number, bug.id, bug.kind.value, list(dict.fromkeys(trial.code for trial in bug.trials))),
            *(bug.thread, bug.title),
        )
        for bug in bugs
    )
    return Report(
        "corpus --list", tested=(Section("", columns("number", "id", "class", "code", "thread", "title"), entries),)
    )
