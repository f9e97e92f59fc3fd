"""The page of reports: what was reported, which cause is named from the flags alone, and what the thread found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate.explain.explanation import Explanation, explain
from kvgate.explain.reports import Report
from kvgate.explain.text_report import short

_HEAD = """\
# Why is my hit rate zero? Reports that people wrote, explained from their flags

Each row is a report on a public tracker. Its model and its flags were given to `kvgate explain`, and nothing else; the
cause that it names first is in the fourth column, with how many it names that can make a hit rate zero. Where the
thread tells how long the prompts were, they were given too, in a second run: what is named then is in the fifth column.
*Thread* says whether it is the cause that the thread ended with. The data are in
[`tests/difftest/explain/reports`](../tests/difftest/explain/reports), where each says what is from the thread and what
was filled in. This page is generated: `python -m kvgate.explain tests/difftest/explain/reports`.

"""
_ZERO = """\
## The rate was zero

| report | corpus | seen | from the flags alone | with the prompts | guarantee | thread |
|---|--:|---|---|---|---|---|
"""
_NOT_ZERO = """
## The rate was not zero

Here nothing may be named that makes every rate zero, and with the prompts nothing that makes theirs zero. *Can hit* is
what `kvgate explain` says one request can hit at best.

| report | seen | always zero | with the prompts | can hit | told by the thread |
|---|---|---|---|--:|--:|
"""


def page(reports: Sequence[Report]) -> str:
    """The page, in Markdown."""
    zero = [_zero_row(report) for report in reports if report.rate == "zero"]
    other = [_other_row(report) for report in reports if report.rate != "zero"]
    return "".join((_HEAD, _ZERO, *zero, _NOT_ZERO, *other))


def _zero_row(report: Report) -> str:
    alone = explain(report.case(with_prompts=False))
    told = explain(report.case(with_prompts=True)) if report.prompts else None
    named = next((cause for cause in alone.zero_causes if cause.id == report.cause), None)
    first = alone.zero_causes[0].id if alone.zero_causes else "nothing"
    rank = f"{first}, of {len(alone.zero_causes)}"
    if named is not None and first != named.id:
        rank += f"; {named.id} is among them"
    agrees = "the same" if named is not None and (told is None or _first(told) == report.cause) else "another"
    statement = "" if named is None else named.statement
    cells = (_link(report), str(report.bug or ""), _seen(report), rank, "" if told is None else _first(told), statement)
    return _row(*cells, agrees)


def _other_row(report: Report) -> str:
    alone = explain(report.case(with_prompts=False))
    told = explain(report.case(with_prompts=True)) if report.prompts else None
    always = ", ".join(cause.id for cause in alone.zero_causes if not cause.condition) or "nothing"
    hit = "" if told is None or told.figures.hit is None else f"{told.figures.hit:,}"
    given = "" if told is None else _first(told)
    return _row(_link(report), _seen(report), always, given, hit, "" if report.hit is None else f"{report.hit:,}")


def _first(explanation: Explanation) -> str:
    return explanation.zero_causes[0].id if explanation.zero_causes else "nothing"


def _link(report: Report) -> str:
    return f"[{short(report.thread)}]({report.link})"


def _seen(report: Report) -> str:
    return f"{report.title}: {report.measured}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |\n"


def _escaped(cells: Sequence[str]) -> Iterator[str]:
    for cell in cells:
        yield cell.replace("|", "\\|")
