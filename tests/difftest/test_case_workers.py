"""Cases on several cores.

Goal: a campaign's outcome does not depend on its number of processes, and the end of one of them is reported. Method:
the reference as the system under test, and subclasses of it with an injected fault.
"""

from __future__ import annotations

import os

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.campaigns.case_workers import CaseWorkers, side_by_side
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.models import MODELS, load
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import MANAGER, Bench
from kvgate.levels.tiers.level import TIERS
from kvreference.answers import Answer
from kvreference.operations import Finish, Operation

LANES = tuple(Lane(MODELS[model], preset) for model in ("full", "gpt-oss-hybrid") for preset in ("tiny", "hostile"))
HERE = os.getpid()


class HeadFirst(Reference):
    """Releases the blocks of a request that finishes from its head on."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)


class HeadFirstElsewhere(HeadFirst):
    """Does so in another process alone."""

    def apply(self, operation: Operation) -> Answer:
        return super().apply(operation) if os.getpid() != HERE else Reference.apply(self, operation)


class Exits(Reference):
    """Ends the process with the first request that finishes."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            os._exit(7)
        return super().apply(operation)


def outcome(system: Factory, jobs: int, shrink_seconds: float | None = None) -> Outcome:
    """The result of a campaign in so many processes, without durations."""
    trials, plan = Trials(Bench(system)), Plan(LANES, 3000, seed=3, shrink_seconds=shrink_seconds)
    with side_by_side(trials, plan, jobs) as source:
        return evolve(Campaign(source, plan).run(), seconds=0.0)


@pytest.mark.few(1)
@pytest.mark.parametrize("system", [Reference, HeadFirst])
def test_the_outcome_is_that_of_one_process(system: Factory) -> None:
    """Cases, operations, what was found and the smallest case that shows it."""
    alone = outcome(system, 1)
    assert [alone, alone] == [outcome(system, jobs) for jobs in (2, 3)]
    assert bool(alone.found) is (system is HeadFirst)


def test_the_digest_is_of_every_answer() -> None:
    """Other answers are another digest, lane by lane; the same are the same, without a reference too."""
    plan = Plan(LANES, 3000, seed=3)
    systems = (Reference, Reference, HeadFirst)
    first, again, other = (Campaign(Trials(Bench(each, ("leak",))), plan).run().tallies for each in systems)
    assert [each.digest for each in first] == [each.digest for each in again]
    assert not {each.digest for each in first} & {each.digest for each in other}
    assert len({each.digest for each in first}) == len(LANES)


@pytest.mark.ci
def test_what_another_process_saw_is_not_lost() -> None:
    """Where a case shows something there and nothing here, it is reported as it was seen."""
    # Nothing smaller shows it here, however long that is looked for.
    found = outcome(HeadFirstElsewhere, 2, shrink_seconds=2).found
    assert {"KV-OP-07"} == {each.divergence.difference.statement for each in found}


def test_what_another_process_saw_of_an_engine_is_a_case_of_the_campaign() -> None:
    """Goal: it can be made smaller, and is replayed. Method: what a process has said of a case of two tiers."""
    trials = Trials(TIERS.bench_named("native@0.33.0", TIERS.gate))
    plan = Plan((Lane(load("full+scratch"), "tiny"),), 100, seed=3)
    with side_by_side(trials, plan, 2) as source:
        assert isinstance(source, CaseWorkers)
        found = source._lost(*plan.turn(0), ["tiers", 1, "KV-TIER-02", "a block", "free", "used"])
    assert (3, "tiers/tiny", MANAGER) == (found.case.seed, found.case.preset, found.case.level)
    assert trials.generate(*plan.turn(0), 3) == found.replayable


def test_a_process_that_dies_ends_the_run() -> None:
    """With how it ended, and what to do."""
    with pytest.raises(SystemUnavailableError, match=r"exit code 7.*--jobs 1"):
        outcome(Exits, 2)


def test_no_process_is_left() -> None:
    """However the campaign ends."""
    trials, plan = Trials(Bench(Reference)), Plan(LANES, 10**9)
    with side_by_side(trials, plan, 2) as source:
        assert isinstance(source, CaseWorkers)
        pids = tuple(source.pids)
        source.trial(*plan.turn(0), 0)
    assert 2 == len(pids)
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
