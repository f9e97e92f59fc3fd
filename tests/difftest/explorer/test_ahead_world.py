"""Steps in flight, explored.

Goal: the reads and writes of a step in flight are followed until it is over, also for a request that was preempted or
has ended, and every state is checked for the blocks that must be kept for it. Method: walks with the numbers by hand,
and references that each break one rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvgate.adapters.reference import Reference
from kvgate.explore.ahead_world import AheadWorld, Over
from kvgate.explore.canonical import Prompt, token_at
from kvgate.explore.designs import SEEN_BY_MEMORY
from kvgate.explore.exploration import Limits
from kvgate.explore.manager_world import Moment
from kvgate.explore.refuted_designs import FreesInFlight
from kvgate.explore.scope import Menu
from kvgate.explore.steps_in_flight import AheadMemory
from kvgate.explore.tiny_models import MODELS, scope, window
from kvgate.monitors.slot_memory import JUNK
from kvreference.ahead import is_fenced, tokens_answered, tokens_unsure
from kvreference.choices import Choices
from kvreference.geometry import Group
from kvreference.holdings import freed_late
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Finish, Operation, Preempt, Sample, Schedule
from kvreference.rules import Delta, Rules
from kvreference.settings import Settings

from .stage import explore

MENU = Menu((Prompt(2),), budgets_tokens=(8,), dispatches=True, aborts=True)
WINDOW = window(1, 2)
LIMITS: dict[str, Any] = {"blocks": 8, "tokens_max": 8, "chunk_tokens": 4, "drafts_max": 1, "steps_in_flight_max": 2}


def ahead(
    *groups: Group, menu: Menu = MENU, factory: Callable[[Settings], Manager] = Reference, **limits: Any
) -> AheadWorld:
    """A block manager for two requests, with one draft and two steps in flight, unless ``limits`` say otherwise."""
    return AheadWorld("ahead", scope(*(groups or (WINDOW,)), menu=menu, **{**LIMITS, **limits}), factory)


def walk(world: AheadWorld, *moves: Operation | Over) -> Moment:
    """The state after some moves, each of which is offered, and none of which is wrong."""
    state = world.initial()
    for move in moves:
        assert move in world.moves(state)
        outcome = world.step(state, move)
        assert () == outcome.violations
        state = outcome.state
        assert [] == world.violations_in(state)
    return state


ENTER = (Arrive(0, Prompt(2).runs(0)), Admit(0, 8), Dispatch())
DECODE = (Schedule(0, 8), Dispatch())


def answer(accepted: int, *token: int) -> Over:
    """The oldest step ends, and answers request 0 with the token of a track at a position."""
    return Over((Sample(0, accepted, token_at(0, *token), 0),))


def kinds(world: AheadWorld, *moves: Operation | Over) -> set[type]:
    """The kinds of moves offered after some moves."""
    return {type(move) for move in world.moves(walk(world, *moves))}


def test_no_more_steps_are_in_flight_than_there_may_be() -> None:
    """Then none is scheduled; an empty step is not dispatched, and no step ends before its dispatch."""
    world = ahead()
    assert {Arrive, Admit, Abort} == kinds(world, *ENTER[:1])
    assert {Arrive, Dispatch} == kinds(world, *ENTER[:2])
    assert {Arrive, Schedule, Over, Preempt, Finish, Abort} == kinds(world, *ENTER)
    assert {Arrive, Dispatch} == kinds(world, *ENTER, DECODE[0])
    assert {Arrive, Over, Preempt, Finish, Abort} == kinds(world, *ENTER, *DECODE)
    another = Arrive(1, Prompt(2).runs(0))
    assert {Admit, Schedule, Over, Preempt, Finish, Abort} == kinds(world, *ENTER, another)
    assert {Over, Preempt, Finish, Abort} == kinds(world, *ENTER, *DECODE, another)


def overs(world: AheadWorld, *moves: Operation | Over) -> list[Over]:
    """The answers that are offered after some moves."""
    return [move for move in world.moves(walk(world, *moves)) if isinstance(move, Over)]


def test_a_step_answers_what_it_verifies() -> None:
    """The step of the prompt no draft, the next one its draft or another token in its place."""
    world = ahead()
    assert [answer(0, 0, 2)] == overs(world, *ENTER, *DECODE)
    assert [answer(0, 1, 3), answer(1, 0, 4)] == overs(world, *ENTER, *DECODE, answer(0, 0, 2))
    # A preempted request is answered alike, and one that has ended is not.
    assert [answer(0, 0, 2)] == overs(world, *ENTER, *DECODE, Preempt(0))
    assert [Over(())] == overs(world, *ENTER, *DECODE, Abort(0))


def test_a_request_with_all_its_tokens_has_ended() -> None:
    """It is not admitted again: no token is left to answer."""
    world = ahead(tokens_max=3)
    entered = walk(world, *ENTER, Preempt(0), answer(0, 0, 2))
    assert Admit not in {type(move) for move in world.moves(entered)}


def spans(state: Moment) -> list[tuple[int, int]]:
    """From where to where the steps in flight compute, oldest first; each has one request here."""
    assert isinstance(state.ghost, AheadMemory)
    return [(work.start, work.end) for step in state.ghost.in_flight for work in step]


@pytest.mark.parametrize(("accepted", "track", "expected"), [(1, 0, [(4, 6)]), (0, 1, [(3, 5)])])
def test_a_draft_that_does_not_hold_moves_what_comes_after_it(
    accepted: int, track: int, expected: list[tuple[int, int]]
) -> None:
    """Two tokens, a third that is answered; then a step of it and a draft, and another one, of which none is known."""
    world = ahead()
    before = (*ENTER, *DECODE, answer(0, 0, 2), *DECODE)
    assert [(2, 4), (4, 6)] == spans(walk(world, *before))
    state = walk(world, *before, answer(accepted, track, 3 + accepted))
    assert expected == spans(state)
    assert expected[0][1] == state.manager.population[0].tokens_computed


def test_what_a_step_reads_is_there_until_it_is_over() -> None:
    """Its request was preempted, and its blocks are free: the answer is taken, so it counts what was read for it."""
    world = ahead()
    moves = (*ENTER, answer(0, 0, 2), *DECODE, Preempt(0))
    state = walk(world, *moves)
    assert {} == dict(state.manager.tables)
    assert 7 == len(state.manager.pool.free)
    assert 5 == len(walk(world, *moves, answer(1, 0, 4)).manager.population[0].tokens)


def test_a_request_that_has_ended_is_computed_all_the_same() -> None:
    """Its block is allocated to the next request, and its token, which is unknown, is written there before that
    request's.
    """
    world = ahead(Group("full", 4), drafts_max=0, blocks=2)
    moves = (*ENTER, *DECODE, Abort(0), Over(()), Arrive(1, Prompt(2).runs(0)), Admit(1, 8), Dispatch())
    assert [[1]] == [table.blocks for table in walk(world, *moves).manager.tables[1]]
    slots = walk(world, *moves, Over(())).ghost.slots(1)
    assert slots is not None
    assert JUNK == slots[1][2]
    walk(world, *moves, Over(()), Over((Sample(1, 0, token_at(0, 0, 2), 0),)))


def test_the_form_has_what_is_in_flight() -> None:
    """Without it, two states with other tables in flight were taken for the same."""
    world = ahead()
    state = walk(world, *ENTER, *DECODE)
    before = world.key(state)
    assert isinstance(state.ghost, AheadMemory)
    for steps in ([*reversed(state.ghost.in_flight)], state.ghost.in_flight[:1], [(*state.ghost.in_flight[0],) * 2]):
        memory = state.ghost.copy()
        memory.in_flight = steps
        assert before != world._canonical.key(state.manager, memory)


def broken(*deltas: Delta) -> Callable[[Settings], Manager]:
    """The reference with other rules."""
    return lambda settings: Reference(settings, Choices(rules=Rules(deltas)))


def forgets(name: str, answer: Any) -> Callable[[Settings], Manager]:
    """The reference where a rule always answers the same."""
    return broken(Delta(name, lambda *_: answer))


class NeverOver(Reference):
    """Never learns that a step has ended."""

    def returned(self, requests: Any) -> None:
        self.population.returned(requests)


class OverTooSoon(Reference):
    """Frees what it was to free late when any step is over."""

    def returned(self, requests: Any) -> None:
        super().returned(requests)
        self.holdings.steps_over(self.population.dispatched)


@pytest.mark.parametrize(
    ("model", "factory", "statement"),
    [
        ("tiny-ahead-loads", forgets(is_fenced.__name__, answer=False), "KV-MEM-04"),
        ("tiny-ahead-loads", forgets(tokens_unsure.__name__, answer=0), "KV-MEM-04"),
        ("tiny-ahead-loads", OverTooSoon, "KV-MEM-04"),
        ("tiny-ahead-loads", NeverOver, "KV-OP-07"),
        ("tiny-ahead-loads", broken(Delta(freed_late.__name__, lambda _rule, tables: tables[1:])), "KV-INV-01"),
        ("tiny-ahead-drafts", forgets(tokens_unsure.__name__, answer=0), "KV-OP-06"),
        ("tiny-ahead-drafts", broken(Delta(tokens_answered.__name__, lambda _, each: len(each.tokens))), "KV-SYS-01"),
    ],
)
def test_what_is_broken_is_found(model: str, factory: Callable[[Settings], Manager], statement: str) -> None:
    """Each by its statement; the tests of designs and the next one are the control."""
    shallow = MODELS[model].shallow  # type: ignore[attr-defined]  # only schedulers have a Shop instead
    found = explore(AheadWorld(model, shallow, factory)).found
    assert found is not None
    assert statement == found.violations[0].statement


@pytest.mark.ci
def test_a_late_step_is_seen_to_write_over_a_load() -> None:
    """Finding 022 by its harm: what was freed too soon is loaded, written over and read."""
    world = AheadWorld("loads", MODELS["tiny-ahead-loads"].shallow, FreesInFlight, SEEN_BY_MEMORY)  # type: ignore[attr-defined]  # as above
    found = explore(world, Limits(100_000, 120.0)).found
    assert found is not None
    assert ("KV-MEM-01", 17) == (found.violations[0].statement, len(found.moves))


@pytest.mark.ci
def test_the_smallest_one_is_in_order() -> None:
    """All of it. Its size is what it was when this was written: a change of it is to be understood."""
    seen = explore(MODELS["tiny-ahead"].world(), Limits(10_000, 60.0))
    assert (True, 2704, 6332, 25, 0) == (seen.exhaustive, seen.states, seen.edges, seen.depth, seen.idle_steps_max)
