"""How much a step computes.

Goal: a step that computes less than it could is seen, and nothing else. Method: calls by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.chunks import Chunks
from kvgate.levels.scheduler.operations import Stage
from kvreference.answers import Answer, Done, Granted, Refused
from kvreference.geometry import Geometry, Group
from kvreference.manager import population_of
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Finish, Operation, Preempt, Run, Sample, Schedule
from kvreference.settings import Settings

YES, NO = Granted(0, ((1,),)), Refused(0, gate=False)


class Observed:
    """The chunks of one scheduler, whose requests have prompts of 50 tokens; a step computes 64 at most."""

    def __init__(
        self, requests: int = 2, stage: Stage | None = None, spares_the_only_one: bool = False, **settings: Any
    ) -> None:
        geometry = Geometry((Group("full", 16),))
        self.settings = Settings(geometry, blocks=40, **{"chunk_tokens": 64, **settings})
        self.population = population_of(self.settings)
        self.chunks = Chunks(self.settings, stage or Stage(), spares_the_only_one)
        for number in range(requests):
            self.population.settle(Arrive(number, (Run(100 * number, 50),)), Done())

    def ask(self, operation: Operation, answer: Answer = YES) -> Difference | None:
        """Something is asked for, and answered."""
        found = self.chunks.observe(operation, answer, self.population)
        self.population.settle(operation, answer)
        return found

    def answered(self, number: int, drafts: int = 0) -> None:
        """A request is answered with a token and drafts, and a new step begins."""
        self.population.settle(Sample(number, 0, 7, drafts), Done())
        self.chunks.offered(number, drafts)
        self.chunks.begin(self.population)

    def run(self) -> Observed:
        """The first request has computed its prompt, and is answered."""
        assert self.ask(Admit(0, 50)) is None
        self.answered(0)
        return self


def numbers(found: Difference | None) -> tuple[str, str, str]:
    """The statement, and the expected and the actual value."""
    assert found is not None
    return found.statement, found.expected, found.got


def test_all_that_is_pending_and_fits() -> None:
    """The whole prompt, what is left of the budget for the next, and the rest in the step after it."""
    observed = Observed()
    assert [None, None] == [observed.ask(Admit(0, 50)), observed.ask(Admit(1, 14))]
    observed.answered(0)
    assert [None, None] == [observed.ask(Schedule(0, 1)), observed.ask(Schedule(1, 36))]
    assert observed.chunks.end(observed.population) is None


def test_less_is_found() -> None:
    """Both for an admitted request and for a running one; a hit is computed already."""
    assert ("KV-SYS-06", "50", "3") == numbers(Observed().ask(Admit(0, 3)))
    assert ("KV-SYS-06", "34", "33") == numbers(Observed().ask(Admit(0, 33), Granted(16, ((1,),))))
    observed = Observed()
    assert [None, None] == [observed.ask(Admit(0, 50)), observed.ask(Admit(1, 14))]
    observed.chunks.begin(observed.population)
    assert ("KV-SYS-06", "36", "30") == numbers(observed.ask(Schedule(1, 30)))


def test_a_prompt_may_have_a_limit() -> None:
    """It is kept, and used."""
    assert Observed(stage=Stage(long_prefill_tokens=20)).ask(Admit(0, 20)) is None
    assert ("KV-SYS-06", "20", "19") == numbers(Observed(stage=Stage(long_prefill_tokens=20)).ask(Admit(0, 19)))


def test_drafts_are_computed() -> None:
    """Those that were offered since, and no further than a request may become."""
    for drafts, tokens, expected in [(3, 4, None), (3, 1, ("KV-SYS-06", "4", "1")), (0, 1, None)]:
        observed = Observed(drafts_max=3).run()
        observed.chunks.offered(0, drafts)
        found = observed.chunks.observe(Schedule(0, tokens), YES, observed.population)
        assert expected == (found and numbers(found))
    observed = Observed(drafts_max=3, tokens_max=53).run()
    observed.chunks.offered(0, 3)
    assert observed.chunks.observe(Schedule(0, 2), YES, observed.population) is None


def test_a_rejected_request_may_ask_for_the_same() -> None:
    """After a preemption there is more room; as much as before is enough, less is not."""
    for tokens, expected in [(14, None), (36, None), (13, ("KV-SYS-06", "36", "13"))]:
        observed = Observed()
        assert [None, None] == [observed.ask(Admit(0, 50)), observed.ask(Admit(1, 14))]
        observed.chunks.begin(observed.population)
        observed.chunks._tokens[0] = 50
        assert observed.ask(Schedule(1, 14), NO) is None
        assert observed.ask(Preempt(0), Done()) is None
        found = observed.ask(Schedule(1, tokens))
        assert expected == (found and numbers(found))


@pytest.mark.parametrize("end", [Finish(0), Abort(0)])
def test_a_request_that_ends_with_a_step_has_taken_its_tokens(end: Operation) -> None:
    """Other requests have no more room in that step, and all of it in the next one."""
    observed = Observed(chunk_tokens=50)
    assert observed.ask(Admit(0, 50)) is None
    observed.answered(0)
    assert [None, None] == [observed.ask(Schedule(0, 1)), observed.ask(Admit(1, 49))]
    observed.answered(0, drafts=49)
    observed.chunks._tokens[0] = 50
    assert observed.ask(end, Done()) is None
    assert observed.chunks.end(observed.population) is None
    observed.chunks.begin(observed.population)
    assert ("KV-SYS-06", "1", "it is not asked for, 0 are scheduled") == numbers(
        observed.chunks.end(observed.population)
    )


def test_a_running_request_is_not_passed_over() -> None:
    """While the budget lasts; after a preemption its tokens are the step's again."""
    observed = Observed().run()
    left_out = ("KV-SYS-06", "1", "it is not asked for, 0 are scheduled")
    assert left_out == numbers(observed.chunks.end(observed.population))
    assert observed.ask(Schedule(0, 1)) is None
    assert observed.chunks.end(observed.population) is None
    observed = Observed(chunk_tokens=50).run()
    assert [None, None] == [observed.ask(Admit(1, 50)), observed.ask(Preempt(1), Done())]
    assert left_out == numbers(observed.chunks.end(observed.population))


def test_nothing_is_asked_for_after_a_preemption_for_itself() -> None:
    """The step ends its turn of those that run with a request for which no other could be preempted."""
    for victim, expected in ((1, None), (0, ("KV-SYS-06", "36", "it is not asked for, 0 are scheduled"))):
        observed = Observed(3)
        assert [None, None] == [observed.ask(Admit(0, 50)), observed.ask(Admit(1, 14))]
        observed.answered(0)
        assert observed.ask(Schedule(1, 36), NO) is None
        assert observed.ask(Preempt(victim), Done()) is None
        found = observed.chunks.end(observed.population)
        assert expected == (found and numbers(found))


def observed_ahead(**settings: Any) -> Observed:
    """One request; a step is scheduled before the answer of its prompt is known."""
    observed = Observed(1, Stage(asynchronous=True), steps_in_flight_max=2, **settings)
    assert observed.ask(Admit(0, 50)) is None
    observed.population.settle(Dispatch(), Done())
    observed.chunks.begin(observed.population)
    return observed


@pytest.mark.parametrize("drafts", [0, 2])
def test_what_is_expected_is_pending(drafts: int) -> None:
    """Where steps are asynchronous: the token that is awaited, and drafts; and a request is not left out."""
    assert observed_ahead(drafts_max=drafts).ask(Schedule(0, 1 + drafts)) is None
    found = observed_ahead(drafts_max=drafts).ask(Schedule(0, 3 - drafts))
    assert ("KV-SYS-06", str(1 + drafts), str(3 - drafts)) == numbers(found)
    observed = observed_ahead(drafts_max=drafts)
    assert observed.chunks.end(observed.population, {0: 52}) is not None


def test_a_request_that_will_have_reached_its_limit_is_left_out() -> None:
    """Its answers in flight are its last."""
    observed = observed_ahead()
    assert observed.chunks.end(observed.population, {0: 51}) is None


def test_a_request_that_will_have_reached_its_limit_needs_no_step() -> None:
    """A step more would compute a token of which no client is sent the answer; before the limit it is the last."""
    observed = observed_ahead()
    step = Schedule(0, 1), YES, observed.population
    found = observed.chunks.observe(*step, {0: 51})
    assert found is not None
    assert ("KV-SYS-06", "needs no further step", "1 are scheduled") == (found.statement, found.expected, found.got)
    assert observed.chunks.observe(*step, {0: 52}) is None


@pytest.mark.parametrize("frees_late", [False, True])
def test_a_request_may_wait_for_what_is_freed_late(frees_late: bool) -> None:
    """It was rejected, and no request is preempted for it: what that frees comes with a later step."""
    observed = Observed().run()
    observed.chunks._frees_late = frees_late
    assert observed.ask(Schedule(0, 1), NO) is None
    assert frees_late == (observed.chunks.end(observed.population) is None)


def test_where_the_only_request_is_spared() -> None:
    """It computes all that a step has room for; with another request, only a prompt's limit; elsewhere
    always the limit.
    """
    stage = Stage(long_prefill_tokens=20)
    for spares, requests, due in ((True, 1, 50), (True, 2, 20), (False, 1, 20)):
        observed = Observed(requests, stage, spares)
        observed.chunks.begin(observed.population)
        assert observed.ask(Admit(0, due)) is None
        other = Observed(requests, stage, spares)
        other.chunks.begin(other.population)
        assert ("KV-SYS-06", str(due), "7") == numbers(other.ask(Admit(0, 7)))
