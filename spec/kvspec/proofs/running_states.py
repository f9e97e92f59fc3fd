"""Chapter 04: the states of a step, where an allocation puts them.

``Holdings.allocate`` is run over a table of states of any length, a list of stretches (see ``running_allocation``). A
state stands where its token does: in the block of the table that the token is in. That the worker computes a state into
its block, and brings the one of the last draft that holds there, is not asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen

from kvreference import attention, holdings, mamba
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.holdings import Span
from kvreference.mamba import AlignedMamba, StateMode
from kvreference.tables import Table
from kvspec.obligation import Count, Mutant, Obligation, Property, Unknown, only
from kvspec.proofs.running_allocation import (
    NO_SLOTS_FOR_DRAFTS,
    OWNER,
    Calls,
    Layout,
    Stretch,
    Times,
    grown,
    on_stretches,
)
from kvspec.proofs.running_pool import holdings_over
from kvspec.sequences import more_than
from kvspec.stand_in import group
from kvspec.symbolic import Term, either, expression_of, implies

MODES = (StateMode.NONE, StateMode.ALL, StateMode.ALIGN)


@frozen(eq=False)
class Piece(Stretch):
    """Neighbouring entries that were there before, from a first place on."""

    first: Any


class Number(Times):
    """A number of entries; none if it is negative."""

    __slots__ = ()

    def __sub__(self, other: Any) -> Number:
        return Number((Term(self.z3) - other).z3)

    def __rmul__(self, other: Any) -> Any:
        (each,) = super().__rmul__(other)
        return (evolve(each, count=more_than(each.count, 0)),)


def _number(of: Any) -> Number:
    return Number(expression_of(of))


class Pieces:
    """The stretches of a table, which may be cut at any place."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = stretches

    def __iter__(self) -> Iterator[Stretch]:
        return iter(self.stretches)

    def __len__(self) -> int:
        return len(self.stretches)

    def __getitem__(self, which: slice) -> list[Stretch]:
        cut = list[Stretch]()
        begins: Any = 0
        for each in self.stretches:
            start, end = begins, begins + each.count
            if which.start is not None:
                start = either(which.start > start, which.start, start)
            if which.stop is not None:
                end = either(which.stop < end, which.stop, end)
            count = more_than(end, start)
            first = {"first": each.first + start - begins} if isinstance(each, Piece) else {}
            cut.append(evolve(each, count=count, **first))
            begins = begins + each.count
        return cut


class Granted(Calls):
    """Stands for a pool that has as many blocks as are asked for. What happens if it has not is proved by itself."""

    def make_room(self, count: Any, kept: Any) -> bool:
        """Whatever is asked for."""
        del count, kept
        return True


class HitBlocks:
    """The blocks of a hit, however many."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __getitem__(self, which: slice) -> list[Stretch]:
        return [Piece(more_than(self.count, which.start), "there", which.start)]


@contextmanager
def on_pieces() -> Iterator[None]:
    """Tables of states may be lists of stretches, and be cut."""
    # That a table names its blocks once more is ``attention-kinds.running-layout-of-states``.
    with (
        on_stretches(),
        patch.object(mamba, "len", lambda of: _number(sum(each.count for each in of)), create=True),
        patch.object(mamba, "grown", grown),
        patch.object(holdings, "keeps_all", lambda _layout, _blocks: True),
    ):
        yield


def _in_pieces(its: Group) -> Any:
    """The group, where it says how many entries there are."""

    def layout(blocks: Any, entries: Any, fresh: bool) -> Any:
        return its.layout(Pieces(blocks.stretches if isinstance(blocks, Layout) else blocks), entries, fresh)  # type: ignore[arg-type]  # stretches

    return SimpleNamespace(
        blocks_unread=lambda tokens: _number(its.blocks_unread(tokens)),
        # What no later token reads was released before: see ``blocks-and-references.running-next-step``.
        blocks_dead=lambda _tokens: 0,
        blocks_occupied=lambda tokens: _number(its.blocks_occupied(tokens)),
        entries=lambda tokens, slots: _number(its.entries(tokens, slots)),
        layout=layout,
        block_size_tokens=1,
    )


def _first_read(u: Any) -> Any:
    """The place of the first state that the step may read: of the last token that is sure."""
    return (u.computed - u.unsure - 1) // u.size


def _has_states(u: Any) -> Any:
    """What stands at one place of a table after an allocation."""
    runs, mode = bool(u.runs == 1), MODES[u.mode.__index__()]
    its = group(Kind.MAMBA, u.size, states=mode, draft_states=u.draft_states)
    held: Any = holdings_over(
        SimpleNamespace(pool=Granted(SimpleNamespace(free=0))), SimpleNamespace(groups=(_in_pieces(its),))
    )
    held.settings.tokens_max = u.longest
    if runs:
        # What stands before is null blocks, or is of no use.
        known: Any = [Piece(_first_read(u), "before", 0), Piece(u.length - _first_read(u), "there", _first_read(u))]
        held.tables = {OWNER: [Table(known, 0, 0, fresh=False)]}
    blocks: Any = (HitBlocks(u.hit // u.size),)
    span = Span(u.computed, u.tokens, u.lookahead, provided=u.computed if u.external > 0 else 0)
    with on_pieces():
        allocation = held.allocate(OWNER, span, Hit(u.hit, blocks))
    assert allocation is not None, "what is asked for is had"
    ((table,),) = held.tables.values()
    length: Any = 0
    named: Any = False
    is_same: Any = False
    is_new: Any = False
    for part in table.blocks:
        its_place = (u.place >= length) & (u.place < length + part.count)
        if isinstance(part, Piece) and part.what == "there":
            named = named | its_place
            is_same = is_same | (its_place & (part.first + u.place - length == u.place))
        elif part.what == "taken":
            named, is_new = named | its_place, is_new | its_place
        length = length + part.count
    end = u.computed + u.tokens
    slots = either(end + u.lookahead < u.longest, end + u.lookahead, u.longest)
    long = (length - u.draft_states) * u.size >= (end if mode is StateMode.ALIGN else slots)
    # The states that the step reads are where they were; what another node provides comes into a block of its own.
    reads = (u.computed > 0) & (u.place >= _first_read(u)) & (u.place <= (u.computed - 1) // u.size)
    right = implies(reads & (u.external == 0), is_same) & implies(reads & (u.external > 0), is_new)
    # From the last token on that is sure then: where states are kept at block ends only, none is passed.
    sure = end - u.unsure - u.verified if mode is StateMode.ALIGN else u.computed - u.unsure
    needed = (u.place >= (sure - 1) // u.size) & (u.place < length)
    own = is_new | runs | (u.place * u.size < u.computed)
    return long & right & implies(needed, named & own)


def _runs_on(u: Any) -> Any:
    """A request runs, and its table has what its last allocation has left."""
    step = (u.mode != 2) | (u.tokens <= u.size) | ((u.verified == 0) & (u.unsure == 0))
    has = (u.unsure < u.computed) & ((u.length - u.draft_states) * u.size >= u.computed)
    return step & has & (u.verified <= u.tokens) & _fits(u)


def _begins(u: Any) -> Any:
    """A request has a hit, which none has where states are not kept, and what another node provides."""
    kept = (u.hit % u.size == 0) & ((u.mode != 0) | (u.hit == 0))
    # No state is computed again: see ``content-and-cached-map.running-registers-what-is-scheduled``.
    return kept & (u.computed == u.hit + u.external) & _fits(u)


def _fits(u: Any) -> Any:
    # Smaller blocks are rejected.
    return (u.computed + u.tokens <= u.longest) & ((u.mode != 2) | (u.size >= 2 * u.draft_states + 2))


LAYOUT = AlignedMamba.layout
"""What it does, where nothing is broken."""
_ONE_STATE = only(
    "drafts-have-one-state",
    "All drafts have one state.",
    "kvreference.mamba:Mamba.entries",
    lambda self, tokens, slots, block: attention.blocks_occupied(slots, block) + (self.draft_states > 0),
)
_UNREAD = only(
    "the-state-is-unread",
    "A resume is taken to read no state at all.",
    "kvreference.mamba:Mamba.tokens_unread",
    lambda self, hit_tokens: hit_tokens,
)


def _moves_more(self: AlignedMamba, blocks: Any, entries: Any, fresh: bool) -> Any:
    return LAYOUT(evolve(self, draft_states=self.draft_states + 1), blocks, entries, fresh)


_RUNNING_STATE_MOVES = only(
    "the-running-state-moves",
    "With the states of drafts, the one before them moves, which the step reads.",
    "kvreference.mamba:AlignedMamba.layout",
    _moves_more,
)
_MOVES_A_HIT = only(
    "moves-a-hit",
    "What was hit is moved like the states of drafts.",
    "kvreference.mamba:AlignedMamba.layout",
    lambda self, blocks, entries, fresh: LAYOUT(self, blocks, entries, False),
)
_SKIPS_ONE_MORE = only(
    "skips-one-more",
    "The place of the running state gets no block.",
    "kvreference.mamba:AlignedMamba.layout",
    lambda self, blocks, entries, fresh: [
        *LAYOUT(evolve(self, draft_states=self.draft_states - 1), blocks, entries, fresh)
    ],
)


OF_STATES: Mapping[str, Unknown] = {
    "size": Count(1),
    **{name: Count(0) for name in ("draft_states", "computed", "tokens", "lookahead", "place")},
    "longest": Count(1),
}
_NONE, _ANY = Count(0, 0), Count(0)

HAS_STATES = Obligation(
    id="attention-kinds.running-states-of-a-step",
    statements=("KV-MEM-02", "KV-MEM-01", "KV-OP-26"),
    title="After an allocation of a running request, in a group of states, in each mode and with a table of any "
    "length, each state that its step reads, whichever of the drafts in flight are taken back, is in the block where "
    "it was. From the last token that is sure then, the table names a block for the state of each token and of each "
    "draft that the step computes, and for one more for each draft state; where there is a state in every block, for "
    "look-ahead slots, too. Where states are kept at block ends only, this is so of a step that is no longer than a "
    "block, or of which nothing is taken back.",
    unknowns={
        **OF_STATES,
        "mode": Count(0, len(MODES) - 1),
        "runs": Count(1, 1),
        "hit": _NONE,
        "external": _NONE,
        **dict.fromkeys(("length", "unsure", "verified"), _ANY),
    },
    assumes=_runs_on,
    claim=_has_states,
    witnesses={
        "drafts of two steps are in flight": lambda u: (
            (u.mode == 2)
            & (u.draft_states == 2)
            & (u.size == 8)
            & (u.computed == 15)
            & (u.length == 4)
            & (u.verified == 2)
            & (u.unsure == 2)
            & (u.place == 2)
        ),
        "a chunk of a prompt passes states": lambda u: (
            (u.mode == 2)
            & (u.draft_states == 2)
            & (u.size == 8)
            & (u.computed == 16)
            & (u.length == 4)
            & (u.tokens == 32)
            & (u.place == 5)
        ),
    },
    mutants=(
        _ONE_STATE,
        NO_SLOTS_FOR_DRAFTS,
        _RUNNING_STATE_MOVES,
    ),
)


def _first(name: str, where: str, modes: Count, witness: Property, mutants: tuple[Mutant, ...]) -> Obligation:
    return Obligation(
        id=f"attention-kinds.running-first-states{name}",
        statements=("KV-MEM-02", "KV-MEM-01", "KV-OP-24", "KV-OP-26"),
        title=f"{where}, a request that is admitted, with a hit of any length, or none, and with what another node "
        "provides, or nothing, has the state that its first step reads in the last block of the hit, or in a new block "
        "if it is provided. Each later state that the step computes, the last one at least, has a new block, and "
        "so has one more for each draft state.",
        unknowns={
            **OF_STATES,
            "mode": modes,
            "runs": _NONE,
            "hit": _ANY,
            "external": _ANY,
            **dict.fromkeys(("length", "unsure", "verified"), _NONE),
        },
        assumes=_begins,
        claim=_has_states,
        witnesses={
            "after a hit": lambda u: (
                (u.mode > 0) & (u.size == 8) & (u.hit == 16) & (u.external == 0) & (u.tokens == 11) & (u.place == 1)
            ),
            "another node provides the state": witness,
        },
        mutants=mutants,
    )


FIRST = _first(
    "",
    "Where a request has one state, or one in every block",
    Count(0, 1),
    lambda u: (u.mode == 1) & (u.size == 8) & (u.hit == 16) & (u.external == 11) & (u.place == 3),
    (_ONE_STATE, _UNREAD),
)
FIRST_AT_BLOCK_ENDS = _first(
    "-at-block-ends",
    "Where states are kept at block ends only",
    Count(2, 2),
    lambda u: (
        (u.size == 8) & (u.hit == 16) & (u.external == 11) & (u.place == 3) & (u.tokens == 21) & (u.draft_states == 3)
    ),
    (
        _UNREAD,
        only(
            "nothing-to-load-into",
            "What another node provides gets no block.",
            "kvreference.holdings:plan_provided",
            lambda geometry, tables, provided: [None] * len(tables),
        ),
        _MOVES_A_HIT,
    ),
)

# Where states stand


def _moves_nothing_that_counts(u: Any) -> Any:
    """What a table of states has at a place after it grew for a step: the place and an earlier one are looked at."""
    fresh, mode = bool(u.fresh == 1), MODES[u.mode.__index__()]
    its = group(Kind.MAMBA, u.size, states=mode, draft_states=u.draft_states)
    entries = _number(its.entries(u.tokens, u.tokens + u.lookahead))
    if entries <= u.length:
        return True
    with on_pieces():
        pieces = _in_pieces(its).layout(Pieces([Piece(u.length, "there", 0)]), entries, fresh)
    length: Any = 0
    fine: Any = True
    for part in pieces.stretches:
        is_here = (u.place >= length) & (u.place < length + part.count)
        if isinstance(part, Piece):
            stood = part.first + u.place - length
            # A block that moves goes to a place that is new, and stood where nothing is computed.
            moves = (u.place >= u.length) & (stood * u.size >= u.computed) & (not fresh) & (mode is StateMode.ALIGN)
            right: Any = (stood < u.length) & ((stood == u.place) | moves)
        elif part.what == "new":
            right = u.place >= u.length
        else:
            # The state at its end is passed, and no draft is computed.
            passed = ((u.place + 1) * u.size < u.tokens) & (u.tokens <= u.known)
            right = passed & (mode is StateMode.ALIGN)
        fine = fine & implies(is_here, right)
        length = length + part.count
    return fine & (length == entries)


def _passes_three(u: Any) -> Any:
    """After two blocks of 8, and two of drafts, a step computes four blocks of a prompt."""
    table = (u.mode == 2) & (u.draft_states == 2) & (u.size == 8) & (u.length == 4) & (u.fresh == 0)
    return table & (u.computed == 16) & (u.tokens == 48) & (u.known == 50)


STAND = Obligation(
    id="attention-kinds.running-states-that-move",
    statements=("KV-MEM-01", "KV-OP-26"),
    title="When a table of states grows, however long it is, what it had at a place stays there, or moves to a new "
    "place; what moves stood where nothing was computed. A new place gets a new block, or one that moves. Where states "
    "are kept at block ends only, a place may get none, if the step ends after it and computes no draft.",
    unknowns={
        **{name: Count(0) for name in ("draft_states", "computed", "known", "drafts", "length", "place", "lookahead")},
        **{name: Count(1) for name in ("size", "tokens")},
        "mode": Count(0, len(MODES) - 1),
        "fresh": Count(0, 1),
    },
    # A step with drafts computes one more token, and there is a state for each: ``running-steps-ahead-compute-their-
    # drafts`` and ``eagle.running-drafts-have-slots``.
    assumes=lambda u: (
        (u.computed < u.tokens)
        & (u.drafts <= u.draft_states)
        & implies(u.fresh == 0, (u.length - u.draft_states) * u.size >= u.computed)
        & implies(u.fresh == 1, u.tokens <= u.known)
        & ((u.tokens <= u.known) | (u.tokens == u.computed + 1 + u.drafts))
        & ((u.mode != MODES.index(StateMode.ALIGN)) | (u.size >= 2 * u.draft_states + 2))
    ),
    claim=_moves_nothing_that_counts,
    witnesses={
        "a draft's block moves": lambda u: _passes_three(u) & (u.place == 6),
        "a place is passed": lambda u: _passes_three(u) & (u.place == 4),
    },
    mutants=(
        _RUNNING_STATE_MOVES,
        _MOVES_A_HIT,
        _SKIPS_ONE_MORE,
    ),
)

OBLIGATIONS = (HAS_STATES, FIRST, FIRST_AT_BLOCK_ENDS, STAND)
