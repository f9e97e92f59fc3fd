"""Injected drift: the model or the reference is changed, and the other does not follow.

Goal: no transition and no part of the pool can change without being noticed. Method: break one thing at a time, follow
random operations where it acts, and look at what is reported first. The control: the same operations, nothing broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any
from unittest.mock import patch

import pytest

from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.invariants import Checks, no_invariants, nothing_in_flight
from kvgate.explore.refinement_run import DriftError, Driven, Followed, Tally, drive
from kvgate.explore.tiny_models import MODELS
from kvgate.explore.walk import Walked, walk
from kvgate.kernel.models import load
from kvreference.ahead import is_fenced, tokens_answered, tokens_unsure
from kvreference.answers import Copy, Hit
from kvreference.attention import Kind
from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap, Content
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Allocation, Holdings, Span, freed_late
from kvreference.operations import Admit, Arrive, Dispatch, Preempt, Run
from kvreference.partial_map import PartialMap
from kvreference.pinned_tier import PinnedPool
from kvreference.refuted.unheld_copy import UnheldSources
from kvreference.rules import Delta, Rules
from kvreference.settings import Settings
from kvspec.pool.state import Operands, State, Transition
from kvspec.pool.transitions import (
    TRANSITIONS,
    Aim,
    Begin,
    Demote,
    Fill,
    Filled,
    Move,
    Overwrite,
    Pin,
    Provide,
    Read,
    ReadDone,
    Reset,
    TakeBack,
    Use,
    Used,
)
from kvspec.refinement.follower import Follower

OPERATIONS = 1_000
NO_CHECKS = Checks(no_invariants, watches_memory=False, of_flight=nothing_in_flight, of_steps=())

SHARING, PARTIAL, PINNED, STATES = (
    "mixed-blocks",
    "compressed+partial",
    "gemma-hybrid+pinned=2",
    "mamba-align+eagle+transfers",
)
TRANSFERS, AHEAD = "gemma-hybrid+transfers", ("tiny-ahead", "tiny-ahead-drafts", "tiny-ahead-loads")
WHERE = {
    Begin: PARTIAL,
    Read: PARTIAL,
    Aim: PARTIAL,
    ReadDone: PARTIAL,
    Pin: PINNED,
    Demote: PINNED,
    Move: STATES,
    Fill: TRANSFERS,
    Provide: TRANSFERS,
    Filled: TRANSFERS,
    TakeBack: TRANSFERS,
}
"""On which model a transition happens; where nothing is said, on all of them."""


def driven(model: str, pool: type[BlockPool] | None = None, holdings: type[Holdings] | None = None) -> Driven:
    """Follow the reference on ``model``, with another pool or other holdings in it."""

    class Injected(Followed):
        def __init__(self, settings: Settings, tally: Tally) -> None:
            super().__init__(settings)
            if holdings is not None:
                self.holdings = holdings(settings)
            if pool is not None:
                injected = pool.__new__(pool)
                vars(injected).update(vars(self.pool))
                self.holdings.pool = injected
            self.follower = Follower(self, tally)

    return drive([load(model)], OPERATIONS, Counter(), factory=Injected)


def walked(*deltas: Delta) -> Walked:
    """Follow the reference with other rules where steps are in flight."""

    class Injected(Followed):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings, Counter(), Choices(rules=Rules(deltas)))

    scopes = {name: MODELS[name].shallow for name in AHEAD}  # type: ignore[attr-defined]  # none is of a scheduler
    return walk([AheadWorld(name, each, Injected, NO_CHECKS) for name, each in scopes.items()], OPERATIONS)


def written_late() -> tuple[str, ...]:
    """The drift where a request gets blocks that a step in flight still writes for a request that was preempted."""
    settings = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=4, tokens_max=32, steps_in_flight_max=2)
    manager, begin = Followed(settings), (Arrive(0, (Run(0, 9),)), Admit(0, 9), Dispatch(), Preempt(0))
    try:
        for operation in (*begin, Arrive(1, (Run(5, 9),)), Admit(1, 9), Dispatch()):
            manager.apply(operation)
        manager.returned([0])
        manager.returned([1])
    except DriftError as error:
        return (str(error),)
    return ()


def found_in(transition: type[Transition]) -> tuple[str, ...]:
    """The drift where ``transition`` happens."""
    if transition is Overwrite:
        return written_late()
    return walked().wrong if transition in (Use, Used) else driven(WHERE.get(transition, SHARING)).wrong


@pytest.mark.few(1)
@pytest.mark.parametrize("model", [SHARING, PARTIAL, PINNED, STATES, TRANSFERS])
def test_without_a_change_nothing_drifts(model: str) -> None:
    """The control of all tests below: what they drive, with nothing broken."""
    found = driven(model)
    assert () == found.wrong
    assert found.operations >= OPERATIONS


# The model is changed


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_transition_that_does_nothing_is_noticed(transition: type[Transition]) -> None:
    """The state that the transitions lead to is not the reference's any more."""

    def nothing(state: State, _at: Operands) -> State:
        return state

    with patch.object(transition, "effect", staticmethod(nothing)):
        assert 1 == len(found_in(transition))


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_transition_that_cannot_happen_is_noticed(transition: type[Transition]) -> None:
    """The reference does it, and its name is reported."""

    def never(_state: State, _at: Operands) -> bool:
        return False

    with patch.object(transition, "guard", staticmethod(never)):
        (report,) = found_in(transition)
    assert f"{transition.__name__.lower()} at Operands(" in report
    assert "expected it cannot happen, got it happens" in report


def test_a_transition_that_an_operation_has_no_right_to_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a possible transition: an operation that only asks changes no block."""
    monkeypatch.setattr("kvspec.refinement.follower.SIMULATION", {})
    (report,) = driven(SHARING).wrong
    assert "take at Operands(" in report
    assert "expected no such transition in this operation, got it happens" in report


def test_a_reset_that_the_reference_refuses_is_noticed() -> None:
    """Whether a reset happens is compared in both directions."""

    def always(_state: State, _at: Operands) -> bool:
        return True

    with patch.object(Reset, "guard", staticmethod(always)):
        (report,) = driven(SHARING).wrong
    assert "reset at all blocks: expected it happens, got it does not happen" in report


# The reference is changed


def test_without_a_change_nothing_drifts_with_steps_in_flight() -> None:
    """The control of the next test."""
    assert () == walked().wrong
    assert () == written_late()


@pytest.mark.parametrize(
    ("delta", "seen"),
    [
        # Finding 022: a block that a request frees is free although a step in flight uses it.
        (Delta(is_fenced.__name__, lambda *_: False), "drop at Operands("),
        # Finding 028: a window leaves what steps in flight read if drafts do not hold.
        (Delta(tokens_unsure.__name__, lambda *_: 0), "tables of request"),
        # Only some of the blocks freed late are reported.
        (Delta(freed_late.__name__, lambda _rule, tables: tables[1:]), "None: named at ("),
        # The last token is cached before it is computed.
        (Delta(tokens_answered.__name__, lambda _, request: len(request.tokens)), "register at Operands("),
    ],
)
def test_a_broken_rule_of_steps_in_flight_is_noticed(delta: Delta, seen: str) -> None:
    """The effect of another rule is not a possible transition."""
    (report,) = walked(delta).wrong
    assert seen in report


@pytest.mark.parametrize("late", ["steps_over", "defer"])
def test_what_is_freed_a_step_early_is_noticed(late: str) -> None:
    """When it may be free is counted by the follower, and not taken from the reference."""
    done = getattr(Holdings, late)

    def early(self: Holdings, *arguments: Any) -> None:
        *others, steps = arguments
        done(self, *others, steps + (1 if late == "steps_over" else -1))

    with patch.object(Holdings, late, early):
        (report,) = walked().wrong
    assert "drop at Operands(" in report
    assert "expected it cannot happen, got it happens" in report


class LeavesQueued(BlockPool):
    """A block that is hit stays in the free queue."""

    def _unqueue(self, block: int) -> None:
        pass


class CountsOnce(BlockPool):
    """A block that is hit does not count the new holder."""

    def touch(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self.references[block] == 0:
                super().touch([block])


class TakesTwo(BlockPool):
    """A release of a shared block takes two references."""

    def release(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        super().release(blocks)
        for block in blocks:
            if self.references[block] > 0:
                self.references[block] -= 1


class NeverFrees(BlockPool):
    """A block without a holder is lost."""

    def _queue(self, blocks: Any, in_order: bool = False) -> None:
        pass


class RemembersTaken(BlockPool):
    """An allocated block keeps its content in the map."""

    def _forget(self, block: int) -> Content | None:
        return self.cached.content_of(block)


class KeepsBeginnings(BlockPool):
    """An allocated block keeps its entries."""

    def _forget(self, block: int) -> Content | None:
        return self.cached.forget(block)


class ResetsUnderHolders(BlockPool):
    """A reset happens although blocks are held."""

    def reset(self) -> bool:
        self.cached = CachedMap(len(self.references))
        self.partial = PartialMap()
        return True


class ForgetsSilently(BlockPool):
    """Releasing forgets what the block holds."""

    def release(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        super().release(blocks)
        for block in blocks:
            self._forget(block)


class HasNoRoom(BlockPool):
    """The gate wants twice what is needed."""

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        return super().make_room(2 * count, kept)


class KeepsPins(PinnedPool):
    """Forgotten blocks stay pinned."""

    def _forget(self, block: int) -> Content | None:
        was = self.is_pinned[block]
        content = super()._forget(block)
        self.is_pinned[block] = was
        return content


class PinsScratch(PinnedPool):
    """Every freed block is pinned, cached or not."""

    def _pin(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.is_pinned[block] = True


class DemotesInName(PinnedPool):
    """A demoted block keeps its pin."""

    def _unpin(self, block: int) -> None:
        super()._unpin(block)
        self.is_pinned[block] = True


class KnowsNoTier(PinnedPool):
    """The gate asks what is free alone."""

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        return BlockPool.make_room(self, count, kept)


class ReleasesNothing(Holdings):
    """A request that ends leaves its table, and its blocks are held for good."""

    def release_all(self, request: int) -> None:
        self.tables.pop(request, None)


class TakesInVain(Holdings):
    """An allocation takes a block more than its tables get."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        allocation = super().allocate(request, span, hit)
        if len(self.pool.free):
            self.pool.take(1)
        return allocation


class HoldsTwice(Holdings):
    """A hit holds its blocks twice."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        allocation = super().allocate(request, span, hit)
        self.pool.touch(block for blocks in hit.blocks for block in blocks if self.pool.references[block])
        return allocation


class KeepsSources(Holdings):
    """A dispatch does not release the sources."""

    def dispatch(self) -> tuple[Copy, ...]:
        copies, self.copies = self.copies, []
        return tuple(copies)


@pytest.mark.parametrize(
    ("model", "pool", "message"),
    [
        (SHARING, LeavesQueued, "where at"),
        (SHARING, CountsOnce, "refs at"),
        (SHARING, TakesTwo, "refs at"),
        (SHARING, NeverFrees, "where at"),
        (SHARING, RemembersTaken, "content at"),
        (SHARING, ResetsUnderHolders, "reset at"),
        (SHARING, ForgetsSilently, "content at"),
        (SHARING, HasNoRoom, "room at"),
        (PARTIAL, KeepsBeginnings, "begun at"),
        (PINNED, KeepsPins, "pinned at"),
        (PINNED, PinsScratch, "where at"),
        (PINNED, DemotesInName, "pinned at"),
        (PINNED, KnowsNoTier, "room at"),
    ],
)
def test_a_pool_that_changed_is_noticed(model: str, pool: type[BlockPool], message: str) -> None:
    """By the first map, or question, in which it shows; or the reference itself finds that it cannot go on."""
    (wrong,) = driven(model, pool).wrong
    assert message in wrong


@pytest.mark.parametrize(
    ("model", "holdings", "message"),
    [
        (SHARING, ReleasesNothing, "named at"),
        (PARTIAL, KeepsSources, "reads at"),
        (SHARING, TakesInVain, "no table of the request names it then"),
        (SHARING, HoldsTwice, "no copy that is pending reads it"),
        (PARTIAL, UnheldSources, "is released, and no table of the request names it"),
    ],
)
def test_holdings_that_changed_are_noticed(model: str, holdings: type[Holdings], message: str) -> None:
    """Changes that bypass the pool are seen in the tables and copies, and a call for no request is reported as one."""
    (wrong,) = driven(model, holdings=holdings).wrong
    assert message in wrong
