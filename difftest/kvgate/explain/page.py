"""The page of reports: what was reported, which cause is named from the flags alone, and what the thread found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate.explain.cause import short_thread
from kvgate.explain.explanation import Explanation, explain
from kvgate.explain.reports import Report

_HEAD = """\
# Why is my hit rate zero? Reports that people wrote, explained from their flags

Each row is a report on a public tracker. Its model and its flags were given to `kvgate explain`, and nothing else:
the model as its configuration, or where *groups* says so, as a dump that was filled in by hand from the thread. *From
the flags alone* is the cause that is named first, with how many are named that can make a hit rate zero. Where the
thread says how long the prompts were, they were given too, in a second run: *with the prompts* is what is named then.
*Thread* says whether it is the cause that the thread ended with, and whether it is the first. The data are in
`tests/difftest/explain/reports`, where each says what is from the thread and what was filled in. This page is
generated: `python -m kvgate.explain tests/difftest/explain/reports`.

"""
_ZERO = """\
## The rate was zero

| report | corpus | seen | groups | from the flags alone | with the prompts | guarantee | thread |
|---|--:|---|---|---|---|---|---|
"""
_NOT_ZERO = """
## The rate was not zero

Here nothing may be named that makes every rate zero, and with the prompts nothing that makes theirs zero; where the
pool is given, it may say when what was cached is pushed out of it. *Can hit* is what `kvgate explain` says one
request can hit at best.

| report | seen | groups | always zero | with the prompts | can hit | in the thread |
|---|---|---|---|---|--:|--:|
"""


def page(reports: Sequence[Report]) -> str:
    """The page, in Markdown."""
    zero = [_zero_row(report) for report in reports if report.rate == "zero"]
    other = [_other_row(report) for report in reports if report.rate != "zero"]
    return "".join((_HEAD, _ZERO, *zero, _NOT_ZERO, *other))


def _zero_row(report: Report) -> str:
    alone = explain(report.case(with_prompts=False))
    with_prompts = explain(report.case(with_prompts=True)) if report.prompts else None
    named = next((cause for cause in alone.zero_causes if cause.id == report.cause), None)
    first = alone.zero_causes[0].id if alone.zero_causes else "nothing"
    rank = f"{first}, of {len(alone.zero_causes)}"
    if named is not None and first != named.id:
        rank += f"; {named.id} is among them"
    statement = "" if named is None else named.statement
    first_with_prompts = "" if with_prompts is None else _first(with_prompts)
    cells = (_link(report), str(report.bug or ""), _seen(report), _groups(report), rank, first_with_prompts, statement)
    return _row(*cells, _agrees(report, alone, with_prompts))


def _agrees(report: Report, alone: Explanation, with_prompts: Explanation | None) -> str:
    """Whether what is named is what the thread ended with, and whether it is named first."""
    among = report.cause in [cause.id for cause in alone.zero_causes]
    if not among or (with_prompts is not None and _first(with_prompts) != report.cause):
        return "another"
    if _first(alone) == report.cause:
        return "the same"
    return "the same, not first" if with_prompts is None else "the same, first with the prompts"


def _other_row(report: Report) -> str:
    alone = explain(report.case(with_prompts=False))
    with_prompts = explain(report.case(with_prompts=True)) if report.prompts else None
    always = ", ".join(cause.id for cause in alone.zero_causes if not cause.condition) or "nothing"
    hit = "" if with_prompts is None or with_prompts.figures.hit is None else f"{with_prompts.figures.hit:,}"
    given = "" if with_prompts is None else _first(with_prompts)
    if with_prompts is not None and with_prompts.figures.hit and with_prompts.zero_causes:
        given = f"nothing, unless the free queue turns in between: {given}"
    return _row(
        _link(report),
        _seen(report),
        _groups(report),
        always,
        given,
        hit,
        "" if report.hit is None else f"{report.hit:,}",
    )


def _first(explanation: Explanation) -> str:
    return explanation.zero_causes[0].id if explanation.zero_causes else "nothing"


def _link(report: Report) -> str:
    return f"[{short_thread(report.thread)}]({report.link})"


def _groups(report: Report) -> str:
    return "a dump, filled in" if report.is_dump else "from the configuration"


def _seen(report: Report) -> str:
    return f"{report.title}: {report.measured}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |\n"


def _escaped(cells: Sequence[str]) -> Iterator[str]:
    for cell in cells:
        yield cell.replace("|", "\\|")
