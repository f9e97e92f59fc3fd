"""Progress: how long a request waits at most, and that none ever waits longer."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kvreference.answers import Refused
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Abort, Arrive, Run, TakeEvents, Transferred
from kvreference.operations import Operation as BlockOperation
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.progress import is_held_up, is_stuck, steps_to_admission, steps_to_answer, steps_to_end
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings

from .search import Explored, explore
from .stage import DRAFTING, FULL, WINDOW, line, load, outlook, perform, scheduler_of, submit, wrongs


def bounds(scheduler: Scheduler, number: int) -> tuple[int, int, int]:
    """The most steps until a request is admitted, is answered, and ends."""
    return steps_to_admission(scheduler, number), steps_to_answer(scheduler, number), steps_to_end(scheduler, number)


def test_the_bounds_of_one_request() -> None:
    """Goal: a bound says what it costs. Method: 10 tokens in chunks of 4, three answers: in with the first step, the
    first answer with the third, the end with the fifth. So it happens.
    """
    scheduler = scheduler_of(FULL, chunk_tokens=4)
    perform(scheduler, submit(0, 10, answers_max=3))
    assert (1, 3, 5) == bounds(scheduler, 0)
    perform(scheduler, Step())
    assert (2, 4) == bounds(scheduler, 0)[1:]
    perform(scheduler, *[Step()] * 3)
    assert (1, 1) == bounds(scheduler, 0)[1:]
    perform(scheduler, Step())
    assert ([], []) == line(scheduler)


def test_the_bounds_are_met() -> None:
    """Goal: no bound is larger than need be. Method: one at a time may run: the second is admitted with step 6, after
    the 5 of the first, answered with the 7th and over with the 8th. A budget of 4 cuts the chunks as well.
    """
    scheduler = scheduler_of(FULL, limits=Limits(budget_tokens=4, running_max=1))
    perform(scheduler, submit(0, 10, answers_max=3), submit(1, 5, first=50, answers_max=2))
    assert (6, 7, 8) == bounds(scheduler, 1)
    perform(scheduler, *[Step()] * 5)
    assert ([], [1]) == line(scheduler)
    perform(scheduler, *[Step()] * 2)
    assert ([1], []) == line(scheduler)
    perform(scheduler, Step())
    assert ([], []) == line(scheduler)


def test_a_load_takes_a_step() -> None:
    """Goal: to begin a load takes a step, in which nothing may be computed. Method: two loads, one after the other."""
    scheduler = scheduler_of(FULL)
    perform(scheduler, load(0, 4, 2), load(1, 4, 2, first=50))
    assert ((1, 1, 2), (3, 3, 4)) == (bounds(scheduler, 0), bounds(scheduler, 1))


def test_chunks_that_end_where_states_are_kept_cost_more() -> None:
    """Goal: shorter chunks are more chunks. Method: states every 4 tokens, chunks of 3: 0, 3, 4, 7, 8, 9 are five
    steps for 9 tokens, and the bound says 3 + 2.
    """
    scheduler = scheduler_of(FULL, Group("mamba", 4, states="align"), chunk_tokens=3)
    perform(scheduler, submit(0, 9))
    assert 5 == bounds(scheduler, 0)[2]
    perform(scheduler, *[Step()] * 4)
    assert ([0], []) == line(scheduler)
    perform(scheduler, Step())
    assert ([], []) == line(scheduler)


def test_later_requests_do_not_count() -> None:
    """Goal: no bound grows by what is submitted later. Method: fifty others."""
    scheduler = scheduler_of(FULL, blocks=6, requests_max=60, caches=False)
    perform(scheduler, submit(0, 4, answers_max=5), submit(1, 8))
    expected = bounds(scheduler, 1)
    perform(scheduler, *(load(number, 8, 4) for number in range(2, 52)))
    assert expected == bounds(scheduler, 1)


def test_held_up_and_stuck() -> None:
    """Goal: waiting for another request is not a hang, waiting for none is. Method: an empty queue; a load that begins,
    is under way, and is over, after which a step that does nothing would be a hang.
    """
    scheduler = scheduler_of(FULL)
    assert (False, False) == progress_of(scheduler, perform(scheduler, Step()))
    perform(scheduler, load(0, 4, 4))
    assert (False, False) == progress_of(scheduler, perform(scheduler, Step()))
    assert (True, False) == progress_of(scheduler, perform(scheduler, Step()))
    perform(scheduler, Transferred(0))
    assert (False, True) == progress_of(scheduler, Observation())


def progress_of(scheduler: Scheduler, observation: Observation) -> tuple[bool, bool]:
    """Whether a step was held up, and whether it was a hang."""
    return is_held_up(scheduler, observation), is_stuck(scheduler, observation)


MENU = (submit(0, 4, answers_max=3), load(0, 6, 4, answers_max=2), submit(0, 2, answers_max=2, sends=True))
GROWING = (submit(0, 2, answers_max=8), load(0, 6, 4, answers_max=2))
REPLIES = Reply(), Reply(ends=True)
DRAFTS = Reply(drafts=1), Reply(accepted=1, drafts=1)
LIMITS = Limits(budget_tokens=4, running_max=2)
SMALL: dict[str, Any] = {"limits": LIMITS, "caches": False, "chunk_tokens": 4}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("scheduler", "menu", "replies", "aborts"),
    [
        pytest.param(scheduler_of(FULL, blocks=7, requests_max=4, **SMALL), MENU, REPLIES, False, id="four requests"),
        pytest.param(
            scheduler_of(FULL, blocks=6, requests_max=3, full_sequence_must_fit=False, **SMALL),
            MENU,
            REPLIES,
            True,
            id="without the gate",
        ),
        pytest.param(scheduler_of(FULL, blocks=6, requests_max=3, **SMALL), GROWING, REPLIES, True, id="long answers"),
        pytest.param(
            scheduler_of(FULL, WINDOW, blocks=9, requests_max=3, **{**SMALL, "chunk_tokens": 2}),
            MENU,
            REPLIES,
            True,
            id="a window",
        ),
        pytest.param(
            scheduler_of(DRAFTING, blocks=7, requests_max=3, drafts_max=1, **SMALL), MENU, DRAFTS, True, id="drafts"
        ),
        pytest.param(
            scheduler_of(FULL, blocks=6, requests_max=2, limits=LIMITS, chunk_tokens=4),
            GROWING,
            REPLIES[:1],
            False,
            id="caching",
        ),
    ],
)
def test_no_promise_is_ever_broken(
    scheduler: Scheduler, menu: tuple[Submit, ...], replies: tuple[Reply, ...], aborts: bool
) -> None:
    """Goal: KV-LIVE-01, KV-LIVE-02 and KV-LIVE-03, in every state of small schedulers. Method: every step that is not
    held up takes one off every bound, no other operation adds to one, and a step is held up only by a transfer. The
    explored operations include rejections, preemptions and transfers.
    """
    explored = explore(scheduler, menu, replies, aborts=aborts)
    assert Explored(explored.states, explored.seen) == explored
    assert explored.states > 200
    for what in ("Schedule Refused", "Preempt Done", "Transferred Done", "Finish Done"):
        assert explored.seen[what] > 0, what


GEOMETRIES = (
    (Geometry((FULL,)), 0),
    (Geometry((DRAFTING,)), 3),
    (Geometry((Group("full", 4), WINDOW)), 0),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 3, lookahead=True))), 2),
    (Geometry((FULL, Group("chunked_local", 2, 4))), 1),
    (Geometry((FULL, Group("mamba", 4, states="align", draft_states=1))), 1),
    (Geometry((FULL, Group("mamba", 4, states="all", draft_states=1))), 1),
    (Geometry((Group("full", 4, unit_tokens=2), WINDOW)), 0),
)
"""Each with the drafts that it is proposed."""


def scheduler_at_random(chance: random.Random) -> Scheduler:
    """Small pools, so that requests are in each other's way."""
    geometry, drafts_max = chance.choice(GEOMETRIES)
    settings = Settings(
        geometry,
        chance.choice([7, 9, 11, 14]),
        tokens_max=chance.choice([10, 16]),
        chunk_tokens=chance.choice([2, 3, 16]),
        requests_max=chance.choice([3, 5]),
        drafts_max=drafts_max,
        caches=chance.random() < 0.7,
        full_sequence_must_fit=chance.random() < 0.5,
        pin_drop_blocks_min=chance.choice([None, None, 1]),
        scratch_first=chance.random() < 0.3,
    )
    return Scheduler(settings, Limits(chance.choice([1, 4, 8, 64]), chance.choice([1, 3, 5])))


def operation_at_random(chance: random.Random) -> Operation:
    """Mostly steps; prompts that share a beginning; offers and transfers of every kind."""
    kind = chance.choices(["submit", "step", "transferred", "abort"], [25, 55, 17, 3])[0]
    if kind == "submit":
        runs = Run(0, chance.choice([2, 4])), Run(chance.choice([4, 50]), chance.randint(1, 6))
        return Submit(
            Arrive(0, runs[chance.randint(0, 1) :]),
            answers_max=chance.choice([1, 3, 8, 8]),
            external_tokens=chance.choice([0, 0, 0, 2, 4, 9]),
            loads=chance.random() < 0.6,
            sends=chance.random() < 0.2,
        )
    if kind == "step":
        return Step(
            tuple(
                Reply(chance.choice([0, 1, 3]), chance.choice([4, 50]), chance.choice([0, 3]), chance.random() < 0.05)
                for _ in range(chance.randint(1, 3))
            )
        )
    number = chance.randint(0, 9)
    return Abort(number) if kind == "abort" else Transferred(number, chance.random() < 0.7)


def run_out(scheduler: Scheduler) -> None:
    """End all transfers and take steps until the queue is empty, within the promised number of steps."""
    for number in scheduler.transfers():
        perform(scheduler, Transferred(number))
    steps = max((waits["ended"] for waits in outlook(scheduler).waits.values()), default=0)
    while scheduler.queues.terms and steps >= 0:
        if perform(scheduler, Step((Reply(drafts=1),))).advanced:
            steps -= 1
        for number in scheduler.transfers():
            perform(scheduler, Transferred(number))
    assert ({}, True) == (scheduler.queues.terms, steps >= 0)


@pytest.mark.ci
def test_no_request_waits_longer_than_promised() -> None:
    """Goal: the same, and every invariant of the blocks, on all kinds of groups. Method: seeded runs of more than 5,000
    steps in all; after each, all requests are served to their end, and nothing is left.
    """
    seen: Counter[str] = Counter()
    for seed in range(70):
        chance = random.Random(seed)
        scheduler = scheduler_at_random(chance)
        for _ in range(180):
            operation = scheduler.resolve(operation_at_random(chance))
            if operation is None:
                continue
            before = outlook(scheduler)
            observation = scheduler.apply(operation)
            assert ([], seed) == (wrongs(scheduler, before, operation, observation), seed)
            seen[type(operation).__name__] += 1
            seen["held up"] += isinstance(operation, Step) and is_held_up(scheduler, observation)
            seen.update(f"{type(each).__name__} {type(answer).__name__}" for each, answer in observation.performed)
            seen.update([observation.reason.name] if observation.reason else [])
        run_out(scheduler)
        assert ({}, {}) == (scheduler.manager.tables, scheduler.manager.population.alive)
    assert seen["Step"] >= 5000
    for what in (
        "held up",
        "Admit Refused",
        "Schedule Refused",
        "Preempt Done",
        "Transferred Done",
        "Finish Done",
        "Abort Done",
        "Dispatch Copies",
        "NEVER_FITS",
        "TOO_MANY",
        "PROMPT_TOO_LONG",
    ):
        assert seen[what] > 20, what


def test_a_run_is_a_trace_of_the_block_manager() -> None:
    """Goal: a scheduler's calls can be repeated. Method: another manager gets the same calls, one by one; all of them
    are legal, and the answers are the same. Identities in events are of one manager, so they are left out.
    """
    for seed in range(10):
        chance = random.Random(seed)
        scheduler = scheduler_at_random(chance)
        trace: list[tuple[BlockOperation, object]] = []
        for _ in range(100):
            operation = scheduler.resolve(operation_at_random(chance))
            trace += scheduler.apply(operation).performed if operation is not None else ()
        manager = Manager(scheduler.settings)
        for asked, answer in trace:
            assert asked == manager.population.resolve(asked)
            assert (answer == manager.apply(asked)) or isinstance(asked, TakeEvents)
        assert any(isinstance(answer, Refused) for _, answer in trace) or len(trace) > 50
