"""Reports that people wrote.

Goal: the flags alone lead to the cause that the thread found, and to no cause that makes a rate zero that was not.
Method: each stored report, explained with and without its prompts; and again without the rule of its cause.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.explain import rules
from kvgate.explain.cause import Effect
from kvgate.explain.explanation import explain
from kvgate.explain.page import page
from kvgate.explain.reports import Report, read, read_all
from kvgate.kernel.errors import UsageError
from kvgate_mutants.corpus.register import BUGS

FOLDER = Path(__file__).parent / "reports"
PAGE = Path(__file__).parents[3] / "difftest" / "explained.md"
REPORTS = read_all(FOLDER)
ZERO = [report for report in REPORTS if report.rate == "zero"]
NOT_ZERO = [report for report in REPORTS if report.rate != "zero"]


def _id(report: Report) -> str:
    return f"{report.thread}-{report.title[:30]}"


def test_there_are_enough() -> None:
    """At least eight of the corpus of real defects, and some of which the rate was not zero."""
    numbers = {report.bug for report in ZERO} - {None}
    assert {1, 2, 3, 4, 5, 6, 7, 14, 28, 37} == numbers
    assert numbers <= {bug.number for bug in BUGS.values()}
    assert len(NOT_ZERO) >= 8


@pytest.mark.parametrize("report", ZERO, ids=_id)
def test_the_cause_is_named_from_the_flags_alone(report: Report) -> None:
    """Among those that can make a rate zero, and the first where it makes every rate zero."""
    named = explain(report.case(with_prompts=False)).zero_causes
    assert report.cause in [cause.id for cause in named]
    certain = [cause.id for cause in named if cause.effect is Effect.ALWAYS_ZERO]
    assert certain in ([], [report.cause])


@pytest.mark.parametrize("report", [report for report in ZERO if report.prompts], ids=_id)
def test_the_cause_is_the_first_with_the_prompts(report: Report) -> None:
    """The prompts leave out the causes that are not theirs."""
    named = explain(report.case(with_prompts=True)).zero_causes
    assert report.cause == named[0].id
    assert 1 == len([cause for cause in named if cause.id != "windows-flush-the-pool"])


@pytest.mark.parametrize("report", ZERO, ids=_id)
def test_it_takes_the_rule(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule of its cause, no other cause replaces it."""
    case = report.case(with_prompts=False)
    rule = next(rule for rule in rules.RULES if (found := rule(case)) is not None and found.id == report.cause)
    monkeypatch.setattr(rules, "RULES", tuple(each for each in rules.RULES if each is not rule))
    assert report.cause not in [cause.id for cause in explain(case).causes]


@pytest.mark.parametrize("report", ZERO, ids=_id)
def test_the_thread_is_among_those_of_the_cause(report: Report) -> None:
    """Itself, or the one that the corpus of defects has."""
    cause = next(each for each in explain(report.case(with_prompts=False)).causes if each.id == report.cause)
    links = [bug.link for bug in BUGS.values() if bug.number == report.bug]
    threads = [report.thread, *(link.removeprefix("https://github.com/").replace("/pull/", "#") for link in links)]
    threads = [thread.replace("/issues/", "#") for thread in threads]
    assert set(threads) & set(cause.upstream), (threads, cause.upstream)


@pytest.mark.parametrize("report", NOT_ZERO, ids=_id)
def test_no_wolf_is_cried(report: Report) -> None:
    """Without prompts, no cause makes every rate zero; with them, none makes theirs zero, and they hit what the thread
    reports.
    """
    assert [] == [
        cause.id for cause in explain(report.case(with_prompts=False)).causes if cause.effect is Effect.ALWAYS_ZERO
    ]
    if report.prompts is not None:
        explained = explain(report.case(with_prompts=True))
        # A pool of known size may turn over if enough comes in between. This is a condition, and is reported as one.
        turning = [cause for cause in explained.zero_causes if cause.condition and cause.id == "windows-flush-the-pool"]
        assert tuple(turning) == explained.zero_causes
        assert report.hit == explained.figures.hit


@pytest.mark.ci
def test_the_page_is_what_the_reports_say() -> None:
    """``python -m kvgate.explain tests/difftest/explain/reports > difftest/explained.md`` writes it."""
    assert page(REPORTS) == PAGE.read_text(encoding="utf-8")
    assert "| another |" not in page(REPORTS)


def test_the_page_says_where_another_is_named_first() -> None:
    """A cause that is only among those named is not reported as the same without that note."""
    report = next(report for report in ZERO if report.thread == "vllm-project/vllm#40624" and report.is_dump)
    assert "| the same |" in page([report])
    like = next(report for report in ZERO if report.cause == "coarse-alignment" and report.prompts is None)
    other = evolve(like, cause="windows-flush-the-pool")
    assert "| the same, not first |" in page([other])
    explained = next(report for report in ZERO if report.thread == "vllm-project/vllm#45238")
    assert "| the same, first with the prompts |" in page([explained])


def test_the_page_says_which_groups_were_filled_in() -> None:
    """The thread does not give a dump: it was filled in by hand."""
    lines = page(REPORTS).splitlines()
    filled = sum("| a dump, filled in |" in line for line in lines)
    assert sum(report.is_dump for report in REPORTS) == filled
    assert 4 <= filled


def test_a_draft_model_that_is_not_counted_may_be_one_kind_more() -> None:
    """Two kinds of groups, and the draft model's on top; not without a draft model, or where the loop is fixed."""
    report = next(report for report in ZERO if report.thread == "vllm-project/vllm#40624" and not report.is_dump)
    cause = explain(report.case(with_prompts=False)).zero_causes[0]
    assert ("look-ahead-spirals", Effect.ZERO_IF) == (cause.id, cause.effect)
    assert "the draft model's layers make a group of another kind" == cause.condition
    for change in ({"version": "0.20.0"}, {"speculative_config": {"method": "ngram"}}):
        other = evolve(report, flags={**report.flags, **change})
        ids = [cause.id for cause in explain(other.case(with_prompts=False)).causes]
        assert "look-ahead-spirals" not in ids


def test_what_is_not_a_report_is_rejected(tmp_path: Path) -> None:
    """With the file and what is wrong."""
    sound = json.loads((FOLDER / "04-qwen38-interval-0.json").read_text(encoding="utf-8"))
    changes: list[dict[str, object]] = [
        {"version": 2},
        {"cause": None},
        {"thread": "somewhere"},
        {"more": 1},
        {"flags": []},
    ]
    for change in changes:
        path = tmp_path / "report.json"
        path.write_text(json.dumps({**sound, **change}), encoding="utf-8")
        with pytest.raises(UsageError, match=r"report\.json"):
            read(path)
    with pytest.raises(UsageError, match="no reports there"):
        read_all(tmp_path / "none")


@pytest.mark.parametrize("flags", [{"block-size": 16}, {"block_size": "16"}, {"platform": "tpu"}])
def test_wrong_flags_are_rejected(flags: dict[str, Any]) -> None:
    """A report cannot be read with a flag left out."""
    report = read(FOLDER / "04-qwen38-interval-0.json")
    report.flags.clear()
    report.flags.update(flags)
    with pytest.raises(UsageError, match="53504"):
        report.case(with_prompts=False)
