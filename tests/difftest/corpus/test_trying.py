"""Trying a defect: what counts as caught, and what does not.

Goal: only the defect itself is ever counted. Method: a system made for these tests, the reference with a method to
break. The trial as it should be, and then with its mutant taken away, its control broken, another guarantee expected.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import Loaded
from kvgate_mutants.corpus.bug import Bug, Control, Kind, Sort, Trial
from kvgate_mutants.corpus.probe import Result, State, tried
from kvgate_mutants.corpus.reporting import telling_hits
from kvgate_mutants.corpus.scenario import Blocks, Direct, ended, full, of, tokens, window
from kvgate_mutants.mutants.mutant import Mutant, breaks
from kvreference.answers import Answer, Happened, Hit
from kvreference.events import Stored
from kvreference.manager import Manager
from kvreference.operations import Arrive, Finish, LookUp, Operation, TakeEvents, TakeStatistics
from kvreference.settings import Settings


class Sound(Reference):
    """The reference, with a method of its own to break."""

    def apply(self, operation: Operation) -> Answer:
        return super().apply(operation)


def head_first(original: Any, system: Sound, operation: Operation) -> Any:
    """The blocks of a request that finishes are released head first."""
    if isinstance(operation, Finish):
        for table in system.tables[operation.request]:
            table.blocks.reverse()
    return original(system, operation)


def gives_up(original: Any, system: Sound, operation: Operation) -> Any:
    """A request that finishes makes it raise."""
    if isinstance(operation, Finish):
        raise ValueError("nothing left to give")
    return original(system, operation)


def injected(broken: Any, statement: str) -> Mutant:
    return breaks(f"{__name__}:Sound.apply", violates=statement)(broken)


SCENARIO = Blocks(Settings(of(full()), 20, tokens_max=128, chunk_tokens=64), tuple(ended(0, tokens(0, 50), 64)))
HEAD_FIRST = injected(head_first, "KV-OP-07")
TRIAL = Trial("sound", SCENARIO, ("KV-OP-07",), (HEAD_FIRST,), why_mutant="it is made for a test")


def load(name: str) -> Loaded:
    return Loaded(name, "1", Sound)


def result_of(trial: Trial) -> Result:
    return tried("a-defect", 0, trial, load)


def test_a_defect_is_caught() -> None:
    """Goal: a catch is reported in full. Method: a mutant that lockstep sees."""
    result = result_of(TRIAL)
    expected = (State.CAUGHT, "lockstep", "KV-OP-07", "", 3, "without the mutant: nothing found")
    got = (result.state, result.detector, result.statement, result.finding, result.operations, result.control)
    assert expected == got
    assert "sound + head-first" == result.code
    assert result.says.startswith("KV-OP-07, free queue at position")


def test_without_its_mutant_a_defect_is_not_caught() -> None:
    """Goal: the catch is due to the mutant. Method: the same trial without a mutant."""
    result = result_of(TRIAL.without_mutants())
    assert (State.NOT_CAUGHT, "KV-OP-07 was expected to be violated, and nothing was found") == (
        result.state,
        result.says,
    )


def test_a_control_that_alarms_spoils_the_catch() -> None:
    """Goal: an alarm without the defect is not a catch. Method: a control with the same mutant."""
    result = result_of(evolve(TRIAL, otherwise=Control("all the same", "sound", SCENARIO, (HEAD_FIRST,))))
    assert State.NOT_CAUGHT is result.state
    assert result.says.startswith("found without the defect too (all the same): KV-OP-07")


def test_another_guarantee_is_not_the_one_expected() -> None:
    """Goal: another failure does not count as a catch of the defect. Method: expect another guarantee."""
    result = result_of(evolve(TRIAL, statements=("KV-OP-01",)))
    assert State.NOT_CAUGHT is result.state
    assert "something else was: KV-OP-07" in result.says


@pytest.mark.parametrize(("words", "state"), [("nothing left", State.CAUGHT), ("no more room", State.NOT_CAUGHT)])
def test_what_is_raised_must_be_what_was_reported(words: str, state: State) -> None:
    """Goal: not every exception is the reported one. Method: the words that the report quotes, and others."""
    trial = evolve(TRIAL, statements=("KV-SYS-01",), mutants=(injected(gives_up, "KV-SYS-01"),), words=words)
    assert state is result_of(trial).state


def test_a_direct_call_that_raises_is_found() -> None:
    """Goal: calls that bypass the operations are checked too. Method: a call that raises."""

    def fail(_system: Any) -> None:
        raise ValueError("no such block")

    scenario = Blocks(SCENARIO.settings, (Direct("a call", fail), TakeStatistics()), ("check",))
    calm = Control("a call that does nothing", "sound", evolve(scenario, operations=(TakeStatistics(),)))
    result = result_of(Trial("sound", scenario, ("KV-SYS-01",), otherwise=calm))
    assert (State.CAUGHT, "KV-SYS-01, a call: expected done, got ValueError: no such block") == (
        result.state,
        result.says,
    )


def test_a_mutant_needs_a_reason() -> None:
    """Goal: a mutant that stands for published code has a reason. Method: leave out the reason, or the mutant."""
    with pytest.raises(ValueError, match="a mutant needs a reason"):
        evolve(TRIAL, why_mutant="")
    with pytest.raises(ValueError, match="a mutant needs a reason"):
        evolve(TRIAL, mutants=())


def test_what_a_trial_is_called_fits_it() -> None:
    """Goal: nothing passes for another sort. Method: each sort, and two that contradict themselves."""
    assert Sort.REINTRODUCED is TRIAL.sort
    assert Sort.ANALOGUE is evolve(TRIAL, analogue=True).sort
    assert Sort.PUBLISHED is Trial("sound", SCENARIO, ("KV-OP-07",)).sort
    assert Sort.BY_HAND is Trial("sound", SCENARIO, ("KV-OP-07",), by_hand=True).sort
    with pytest.raises(ValueError, match="an analogue is a mutant"):
        Trial("sound", SCENARIO, ("KV-OP-07",), analogue=True)
    with pytest.raises(ValueError, match="by hand in published code"):
        evolve(TRIAL, by_hand=True)


def test_a_reference_that_reports_hits_names_no_null_block() -> None:
    """Goal: a full report is checked by what serves the hit. Method: the same prompt twice, with a window after its
    hit.
    """
    settings = Settings(of(full(), window(32)), 60, tokens_max=128, chunk_tokens=64, scratch_first=True)
    manager = Manager(settings)
    telling_hits(manager)
    for operation in (*ended(0, tokens(0, 100), 64), TakeEvents(), Arrive(1, tokens(0, 100))):
        manager.apply(operation)
    hit = manager.apply(LookUp(1))
    happened = manager.apply(TakeEvents())
    assert isinstance(hit, Hit)
    assert isinstance(happened, Happened)
    real = [sum(1 for block in blocks if block) for blocks in hit.blocks]
    assert [6, 2] == real
    stored = [event for event in happened.events if isinstance(event, Stored)]
    assert [(0, 6, None), (1, 2, (1, manager.content(1, 1, 3)[1]))] == [
        (event.group, len(event.contents), event.parent) for event in stored
    ]


def test_a_defect_without_a_trial_needs_a_reason() -> None:
    """Goal: nothing is left out silently. Method: a defect with neither trial nor reason, and one with both."""
    link = "https://github.com/vllm-project/vllm/issues/1"
    bug = Bug(1, "a-defect", Kind.HANG, link, "It hangs.", "all", (TRIAL,))
    assert "vllm#1" == bug.thread
    for trials, reason in (((), ""), ((TRIAL,), "nothing sees it")):
        with pytest.raises(ValueError, match="trials, or a reason"):
            evolve(bug, trials=trials, not_caught=reason)
