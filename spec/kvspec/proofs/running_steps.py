"""Chapters 01, 03, 04 and 05: an admission and a running step as a whole, made of the transitions that are proved.

The manager performs the operation with its own books, holdings and prefix cache. What it does to one entry of one
table, and to one slot of the block there, is run again as transitions on a state of any size (``kvspec.pool``): each of
them must be able to happen where it happens, in the slots too. How the request stands in the state is a predicate
(``_stands``): it is assumed before the operation, and shown after it.

A slot is that of a token; where several tokens share one, that of the last of them; or it stands for the state after a
block's last token. A state that comes before the end of its block counts as nothing here: it is in a block of which
nothing is known and that has no other holder, and so nothing but its own request's steps writes there.

What stands for the pool does what ``running_kernel`` and ``running_pool`` show of it: a block that is taken was free,
one that is held gets a holder. What a look-up finds is listed for the content that its request asks for: this is shown
of the look-up that runs, over maps that find what they list. When a block is due and which boundaries are offered is
any. A prefix is known by how many tokens it has. In the state the tokens of a step count as computed before their
content becomes known, in the manager after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import Converter, define, evolve, field, validators

from kvreference import ahead, attention, caching, hit_lookup, holdings, population, prefix_cache
from kvreference import manager as manager_module
from kvreference import tables as block_tables
from kvreference.answers import Granted, Hit, Partial, Refused
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.caching import register
from kvreference.choices import Choices
from kvreference.geometry import Group
from kvreference.holdings import Holdings
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import Admit, Schedule
from kvreference.population import Population, Status
from kvreference.prefix_cache import no_junction
from kvreference.rules import Delta, Rules
from kvreference.tables import Table
from kvspec import sequences
from kvspec.obligation import AMap, Count, Mutant, Obligation, Property, Unknown, only
from kvspec.pool.induction import before, broken, is_sound_at
from kvspec.pool.invariants import STRUCTURAL, Invariant, Point, filled_is_held, filled_is_unknown
from kvspec.pool.state import FREE, MAPS, WAITING, Operands, State, Transition, is_found
from kvspec.pool.transitions import (
    DRAFT,
    Aim,
    Begin,
    Compute,
    Demote,
    Drop,
    Fill,
    Hold,
    Move,
    Pin,
    Read,
    Register,
    Take,
)
from kvspec.progress.counted import least, most
from kvspec.proofs.longest_hit import Blocks as FoundBlocks
from kvspec.proofs.running_allocation import HitBlocks, Layout, Stretch, Times, grown, on_stretches
from kvspec.proofs.running_pool import books, holdings_over, manager_over
from kvspec.proofs.running_queries import cache_over
from kvspec.proofs.running_requests import Tokens, request_of
from kvspec.proofs.running_tables import OWNER, on_lengths
from kvspec.running import fresh, key
from kvspec.sequences import times
from kvspec.stand_in import group
from kvspec.symbolic import current_path, either, expression_of, formula_of, implies, negated
from kvspec.turns import turns_at

RUNS, RESUMES = range(2)
"""A request runs, or it is admitted with tokens that were computed before: it has its tables."""
GETS = ("new", "null", "moved")
"""What a place gets that a table of states gains: a new block, none, or one that stood at an earlier place."""
KEPT: tuple[Invariant, ...] = (*STRUCTURAL, filled_is_held, filled_is_unknown)
"""The invariants that these proofs use."""


def keeps_states(u: Any) -> bool:
    """Whether a group that keeps states is looked at."""
    return hasattr(u, "stops")


class Row:
    """The entries of a table: stretches. The block that is observed stands at one place, if one stands there."""

    def __init__(self, its: Whole, parts: Iterable[Stretch]) -> None:
        self.its, self.parts = its, list(parts)

    def __iter__(self) -> Iterator[Stretch]:
        return iter(self.parts)

    def __len__(self) -> int:
        # Its length is asked for only if it has no stretches.
        return len(self.parts)

    def __iadd__(self, more: Iterable[Stretch]) -> Row:
        self.parts += more
        return self

    @property
    def length(self) -> Any:
        """How many entries there are."""
        return _entries(self.parts)

    def at(self, place: Any) -> Stretch | None:
        """The stretch in which a place is."""
        first: Any = 0
        for part in self.parts:
            if (place >= first) & (place < first + part.count):
                return part
            first = first + part.count
        return None

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            # What a table gained; or, with an end, what a pinned tier keeps.
            return self.parts[which.start.__index__() :] if which.stop is None else []
        if not (which is self.its.place or which == self.its.place):
            return fresh("another")
        self.its.part = part = self.at(self.its.place)
        if part is None:
            raise IndexError(which)
        return self.its.block if part.what != "null" and not self.its.left else NULL

    def __setitem__(self, place: Any, block: Any) -> None:
        assert place is self.its.place, "of the place that is looked at"
        assert block == NULL, "that it is left"
        self.its.left = True


def _entries(parts: Iterable[Stretch]) -> Any:
    return sum(part.count for part in parts)


def _row(parts: Any, table: Any) -> Any:
    return Row(table.its, parts)


@define(kw_only=True)
class ATable(Table):
    """A table that is a row, whatever it is set to."""

    its: Any
    blocks: Any = field(converter=Converter(_row, takes_self=True))  # type: ignore[misc]  # it takes the table


class Whole:
    """Stands for a pool. It remembers what happened to the block that is observed, in order."""

    def __init__(self, u: Any) -> None:
        self.u, self.place, self.block, self.source = u, key(u.place), key(u.at_block), key(u.source)
        self.free: list[Any] = []
        self.left = False
        """Whether the place is a null block by now."""
        self.did: list[tuple[str, Any]] = []
        self.looked_up = self.named = False
        self.matched: Any = 0
        """Whether something is copied after a hit, and how many tokens its source is asked for."""
        self.partial, self.cached = SimpleNamespace(contents_of=lambda _block: ()), self
        self.part: Stretch | None = None
        """In which stretch the place is."""

    def table(self, blocks: Any, **others: Any) -> ATable:
        """A table."""
        return ATable(its=self, blocks=blocks, **others)

    def count_free(self, _blocks: Any) -> Any:
        """How many of them are free."""
        return self.u.free

    def make_room(self, count: Any, _kept: Any) -> bool:
        """Whether so many can be had; if so, blocks are demoted for them."""
        is_room = bool(count <= self.u.room)
        self.did += [("demote", None)] if is_room else []
        return is_room

    def touch(self, blocks: Any) -> None:
        """One more holder for each."""
        self.did += [("source" if each is self.source else "hold", each) for each in blocks]

    def take(self, count: Any) -> tuple[list[Stretch], list[Any]]:
        """So many blocks, which were free."""
        taken = Stretch(count, "taken")
        self.did.append(("take", taken))
        return [taken], []

    def slide(self, blocks: Any, _anchor: Any) -> None:
        """One holder fewer for each."""
        self.did += [("leave", each) for each in blocks if each is self.block]

    def release_last(self, blocks: Any) -> None:
        """The same."""
        self.slide(blocks, ())

    def register(self, content: Any, block: Any) -> None:
        """It is known to hold this."""
        self.did.append(("register", (content, block)))

    def register_beginning(self, content: Any, block: Any) -> None:
        """It is known to begin with this."""
        self.did.append(("begin", (content, block)))

    def content_of(self, block: Any) -> Any:
        """What the block at the place is known to hold; None if nothing. What is taken is forgotten."""
        assert block is self.block, "of the place that is looked at"
        assert self.part is not None, "the place was found"
        known = self.part.what != "taken" and self.u.content[self.u.at_block] != 0
        return self.u.content[self.u.at_block] if known else None

    def is_cached(self, _block: Any) -> bool:
        """Not asked."""
        raise NotImplementedError


def _comes_to(manager: Manager, place: Any) -> None:
    """Before each turn the places before it were looked at."""
    (table,) = manager.holdings.tables[OWNER]
    table.registered = place


class _AGroup:
    """A group of any kind. What its tables are like is what ``compressed-groups.running-tables-of-slots`` and
    ``attention-kinds.running-states-that-move`` show of each kind.

    How many blocks no later token reads is any number.
    """

    def __init__(self, u: Any) -> None:
        self.u = u
        # Whether hits end inside blocks matters only to boundaries and copies.
        self.its = group(Kind.FULL, u.size, unit_tokens=u.unit if u.inside == 1 else None)
        self.lookahead_tokens = _lookahead(u)
        self.attention = SimpleNamespace(stops_at_block_ends=keeps_states(u) and bool(u.stops == 1))
        self.asked: list[Any] = []
        """After how many tokens it was asked what is read."""
        self._known: list[tuple[str, Any, Times]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.its, name)

    def tokens_matched(self, hit_tokens: Any) -> Any:
        matched: Any = Group.tokens_matched(self, hit_tokens)  # type: ignore[arg-type]  # it stands for one
        return matched

    def blocks_dead(self, tokens: Any) -> Any:
        self.asked.append(tokens)
        return self.u.passed

    def blocks_unread(self, tokens: Any) -> Times:
        self.asked.append(tokens)
        return Times(expression_of(self.u.passed))

    def blocks_occupied(self, tokens: Any) -> Times:
        """Enough; no tokens need none."""
        occupied = self._enough("occupied", tokens)
        current_path().fact(formula_of(implies(tokens == 0, occupied == 0)))
        return occupied

    def entries(self, tokens: Any, slots: Any) -> Times:
        self.tokens = tokens
        return self._enough("entries", least(tokens, slots))

    def _enough(self, what: str, tokens: Any) -> Times:
        """Any number, but that each slot which these tokens fill has an entry."""
        asked = expression_of(tokens)
        for name, other, entries in self._known:
            if name == what and asked.eq(other):
                return entries
        entries = Times(fresh(what).z3)
        current_path().fact(formula_of((entries >= 0) & _has_entries(self.u, tokens, entries)))
        self._known.append((what, asked, entries))
        return entries

    def layout(self, blocks: Any, entries: Any, fresh: bool) -> Any:
        """New entries at the end; where states are kept, the one at the place that is looked at gets anything."""
        u, parts = self.u, blocks.stretches if isinstance(blocks, Layout) else list(blocks)
        length = _entries(parts)
        if not keeps_states(u) or (u.place < length) | (u.place >= entries):
            return grown(blocks, entries)
        what = GETS[u.gets.__index__()]
        if what == "null":
            current_path().fact(formula_of(_may_be_skipped(u, self.tokens)))
        elif what == "moved":
            current_path().fact(formula_of((u.stops == 1) & (not fresh)))
        others = Stretch(u.place - length, "others"), Stretch(entries - u.place - 1, "others")
        return Layout([*parts, others[0], Stretch(1, what), others[1]])


def _may_be_skipped(u: Any, tokens: Any) -> Any:
    """A place has no block after a step up to so many tokens, of which none is a draft: its state is passed."""
    return (u.stops == 1) & (u.whole < tokens) & (tokens <= u.tokens)


def _has_entries(u: Any, tokens: Any, entries: Any) -> Any:
    """So many entries are enough for what is looked at, where these tokens fill it: the slot, its block, what is
    offered inside it, and what is copied there."""
    ends = [_token(u) + 1, u.whole, either(u.offers == 1, u.boundary + _lookahead(u), 0)]
    ends += [_hit(u)] if hasattr(u, "copied") else []
    fine: Any = True
    for end in ends:
        fine = fine & implies((end > u.whole - u.size) & (end <= tokens), u.place < entries)
    return fine


class _Prefixes:
    """The prefixes of a request: each is known by how many tokens it has."""

    def __init__(self, count: Any) -> None:
        self.length = count

    def __getitem__(self, place: Any) -> Any:
        return place + 1


class _Fenced:
    """What cannot serve yet: anything or nothing."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def __contains__(self, _content: Any) -> bool:
        return bool(self.u.ready == 0)

    def update(self, _contents: Any) -> None:
        """What cannot serve in this step either."""


@contextmanager
def _as_it_is(its: Whole, manager: Manager) -> Iterator[None]:
    """The manager runs over stretches, and at the place that is observed; the smaller of two numbers is a number."""

    def ranged(first: Any, end: Any = None) -> Any:
        if end is None:
            return range(first)
        return [its.place] if (its.place >= first) & (its.place < end) else []

    with ExitStack() as stack:
        stack.enter_context(on_stretches())
        for module in (population, manager_module, caching, prefix_cache):
            stack.enter_context(on_lengths(module))
        for module in (population, ahead, attention, holdings, caching, prefix_cache, manager_module):
            for name, by in {"min": least, "max": most}.items():
                stack.enter_context(patch.object(module, name, by, create=True))
        stack.enter_context(patch.object(holdings, "range", ranged, create=True))
        if keeps_states(its.u):
            # ``attention-kinds.running-layout-of-states``
            stack.enter_context(patch.object(holdings, "keeps_all", lambda _layout, _blocks: True))
        stack.enter_context(patch.object(block_tables, "Table", its.table))
        stack.enter_context(turns_at(caching, [its.place], lambda place: _comes_to(manager, place)))
        yield


def _manager(u: Any, its: Whole, of: _AGroup, request: Any) -> Any:
    geometry: Any = SimpleNamespace(groups=(of,), grain_tokens=1, hashed_ahead_tokens=0)
    geometry.anchor = lambda _group, _end: (u.dead, u.dead)
    # A chunk that ends where a state is kept is that of a smaller budget.
    geometry.state_block_tokens, geometry.fences, geometry.keeps_states = None, keeps_states(u), keeps_states(u)
    held = holdings_over(SimpleNamespace(pool=its), geometry)
    held.settings.tokens_max = u.longest
    held.passes_gate = lambda *_: bool(u.gate == 1) if its.looked_up else True
    manager = manager_over(held)
    cache = cache_over(geometry)
    cache.rules, cache.fenced, cache.junction_of = (
        Rules((Delta("stored_events", lambda *_: []),)),
        _Fenced(u),
        no_junction,
    )
    # A block becomes known, or a boundary inside one: what is done to one depends on no other.
    kept = SimpleNamespace(due_tokens=lambda *_: _due(u), boundaries=lambda *_: ())
    if u.offers == 1:
        kept.due_tokens = lambda *_: None
        kept.boundaries = lambda start, end, _prompt: [u.boundary] if (u.boundary > start) & (u.boundary <= end) else ()
    cache.retention = SimpleNamespace(at_junction=lambda _junction: kept)
    # What a release gets at once, or gets none of, is any number of slots.
    manager.choices = Choices(lookahead_when_admitted=True)
    manager.cache, manager.geometry, manager.prefixes = cache, geometry, {OWNER: _Prefixes(u.known)}
    manager.settings = SimpleNamespace(lookahead_tokens=u.lookahead, full_sequence_must_fit=True)
    manager.settings.loads_out_of_turn, manager.performed = u.out_of_turn == 1, 0
    its_books = books(Population, chunk_tokens=u.chunk, tokens_max=u.longest, geometry=geometry)
    its_books.alive = {OWNER: request}
    manager.population = its_books
    return manager


def _due(u: Any) -> Any:
    """When a block is due; a state at its end, or never: ``retention.state-is-due-at-its-end``."""
    if not keeps_states(u):
        return u.due
    return u.whole if u.due == 1 else None


# What happened, as transitions


class Replayed:
    """A state, and whether each transition so far could happen."""

    def __init__(self, u: Any) -> None:
        self.state: State = before(u)
        self.could: Any = True
        self.part: Stretch | None = None
        """In which stretch of the table the place is afterwards."""

    def happens(self, transition: type[Transition], at: Operands) -> None:
        """It must be possible here."""
        self.could = self.could & transition.guard(self.state, at)
        self.state = transition.effect(self.state, at)


def _stands(u: Any, state: State, named: Any, counted: Any, filled: Any = False) -> Any:
    """How a request stands in the state, in the slot that is observed of its block: the entry names what its table
    names; what counts as computed is there, drafts are not sure, and in what does not count is nothing, or the same
    from before it was lost. Another node fills the block only if it is to."""
    block, counts = either(named, u.at_block, NULL), named & counted
    has, rest = state.has[u.at_entry], named & negated(counted)
    fine = (state.named[u.at_entry] == block) & (state.counts[u.at_entry] == either(counts, u.at_block, NULL))
    fine = fine & implies(counts, has == u.own) & implies(rest, (has == 0) | ((has == u.own) & (_token(u) < u.tokens)))
    unsure = counts & (_token(u) >= u.tokens)
    fine = fine & (state.tentative[u.at_entry] == either(unsure, 1, 0))
    if keeps_states(u):
        fine = fine & implies(rest, has == 0) & implies(rest | unsure, _is_its_own(u, state))
    return fine & implies(named, (state.filled[u.at_block] != 0) == filled)


def _is_its_own(u: Any, state: State) -> Any:
    """What is in the block concerns its only holder: nothing is known of it. So the running state may be there."""
    return (state.refs[u.at_block] == 1) & (state.content[u.at_block] == 0) & (state.begun[u.at_block] == 0)


def _is_passed(u: Any, begun: Any, end: Any) -> Any:
    """Whether a step passes the end of the place, and writes no state there: it has no drafts."""
    return keeps_states(u) and (u.stops == 1) & (u.whole > begun) & (u.whole < end) & (end <= u.tokens)


def _replayed(u: Any, its: Whole, manager: Manager, answer: Any, computed: tuple[Any, Any], starts: Any) -> Replayed:
    """What was done to the entry, in order; the tokens from one to the other count as computed then.

    The step itself ``starts`` after so many.
    """
    replayed = Replayed(u)
    tables: Any = manager.holdings.tables.get(OWNER)
    replayed.part = part = None if tables is None else tables[0].blocks.at(its.place)
    gains = any(which is part for what, which in its.did if what in ("hold", "take"))
    own = Operands(u.at_block, u.at_entry, content=u.own)
    for what, which in its.did:
        if what == "source":
            replayed.happens(Read, Operands(u.source, copy=u.at_copy, content=its.matched))
        elif what == "leave":
            if u.pins == 1:
                replayed.happens(Pin, own)
            replayed.happens(Drop, own)
        elif what == "demote" and gains and (u.pins == 1) & (replayed.state.where[u.at_block] == WAITING):
            # The block that the place gets, or another one: even if it is held then, nothing becomes impossible.
            replayed.happens(Demote, own)
        elif which is part and what == "hold":
            replayed.happens(Hold, evolve(own, content=u.whole))
        elif which is part and what == "take":
            current_path().assume(formula_of(replayed.state.where[u.at_block] == FREE))
            # Another node writes what comes after the hit, also in a block of which the beginning is copied.
            replayed.happens(Fill if answer.loads and _token(u) >= _hit(u) else Take, own)
    copies: Any = manager.holdings.copies
    if any(copy.destination is its.block for copy in copies):
        brings = _token(u) < _hit(u)
        replayed.happens(Aim, evolve(own, copy=u.at_copy, content=either(brings, u.own, 0)))
    if part is not None and part.what == "moved":
        replayed.happens(Move, Operands(u.at_block, u.at_other, u.at_entry))
    begun, end = computed
    # What another node provides at once, and no later token reads, is not written.
    if (_token(u) >= begun) & (_token(u) < end) & (u.place >= u.passed) & negated(_is_passed(u, starts, end)):
        replayed.happens(Compute, evolve(own, other=either(_token(u) >= u.tokens, DRAFT, 0)))
    for what, which in its.did:
        if what == "register":
            content, block = which
            replayed.happens(Register, evolve(own, content=content[1]))
            replayed.could = replayed.could & (block == u.at_block)
        elif what == "begin":
            content, block = which
            if block is not its.block:
                replayed.could = False
            elif replayed.state.begins[content[1], u.at_block] == 0:
                replayed.happens(Begin, evolve(own, content=content[1]))
    # What is held is held before anything is taken, so that it is not taken.
    took = [what == "take" for what, _ in its.did if what in ("source", "hold", "take")]
    replayed.could = replayed.could & (took == sorted(took))
    return replayed


def _parts(u: Any, end: Any) -> Any:
    """What the request's own content up to its block's end, and up to this ``end``, has in the slot."""
    first = u.whole - u.size
    inside = (end > first) & (end <= u.whole)
    is_so = (u.whole == u.place * u.size + u.size) & (u.part[u.whole] == u.own)
    return is_so & implies(inside, u.part[end] == either(first + u.slot < end, u.own, 0))


def _lookahead(u: Any) -> Any:
    """How many tokens more a hit must match."""
    return either(u.matches == 1, u.unit, 0)


def _offers(u: Any) -> Any:
    """Where the place is one in which a boundary ends that is offered, this is inside its block."""
    end = u.boundary + _lookahead(u)
    inside = (end > u.whole - u.size) & (end < u.whole) & (u.inside == 1)
    return _parts(u, end) & implies(u.offers == 1, inside)


def _token(u: Any) -> Any:
    """The token whose slot is looked at."""
    return u.place * u.size + u.slot


# A request with tables


def _step(u: Any) -> Any:
    """A step of a request that has its tables: it runs, or it waits with computed tokens."""
    runs, its, of = bool(u.way == RUNS), Whole(u), _AGroup(u)
    status = Status.RUNNING if runs else Status.WAITING
    request = request_of(u, status, number=OWNER, drafts=Tokens(u.drafts), drafts_in_flight=u.unsure)
    request.in_flight = [u.flying]
    manager = _manager(u, its, of, request)
    parts = [Stretch(u.dead, "null"), Stretch(u.length - u.dead, "there")]
    table = its.table(parts, registered=u.registered, boundary_tokens=u.offered, dead=u.dead, fresh=False)
    its.left = keeps_states(u) and bool(u.absent == 1)
    manager.holdings.tables = {OWNER: [table]}
    with validators.disabled():
        operation = Schedule(OWNER, u.budget) if runs else Admit(OWNER, u.budget)
    with _as_it_is(its, manager):
        answer = manager.perform(operation)
    end = request.tokens_computed
    replayed = _replayed(u, its, manager, answer, (u.computed, end), u.computed)
    was_lost = keeps_states(u) and u.lost == 1
    lost = was_lost | _is_passed(u, u.computed, end) if isinstance(answer, Granted) else was_lost
    stands = _stands_after(u, its, replayed, (_token(u) < end) & negated(lost))
    return replayed.could & _is_asked(of, _sure(u)) & stands & _is_left_well(u, its, table, end, lost)


def _is_asked(of: _AGroup, tokens: Any) -> Any:
    """Whether it was asked once what is read, after so many tokens."""
    (asked,) = of.asked
    return asked == tokens


def _stands_after(u: Any, its: Whole, replayed: Replayed, counted: Any, filled: Any = False) -> Any:
    """How the request stands in the state; whether the place names a block is noted."""
    its.named = replayed.part is not None and replayed.part.what != "null" and not its.left
    return _stands(u, replayed.state, its.named, counted, filled)


def _is_left_well(u: Any, its: Whole, table: Any, end: Any, lost: Any) -> Any:
    """What a table has after an operation that so many tokens count after, or are loaded; a state may be ``lost``."""
    # What was looked at before stays so, also if an answer has taken drafts back since.
    looked_at = u.registered if hasattr(u, "registered") else 0
    fine: Any = (table.registered * u.size <= least(end, u.tokens)) | (table.registered == looked_at)
    if not keeps_states(u):
        # Nothing is left that a token from the sure ones on reads. Of states: ``running-states-of-a-step``.
        is_read = (u.place >= u.passed) & (u.place >= table.dead) if hasattr(u, "dead") else u.place >= u.passed
        return fine & implies(is_read & (_token(u) < end), its.named)
    # A state that is lost is never offered, and is not the one that comes next.
    return fine & implies(lost, (u.place < table.registered) & (u.whole < end))


OF_STEP: Mapping[str, Unknown] = {
    "blocks": Count(1),
    "out_of_turn": Count(0, 1),
    **{name: AMap(arity) for name, arity in MAPS.items()},
    **{f"at_{name}": Count(1) for name in ("block", "entry", "copy")},
    "source": Count(1),
    "own": Count(1),
    "place": Count(0),
    "slot": Count(0),
    "whole": Count(1),
    "size": Count(1),
    "unit": Count(1),
    "passed": Count(0),
    **{name: Count(0, 1) for name in ("matches", "gate", "ready", "inside", "offers", "pins")},
    **{name: Count(0) for name in ("computed", "drafts", "known", "boundary", "lookahead", "free", "room", "due")},
    **{name: Count(1) for name in ("tokens", "budget", "chunk")},
    "longest": Count(2),
}
"""Any state, a block of an entry of a table, one slot of it, and how far the request of the entry is."""


WITH_TABLES: Mapping[str, Unknown] = {
    **OF_STEP,
    **{name: Count(0) for name in ("unsure", "length", "dead", "registered", "offered", "flying", "passed_then")},
}
"""That, where the request has its tables."""


def _is_sound(u: Any) -> Any:
    own = Operands(u.at_block, u.at_entry, copy=u.at_copy)

    def points(state: State) -> list[Point]:
        points = [evolve(own, content=content) for content in (state.content[u.at_block], u.whole)]
        points += [evolve(own, entry=u.at_other)] if hasattr(u, "at_other") else []
        copied = (state.content[u.source], u.matched) if hasattr(u, "matched") else (0,)
        return points + [Operands(u.source, content=content) for content in copied]

    fine = is_sound_at(u, points, KEPT) & (u.slot < u.size) & implies(u.inside == 1, u.unit < u.size)
    return fine & (u.tokens <= u.longest) & (u.known <= u.tokens)


def _sure(u: Any) -> Any:
    """How many of its computed tokens are sure, where a request runs: drafts in flight are not, and, where another node
    writes out of turn, what the steps in flight compute."""
    flying = either(u.out_of_turn == 1, least(u.flying, u.computed), 0)
    return u.computed - either(u.way == RUNS, most(u.unsure, flying), 0)


def _may_step(u: Any) -> Any:
    """The request stands in the state as it must, and has a token to compute."""
    state = before(u)
    named, counted = (u.place >= u.dead) & (u.place < u.length), _token(u) < u.computed
    if keeps_states(u):
        named, counted = named & (u.absent == 0), counted & (u.lost == 0)
    fine = _is_sound(u) & _stands(u, state, named, counted)
    sure = _sure(u)
    # What was looked at is known; of a request that has loaded all its tokens, the last one is computed again.
    again = 0 if keeps_states(u) else either(u.way == RUNS, 0, 1)
    fine = fine & (u.registered * u.size <= least(u.computed + again, u.tokens)) & _has_entries(u, u.computed, u.length)
    fine = fine & (u.unsure <= u.computed) & (u.dead <= u.length)
    # What was left: before a hit more of it than a step would leave; or with a step of before a preemption.
    fine = fine & (u.dead * u.size <= (sure if keeps_states(u) else u.computed))
    # ``attention-kinds.running-left-was-computed``; hits end inside blocks of full attention only.
    fine = fine & (u.passed * u.size <= sure) & implies(u.inside == 1, (u.passed == 0) & (u.dead == 0))
    # Something is copied only in groups of full attention, of which nothing is left.
    fine = fine & implies(state.writes.count(u.at_block) != 0, u.passed == 0)
    # A step in flight uses a block of which its request is the only holder, if its first token reads it. Of a
    # request that waits, steps of before its preemption only are in flight, which use no block of its table.
    begins = either(u.way == RUNS, most(u.computed - u.flying, 0), u.computed)
    used = ((state.uses.count(u.at_block) != 0) | (state.owed[u.at_block] != 0)) & (state.refs[u.at_block] == 1)
    fine = fine & implies(named & used & (u.out_of_turn == 1), u.place >= u.passed_then)
    fine = fine & implies(begins >= sure, u.passed_then >= u.passed)
    runs = (u.computed < u.tokens + u.drafts) & (u.computed < u.longest - 1)
    resumes = (u.computed >= 1) & (u.computed < u.tokens) & (u.drafts == 0)
    fine = fine & _offers(u)
    # Hits that end inside blocks matter to boundaries only.
    fine = fine & (u.inside == u.offers) & ((u.inside == 1) | (u.matches == 0)) & _may_keep_states(u)
    return fine & ((u.way != RUNS) | runs) & ((u.way == RUNS) | resumes)


def _may_keep_states(u: Any) -> Any:
    """Of a state, its place in the slots is that of the last token in its block."""
    if not keeps_states(u):
        return True
    state = before(u)
    fine = (u.slot == u.size - 1) & implies(u.absent == 1, (u.place < u.length) & (u.whole <= u.computed - u.unsure))
    fine = fine & implies(u.lost == 1, (u.stops == 1) & (u.whole < u.computed) & (u.place < u.registered))
    # ``running-steps-ahead-compute-their-drafts``; prefixes end with every grain of tokens that are known.
    fine = fine & implies(u.computed < u.tokens - 1, (u.drafts == 0) & (u.unsure == 0))
    fine = fine & implies(u.whole <= u.tokens - 1, u.whole <= u.known)
    # ``running-states-that-move``
    moves = (u.gets == GETS.index("moved")) & (u.place >= u.length)
    nothing = (state.has[u.at_other] == 0) & (state.counts[u.at_other] == 0) & (state.tentative[u.at_other] == 0)
    stood = (state.named[u.at_other] == u.at_block) & (state.filled[u.at_block] == 0)
    return fine & implies(moves, stood & nothing & _is_its_own(u, state))


# A request without tables


def _hit(u: Any) -> Any:
    """How long the hit is: so many full blocks, and some tokens of another one if they are copied."""
    return u.full * u.size + u.rest


def _begins_with(u: Any) -> Any:
    """Of how many tokens a request that is admitted reads what the next one reads: the last one is computed."""
    return least(_hit(u) + u.external, u.tokens - 1)


def _admits(u: Any) -> Any:
    """A request is admitted after a hit and what another node provides, now or later."""
    its, of, request = Whole(u), _AGroup(u), request_of(u, Status.WAITING, number=OWNER, drafts=Tokens(0))
    manager, hit = _manager(u, its, of, request), _hit(u)
    its.looked_up, its.matched = True, of.tokens_matched(hit)
    source: Any = its.source
    partials = (Partial(0, source, u.rest),) if u.copied == 1 else ()
    blocks: Any = (HitBlocks(u.full),)
    with validators.disabled():
        operation = Admit(OWNER, u.budget, u.external, bool(u.loads == 1))
    with _as_it_is(its, manager), patch.object(prefix_cache, "longest_hit", lambda *_: Hit(hit, blocks, partials)):
        answer = manager.perform(operation)
    if isinstance(answer, Refused):
        return its.did == [] and manager.holdings.tables == {} and bool(request.tokens_computed == 0)
    end, begun = request.tokens_computed, _begins_with(u)
    replayed = _replayed(u, its, manager, answer, (0, 0) if answer.loads else (hit, end), begun)
    ((table,),) = manager.holdings.tables.values()
    lost = False if answer.loads else _is_passed(u, begun, end)
    counted = (_token(u) < (hit if answer.loads else end)) & negated(lost)
    fine = _is_asked(of, begun) & ((request.status is Status.LOADING) == answer.loads)
    stands = _stands_after(u, its, replayed, counted, answer.loads & (_token(u) >= hit))
    return fine & replayed.could & stands & _is_left_well(u, its, table, end, lost)


def _matched(u: Any) -> Any:
    """How many tokens a copy asks its source for."""
    return _hit(u) + _lookahead(u)


def _names_what_is_listed(u: Any, block: Any, source: Any) -> Any:
    """The block that a hit names at the place, and the source of its copy, are listed for what is asked for: for the
    content of a full block, or, of the source, for a boundary inside it."""
    state, matched = before(u), _matched(u)
    named = (u.place >= u.passed) & (u.place < u.full)
    copied = is_found(state.listed, matched, source) | is_found(state.begins, matched, source)
    return implies(named, is_found(state.listed, u.whole, block)) & implies(u.copied == 1, copied)


def _ends_in_its_block(u: Any) -> Any:
    """What a copy asks for ends in the block in which the hit ends: a hit, and a block, are some units."""
    return implies(u.copied == 1, _matched(u) <= (u.full + 1) * u.size)


def _may_be_admitted(u: Any) -> Any:
    """The request has nothing yet, and what its hit names holds what it asks for."""
    state = before(u)
    fine = _is_sound(u) & _stands(u, state, False, False) & (_hit(u) < u.tokens) & (u.rest < u.size)
    fine = fine & ((u.copied == 1) == (u.rest >= 1)) & (u.copied <= u.inside)
    fine = fine & (u.passed * u.size <= _begins_with(u)) & implies(u.inside == 1, u.passed == 0)
    fine = fine & implies(u.copied == 1, (state.reads[u.at_copy] == 0) & (state.writes[u.at_copy] == 0))
    # ``hit-lookup.running-hit-names-what-is-listed``
    fine = fine & _names_what_is_listed(u, u.at_block, u.source) & _ends_in_its_block(u)
    return fine & _offers(u) & (u.matched == _matched(u)) & _parts(u, u.matched)


_REGISTER, _COMPUTE, _ADMIT = Manager._register, Population._compute, Manager._admit_with_hit
_TAKE_BOUNDARIES, _RELEASES, _TABLES = caching._take_boundaries, Holdings.release_passed, block_tables.tables_of_hit
_AIM, _HOLD, _PLAN, _DEMOTE = Holdings._aim, Holdings._hold, Holdings._plan, Demote.effect
"""What these do, where nothing is broken."""
MANAGER, HOLDINGS = "kvreference.manager:Manager", "kvreference.holdings:Holdings"


def _counts_one_more(self: Population, request: Any, budget: int, granted: Granted) -> None:
    _COMPUTE(self, request, budget, granted)
    request.tokens_computed += 1


OF_ALL = (
    only(
        "counted-without-a-slot",
        "A token more counts as computed than there are slots for.",
        "kvreference.population:Population._compute",
        _counts_one_more,
    ),
    only(
        "no-slots-for-the-step",
        "A table gets slots for the tokens that are computed, and for none of the step.",
        f"{HOLDINGS}._plan",
        lambda self, tables, before, span: _PLAN(self, tables, before, evolve(span, tokens=0)),
    ),
)
REGISTERS = (
    only(
        "known-a-block-early",
        "A block becomes known before its tokens are scheduled.",
        f"{MANAGER}._register",
        lambda self, request, tokens, begun: _REGISTER(self, request, tokens + 1, begun),
    ),
    only(
        "content-of-the-block-before",
        "A block becomes known with the content of the one before it.",
        "kvreference.caching:content_up_to",
        lambda geometry, group_, prefixes, tokens: (
            group_,
            prefixes[tokens - geometry.groups[0].block_size_tokens - 1],
        ),
    ),
    only(
        "drafts-become-known",
        "Drafts become known with the step that computes them.",
        "kvreference.prefix_cache:register",
        lambda pool, geometry, kept, request, prefixes, tables_, verified, *others: register(
            pool, geometry, kept, request, prefixes, tables_, request.tokens_computed + 9, *others
        ),
    ),
)
OFFERS = (
    only(
        "boundary-before-it-is-computed",
        "A boundary is offered before what a hit there must match is computed.",
        "kvreference.caching:_take_boundaries",
        lambda its, kept, request, table, tokens: _TAKE_BOUNDARIES(its, kept, request, table, tokens + 1),
    ),
    only(
        "begins-the-block-before",
        "A boundary is an entry of the block before the one in which it ends.",
        "kvreference.caching:_begins",
        lambda pool, content, table, position: pool.register_beginning(content, table.blocks[position - 1]),
    ),
)
KNOWN = only(
    "known-twice",
    "What is known already becomes known once more.",
    "kvreference.prefix_cache:register",
    lambda pool, *others: register(_knows_nothing(pool), *others),
)


def _knows_nothing(pool: Any) -> Any:
    names = ("register", "register_beginning", "partial", "is_cached")
    cached = SimpleNamespace(content_of=lambda _block: None)
    return SimpleNamespace(cached=cached, **{name: getattr(pool, name) for name in names})


LEAVES = (
    only(
        "what-is-in-flight-is-sure",
        "A window leaves what steps in flight read while another node may write it.",
        "kvreference.manager:tokens_unsure",
        lambda request, out_of_turn: request.drafts_in_flight,
    ),
    only("all-is-sure", "A window leaves what drafts may take back.", f"{MANAGER}._unsure", lambda self, request: 0),
    only(
        "leaves-one-more",
        "A block is left that the next token reads.",
        f"{HOLDINGS}.blocks_dead",
        lambda self, group_, computed: group_.blocks_dead(computed) + 1,
    ),
)


def _asks(u: Any) -> Any:
    """A request of 14 tokens asks, with blocks of 4, and there is room."""
    enough = (u.budget == 9) & (u.chunk == 9) & (u.room == 9) & (u.gate == 1) & (u.ready == 1) & (u.known == 14)
    return enough & (u.tokens == 14) & (u.size == 4) & (u.longest == 40)


def _names_the_third(u: Any) -> Any:
    """It has three blocks, and the third is looked at."""
    return _asks(u) & (u.place == 2) & (u.length == 3) & (u.dead == 0)


def _with_tables(name: str, title: str, way: int, mutants: tuple[Mutant, ...]) -> Obligation:
    """A step of a request that has its tables."""
    return Obligation(
        id=f"content-and-cached-map.{name}",
        statements=("KV-MEM-01",),
        title=title,
        unknowns={**WITH_TABLES, "way": Count(way, way)},
        assumes=_may_step,
        claim=_step,
        witnesses={
            "its block becomes known": lambda u: (
                _names_the_third(u)
                & (u.passed == 0)
                & (u.inside == 0)
                & (u.computed == 9)
                & (u.slot == 2)
                & (u.registered == 2)
            ),
            "a boundary inside it becomes known": lambda u: (
                _names_the_third(u) & (u.offers == 1) & (u.unit == 2) & (u.boundary == 10) & (u.computed == 9)
            ),
            "it gets a new block": lambda u: (
                _asks(u) & (u.place == 2) & (u.length == 2) & (u.computed == 8) & (u.passed == 0)
            ),
            "a window leaves it": lambda u: (
                _names_the_third(u) & (u.passed == 3) & (u.computed == 12) & (u.refs[u.at_block] == 1)
            ),
        },
        mutants=(*OF_ALL, *REGISTERS, KNOWN, *OFFERS, *mutants),
    )


_AS_A_WHOLE = (
    "the entry may leave its block, or get a free one; the step computes what is not computed there; then the block, "
    "or a boundary inside it, may become known for what counts as computed, if it is not known. Afterwards "
    "the request stands in the state as it did, and what counts as computed, and a token from the sure ones on reads, "
    "is in a block that the table names. A block may be demoted for what is taken, and be pinned before it is left."
)
STEPS = _with_tables(
    "running-step-as-a-whole",
    "What a whole step of a running request does to an entry of its table and to a slot of the block there, in a table "
    "of any length of any kind that keeps slots, of one token or of several, are transitions where they can happen: "
    f"{_AS_A_WHOLE}",
    RUNS,
    LEAVES,
)
RETURNS = _with_tables(
    "running-return-as-a-whole",
    "What an admission of a request with computed tokens, which has its tables, does to an entry and to a slot of the "
    f"block there, are transitions where they can happen: {_AS_A_WHOLE}",
    RESUMES,
    LEAVES[2:],
)


# Tables of states


def _keeps(u: Any) -> Any:
    """A request of 20 tokens asks, with states at the ends of blocks of 8, and there is room."""
    enough = (u.chunk == 20) & (u.room == 9) & (u.gate == 1) & (u.ready == 1) & (u.known == 20)
    return enough & (u.tokens == 20) & (u.size == 8) & (u.longest == 40) & (u.due == 1) & (u.pins == 0)


def _is_there(u: Any) -> Any:
    """The second of two places is looked at, and was not yet."""
    return (u.place == 1) & (u.lost == 0) & (u.absent == 0) & (u.dead == 0) & (u.registered == 1)


OF_STATES: Mapping[str, Unknown] = {
    **{name: Count(0, 1) for name in ("stops", "due")},
    "gets": Count(0, len(GETS) - 1),
    **{name: Count(0, 0) for name in ("matches", "inside", "offers")},
}
"""A group that keeps states, and may keep them at the ends of chunks only."""
TABLE_OF_STATES: Mapping[str, Unknown] = {**OF_STATES, "absent": Count(0, 1), "lost": Count(0, 1), "at_other": Count(1)}
"""That, where the request has a table: the place may have no block by now, or one that does not hold its state."""
KNOWN_WHERE_PASSED = only(
    "a-state-that-is-passed-becomes-known",
    "A block becomes known to hold the state at its end, which the step has passed.",
    "kvreference.caching:holds_its_end",
    lambda group_, end, passed: True,
)
OF_STATES_OF_ALL = (
    *REGISTERS,
    only(
        "counted-beyond-the-step",
        "A token more counts as computed than the step computes.",
        "kvreference.population:Population._compute",
        _counts_one_more,
    ),
    KNOWN_WHERE_PASSED,
)


def _of_states(
    name: str, title: str, way: int, witnesses: Mapping[str, Property], mutants: tuple[Mutant, ...]
) -> Obligation:
    """A step of a request that has its tables, in a group that keeps states."""
    return Obligation(
        id=f"attention-kinds.{name}",
        statements=("KV-MEM-01",),
        title=title,
        unknowns={**WITH_TABLES, **TABLE_OF_STATES, "way": Count(way, way)},
        assumes=_may_step,
        claim=_step,
        witnesses=witnesses,
        mutants=(*OF_STATES_OF_ALL, *mutants),
    )


_KNOWN_AT_ITS_END = (
    "The block may become known then, but only if that state is in it for sure. Any other one is in a block of which "
    "nothing is known, and that has no other holder. A state that a step passed, and did not keep, is never offered."
)
_IN_STATES = (
    "of any length, in each mode, are transitions where they can happen. The place may be left, get a free block or "
    "one that stood at an earlier place, or be passed over. The step computes the state at its end if it ends there, "
    f"passes it with drafts, or if there is one in every block. {_KNOWN_AT_ITS_END}"
)
STEPS_OF_STATES = _of_states(
    "running-step-of-states-as-a-whole",
    f"What a whole step of a running request does to a place of a table of states {_IN_STATES}",
    RUNS,
    {
        "a draft's block moves to it": lambda u: (
            _keeps(u) & (u.place == 3) & (u.length == 3) & (u.gets == 2) & (u.computed == 19) & (u.budget == 6)
        ),
        "its state becomes known": lambda u: (
            _keeps(u) & _is_there(u) & (u.length == 2) & (u.computed == 11) & (u.budget == 5)
        ),
        "a chunk skips it": lambda u: (
            _keeps(u) & (u.place == 1) & (u.length == 1) & (u.computed == 8) & (u.gets == 1) & (u.budget == 12)
        ),
        "a chunk passes its end": lambda u: (
            _keeps(u) & _is_there(u) & (u.length == 2) & (u.computed == 9) & (u.stops == 1) & (u.budget == 9)
        ),
    },
    LEAVES,
)


RETURNS_OF_STATES = _of_states(
    "running-return-of-states-as-a-whole",
    f"What an admission of a request with computed tokens does to a place of its table of states {_IN_STATES}",
    RESUMES,
    {
        "a chunk skips it": lambda u: (
            _keeps(u) & (u.place == 1) & (u.length == 1) & (u.computed == 8) & (u.gets == 1) & (u.budget == 12)
        ),
    },
    LEAVES[2:],
)


def _registers_what_loads(
    self: Manager, request: Any, budget: int, hit: Any, provided: int, later: bool, *rest: Any
) -> Any:
    answer = _ADMIT(self, request, budget, hit, provided, later, *rest)
    if later and isinstance(answer, Granted):
        self._register(request, hit.tokens + provided, None)
    return answer


def _aims_before(self: Holdings, request: int, hit: Hit) -> None:
    for index, copy in enumerate(self.copies):
        place = hit.tokens // self.groups[copy.group].block_size_tokens
        self.copies[index] = evolve(copy, destination=self.tables[request][copy.group].blocks[place - 1])


def _takes_first(self: Holdings, tables: Any, index: int, blocks: Any) -> None:
    self.pool.take(1)
    _HOLD(self, tables, index, blocks)


KNOWN_BEFORE = only(
    "known-before-it-is-loaded",
    "What is to be loaded is known at once.",
    f"{MANAGER}._admit_with_hit",
    _registers_what_loads,
)
OF_ADMISSIONS = (
    only(
        "load-forgets-its-last-token",
        "What is left follows from all tokens that are at hand (finding 009, vLLM 0.20.2).",
        "kvreference.holdings:tables_of_hit",
        lambda geometry, hit, computed: _TABLES(geometry, hit, computed + 1),
    ),
    broken(
        "demoted-is-forgotten",
        "What a demoted block holds is forgotten.",
        Demote,
        lambda state, at: _DEMOTE(evolve(state, listed=state.listed.put((state.content[at.block], at.block), 0)), at),
    ),
    only(
        "takes-before-it-holds", "A block is taken before those of the hit are held.", f"{HOLDINGS}._hold", _takes_first
    ),
)


OF_ADMISSION: Mapping[str, Unknown] = {
    **OF_STEP,
    "computed": Count(0, 0),
    **{each: Count(0) for each in ("full", "rest", "external", "matched")},
    **{each: Count(0, 1) for each in ("copied", "loads")},
}
"""That, where the request has nothing yet."""


def _admission(
    name: str,
    title: str,
    only_if: Callable[[Any], Any],
    witnesses: Mapping[str, Callable[[Any], Any]],
    mutants: tuple[Mutant, ...],
    unknowns: Mapping[str, Unknown] = OF_ADMISSION,
) -> Obligation:
    """An admission of a request that has nothing yet."""
    return Obligation(
        id=name,
        statements=("KV-MEM-01",),
        title=title,
        unknowns=unknowns,
        assumes=lambda u: only_if(u) & _may_be_admitted(u),
        claim=_admits,
        witnesses=witnesses,
        mutants=(*mutants, *OF_ADMISSIONS),
    )


def _is_after_a_hit(u: Any, blocks: int, place: int) -> Any:
    """So many full blocks are hit, all of them are read, and this place is looked at."""
    return _asks(u) & (u.passed == 0) & (u.full == blocks) & (u.place == place)


ADMITS = _admission(
    "content-and-cached-map.running-admission-as-a-whole",
    "What a whole admission does to an entry of a table that its request then has, and to a slot of the block there, "
    "for any hit, with any number of tokens that another node provides, in a table of any length of any kind that "
    "keeps slots, of one token or of several, are transitions where they can happen: the source of a copy is held; the "
    "entry names "
    "the block of the hit, which is known to hold the request's own content, or gets a free block, which another node "
    "writes after the hit if it loads; the copy is made into a block of the request's own; the step computes what the "
    "hit, the copy and the load do not bring; then the block may become known for what counts as computed. What is "
    "held is held before anything is taken, for which blocks may be demoted. Afterwards the request stands in the "
    "state as it must, and what is at hand and its next token reads is in a block that the table names. A rejected "
    "admission does nothing.",
    lambda u: (u.offers == 0) & (u.inside == u.copied) & ((u.inside == 1) | (u.matches == 0)),
    {
        "a block of the hit": lambda u: _is_after_a_hit(u, 2, 1) & (u.loads == 0) & (u.copied == 0),
        "a copied beginning": lambda u: (
            _asks(u)
            & (u.passed == 0)
            & (u.place == 1)
            & (u.full == 1)
            & (u.copied == 1)
            & (u.rest == 2)
            & (u.unit == 2)
            & (u.slot == 1)
        ),
        "another node writes it": lambda u: (
            _asks(u)
            & (u.passed == 0)
            & (u.place == 2)
            & (u.full == 1)
            & (u.loads == 1)
            & (u.external == 8)
            & (u.copied == 0)
        ),
        "another node writes what is after a copied beginning": lambda u: (
            _is_after_a_hit(u, 1, 1)
            & (u.loads == 1)
            & (u.external == 6)
            & (u.copied == 1)
            & (u.rest == 2)
            & (u.unit == 2)
            & (u.slot == 3)
        ),
        "a computed block becomes known": lambda u: (
            _asks(u)
            & (u.passed == 0)
            & (u.place == 1)
            & (u.full == 1)
            & (u.loads == 0)
            & (u.slot == 2)
            & (u.due == 3)
            & (u.copied == 0)
        ),
    },
    (
        *OF_ALL,
        *REGISTERS[:2],
        KNOWN_BEFORE,
        only(
            "copied-into-the-block-before",
            "A copy goes into the last full block of the hit.",
            f"{HOLDINGS}._aim",
            _aims_before,
        ),
    ),
)
ADMITS_INSIDE = _admission(
    "partial-hits.running-admission-as-a-whole",
    "What a whole admission does to an entry and to a slot of the block there are transitions where they can happen "
    "also where a boundary is offered inside the block, with a copied beginning or without: it becomes known for what "
    "counts as computed before it, or was known.",
    lambda u: (u.offers == 1) & (u.loads == 0),
    {
        "in a block with a copied beginning": lambda u: (
            _asks(u)
            & (u.full == 1)
            & (u.place == 1)
            & (u.copied == 1)
            & (u.rest == 1)
            & (u.unit == 1)
            & (u.boundary == 6)
        ),
        "in a new block": lambda u: _is_after_a_hit(u, 1, 2) & (u.boundary == 9) & (u.unit == 1),
    },
    (*OF_ALL, *OFFERS),
)
ADMITS_STATES = _admission(
    "attention-kinds.running-admission-of-states-as-a-whole",
    "What a whole admission does to a place of a table of states, in each mode, for any hit, and with any number of "
    "tokens that another node provides, are transitions where they can happen: the place names the block of the hit, "
    "gets a free block, which another node writes if it loads, or is passed over. The step computes, and another node "
    f"provides, the state at its end. {_KNOWN_AT_ITS_END}",
    lambda u: (u.slot == u.size - 1) & (u.gets <= 1) & implies(u.whole <= u.tokens - 1, u.whole <= u.known),
    {
        "the state of the hit": lambda u: (
            _keeps(u) & (u.full == 2) & (u.place == 1) & (u.passed == 1) & (u.budget == 4)
        ),
        "another node writes it": lambda u: (
            _keeps(u) & (u.full == 1) & (u.place == 1) & (u.passed == 0) & (u.loads == 1) & (u.external == 8)
        ),
        "a chunk skips it": lambda u: (
            _keeps(u)
            & (u.full == 0)
            & (u.place == 1)
            & (u.passed == 0)
            & (u.gets == 1)
            & (u.budget == 20)
            & (u.loads == 0)
            & (u.external == 0)
        ),
        "its state becomes known": lambda u: (
            _keeps(u)
            & (u.full == 1)
            & (u.place == 1)
            & (u.passed == 0)
            & (u.budget == 8)
            & (u.loads == 0)
            & (u.external == 0)
        ),
    },
    (*REGISTERS[:2], KNOWN_WHERE_PASSED, KNOWN_BEFORE),
    {**OF_ADMISSION, **OF_STATES, "copied": Count(0, 0)},
)


# What a look-up finds


class _Of:
    """The prefixes of a request: of those that end with blocks, the ones of some places are met."""

    def __init__(self, *places: Any) -> None:
        self.places = places

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, slice):
            return which + 1
        return [which.start + place * which.step + 1 for place in self.places]


class _Listed:
    """A map: what it finds is listed in the state, as ``content-and-cached-map.running-find`` shows."""

    def __init__(self, lists: Any) -> None:
        self.lists = lists

    def find(self, content: Any) -> Any:
        """A block that is listed: one that is needed is there."""
        _group, tokens = content
        block = fresh("found")
        current_path().fact(formula_of(is_found(self.lists, tokens, block)))
        return key(block)


class _Places(FoundBlocks):
    """The blocks that were found: one of them is looked at, and from one is copied."""

    def __init__(self, u: Any, found: Any) -> None:
        super().__init__(u.place, found[0])
        self.u, self.last = u, found[1]

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return super().__getitem__(which)
        assert bool(which == self.u.full), "the block in which the hit ends"
        return self.last


def _is_listed(u: Any) -> Any:
    """What a satisfied group says of a hit: its table and its copy."""
    state, its = before(u), group(Kind.FULL, u.size, unit_tokens=u.unit, lookahead=bool(u.matches == 1))

    def needed(hit_tokens: Any) -> tuple[Any, Any]:
        # Of which kind it is matters only to how many blocks are not read.
        return times(u.first), its.blocks_needed(hit_tokens)[1]

    names = ("tokens_matched", "ends_inside", "block_size_tokens")
    of: Any = SimpleNamespace(blocks_needed=needed, **{name: getattr(its, name) for name in names})
    geometry: Any = SimpleNamespace(groups=(of,), grain_tokens=1)
    maps: Any = (_Listed(state.listed), _Listed(state.begins))
    prefixes: Any = _Of(u.place, u.full)
    found: Any = hit_lookup._Found(geometry, 0, maps, prefixes)
    found.blocks = _Places(u, found.blocks)
    (table,), partials = (
        hit_lookup.tables_found((found,), _hit(u), u.tokens),
        hit_lookup.partials_found((found,), _hit(u)),
    )
    length: Any = 0
    block: Any = NULL
    for part in table:
        if isinstance(part, sequences.Stretch):
            length = length + part.count
        else:
            block = either(length == u.place, part, block)
            length = length + 1
    copied = len(partials) == 1
    if copied != bool(u.copied == 1):
        return False
    source: Any = partials[0].source if copied else NULL
    fine = _names_what_is_listed(u, block, source) & _ends_in_its_block(u) & (length == u.full)
    return fine & (partials[0].tokens == u.rest if copied else u.rest == 0)


def _is_some_units(u: Any) -> Any:
    """A hit, and a block, are some units; what no token after the hit reads is left later, too."""
    whole = (u.rest == u.units * u.unit) & (u.size == u.units_of_block * u.unit) & (u.rest < u.size)
    return whole & ((u.copied == 1) == (u.rest >= 1)) & (u.first <= u.passed) & (u.whole == (u.place + 1) * u.size)


LISTED = Obligation(
    id="hit-lookup.running-hit-names-what-is-listed",
    statements=("KV-MEM-01",),
    title="If each block that a hit needs is found by a map, which finds a block that is listed, the table of the hit "
    "names at each place that is read later, in a table of any length, a block that is listed for the content that its "
    "request has up to the end of that place. The hit ends inside a block if and only if something is copied; the "
    "source is listed for what a hit there must match, which ends in that block.",
    unknowns={
        "blocks": Count(1),
        "out_of_turn": Count(0, 1),
        **{name: AMap(arity) for name, arity in MAPS.items()},
        **{name: Count(0) for name in ("place", "full", "rest", "passed", "first", "units")},
        **{name: Count(1) for name in ("size", "unit", "units_of_block", "whole", "tokens")},
        **{name: Count(0, 1) for name in ("copied", "matches")},
    },
    assumes=_is_some_units,
    claim=_is_listed,
    witnesses={
        "look-ahead inside a block": lambda u: (
            (u.size == 4) & (u.unit == 1) & (u.full == 2) & (u.rest == 2) & (u.matches == 1) & (u.place == 1)
        ),
        "look-ahead up to its end": lambda u: (
            (u.size == 4) & (u.unit == 2) & (u.full == 2) & (u.rest == 2) & (u.matches == 1) & (u.place == 0)
        ),
    },
    mutants=(
        only(
            "asks-by-the-prefix-before",
            "A block is asked for by the prefix that ends a token before it does.",
            "kvreference.hit_lookup:_Found.__init__",
            lambda self, geometry, index, maps, prefixes: _FINDS(self, geometry, index, maps, _Before(prefixes)),
        ),
        only(
            "begins-a-token-later",
            "A beginning is asked for by the prefix that ends a token later.",
            "kvreference.hit_lookup:_Found._beginning",
            lambda self, matched: self.partial_map.find((self.index, self.prefixes[matched])),
        ),
        only(
            "the-next-block",
            "A table begins with the next block.",
            "kvreference.hit_lookup:_Found.table",
            lambda self, hit: (*_TABLE(self, hit)[1:], NULL),
        ),
    ),
)


class _Before:
    """Prefixes, of which a cut begins one too early."""

    def __init__(self, prefixes: Any) -> None:
        self.prefixes = prefixes

    def __getitem__(self, which: Any) -> Any:
        return self.prefixes[slice(which.start - 1, which.stop, which.step) if isinstance(which, slice) else which]


_FINDS: Callable[..., None] = hit_lookup._Found.__init__
_TABLE: Callable[..., tuple[Any, ...]] = hit_lookup._Found.table
"""What these do, where nothing is broken."""

# What is left


KINDS = (Kind.FULL, Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL, Kind.MAMBA)
SLOTS = KINDS[:-1]
"""The kinds that keep a slot for each token, or for several together."""


def _group_of(u: Any, **others: Any) -> Group:
    kind = KINDS[u.kind.__index__()]
    if kind is Kind.MAMBA:
        mode = tuple(StateMode)[u.mode.__index__()]
        return group(kind, u.size, states=mode, draft_states=u.draft_states, **others)
    return group(kind, u.size, None if kind is Kind.FULL else u.window, **others)


def _was_computed(u: Any) -> Any:
    its = _group_of(u)
    fine: Any = True
    for blocks in (its.blocks_dead, its.blocks_unread):
        fine = fine & (blocks(u.computed) * u.size <= u.computed) & (blocks(u.computed) <= blocks(u.computed + u.more))
    return fine & ((u.kind != 0) | (its.blocks_dead(u.computed) == 0))


OF_KIND: Mapping[str, Unknown] = {
    "kind": Count(0, len(KINDS) - 1),
    "mode": Count(0, len(StateMode) - 1),
    "size": Count(1),
    "window": Count(1),
    "draft_states": Count(0),
}
"""A group of any kind."""

WAS_COMPUTED = Obligation(
    id="attention-kinds.running-left-was-computed",
    statements=("KV-MEM-01",),
    title="In a group of any kind, the blocks that no later token reads are full of tokens that were computed, and "
    "never fewer once more are; with full attention there are none.",
    unknowns={**OF_KIND, "computed": Count(0), "more": Count(0)},
    claim=_was_computed,
    witnesses={
        "a window": lambda u: (u.kind == 1) & (u.size == 4) & (u.window == 5) & (u.computed == 21),
        "states": lambda u: (u.kind == 3) & (u.size == 4) & (u.draft_states == 2) & (u.computed == 21),
    },
    mutants=(
        only(
            "rounded-up",
            "A block is left of which the next token reads something.",
            "kvreference.geometry:Group.blocks_dead",
            lambda self, tokens: -(-self.attention.tokens_dead(tokens) // self.block_size_tokens),
        ),
    ),
)


def _has_an_entry(u: Any) -> Any:
    """Where a slot ends with these tokens, or before, its place has an entry; a table grows at its end."""
    slots = bool(u.kind < len(SLOTS))
    shares: dict[str, Any] = {"compress_ratio": u.ratio, "whole_slots": bool(u.whole_slots == 1)} if slots else {}
    its = _group_of(u, **shares)
    fills = (u.end > u.place * u.size) & (u.end <= u.tokens)
    fine = implies(fills, (u.place < its.entries(u.tokens, u.slots)) & (u.place < its.blocks_occupied(u.tokens)))
    fine = fine & (its.blocks_occupied(0) == 0)
    if not slots:
        return fine
    known: Any = Stretch(u.place, "there")
    entries: Any = Times(expression_of(u.slots))
    with on_stretches():
        stretches = list(its.layout([known], entries, fresh=False))
    first, *new = stretches
    return fine & (first is known and new == [None])


HAS_AN_ENTRY = Obligation(
    id="compressed-groups.running-tables-of-slots",
    statements=("KV-MEM-01", "KV-MEM-02"),
    title="In a group of any kind, with a slot for each token, for several together, or states: a table has an entry "
    "for the block of each token that is computed; if memory is taken for complete slots only, where the last token of "
    "a slot is. A table with slots grows at its end, and keeps what it had.",
    unknowns={
        **OF_KIND,
        **{name: Count(1) for name in ("ratio", "slots_of_block", "slots_before")},
        **{name: Count(0) for name in ("place", "tokens", "slots")},
        "end": Count(1),
        "whole_slots": Count(0, 1),
    },
    assumes=lambda u: (
        (u.tokens <= u.slots)
        & implies(u.kind == len(SLOTS), u.end == (u.place + 1) * u.size)
        & implies(u.kind < len(SLOTS), u.size == u.ratio * u.slots_of_block)
        & implies((u.kind < len(SLOTS)) & (u.whole_slots == 1), u.end == u.ratio * u.slots_before)
    ),
    claim=_has_an_entry,
    witnesses={
        "the last slot of some tokens": lambda u: (
            (u.kind == 0)
            & (u.whole_slots == 1)
            & (u.ratio == 4)
            & (u.size == 16)
            & (u.tokens == 39)
            & (u.end == 36)
            & (u.place == 2)
        ),
        "a state": lambda u: (u.kind == 3) & (u.mode == 2) & (u.size == 8) & (u.tokens == 39) & (u.place == 3),
    },
    mutants=(
        only(
            "a-block-too-few",
            "A table gets a block fewer than its tokens occupy.",
            "kvreference.attention:blocks_occupied",
            lambda tokens, block_size_tokens: tokens // block_size_tokens,
        ),
        only(
            "a-slot-too-few",
            "Of complete slots, the last one is left out.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: _STORED(self, tokens - 1),
        ),
        only(
            "whole-slots-for-all",
            "Memory is taken for complete slots only, whatever a group is set to.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: tokens - tokens % self.compress_ratio,
        ),
    ),
)
_STORED: Callable[[Group, int], int] = Group.tokens_stored
"""What it does, where nothing is broken."""

OBLIGATIONS = (
    STEPS,
    RETURNS,
    ADMITS,
    ADMITS_INSIDE,
    STEPS_OF_STATES,
    RETURNS_OF_STATES,
    ADMITS_STATES,
    LISTED,
    WAS_COMPUTED,
    HAS_AN_ENTRY,
)
