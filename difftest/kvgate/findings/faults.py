"""Faults that vLLM 0.20.2 has, planted into the reference: each overrides one rule, and leaves all others alone.

Those of the look-up, of the admission gate and of content are in ``kvgate.findings.declared``, which tells when a fault
explains a divergence. Here are those of what is held and of what is told, and of where a draft layer counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvreference.answers import Granted, Hit, Refused
from kvreference.cached_map import Content
from kvreference.events import Stored
from kvreference.geometry import Geometry
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.population import Population, Request
from kvreference.settings import Settings
from kvreference.tables import Plan, blocks_new, plan_provided, tables_of_hit


def stored_of(
    manager: Manager, request: Request, index: int, span: range, named: Sequence[int], block_size_tokens: int
) -> Stored:
    """One event that tells all tokens of the blocks at ``span`` of a group's table, and names those at ``named``."""
    size = block_size_tokens
    return Stored(
        group=index,
        contents=tuple(manager.content(request.number, index, position) for position in named),
        parent=manager.content(request.number, index, span.start - 1) if span.start else None,
        tokens=tuple(request.tokens[span.start * size : span.stop * size]),
        block_size_tokens=size,
        lora=request.keys.lora,
        extra_keys=tuple(request.keys.of_block(position * size, (position + 1) * size) for position in named),
    )


class EventsSpanNullBlocks(Manager):
    """One event tells all that one call caches in a group: the tokens of null blocks too, which it does not name."""

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        registered = [table.registered for table in self.tables[request.number]]
        told = len(self._events)
        super()._register(request, tokens, now)
        del self._events[told:]
        for index, (table, first) in enumerate(zip(self.tables[request.number], registered, strict=True)):
            if table.registered > first:
                span = range(first, table.registered)
                # Neither null blocks are named, nor those that retention leaves out.
                named = [position for position in span if self.pool.is_cached(table.blocks[position])]
                size = self.geometry.groups[index].block_size_tokens
                self._events.append(stored_of(self, request, index, span, named, size))


class ExternalTokensTakeOtherHits(Manager):
    """Group by group the hit is held and external tokens get blocks: maybe those that a later group has hit."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # Beside 009, which is another thing that the holdings do wrong.
        both = isinstance(self.holdings, _AllComputed)
        self.holdings = _AllComputedGroupByGroup(settings) if both else _GroupByGroup(settings)


class _GroupByGroup(Holdings):
    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        if request in self.tables or not span.provided:
            return super().allocate(request, span, hit)
        tables = tables_of_hit(self.settings.geometry, hit, span.computed)
        provided = plan_provided(self.settings.geometry, tables, span.provided)
        sources = [partial.source for partial in hit.partials]
        live = {*(block for table in tables for block in table.live()), *sources}
        needed = blocks_new(self._plan(tables, provided, span), provided) + self.pool.count_free(live)
        if not self.pool.make_room(needed, live):
            return None
        self.tables[request] = tables
        self.pool.touch(sources)
        before = [len(table.blocks) for table in tables]
        lost: list[Content] = []
        for table, layout in zip(tables, provided, strict=True):
            self.pool.touch(table.live())
            lost += self._fill([table], [layout])
        nothing: Plan = [None] * len(tables)
        lost += self._fill(tables, self._plan(tables, nothing, span))
        self.copies += self._copies_of(hit, tables)
        for table in tables:
            table.fresh = False
        entries = tuple(tuple(table.blocks[start:]) for table, start in zip(tables, before, strict=True))
        return Allocation(entries, tuple(lost))


class LoadForgetsItsLastToken(Manager):
    """What is loaded counts as computed, though of a whole request the last token is computed again."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _AllComputed(settings)
        self._end_tokens = 0

    def _let_in(
        self, request: Request, budget_tokens: int, hit: Hit, provided: int, later: bool, lookahead_tokens: int
    ) -> Granted | Refused:
        self._end_tokens = request.tokens_computed + hit.tokens + provided
        return super()._let_in(request, budget_tokens, hit, provided, later, lookahead_tokens)

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        return super()._fits(request, hit, max(computed, self._end_tokens))


class _AllComputed(Holdings):
    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        if span.provided > span.computed:
            span = evolve(span, computed=span.provided, tokens=0)
        return super().allocate(request, span, hit)


class _AllComputedGroupByGroup(_AllComputed, _GroupByGroup):
    """Both: what is loaded counts as computed, and then group by group."""


class LookAheadSpreads(Manager):
    """Groups that are alike but for a draft layer are looked up together, as if it lived in all of them.

    What decides what is kept for a hit, retention and pins, goes by what the look-up asks for.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(evolve(settings, geometry=spread(settings.geometry)))
        # Where the draft layers truly live is still what the model says.
        self.population = Population(settings)


def spread(geometry: Geometry) -> Geometry:
    """The same with a draft layer in every group that is like one with a draft layer."""
    flagged = {group for group in geometry.groups if group.lookahead}
    asked = ((group, evolve(group, lookahead=True)) for group in geometry.groups if not group.keeps_states)
    return Geometry(tuple(alike if alike in flagged else group for group, alike in asked))
