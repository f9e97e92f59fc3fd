"""Holdings: which request holds which blocks, and what is copied between them.

Blocks are given in one order and taken back in another, and both decide what survives in the cache: so both are
specified exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from kvreference.admission import blocks_to_come_with, has_room, passes_gate
from kvreference.answers import BlockTable, Copy, Hit
from kvreference.attention import Layout
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.geometry import Group
from kvreference.pinned_tier import PinnedPool
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings
from kvreference.state import State
from kvreference.tables import (
    Plan,
    Table,
    Tables,
    blocks_new,
    keeps_all,
    plan,
    plan_provided,
    tables_of_hit,
)


@frozen
class Span:
    """The tokens that slots are asked for."""

    computed: int
    """How many are computed by then: what no later token reads is not held."""
    tokens: int
    """How many are computed after those."""
    lookahead: int = 0
    """How many slots more draft layers get."""
    provided: int = 0
    """The end of what another node provides; 0 if it provides nothing."""
    reserved: int = 0
    """How many blocks must stay free."""
    unsure: int = 0
    """By how many of the computed ones a window does not move on yet; see ``kvreference.ahead``."""


@frozen
class Allocation:
    """The result of an allocation: the entries that the tables gained, and the content that was lost for them, in
    order."""

    entries: BlockTable
    lost: tuple[Content, ...]


def goes_last(group: Group, blocks: Sequence[int]) -> Sequence[int]:
    """Of the ``blocks`` that no later token reads, those that go to the very back of the free queue: none."""
    del group, blocks
    return ()


def blocks_to_have(groups: Sequence[Group], span: Span, hit_tokens: int, taken: int) -> int:
    """How many blocks must be free for an allocation of ``span`` after a hit, if it takes ``taken``: as many."""
    del groups, span, hit_tokens
    return taken


def places_released(group: Group, blocks: Sequence[int], passed: range) -> Sequence[int]:
    """Of the places of a table that were ``passed``, and no later token reads, those that are released: all of them."""
    del group, blocks
    return tuple(passed)


def tokens_passed(request: int, groups: Sequence[Group], computed: int, unsure: int) -> int:
    """By how many of its ``computed`` tokens a request releases what no later token reads: by those that are sure."""
    del request, groups
    return computed - unsure


def freed_late(tables: Tables) -> Tables:
    """The tables to be freed, one after the other, when the steps in flight are over."""
    return tables


def new_pool(settings: Settings, rules: Rules = OWN_RULES) -> BlockPool:
    """A pool in which everything is free."""
    if settings.pin_drop_blocks_min is None:
        return BlockPool(settings.blocks, settings.scratch_first, rules)
    return PinnedPool(settings.blocks, settings.scratch_first, settings.pin_drop_blocks_min, rules)


def rounds_of_admission(
    tables: Sequence[Sequence[int]], counts: Sequence[int], free: Iterable[int], provided: int
) -> list[range]:
    """In which rounds groups hold their hits and then get the blocks that another node writes: all in one.

    ``tables`` are the hits; ``counts`` says how many blocks each group gets then, from the front of ``free``, to hold
    what is ``provided``, in tokens.
    """
    del counts, free, provided
    return [range(len(tables))]


def may_be_named_twice(blocks: Sequence[int]) -> bool:
    """Whether a request may hold ``blocks`` of a hit of which it names some already: never."""
    del blocks
    return False


def is_held_by_all(block: int, others: Sequence[set[int]], references: int) -> bool:
    """Whether ``block``, with so many ``references``, is in each of the tables ``others``."""
    del references
    return all(block in other for other in others)


class Holdings(State, changing=("pool", "tables", "copies", "deferred")):
    """Every table, over one pool."""

    def __init__(self, settings: Settings, rules: Rules = OWN_RULES) -> None:
        self.settings = settings
        self.rules = rules
        self.groups = settings.geometry.groups
        self.pool = new_pool(settings, rules)
        self.tables: dict[int, Tables] = {}
        """Per request that holds blocks, its table in every group."""
        self.copies: list[Copy] = []
        """The copies that the worker makes before it computes the next step; until then the sources are held."""
        self.deferred: list[tuple[int, Tables]] = []
        """Per request that freed its tables: how many steps must be over until the blocks are free, and the tables.

        These tables do not change any more.
        """

    # Giving

    def passes_gate(self, request: int, tokens: int, hit: Hit, computed: int) -> bool:
        """Whether all ``tokens`` tokens of a request that asks to be admitted fit; see ``kvreference.admission``."""
        known = self.tables.get(request)
        if known is None:
            return passes_gate(self.settings, self.pool, hit, tokens, computed, self.rules)
        tables = [self._without_held(group, table, computed) for group, table in zip(self.groups, known, strict=True)]
        needed = self.rules.ask(blocks_to_come_with, self.settings, tokens, computed, tables)
        return has_room(self.pool, needed, (), self.rules)

    def _without_held(self, group: Group, table: Table, computed: int) -> list[int]:
        """A table without the blocks that no later token reads and that stay held, since drafts may be taken back."""
        held = range(self.blocks_dead(group, computed), group.blocks_unread(computed))
        return [NULL if place in held else block for place, block in enumerate(table.blocks)] if held else table.blocks

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        """Give ``request`` slots for ``span``, after ``hit`` if the request holds nothing yet.

        In this order, each over all groups: release what no later token reads; reject if too few blocks can be had;
        hold the sources of copies and the blocks of the hit, so that none of them is taken; take new ones, first for
        what another node provides. The release stands even if the rest is rejected: then None is returned.
        """
        known = self.tables.get(request)
        if known is not None:
            self.release_passed(request, span.computed, span.unsure)
        tables = known or tables_of_hit(self.settings.geometry, hit, span.computed)
        held = [] if known else [block for table in tables for block in table.live()]
        held += [partial.source for partial in hit.partials]

        provided = plan_provided(self.settings.geometry, tables, span.provided)
        complete = self._plan(tables, provided, span)
        taken = blocks_new(complete, provided) + self.pool.count_free(set(held))
        needed = self.rules.ask(blocks_to_have, self.groups, span, 0 if known else hit.tokens, taken)
        wanted = needed + span.reserved
        # A finding may have the pool say that more blocks are free than are: those that are taken must be there.
        if not (has_room(self.pool, wanted, held, self.rules) and self.pool.make_room(taken, held)):
            return None

        before = [len(table.blocks) for table in tables]
        lost = self._fill(tables, provided) if known else self._admit(request, tables, hit, provided, span.provided)
        tables = self.tables[request]
        # The provided tokens have their blocks now: the rest is planned on top of them.
        nothing: Plan = [None] * len(tables)
        lost += self._fill(tables, self._plan(tables, nothing, span) if span.provided else complete)
        self._aim(request, hit)
        entries = tuple(tuple(table.blocks[start:]) for table, start in zip(tables, before, strict=True))
        for table in tables:
            table.fresh = False
        return Allocation(entries, tuple(lost))

    def _admit(self, request: int, wanted: Tables, hit: Hit, layouts: Plan, provided: int) -> list[Content]:
        """Hold the blocks of a hit, as the tables ``wanted`` name them, and take those that another node writes."""
        self._read(hit)
        counts = [0 if layout is None else layout.count(None) for layout in layouts]
        blocks, lost = [table.blocks for table in wanted], list[Content]()
        tables = self._begin(request, wanted)
        for indices in self.rules.ask(rounds_of_admission, blocks, counts, self.pool.free, provided):
            for index in indices:
                self._hold(tables, index, blocks[index])
            lost += self._fill(tables, [each if index in indices else None for index, each in enumerate(layouts)])
        return lost

    def _plan(self, tables: Tables, before: Plan, span: Span) -> Plan:
        slots = min(span.computed + span.tokens + span.lookahead, self.settings.tokens_max)
        return plan(self.settings.geometry, tables, before, span.computed + span.tokens, slots)

    def _fill(self, tables: Tables, layouts: Plan) -> list[Content]:
        """Bring ``tables`` into shape with new blocks from the front of the free queue, group by group."""
        pairs = zip(tables, layouts, strict=True)
        return [content for table, layout in pairs if layout is not None for content in self._grow(table, layout)]

    # Taking back

    def release_passed(self, request: int, computed: int, unsure: int) -> None:
        """Release what no token after the sure ones reads: of the ``computed`` ones, ``unsure`` are not sure."""
        self.release_dead(request, self.rules.ask(tokens_passed, request, self.groups, computed, unsure))

    def release_dead(self, request: int, computed: int) -> None:
        """Release the blocks that no token after the first ``computed`` reads, the later ones first, if it has any."""
        if request not in self.tables:
            return
        for group, table in zip(self.groups, self.tables[request], strict=True):
            dead = min(self.blocks_dead(group, computed), len(table.blocks))
            if dead > table.dead:
                first, end = self.settings.geometry.anchor(group, dead)
                anchor = slice(max(first, table.dead), end)
                places = self.rules.ask(places_released, group, table.blocks, range(table.dead, dead))
                last = self.rules.ask(goes_last, group, [table.blocks[place] for place in reversed(places)])
                self._leave(table, places, anchor, last)
                table.dead = dead

    def blocks_dead(self, group: Group, computed: int) -> int:
        """How many leading blocks no token after the first ``computed`` reads."""
        return group.blocks_dead(computed)

    def steps_over(self, steps: int) -> None:
        """So many steps are over: the blocks that waited for them are released."""
        while self.deferred and self.deferred[0][0] <= steps:
            self._release_first()

    # Asking

    def leading_shared(self, request: int) -> Sequence[int]:
        """Per group that keeps all its slots, how many leading blocks all requests with blocks hold; else 0."""
        shared, references = list[int](), self.pool.references
        for group, own, *tables in zip(self.groups, self.tables[request], *self.tables.values(), strict=True):
            others = [set(table.blocks) for table in tables] if group.keeps_all else []
            held = (self.rules.ask(is_held_by_all, block, others, references[block]) for block in own.blocks)
            leading = next((i for i, by_all in enumerate(held) if not by_all), len(own.blocks))
            shared.append(leading if group.keeps_all else 0)
        return shared

    # What changes tables and copies: nothing else does. Each of these keeps the count of holders, and so what follows
    # from it, or raises and changes nothing.

    def _begin(self, request: int, wanted: Tables) -> Tables:
        """A request that holds nothing gets its tables: like those ``wanted``, but without blocks."""
        if request in self.tables:
            raise ValueError(f"request {request} has tables already")
        self.tables[request] = [evolve(table, blocks=[]) for table in wanted]
        return self.tables[request]

    def _hold(self, tables: Tables, index: int, blocks: Sequence[int]) -> None:
        """One of a request's tables names ``blocks``, after those that it has.

        Raises:
            ValueError: the request names a block twice then.
        """
        live = [block for block in blocks if block != NULL]
        named = {block for table in tables for block in table.blocks}
        is_twice = len({*live}) < len(live) or not named.isdisjoint(live)
        if is_twice and not self.rules.ask(may_be_named_twice, live):
            raise ValueError(f"a request names some of {live} twice")
        self.pool.touch(live)
        tables[index].blocks += blocks

    def _grow(self, table: Table, layout: Layout) -> list[Content]:
        """Bring a table into shape with new blocks from the front of the free queue; returns what was lost with them.

        Raises:
            ValueError: a block of the table is lost, or named more often.
        """
        if not keeps_all(layout, table.blocks):
            raise ValueError("a table does not become what it is to be by new blocks alone")
        blocks, lost = self.pool.take(layout.count(None))
        new = iter(blocks)
        table.blocks = [next(new) if block is None else block for block in layout]
        return lost

    def _leave(self, table: Table, places: Sequence[int], anchor: slice, last: Sequence[int]) -> None:
        """Release the blocks at ``places``, the later ones first, which are null blocks then: the window slid past.

        ``anchor`` is where those stand that a hit at the last boundary among them reads. Those in ``last`` go last.
        """
        self._check_not_written(table.blocks[place] for place in places)
        anchors, blocks = table.blocks[anchor][::-1], []
        for place in reversed(places):
            blocks.append(table.blocks[place])
            table.blocks[place] = NULL
        self.pool.slide([block for block in blocks if block not in last], anchors)
        self.pool.release_last([block for block in blocks if block in last])

    def release_all(self, request: int) -> None:
        """Release all blocks, group by group, tail first: a prefix is worth more than what follows it."""
        self._check_not_written(block for table in self.tables.get(request, ()) for block in table.blocks)
        self.free(self.tables.pop(request, []))

    def free(self, tables: Tables) -> None:
        """Release what the tables of a request name."""
        for table in tables:
            self.pool.end(table.blocks[::-1])

    def defer(self, request: int, steps: int) -> None:
        """Free the tables now, and release their blocks when ``steps`` steps are over, counted from the first."""
        tables = self.tables.pop(request, [])
        for table in tables:
            self.pool.give_up(table.blocks[::-1])
        if tables:
            self.deferred.append((steps, tables))

    def _release_first(self) -> None:
        """Release what waited longest for steps."""
        self._check_not_written(block for table in self.deferred[0][1] for block in table.blocks)
        for table in self.rules.ask(freed_late, self.deferred.pop(0)[1]):
            self.pool.release(table.blocks[::-1])

    def _check_not_written(self, blocks: Iterable[int]) -> None:
        """No block is released into which something is copied before the next step."""
        written = [copy.destination for copy in self.copies if copy.destination != NULL]
        if written and any(block in written for block in blocks):
            raise ValueError("a block is released into which something is still copied")

    def _read(self, hit: Hit) -> None:
        """Hold the sources of the copies that serve ``hit``, which have no destination yet."""
        self.pool.touch(partial.source for partial in hit.partials)
        self.copies += [Copy(partial.group, partial.source, NULL, partial.tokens) for partial in hit.partials]

    def _aim(self, request: int, hit: Hit) -> None:
        """The copies without a destination get one: the request's own block after the full ones of ``hit``."""
        for index, copy in enumerate(self.copies):
            if copy.destination == NULL:
                place = hit.tokens // self.groups[copy.group].block_size_tokens
                self.copies[index] = evolve(copy, destination=self.tables[request][copy.group].blocks[place])

    def dispatch(self) -> tuple[Copy, ...]:
        """The worker copies. From then on the sources may be recycled."""
        copies, self.copies = self.copies, []
        self.pool.release(copy.source for copy in copies)
        return tuple(copies)
