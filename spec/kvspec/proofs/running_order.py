"""Chapters 02, 03 and 04: in which order the running code serves, queues and releases."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from kvreference import holdings
from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap
from kvreference.free_queue import FreeQueue
from kvreference.partial_map import PartialMap
from kvreference.pinned_tier import PinnedPool
from kvspec.obligation import Count, Obligation, only
from kvspec.pool.induction import before, operands
from kvspec.pool.state import WAITING, in_pool
from kvspec.pool.transitions import Demote, Drop
from kvspec.proofs.running_pool import CACHED, OF_POOL, PARTIAL, POOL, UNPIN, holdings_over, is_pool, running
from kvspec.proofs.running_tables import HOLDINGS, OWNER, Entries, at_places, holdings_on, table_of
from kvspec.running import key
from kvspec.sequences import Stretch, TablePart
from kvspec.symbolic import Term, implies, negated

CONTENT: Any = 0, "a prefix"
LONGER: Any = 0, "a longer prefix"


def key_of(number: Any) -> Any:
    """A number as a key, if it is not known."""
    return key(number) if isinstance(number, Term) else number


def _full_blocks() -> Any:
    made: Any = CachedMap(0)
    made._content = defaultdict(lambda: None)
    return made


IS_LISTED, IS_FORGOTTEN, IS_ELSEWHERE = range(3)
"""A block is listed, it is forgotten, or another one is, which holds something else."""


def _serves_first(u: Any) -> Any:
    """One step, from any list: the block that it is about, and those that were registered before it and after it."""
    listed: Any = _full_blocks() if u.full == 1 else PartialMap()
    block, other = key_of(u.block), key_of(u.other)
    step = u.step.__index__()
    older, newer = ([Stretch(count)] if count > 0 else [] for count in (u.older, u.newer))
    left = [*older, *newer]
    listed.register(LONGER, other)
    if step != IS_LISTED:
        listed.register(CONTENT, block)
    before = left if step == IS_LISTED else [*older, block, *newer]
    if before:
        listed._blocks[CONTENT] = tuple(before)
    if step == IS_LISTED:
        listed.register(CONTENT, block)
    else:
        listed.forget(block if step == IS_FORGOTTEN else other)
    after = left if step == IS_FORGOTTEN else [*left, block] if step == IS_LISTED else before
    found, now = listed.find(CONTENT), listed.entries().get(CONTENT, ())
    same = len(now) == len(after) and all(one is other for one, other in zip(now, after, strict=True))
    return same and found is (after[0] if after else None)


FIRST = Obligation(
    id="content-and-cached-map.running-first-registered-serves",
    statements=("KV-OP-02", "KV-INV-05"),
    title="Blocks that are listed for a content, however many, stand in the order of their registration, and the first "
    "serves: one that is registered stands last, one that is forgotten leaves the others as they are, among full "
    "blocks and among beginnings.",
    unknowns={
        "block": Count(1),
        "other": Count(1),
        "older": Count(0),
        "newer": Count(0),
        "full": Count(0, 1),
        "step": Count(0, 2),
    },
    assumes=lambda u: u.block != u.other,
    claim=_serves_first,
    witnesses={
        "the first of many is forgotten": lambda u: (
            (u.step == IS_FORGOTTEN) & (u.older == 0) & (u.newer == 70) & (u.full == 1)
        ),
        "one more is listed": lambda u: (u.step == IS_LISTED) & (u.older == 70) & (u.full == 0),
        "the last is forgotten": lambda u: (u.step == IS_FORGOTTEN) & (u.older == 0) & (u.newer == 0),
    },
    mutants=(
        only(
            "newest-stands-first",
            "A block that is registered stands first.",
            f"{CACHED}.register",
            lambda self, content, block: _put_first(self, content, block),
        ),
        only(
            "last-serves",
            "The block that was registered last serves.",
            f"{PARTIAL}.find",
            lambda self, content: self._blocks[content][-1] if content in self._blocks else None,
        ),
        only(
            "others-change-places",
            "What is left of a list is turned around when one of it is forgotten.",
            f"{CACHED}.forget",
            lambda self, block: _turned(self, block),
        ),
    ),
)


def _put_first(self: CachedMap, content: Any, block: int) -> None:
    self._content[block] = content
    self._blocks[content] = (block, *self._blocks.get(content, ()))


def _turned(self: CachedMap, block: int) -> Any:
    content, self._content[block] = self._content[block], None
    if content is not None:
        self._blocks[content] = tuple(other for other in self._blocks[content][::-1] if other != block)
    return content


def _forgets_all(u: Any) -> Any:
    """A block with a boundary that others have, too, and any number of boundaries before and after that one."""
    entries: Any = PartialMap()
    block, other = key_of(u.block), key_of(u.other)
    older, newer, sooner, later = (
        [Stretch(count)] if count > 0 else [] for count in (u.older, u.newer, u.sooner, u.later)
    )
    others = (*older, *newer)
    entries._contents = {block: (*sooner, CONTENT, *later)}
    entries._blocks = {CONTENT: (*older, block, *newer), **dict.fromkeys((*sooner, *later), (block,))}
    entries.register(LONGER, other)
    entries.forget(block)
    left = {LONGER: (other,), **({CONTENT: others} if others else {})}
    return entries.contents_of(block) == () and entries.contents_of(other) == (LONGER,) and entries.entries() == left


FORGETS = Obligation(
    id="partial-hits.running-forgets-every-boundary",
    statements=("KV-OP-10", "KV-OP-18"),
    title="A block that is forgotten is an entry at none of its boundaries any more, however many it has; other blocks "
    "that have one of them still serve there.",
    unknowns={"block": Count(1), "other": Count(1)} | {n: Count(0) for n in ("older", "newer", "sooner", "later")},
    assumes=lambda u: u.block != u.other,
    claim=_forgets_all,
    witnesses={
        "many boundaries, and many blocks at one": lambda u: (u.sooner == 70) & (u.later == 9) & (u.newer == 80),
        "it is the only block there": lambda u: (u.older == 0) & (u.newer == 0),
    },
    mutants=(
        only(
            "last-boundary-alone",
            "Only the last boundary of a block is forgotten.",
            f"{PARTIAL}.forget",
            lambda self, block: _forgets_last(self, block),
        ),
    ),
)


def _forgets_last(self: PartialMap, block: int) -> None:
    for content in self._contents.pop(block, ())[-1:]:
        others = tuple(other for other in self._blocks.pop(content) if other != block)
        if others:
            self._blocks[content] = others


RELEASED, RELEASED_LAST, EVICTED, DEMOTED = range(4)
"""What happens to a block, and may move it in the free queue."""


def _goes_first(u: Any) -> Any:
    """Whether a block that becomes free, or is forgotten while it waits, goes to the front."""
    its = running(u)
    block = its.own.block
    scratch = (u.content[block] == 0) & (u.begun[block] == 0)
    step = u.step.__index__()
    with its.runs() as pool:
        (pool.release, pool.release_last, lambda blocks: pool.evict(*blocks), lambda blocks: pool._unpin(*blocks))[
            step
        ]([block])
    to_front = any(each is block for each in its.free.moved_to_front)
    if step == RELEASED:
        return to_front == ((u.refs[block] == 1) & scratch)
    if step == EVICTED:
        return to_front == ((u.refs[block] == 0) & negated(scratch))
    return not to_front


def _may_move(u: Any) -> Any:
    """What is asked can happen."""
    state, at = before(u), operands(u)
    released = implies((u.step == RELEASED) | (u.step == RELEASED_LAST), Drop.guard(state, at))
    # No other point is looked at.
    nothing_else = (u.any_block == u.at_block) & (u.any_content == u.at_content)
    nothing_else = nothing_else & (u.at_content == u.content[u.at_block])
    can_happen = released & implies(u.step == DEMOTED, Demote.guard(state, at))
    return is_pool(u) & in_pool(state, u.at_block) & can_happen & nothing_else


SCRATCH_FIRST = Obligation(
    id="free-queue.running-scratch-goes-first",
    statements=("KV-OP-17", "KV-INV-08"),
    title="Where scratch goes first, with or without a pinned tier, a block that the running pool releases goes to the "
    "front if and only if no hit can use it, neither the whole nor a beginning. A block that is released last never "
    "does, nor does one that is demoted, which is cached; and a cached block that is evicted while it is not held "
    "does.",
    unknowns={**OF_POOL, "scratch_first": Count(1, 1), "step": Count(0, 3)},
    assumes=_may_move,
    claim=_goes_first,
    witnesses={
        "only a beginning is cached": lambda u: (
            (u.step == RELEASED) & (u.refs[u.at_block] == 1) & (u.content[u.at_block] == 0) & (u.begun[u.at_block] == 1)
        ),
        "scratch": lambda u: (
            (u.step == RELEASED) & (u.refs[u.at_block] == 1) & (u.content[u.at_block] == 0) & (u.begun[u.at_block] == 0)
        ),
        "it waits as pinned, and is evicted": lambda u: (u.step == EVICTED) & (u.where[u.at_block] == WAITING),
        "it is demoted": lambda u: u.step == DEMOTED,
    },
    mutants=(
        only(
            "queued-in-order",
            "Scratch is queued like all else.",
            "kvreference.free_queue:ScratchFirstQueue.put",
            FreeQueue.put,
        ),
        only(
            "entries-do-not-count",
            "A block is cached only if it is full.",
            f"{POOL}.is_cached",
            lambda self, block: self.cached.content_of(block) is not None,
        ),
        only(
            "demoted-is-forgotten",
            "What is demoted is forgotten before it is queued.",
            "kvreference.pinned_tier:PinnedPool._unpin",
            lambda self, block: (BlockPool._forget(self, block), UNPIN(self, block)),
        ),
    ),
)


def _releases_later_first(u: Any) -> Any:
    places = key_of(u.place), key_of(u.later)
    released: list[Any] = []
    anchors: list[Any] = []
    last: list[Any] = []

    def slide(blocks: Any, anchor: Any) -> None:
        released.extend(blocks)
        anchors.extend(anchor)

    pool = SimpleNamespace(slide=slide, release_last=last.extend)
    # A group of any kind: so many blocks are dead.
    any_group: Any = SimpleNamespace(blocks_dead=lambda _computed: u.end)
    its: Any = holdings_on(pool, any_group, (u.anchor, u.anchor_end))
    table: Any = table_of()
    table.blocks = Entries(u.length, {"near": (places[0], u.block), "far": (places[1], u.other)})
    table.dead = u.dead
    its.tables = {OWNER: [table]}
    with at_places(holdings, places, []):
        its.release_passed(OWNER, u.computed, u.unsure)
    if last:
        return False
    both = (u.dead <= u.place) & (u.later < table.dead)
    if not both:
        return len(released) <= 1
    pinned = [
        block
        for place, block in ((u.later, u.other), (u.place, u.block))
        if (place >= u.anchor) & (place >= u.dead) & (place < u.anchor_end)
    ]
    in_order = len(released) == 2 and released[0] is u.other and released[1] is u.block
    return (
        in_order and len(anchors) == len(pinned) and all(one is each for one, each in zip(anchors, pinned, strict=True))
    )


LATER_FIRST = Obligation(
    id="blocks-and-references.running-later-blocks-first",
    statements=("KV-OP-06", "KV-OP-21", "KV-OP-17", "KV-INV-08"),
    title="Of any two blocks of a table that no later token reads, in a group of any kind, the later one is released "
    "first; and of those that stay pinned, too. By the reference's own rules none of them is released last, where "
    "scratch does not go first.",
    unknowns={
        **{name: Count(0) for name in ("computed", "unsure", "end", "dead", "anchor", "anchor_end", "place")},
        **{name: Count(1) for name in ("length", "later", "block", "other")},
    },
    assumes=lambda u: (
        (u.place < u.later)
        & (u.later < u.length)
        & (u.dead <= u.length)
        & (u.anchor_end <= u.length)
        & (u.block != u.other)
    ),
    claim=_releases_later_first,
    witnesses={
        "both are left": lambda u: (u.place == 2) & (u.later == 5) & (u.dead == 1) & (u.end == 8) & (u.length == 11)
    },
    mutants=(
        only(
            "in-the-order-of-the-table",
            "The first block is released first.",
            "kvreference.holdings:places_released",
            lambda its, blocks, passed: tuple(reversed(passed)),
        ),
        only(
            "one-goes-last",
            "The first of the blocks is released after all others (finding 052).",
            "kvreference.holdings:goes_last",
            lambda group, blocks: blocks[-1:],
        ),
    ),
)


def _releases_in_order(u: Any) -> Any:
    """Two tables of a request, and of each two blocks: what the pool is asked for, in order, now or after steps."""
    asked: dict[str, list[Any]] = {"end": [], "give_up": [], "release": []}
    pool = SimpleNamespace(**{name: list_.extend for name, list_ in asked.items()})
    held = holdings_over(SimpleNamespace(pool=pool))
    blocks, known = [], {}
    for name, group_ in (("first", u.first), ("second", u.second)):
        table: Any = table_of()
        near, far = key_of(u.near), key_of(u.far)
        its = [(near, object()), (far, object())]
        table.blocks = Entries(u.length, dict(zip(("near", "far"), its, strict=True)))
        blocks += [its[1][1], its[0][1]]
        known[name] = group_, table
    tables: Any = Entries(u.groups, known)
    held.tables = {OWNER: tables}
    if u.waits == 0:
        held.release_all(OWNER)
        return asked == {"end": blocks, "give_up": [], "release": []} and held.tables == {}
    held.defer(OWNER, 1)
    waits = asked == {"end": [], "give_up": blocks, "release": []} and held.tables == {}
    held.steps_over(1)
    return waits and asked == {"end": [], "give_up": blocks, "release": blocks}


IN_ORDER = Obligation(
    id="blocks-and-references.running-group-by-group",
    statements=("KV-OP-07",),
    title="Of any two groups, a request that frees all it holds releases what it has in the first one before what it "
    "has in the second, and in each the later blocks first: at once, or when the steps in flight are over.",
    unknowns={
        **{name: Count(0) for name in ("first", "second", "near", "far")},
        **{name: Count(1) for name in ("groups", "length")},
        "waits": Count(0, 1),
    },
    assumes=lambda u: (u.first < u.second) & (u.second < u.groups) & (u.near < u.far) & (u.far < u.length),
    claim=_releases_in_order,
    witnesses={
        "neighbours of many": lambda u: (u.groups == 9) & (u.first == 3) & (u.second == 4) & (u.length == 70),
        "it waits": lambda u: (u.waits == 1) & (u.first == 0) & (u.second == 7),
    },
    mutants=(
        only(
            "the-last-group-first",
            "What the last group holds is released first.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.end(table.blocks[::-1]) for table in tables[::-1]],
        ),
        only(
            "in-the-order-of-the-table",
            "The first block of a table is released first.",
            f"{HOLDINGS}.free",
            lambda self, tables: [self.pool.end(table.blocks[:]) for table in tables],
        ),
        only(
            "groups-by-turns",
            "The last blocks of all groups are released before the others.",
            f"{HOLDINGS}.free",
            lambda self, tables: [
                self.pool.end(table.blocks[::-1][part]) for part in (slice(0, 1), slice(1, None)) for table in tables
            ],
        ),
        only(
            "last-group-first-after-steps",
            "After the steps in flight, what the last group holds is released first.",
            "kvreference.holdings:freed_late",
            lambda tables: tables[::-1],
        ),
    ),
)


def _slides(u: Any) -> Any:
    made: Any = object.__new__(PinnedPool if u.tier == 1 else BlockPool)
    made.drop_blocks_min = u.least
    pinned: list[Any] = []
    released: list[Any] = []
    blocks, anchor = [TablePart(u.places, u.dropped)], [Stretch(u.anchor)]
    made._pin, made.release = pinned.extend, released.extend
    made.slide(blocks, anchor)
    is_long = (u.tier == 1) & (u.dropped >= u.least)
    return (released == blocks and pinned in (anchor, [])) & (is_long == (pinned == anchor))


SLIDES = Obligation(
    id="pinned-tier.running-slide",
    statements=("KV-OP-21",),
    title="A window drop of the running tier, of any length, pins its anchor if and only if as many blocks are dropped "
    "as the least drop has, places without a block left out; and all of it is released. Without that tier it is only "
    "released.",
    unknowns={name: Count(0) for name in ("places", "dropped", "anchor")} | {"least": Count(1), "tier": Count(0, 1)},
    assumes=lambda u: u.dropped <= u.places,
    claim=_slides,
    witnesses={
        "some are not blocks": lambda u: (u.places == 70) & (u.dropped == 69) & (u.tier == 1) & (u.least == 69),
        "too few": lambda u: (u.places == 70) & (u.dropped == 69) & (u.tier == 1) & (u.least == 70),
    },
    mutants=(
        only(
            "places-are-counted",
            "Places without a block count as dropped.",
            "kvreference.pinned_tier:PinnedPool.slide",
            lambda self, blocks, anchor: (
                (self._pin(anchor) if blocks[0].count >= self.drop_blocks_min else None),
                self.release(blocks),
            ),
        ),
    ),
)

OBLIGATIONS = (FIRST, FORGETS, SCRATCH_FIRST, LATER_FIRST, IN_ORDER, SLIDES)
