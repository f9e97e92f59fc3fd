"""Injected omission: the reference does less than it must, or the same to the wrong block.

Goal: an operation that leaves out what it is for is noticed, even where each thing that it does may happen. Method:
break one thing of the reference at a time, follow random operations where it matters, and look at what is reported
first. The control: the same operations, nothing broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

from kvgate.explore.refinement_run import Driven, Followed, Tally, drive
from kvgate.kernel.models import load
from kvreference import hit_lookup, manager, prefix_cache, tables
from kvreference.answers import Copies, Copy, Done, Hit, Partial, Refused, Success
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.content import Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.operations import Dispatch, Evict, Finish, Operation, Preempt, Reset, Transferred
from kvreference.retention import Dense, Sparse
from kvreference.settings import Settings
from kvspec.refinement.follower import Follower

OPERATIONS = 2_500

SHARING, WINDOW, PARTIAL, MASKED, STATES, TRANSFERS, DRAFTS = (
    "mixed-blocks",
    "gemma-hybrid",
    "compressed+partial",
    "mixed-blocks+masked",
    "mamba-align+eagle+transfers",
    "gemma-hybrid+transfers",
    "mixed-blocks+mtp",
)
COPIES_AND_LOADS = "compressed+eagle+partial+transfers"
"""A copy and another node write into one block."""
MODELS = (SHARING, WINDOW, PARTIAL, MASKED, STATES, TRANSFERS, DRAFTS, "gemma-hybrid+eagle", COPIES_AND_LOADS)


def driven(model: str, holdings: type[Holdings] = Holdings, operations: int = OPERATIONS) -> Driven:
    """Follow the reference on ``model``, with other holdings in it."""

    class Injected(Followed):
        def __init__(self, settings: Settings, tally: Tally) -> None:
            super().__init__(settings)
            self.holdings = holdings(settings)
            self.follower = Follower(self, tally)

    return drive([load(model)], operations, Counter(), factory=Injected)


@pytest.mark.few(1)
@pytest.mark.parametrize("model", MODELS)
def test_without_a_change_nothing_drifts(model: str) -> None:
    """The control of all tests below: what they drive, with nothing broken."""
    found = driven(model)
    assert () == found.wrong
    assert found.operations >= OPERATIONS


# Blocks that are held too long, or not long enough


class ReleasesLive(Holdings):
    """The last window block that is still read is freed: a use after free."""

    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + max(group.block_size_tokens for group in self.groups))


class KeepsDead(Holdings):
    """Blocks that no token reads any more are held until the request ends."""

    def release_dead(self, request: int, computed: int) -> None:
        pass


class KeepsAll(Holdings):
    """A request that ends or is preempted keeps its tables, and its blocks: a total leak."""

    def release_all(self, request: int) -> None:
        pass


class KeepsOneGroup(Holdings):
    """A request that ends keeps what it holds in its last group."""

    def release_all(self, request: int) -> None:
        if request in self.tables:
            known = self.tables[request]
            for table in known[:-1]:
                self.pool.end(table.blocks[::-1])
                table.blocks = []


class ForgetsLookahead(Holdings):
    """Draft layers get no slots of their own."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, evolve(span, lookahead=0), hit)


class GivesOneMore(Holdings):
    """A block more than the tokens need is given."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, evolve(span, lookahead=span.lookahead + self.groups[0].block_size_tokens), hit)


class ForgetsTheHit(Holdings):
    """Instead of the blocks of the hit, new ones are given."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, span, Hit(0, ((),) * len(hit.blocks)))


class CopiesNothing(Holdings):
    """A dispatch sends the worker nothing, and everything stays pending."""

    def dispatch(self) -> tuple[Copy, ...]:
        return ()


class CopiesTooMuch(Holdings):
    """A copy takes a token more than the hit."""

    def _aim(self, request: int, hit: Hit) -> None:
        before = len(self.copies) - len(hit.partials)
        super()._aim(request, hit)
        self.copies[before:] = [evolve(copy, tokens=copy.tokens + 1) for copy in self.copies[before:]]


@pytest.mark.parametrize(
    ("model", "holdings", "message"),
    [
        (WINDOW, ReleasesLive, "tables of request"),
        (WINDOW, KeepsDead, "tables of request"),
        (STATES, KeepsDead, "tables of request"),
        (SHARING, KeepsAll, "expected none, got [["),
        (PARTIAL, KeepsAll, "expected none, got [["),
        (WINDOW, KeepsOneGroup, "expected none, got [["),
        (DRAFTS, ForgetsLookahead, "tables of request"),
        (SHARING, GivesOneMore, "tables of request"),
        (SHARING, ForgetsTheHit, "register at Operands("),
        (PARTIAL, CopiesNothing, "copies at pending"),
        (PARTIAL, CopiesTooMuch, "copies at group, destination and tokens"),
    ],
)
def test_blocks_that_are_not_held_as_they_must_be_are_noticed(
    model: str, holdings: type[Holdings], message: str
) -> None:
    """Freed while they are read, kept when nothing reads them, or not allocated at all."""
    (wrong,) = driven(model, holdings).wrong
    assert message in wrong


# Operations that do nothing


@pytest.mark.parametrize(
    ("model", "operation", "answer", "message"),
    [
        (SHARING, Evict, Done(), "forget at block"),
        (SHARING, Finish, Done(), "tables of request"),
        (SHARING, Preempt, Done(), "tables of request"),
        (TRANSFERS, Transferred, Done(), "tables of request"),
        (PARTIAL, Dispatch, Copies(()), "fence at"),
        (SHARING, Reset, Success(False), "reset at happens"),
    ],
)
def test_an_operation_that_does_nothing_is_noticed(
    model: str, operation: type[Operation], answer: Any, message: str
) -> None:
    """It answers as if it had, and changes nothing."""
    with patch.dict(manager._PERFORM, {operation: lambda _manager, _operation: answer}):
        (wrong,) = driven(model).wrong
    assert f"{operation.__name__}(" in wrong
    assert message in wrong


def test_an_eviction_of_another_block_is_noticed() -> None:
    """The one after it."""

    def evicted(self: Manager, operation: Evict) -> Done:
        self.pool.evict(1 + operation.block % (self.settings.blocks - 1))
        return Done()

    with patch.dict(manager._PERFORM, {Evict: evicted}):
        (wrong,) = driven(SHARING).wrong
    assert "forget at block" in wrong


# Hits on what is not the request's own


def looked_up(change: Callable[[Hit], Hit]) -> Any:
    """Every hit is changed before it is served."""

    def longest_hit(*arguments: Any) -> Hit:
        return change(found(*arguments))

    found = hit_lookup.longest_hit
    return patch.object(prefix_cache, "longest_hit", longest_hit)


def test_a_hit_on_foreign_content_is_noticed() -> None:
    """The blocks of a hit are served in the wrong order: each is cached, and none holds what was asked for."""

    def turned(hit: Hit) -> Hit:
        return evolve(hit, blocks=tuple(blocks if NULL in blocks else blocks[::-1] for blocks in hit.blocks))

    with looked_up(turned):
        (wrong,) = driven(SHARING).wrong
    assert "hold at Operands(" in wrong
    assert "expected it cannot happen, got it happens" in wrong


def test_a_copy_of_foreign_content_is_noticed() -> None:
    """The source is a cached block that begins with something else, if there is one."""
    found = hit_lookup.longest_hit

    def longest_hit(geometry: Geometry, cached: Any, prefixes: Any, tokens: int, partial: Any, *rest: Any) -> Hit:
        hit = found(geometry, cached, prefixes, tokens, partial, *rest)
        held = {block for blocks in hit.blocks for block in blocks}

        def other(each: Partial) -> Partial:
            mine = set(partial.contents_of(each.source))
            blocks = sorted(partial.blocks() - held)
            foreign = [block for block in blocks if not mine & set(partial.contents_of(block))]
            return evolve(each, source=foreign[0] if foreign else each.source)

        return evolve(hit, partials=tuple(map(other, hit.partials)))

    with patch.object(prefix_cache, "longest_hit", longest_hit):
        (wrong,) = driven(PARTIAL).wrong
    assert "read at Operands(" in wrong


@pytest.mark.few(1)
@pytest.mark.parametrize(("model", "operations"), [(PARTIAL, OPERATIONS), (STATES, 4 * OPERATIONS)])
def test_a_hit_before_the_dispatch_is_noticed(model: str, operations: int) -> None:
    """A state, or a copy, of what the worker has yet to compute: of states, few requests ask for it in time."""
    with patch.object(prefix_cache.PrefixCache, "is_ready", lambda *_arguments: True):
        (wrong,) = driven(model, operations=operations).wrong
    assert "hit before dispatch at (" in wrong


# Blocks that become known


def test_that_nothing_is_registered_is_noticed() -> None:
    """Due content stays unknown."""
    with patch.object(prefix_cache, "register", lambda *_arguments: ([], [])):
        (wrong,) = driven(SHARING).wrong
    assert "registered at (" in wrong
    assert "expected it is there, got it is not there" in wrong


def _of_the_block_before(geometry: Geometry, group: int, prefixes: Sequence[Prefix], tokens: int) -> Content:
    size = geometry.groups[group].block_size_tokens
    return tables.content_up_to(geometry, group, prefixes, tokens - size if tokens > size else tokens)


def test_the_content_of_the_block_before_is_noticed() -> None:
    """Each block but the first becomes known for what the one before it holds."""
    with patch("kvreference.caching.content_up_to", _of_the_block_before):
        (wrong,) = driven(SHARING).wrong
    assert "register at Operands(" in wrong


def test_a_content_that_is_wrong_everywhere_is_noticed() -> None:
    """Where it is registered, looked for and asked for, as if every block ended a grain earlier: its request counts
    something else there."""
    extend = Prefixes.extend

    def late(self: Prefixes, known: list[Prefix], tokens: Sequence[int], keys: Any) -> None:
        first = not known
        extend(self, known, tokens, keys)
        if first and known:
            known.insert(0, known[0])

    with patch.object(Prefixes, "extend", late):
        (wrong,) = driven(SHARING).wrong
    assert "register at Operands(" in wrong


def test_an_entry_that_is_not_made_is_noticed() -> None:
    """No boundary inside a block becomes an entry."""
    with patch("kvreference.caching._take_boundaries", lambda *_arguments: ()):
        (wrong,) = driven(PARTIAL).wrong
    assert "begun at (" in wrong


def test_what_is_not_due_is_noticed() -> None:
    """Every full block is registered, though no hit could read it."""

    class Eager(Sparse):
        def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
            return Dense(self.geometry).due_tokens(group, index, prompt_tokens)

    with patch.object(prefix_cache, "Sparse", Eager):
        (wrong,) = driven(MASKED).wrong
    assert "registered at (" in wrong
    assert "expected it is not there, got it is there" in wrong


def test_what_is_registered_late_is_noticed() -> None:
    """A block becomes known a token after it is due."""

    class Late(Dense):
        def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
            due_tokens = super().due_tokens(group, index, prompt_tokens)
            return None if due_tokens is None else due_tokens + 1

    with patch.object(prefix_cache, "Dense", Late):
        (wrong,) = driven(SHARING).wrong
    assert "registered at (" in wrong


def test_what_another_node_did_not_bring_yet_is_not_registered() -> None:
    """Content that is being loaded becomes known with its arrival, and not before."""
    admit = Manager._admit_with_hit

    def early(self: Manager, request: Any, budget: int, hit: Hit, provided: int, later: bool, ahead: int) -> Any:
        answer = admit(self, request, budget, hit, provided, later, ahead)
        if later and not isinstance(answer, Refused):
            self._register(request, request.tokens_computed + hit.tokens + provided, None)
        return answer

    with patch.object(Manager, "_admit_with_hit", early):
        (wrong,) = driven(TRANSFERS).wrong
    assert "register at Operands(" in wrong
    assert "expected it cannot happen" in wrong
