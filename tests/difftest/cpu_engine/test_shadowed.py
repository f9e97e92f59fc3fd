"""A shadow attached to a real engine.

Goal: it sees no difference where there is none, and finds an injected fault in the step in which the fault first acts,
while the engine answers all requests. Method: tiny models on this machine's CPU; two recordings say which step that is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvgate.adapters.cpu_engine.engines import Engines
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
from kvgate.adapters.cpu_engine.job import Answer, JobResult
from kvgate.live.shadowed import FAULTS, Outcome, Reported, Watched, reported, requests, run, watched
from kvgate.shadow.status import Status
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS

STATISTICS = "the first statistics after a restart"
SILENT = Watched("gemma-3", 1, JobResult("", (Answer((1,), 0, 0.0, 1.0),)), Status("0", "check", 1, judged=5))
IN_TIME = Reported(FAULTS[0], "gemma-3", 7, 7, "KV-OP-01 at step 7: …", 24, 24)


def test_the_requests_share_beginnings() -> None:
    """As many as are asked for, and most begin as another one does."""
    asks = [ask.tokens for asks in requests(100) for ask in asks]
    assert 100 == len(asks)
    assert len({tokens[:16] for tokens in asks if len(tokens) >= 16}) < 50


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome((SILENT,), (IN_TIME,)), True),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1)),)), False),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1, judged=5, differences=1)),)), False),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1, judged=5, lost=1)),)), False),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1, judged=5, unjudged={"a hit": 1})),)), False),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1, judged=5, unjudged={STATISTICS: 2})),)), False),
        (Outcome((evolve(SILENT, status=Status("0", "check", 1, judged=5, unjudged={STATISTICS: 1})),)), True),
        (Outcome((evolve(SILENT, requests=2),)), False),
        (Outcome(reported=(evolve(IN_TIME, reported_step=8),)), False),
        (Outcome(reported=(evolve(IN_TIME, reported_step=None, first_wrong_step=None),)), False),
        (Outcome(reported=(evolve(IN_TIME, answered=23),)), False),
    ],
)
def test_what_is_as_it_should_be(outcome: Outcome, expected: bool) -> None:
    """Goal: an engine that is not followed does not pass. Method: one thing wrong at a time, on either side."""
    assert expected is outcome.is_as_it_should_be


def test_the_faults_are_known() -> None:
    """By their names in the registry."""
    assert set(FAULTS) <= {mutant.name for mutant in BLOCK_MANAGER_MUTANTS}


@pytest.mark.deep
def test_a_shadow_is_silent_and_a_fault_is_in_time(started: Engines, tmp_path: Path) -> None:
    """One model, few requests, one fault."""
    seen = watched(started, "gpt-oss", 36, tmp_path / "check")
    assert seen.is_silent, seen.status
    assert (36, 0, 0) == (len(seen.result.answers), seen.status.differences, seen.status.lost)
    fault = reported(started, "gpt-oss", FAULTS[1], 24, tmp_path / "fault")
    assert fault.is_in_time, fault


@pytest.mark.deep
def test_a_thousand_requests(started: Engines, tmp_path: Path) -> None:
    """Over three models, and three faults."""
    outcome = run(started, tuple(HYBRIDS), 1000, tmp_path)
    assert 1000 <= sum(len(each.result.answers) for each in outcome.watched)
    assert outcome.is_as_it_should_be, outcome.reported
