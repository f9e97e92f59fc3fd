"""The table of token equality, without an engine.

Goal: the results of two engines give the right cell, and nothing that was not seen counts as equal. Method: answers
made by hand, each with one thing wrong.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.cpu_engine.job import Answer, JobResult, document, job_of, result_of
from kvgate.equality.ask_rounds import LONG_TOKENS, rounds
from kvgate.equality.feature import EVIDENCE, FEATURE, FEATURES, lacking, with_feature
from kvgate.equality.report import report_of
from kvgate.equality.table import FAULTS, TOLERANCE, Cell, State, chosen, compare, plain_job
from kvgate.kernel.errors import UsageError
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS

ANSWER = Answer((5, 6, 7), 0, -0.5, 0.1)
PLAIN = JobResult("without caching", (ANSWER, ANSWER), (("SlidingWindowSpec", 16), ("FullAttentionSpec", 64)))
SEEN = evolve(
    PLAIN,
    answers=(ANSWER, evolve(ANSWER, cached_tokens=80)),
    preemptions=1,
    drafts=9,
    drafts_accepted=2,
    pinned_blocks=3,
    cached_blocks=4,
)


def with_answer(**changed: Any) -> JobResult:
    """The result with the second answer changed."""
    return evolve(SEEN, answers=(ANSWER, evolve(ANSWER, **changed)))


@pytest.mark.parametrize(
    ("result", "unseen", "expected"),
    [
        (SEEN, (), State.EQUAL),
        (SEEN, ("hits",), State.NOT_SHOWN),
        (with_answer(tokens=(5, 6, 8)), (), State.DIFFERS),
        (with_answer(tokens=(5, 6, 8)), ("hits",), State.DIFFERS),
        (with_answer(first_logprob=-0.5 - 2 * TOLERANCE), (), State.DIFFERS),
        (with_answer(first_logprob=-0.5 - 0.5 * TOLERANCE), (), State.EQUAL),
        (evolve(SEEN, answers=(ANSWER,)), (), State.FAILED),
        (evolve(SEEN, error="ValueError: no"), (), State.FAILED),
    ],
)
def test_cells(result: JobResult, unseen: tuple[str, ...], expected: State) -> None:
    """Each thing that can be wrong is, once."""
    assert expected is compare("gemma-4", "hits", PLAIN, result, unseen).state


def test_what_was_not_seen_is_lacking() -> None:
    """With all evidence, and with none."""
    asks_all = evolve(FEATURE["hits"], needs=tuple(EVIDENCE))
    assert () == lacking(asks_all, SEEN, evolve(SEEN, cached_blocks=5))
    assert tuple(EVIDENCE) == lacking(asks_all, PLAIN, PLAIN)
    every_draft_right = evolve(SEEN, drafts=2)
    assert ("drafts",) == lacking(evolve(FEATURE["hits"], needs=("drafts",)), every_draft_right, SEEN)


def test_a_fault_should_make_a_difference() -> None:
    """An injected fault that is not seen is as wrong as a difference without one."""
    differs = with_answer(tokens=(1, 2, 3))
    assert [True, False, False, True] == [
        compare("gemma-4", name, PLAIN, result).is_as_it_should_be
        for name, result in (("hits", SEEN), ("hits", differs), (FAULTS[0], SEEN), (FAULTS[0], differs))
    ]


def test_injected_faults_are_known() -> None:
    """By their names in the registry."""
    assert set(FAULTS) <= {mutant.name for mutant in BLOCK_MANAGER_MUTANTS}


def test_documents_come_back() -> None:
    """A job and its result pass through JSON unchanged."""
    for feature in FEATURES:
        job = with_feature(feature, plain_job("gemma-3"), (10, 20))
        assert job == job_of(json.loads(json.dumps(document(job))))
    assert SEEN == result_of(json.loads(json.dumps(document(SEEN))))


def test_windows_are_crossed_many_times() -> None:
    """The longest prompt is more than twenty windows."""
    assert LONG_TOKENS == max(len(ask.tokens) for asks in rounds() for ask in asks)
    assert LONG_TOKENS > 20 * 32


def test_the_page_says_what_is_wrong() -> None:
    """And the document agrees."""
    cells = [
        compare("gemma-3", "hits", PLAIN, SEEN),
        Cell("gemma-3", "partial", State.NOT_THERE, "blocks of one size"),
        compare("gemma-3", "pins", PLAIN, SEEN, ("pins",)),
    ]
    report = report_of(cells)
    equal, absent, _ = report.tested[0].records()
    seen = ("state", "answers", "cached tokens", "preemptions", "drafts", "drafts accepted", "pinned blocks")
    assert ["equal", 2, 80, 1, 9, 2, 3] == [equal[name] for name in seen]
    assert ("not there", "blocks of one size") == (absent["state"], absent["why"])
    (story,) = report.found
    assert story.headline.startswith("gemma-3, pins: not shown, 0 of 2 answers differ")
    assert f"pins: {EVIDENCE['pins']}" in story.text
    assert (4, 0) == (report.exit_code, report_of(cells[:2]).exit_code)


def test_names_are_checked() -> None:
    """An unknown name is reported with the known ones."""
    assert (("gpt-oss",), (FEATURE["eagle"],)) == chosen(["gpt-oss"], ["eagle"])
    with pytest.raises(UsageError, match="no model is called 'gpt'; there are gemma-3, gpt-oss, gemma-4"):
        chosen(["gpt"], [])
