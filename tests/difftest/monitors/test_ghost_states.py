"""Ghost memory where not every token has a slot for good: states, drafts, and chunks of attention.

Goal: a state that is freed, skipped or another token's is seen, and so is one that a chunk still reads; a sound system
raises no alarm. Method: the same operations on the reference, which is the control, and on subclasses that each break
one thing that only the memory shows.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.explore.refuted_designs import CACHES_WHAT_IS_PASSED
from kvgate.kernel.difference import Difference
from kvgate.monitors.slot_memory import GhostMemory, first_read
from kvreference.answers import Hit, Statistics
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.mamba import StateMode
from kvreference.operations import (
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Operation,
    Preempt,
    Run,
    Sample,
    Schedule,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Population, Request
from kvreference.settings import Settings

from .stage import FULL, GIVEN_UP, NEVER, WINDOW, Hasty, WithHoldings, arrive, settings_of, state, watch, wrong

CHUNKED = Group(Kind.CHUNKED_LOCAL, 4, window_tokens=8)
STATES = Group(Kind.MAMBA, 4, states=StateMode.ALL)
ALIGNED = Group(Kind.MAMBA, 8, states=StateMode.ALIGN, draft_states=2)
DRAFTED = Group(Kind.MAMBA, 4, states=StateMode.ALL, draft_states=2)


class ReleasesTooEarly(Holdings):
    """Releases what four more tokens would no longer read."""

    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + 4)


class GivesUpTheRunningState(WithHoldings):
    """Frees the state that the next token starts from."""

    holdings_kind = ReleasesTooEarly


class ForgetsDrafts(Reference):
    """Has no states for drafts."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        groups = tuple(evolve(group, draft_states=0) for group in settings.geometry.groups)
        self.holdings = Holdings(evolve(settings, geometry=Geometry(groups), drafts_max=0))


class ChunksAnywhere(Reference):
    """Lets chunks end inside blocks, though only the state where a chunk ends is kept, and caches all blocks."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, CACHES_WHAT_IS_PASSED)
        self.population = AnyChunk(settings)


class AnyChunk(Population):
    """As many tokens as remain."""

    def tokens_from(self, request: Request, computed: int, budget_tokens: int) -> int:
        return min(len(request.tokens) + len(request.drafts) - computed, budget_tokens)


class HitsTheRunningState(Reference):
    """Serves every later request from the first one's states, at any position."""

    def _hit(self, request: Request) -> Hit:
        if request.number == 0:
            return super()._hit(request)
        return Hit(4, ((self.tables[0][0].blocks[1],),))


DECODE: tuple[Operation, ...] = (
    arrive(0, 8),
    Admit(0, 64),
    Dispatch(),
    *(each for token in range(100, 106) for each in (Sample(0, 0, token, 0), Schedule(0, 64), Dispatch())),
)
VERIFIED: tuple[Operation, ...] = (
    arrive(0, 7),
    Admit(0, 64),
    Dispatch(),
    Sample(0, 0, 50, 2),
    *(Schedule(0, 64), Dispatch(), Sample(0, 0, 60, 2)),
    *(Schedule(0, 64), Dispatch(), Sample(0, 2, 70, 1)),
    *(Schedule(0, 64), Dispatch(), Sample(0, 1, 80, 0)),
    *(Schedule(0, 64), Dispatch()),
    Arrive(1, (Run(0, 7), Run(50, 1), Run(60, 3), Run(70, 2))),
    Admit(1, 64),
    Dispatch(),
)
"""Drafts are rejected, accepted and accepted in part; then another request has the same tokens."""

KEEPING = {
    "the running state is freed": (
        settings_of(STATES),
        GivesUpTheRunningState,
        DECODE,
        wrong(0, "token 7 in its slot", GIVEN_UP),
    ),
    "a draft without a state": (
        settings_of(DRAFTED, drafts_max=2),
        ForgetsDrafts,
        VERIFIED,
        Difference(
            "KV-MEM-02", "request 0, group 0", "a state for each of 2 drafts", "the table has 1 after the running one"
        ),
    ),
    "a state that a chunk passed": (
        settings_of(ALIGNED),
        ChunksAnywhere,
        (arrive(0, 11), Admit(0, 3), Dispatch(), Schedule(0, 64), Dispatch(), arrive(1, 11), Admit(1, 64), Dispatch()),
        wrong(1, f"token 7 in block 1: {state(8, 7, 7)}", state(3, 2, 2)),
    ),
    "the state after another token": (
        settings_of(STATES),
        HitsTheRunningState,
        (arrive(0, 6), Admit(0, 64), Dispatch(), arrive(1, 6), Admit(1, 64), Dispatch()),
        wrong(1, f"token 3 in block 2: {state(4, 3, 3)}", state(6, 5, 5)),
    ),
    "a state that is not computed yet": (
        settings_of(STATES),
        Hasty,
        (arrive(0, 5), Admit(0, 64), arrive(1, 5), Admit(1, 64), Dispatch()),
        wrong(1, f"token 3 in block 1: {state(4, 3, 3)}", NEVER),
    ),
}


class GivesUpTheChunk(WithHoldings):
    """Frees an attention chunk a block before it is over."""

    holdings_kind = ReleasesTooEarly


CHUNKS = {
    "a chunk is freed too early": (
        settings_of(FULL, CHUNKED),
        GivesUpTheChunk,
        (arrive(0, 14), Admit(0, 4), Schedule(0, 4)),
        wrong(0, "token 0 in its slot", GIVEN_UP, group=1),
    ),
}

SEVERAL = {**KEEPING, **CHUNKS}


@pytest.mark.parametrize(("settings", "broken", "operations", "expected"), SEVERAL.values(), ids=SEVERAL)
def test_what_is_not_in_its_slot_is_seen(
    settings: Settings, broken: type[Reference], operations: tuple[Operation, ...], expected: Difference
) -> None:
    """The first slot that is wrong, what should be in it, and what is."""
    assert expected == watch(GhostMemory(settings), broken(settings), *operations)


@pytest.mark.parametrize(("settings", "operations"), [(each[0], each[2]) for each in SEVERAL.values()], ids=SEVERAL)
def test_a_sound_system_reads_what_it_wrote(settings: Settings, operations: tuple[Operation, ...]) -> None:
    """The control: the reference, with the same operations, and room for those that it would reject."""
    roomy = evolve(settings, blocks=64)
    assert watch(GhostMemory(roomy), Reference(roomy), *operations) is None


# States and drafts


@pytest.mark.parametrize(("group", "hit_tokens"), [(DRAFTED, 12), (ALIGNED, 8)], ids=["all", "align"])
def test_accepted_drafts_leave_their_state(group: Group, hit_tokens: int) -> None:
    """The next step starts from the state after the last accepted draft, and so does a request with the same tokens."""
    system = Reference(settings_of(group, drafts_max=2))
    assert watch(GhostMemory(system.settings), system, *VERIFIED) is None
    assert [0, 1, 2, 3, 4, 5, 6, 50, 60, 61, 62, 70, 71, 80] == system.population[0].tokens
    statistics = system.apply(TakeStatistics())
    assert isinstance(statistics, Statistics)
    assert hit_tokens == statistics.hits_tokens


@pytest.mark.parametrize("group", [DRAFTED, ALIGNED], ids=["all", "align"])
def test_drafts_that_pass_the_end_of_a_block_leave_the_state_there(group: Group) -> None:
    """Each draft has a state of its own, so the state after the block's last token is kept; a hit starts from it."""
    system = Reference(settings_of(group, drafts_max=2))
    drafting = (arrive(0, 6), Admit(0, 64), Dispatch(), Sample(0, 0, 50, 2), Schedule(0, 64), Dispatch())
    follows = (Sample(0, 2, 60, 0), Schedule(0, 64), Dispatch())
    again = (Arrive(1, (Run(0, 6), Run(50, 3))), Admit(1, 64), Dispatch())
    assert watch(GhostMemory(system.settings), system, *drafting, *follows, *again) is None
    statistics = system.apply(TakeStatistics())
    assert isinstance(statistics, Statistics)
    assert 8 == statistics.hits_tokens


def test_nothing_is_kept_of_a_request_that_has_all_its_tokens() -> None:
    """Preempted and admitted again, its last step ends with a token that is a block's first: no step follows it."""
    drafting = Group(Kind.FULL, 8, lookahead=True)
    system = Reference(settings_of(drafting, ALIGNED, tokens_max=17, drafts_max=2))
    steps = (arrive(0, 16), Admit(0, 8), Dispatch(), Schedule(0, 8), Dispatch(), Sample(0, 0, 50, 0), Preempt(0))
    again = (Admit(0, 17), Dispatch(), Sample(0, 0, 60, 0))
    assert watch(GhostMemory(system.settings), system, *steps, *again) is None
    assert 17 == len(system.population[0].tokens)


@pytest.mark.parametrize(
    "group", [DRAFTED, ALIGNED, evolve(DRAFTED, states=StateMode.NONE)], ids=["all", "align", "none"]
)
def test_drafts_in_flight_are_not_sent(group: Group) -> None:
    """Another node reads the state after the last verified token."""
    system = Reference(settings_of(group, drafts_max=2, caches=group.states is not StateMode.NONE))
    ghost = GhostMemory(system.settings)
    drafting = (arrive(0, 5), Admit(0, 64), Dispatch(), Sample(0, 0, 50, 2), Schedule(0, 64), Dispatch())
    assert watch(ghost, system, *drafting, Finish(0, sends=True)) is None
    (sent,) = ghost.under_way()
    assert 6 == sent.end
    assert watch(ghost, system, Transferred(0)) is None


# Attention ranges


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (FULL, {0: 0, 7: 0, 100: 0}),
        (WINDOW, {0: 0, 5: 0, 6: 1, 100: 95}),
        (CHUNKED, {0: 0, 7: 0, 8: 8, 15: 8, 100: 96}),
    ],
    ids=lambda each: each.kind.value if isinstance(each, Group) else None,
)
def test_attention_covers_what_its_kind_says(group: Group, expected: dict[int, int]) -> None:
    """All, the window, or the chunk up to the token."""
    assert expected == {token: first_read(group, token) for token in expected}


def test_a_chunk_that_is_over_may_go() -> None:
    """The control of a chunk freed too early: block by block, exactly when the next chunk begins."""
    system = Reference(settings_of(FULL, CHUNKED))
    ghost = GhostMemory(system.settings)
    assert watch(ghost, system, arrive(0, 14), Admit(0, 4), Schedule(0, 4)) is None
    assert 0 not in system.tables[0][1].blocks
    assert watch(ghost, system, Schedule(0, 4)) is None
    assert [0, 0] == system.tables[0][1].blocks[:2]
