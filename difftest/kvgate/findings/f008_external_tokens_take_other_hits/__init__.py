"""Finding 008: Blocks for external tokens are taken from what another group has just hit."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvreference.answers import Hit
from kvreference.cached_map import Content
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.settings import Settings
from kvreference.tables import Plan, blocks_new, plan_provided, tables_of_hit


class ExternalTokensTakeOtherHits(Manager):
    """Group by group the hit is held and external tokens get blocks: maybe those that a later group has hit."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        own = type(self.holdings)
        # What another finding or a release changes in the holdings comes first.
        kind = _GroupByGroup if own is Holdings else type(own.__name__, (own, _GroupByGroup), {})
        self.holdings = kind(settings)


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


FINDING = Finding(
    id="008-external-tokens-take-other-hits",
    rank=9,
    fault=ExternalTokensTakeOtherHits,
    together_with=("009-load-forgets-its-last-token",),
)
