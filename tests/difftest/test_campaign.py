"""Campaigns.

Goal: a sound system passes; a fault is found, shrunk and reported the same every time; a campaign that ends early keeps
what it found. Method: the reference as the system under test, and subclasses of it with an injected fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.gate.campaign import Campaign, Outcome, Plan, Progress
from kvgate.gate.case_runner import Lane, Trial, Trials
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import MODELS
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench, run
from kvreference.answers import Answer
from kvreference.operations import Admit, Arrive, Evict, Finish, Operation
from kvreference.settings import Settings

LANES = tuple(Lane(MODELS[model], preset) for model in ("full", "gpt-oss-hybrid") for preset in ("tiny", "hostile"))


class HeadFirst(Reference):
    """Releases the blocks of a request that finishes from its head on."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)


class MovesEvicted(HeadFirst):
    """And queues an evicted block for reuse at once."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Evict) and self.pool.references[operation.block] == 0:
            self.pool.free.remove(operation.block)
            self.pool.free.prepend(operation.block)
        return answer


def campaign(
    system: Factory,
    operations: int = 1500,
    *,
    lanes: tuple[Lane, ...] = LANES,
    seed: int = 0,
    seconds: float | None = None,
    kinds_max: int = 5,
    shrinks: bool = True,
    shrink_seconds: float | None = None,
    report: Callable[[Progress], None] = lambda _progress: None,
) -> Outcome:
    """A campaign over small lanes."""
    plan = Plan(
        lanes,
        operations,
        seed=seed,
        seconds=seconds,
        kinds_max=kinds_max,
        shrinks=shrinks,
        shrink_seconds=shrink_seconds,
    )
    return Campaign(Trials(Bench(system)), plan).run(report)


@cache
def found_head_first() -> Outcome:
    """The findings of a campaign in ``HeadFirst``; they are the same every time."""
    return campaign(HeadFirst)


def test_a_sound_system_passes() -> None:
    """The control of all that follows; as many operations as asked for were performed."""
    outcome = campaign(Reference, 6000)
    assert ((), (), "completed") == (outcome.found, outcome.declared, outcome.ended)
    assert 6000 <= sum(tally.operations for tally in outcome.tallies) < 6500
    assert outcome.seconds > 0


def test_a_plan_without_lanes_ends_at_once() -> None:
    """It has nothing to run, and says that it ran nothing."""
    outcome = campaign(Reference, lanes=())
    assert ((), (), "completed") == (outcome.tallies, outcome.found, outcome.ended)


def test_lanes_take_turns() -> None:
    """A campaign that ends early has run a bit of every lane."""
    tallies = campaign(Reference).tallies
    assert [("full", "tiny"), ("full", "hostile"), ("gpt-oss-hybrid", "tiny"), ("gpt-oss-hybrid", "hostile")] == [
        (tally.model, tally.preset) for tally in tallies
    ]
    cases = [tally.cases for tally in tallies]
    assert min(cases) > 1
    assert max(cases) - min(cases) <= 1


def test_progress_is_reported_after_every_case() -> None:
    """In operations, cases and defects."""
    seen: list[Progress] = []
    outcome = campaign(HeadFirst, report=seen.append)
    assert list(range(1, len(seen) + 1)) == [progress.cases for progress in seen]
    assert Progress(sum(tally.operations for tally in outcome.tallies), len(seen), 1) == seen[-1]


def test_a_fault_is_found_and_shortened() -> None:
    """Three operations suffice: a request arrives, is admitted, and finishes with two blocks to release."""
    (found,) = found_head_first().found
    assert ("lockstep", "KV-OP-07") == (found.divergence.detector, found.divergence.difference.statement)
    assert [Arrive, Admit, Finish] == list(map(type, found.case.operations))
    arrival = found.case.operations[0]
    assert isinstance(arrival, Arrive)
    assert 1 == len(arrival.prompt)
    assert found.case.settings.geometry.grain_tokens + 1 == arrival.prompt[0].length


def test_what_is_shown_can_be_run_again() -> None:
    """The case ends with the operation that diverges, as it does in the story; the reference passes it."""
    (found,) = found_head_first().found
    _, again = run(Bench(HeadFirst), found.case.settings, found.case.operations)
    assert [found.divergence] == again
    assert len(found.case.operations) - 1 == found.divergence.step
    _, sound = run(Bench(Reference), found.case.settings, found.case.operations)
    assert [] == sound


def test_a_campaign_says_the_same_every_time() -> None:
    """The same plan finds the same; another seed generates other cases and finds the same fault."""
    first, second, other = found_head_first(), campaign(HeadFirst), campaign(HeadFirst, seed=1)
    assert (first.tallies, first.found) == (second.tallies, second.found)
    assert first.tallies != other.tallies
    assert first.found[0].divergence.kind[:2] == other.found[0].divergence.kind[:2]


def test_one_fault_is_reported_once_and_counted() -> None:
    """Numbers in what differs do not make it another fault: here the position in the queue."""
    (found,) = found_head_first().found
    assert found.times > 10


def test_another_statement_is_another_fault() -> None:
    """Although the same thing differs: here the free queue, after two different operations."""
    outcome = campaign(MovesEvicted, 4000, shrinks=False)
    assert ["KV-OP-07", "KV-OP-10"] == sorted(found.divergence.difference.statement for found in outcome.found)
    assert 1 == len({found.divergence.difference.subject.rstrip("0123456789") for found in outcome.found})


def test_a_case_need_not_be_shortened() -> None:
    """For callers that only ask whether there is a divergence: the case ends where it diverges all the same."""
    (found,) = campaign(HeadFirst, shrinks=False).found
    assert len(found.case.operations) - 1 == found.divergence.step > 10


@pytest.mark.ci
def test_to_make_cases_smaller_may_be_bounded() -> None:
    """Without time the case is as it was generated, and the report says so; with enough time it is as
    without a limit.
    """
    (bare,) = campaign(HeadFirst, shrinks=False).found
    (none,) = campaign(HeadFirst, shrink_seconds=0.0).found
    (ample,) = campaign(HeadFirst, shrink_seconds=600.0).found
    assert (bare.case, True) == (none.case, none.out_of_time)
    assert (found_head_first().found, False) == ((ample,), ample.out_of_time)


@pytest.mark.ci
def test_each_defect_leaves_time_for_the_next() -> None:
    """A half of what is left, each time."""
    asked: list[float] = []

    class Asks:
        """Finds something new in every case, and takes all the time that it is given."""

        def trial(self, *_case: object) -> Trial:
            (found,) = campaign(HeadFirst, shrinks=False).found
            difference = evolve(found.divergence.difference, subject="x" * len(asked))
            return Trial(10, (evolve(found, divergence=evolve(found.divergence, difference=difference)),))

        def smallest(self, found: Found, until: float) -> Found:
            asked.append(until - time.monotonic())
            time.sleep(max(0.0, until - time.monotonic()))
            return found

    outcome = Campaign(Asks(), Plan(LANES, 30, shrink_seconds=0.4)).run()
    assert [True] * 3 == [found.out_of_time for found in outcome.found]
    assert asked[0] > asked[1] > asked[2] > 0


@pytest.mark.ci
def test_enough_is_enough() -> None:
    """One kind of fault is found, and the campaign says why it ended; with a higher limit it continues."""
    early, late, whole = (campaign(MovesEvicted, 4000, kinds_max=kinds, shrinks=False) for kinds in (1, 2, 3))
    assert (1, "enough found") == (len(early.found), early.ended)
    assert (2, "enough found") == (len(late.found), late.ended)
    assert (2, "completed") == (len(whole.found), whole.ended)


def test_a_time_budget_ends_it() -> None:
    """In the middle of a case, which of a large model takes minutes, with what was found so far."""
    outcome = campaign(HeadFirst, 10**9, seconds=0.2)
    assert "time budget" == outcome.ended
    assert 1 == len(outcome.found)
    none = campaign(Reference, 10**9, seconds=0.0)
    (began, *others) = none.tallies
    assert ("time budget", 1, True) == (none.ended, began.cases, 1 <= began.operations < 5)
    assert not any(tally.cases for tally in others)


class Interrupting:
    """Builds faulty systems until Ctrl-C is pressed."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, settings: Settings) -> HeadFirst:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return HeadFirst(settings)


def test_an_interrupt_ends_it() -> None:
    """With the cases that were run and what they showed."""
    patient = Interrupting(10**6)
    whole = campaign(patient)
    outcome = campaign(Interrupting(10**6 - patient.left - 1))
    assert ("completed", "interrupted") == (whole.ended, outcome.ended)
    assert [3] == [len(found.case.operations) for found in outcome.found]
    assert [-1] == [sum(tally.cases for tally in outcome.tallies) - sum(tally.cases for tally in whole.tallies)]


def test_an_interrupt_before_the_first_case_ends_it() -> None:
    """Nothing is reported, and nothing is invented."""
    outcome = campaign(Interrupting(0))
    assert ("interrupted", (), 0) == (outcome.ended, outcome.found, sum(tally.cases for tally in outcome.tallies))


def test_an_interrupt_while_a_case_is_shortened_loses_nothing() -> None:
    """The case is shown as it was."""
    cases: list[int] = []
    whole = campaign(HeadFirst, shrinks=False, kinds_max=1, report=lambda progress: cases.append(progress.cases))
    outcome = campaign(Interrupting(cases[-1]))
    assert "interrupted" == outcome.ended
    assert whole.found == outcome.found


class OnlyOnce(HeadFirst):
    """Is broken until its fault has shown once."""

    shown = False

    def apply(self, operation: Operation) -> Answer:
        if not OnlyOnce.shown and isinstance(operation, Finish) and len(self.tables[operation.request][0].blocks) > 1:
            OnlyOnce.shown = True
            return super().apply(operation)
        return Reference.apply(self, operation)


def test_what_does_not_happen_again_is_shown_as_it_was() -> None:
    """The report says that it did not happen again."""
    OnlyOnce.shown = False
    (found,) = campaign(OnlyOnce).found
    assert 1 == found.times
    assert isinstance(found.case.operations[-1], Finish)
    assert len(found.case.operations) > 3


def test_declared_differences_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are neither shortened nor a reason to fail, and what is not declared is still found."""

    def explain(divergence: Divergence, _lockstep: Lockstep) -> str | None:
        return "000-known" if divergence.difference.statement == "KV-OP-07" else None

    monkeypatch.setattr("kvgate.levels.manager.explain", explain)
    outcome = campaign(MovesEvicted, 4000)
    (declared,), (found,) = outcome.declared, outcome.found
    assert ("000-known", "KV-OP-07") == (declared.finding, declared.divergence.difference.statement)
    assert declared.times > 10
    assert declared.times == sum(tally.cut for tally in outcome.tallies)
    assert len(declared.case.operations) > 3
    assert (None, "KV-OP-10") == (found.finding, found.divergence.difference.statement)


@pytest.mark.parametrize("models", [1, 2, 5, 16])
def test_every_lane_has_its_turn(models: int) -> None:
    """Goal: nothing is left out, and a short campaign comes to every model. Method: the first turns of some plans."""
    names = list(MODELS)[:models]
    plan = Plan(tuple(Lane(MODELS[name], preset) for name in names for preset in ("a", "b", "c", "d")), 1)
    turns = [plan.turn(number) for number in range(2 * len(plan.lanes))]
    half = len(plan.lanes)
    assert sorted(map(str, plan.lanes)) == sorted(str(lane) for lane, _ in turns[:half])
    assert [lane for lane, _ in turns[:half]] == [lane for lane, _ in turns[half:]]
    assert {"0/0"} == {seed for _, seed in turns[:half]}
    assert set(names) == {lane.model.name for lane, _ in turns[: 2 * models]}
