"""Finding 008: Blocks for external tokens are taken from what another group has just hit."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import ChangesSpan
from kvreference.answers import Hit
from kvreference.cached_map import Content
from kvreference.holdings import Allocation, Span
from kvreference.tables import Plan, blocks_new, plan_provided, tables_of_hit


class ExternalTokensTakeOtherHits(ChangesSpan):
    """Group by group the hit is held and external tokens get blocks: maybe those that a later group has hit."""

    def _allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        if request in self.tables or not span.provided:
            return super()._allocate(request, span, hit)
        # What another finding asks of the holdings comes first.
        holdings, span = self.holdings, self._changed(span)
        tables = tables_of_hit(self.geometry, hit, span.computed)
        provided = plan_provided(self.geometry, tables, span.provided)
        sources = [partial.source for partial in hit.partials]
        live = {*(block for table in tables for block in table.live()), *sources}
        needed = blocks_new(holdings._plan(tables, provided, span), provided) + self.pool.count_free(live)
        if not self.pool.make_room(needed + span.reserved, live):
            return None
        self.tables[request] = tables
        self.pool.touch(sources)
        before = [len(table.blocks) for table in tables]
        lost: list[Content] = []
        for table, layout in zip(tables, provided, strict=True):
            self.pool.touch(table.live())
            lost += holdings._fill([table], [layout])
        nothing: Plan = [None] * len(tables)
        lost += holdings._fill(tables, holdings._plan(tables, nothing, span))
        holdings.copies += holdings._copies_of(hit, tables)
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
