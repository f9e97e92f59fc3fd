"""Finding 007: An event tells the tokens of null blocks, and does not name them."""

from __future__ import annotations

from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import stored_event
from kvreference.manager import Manager
from kvreference.population import Request


class EventsSpanNullBlocks(Manager):
    """One event has all tokens that a call caches in a group: those of null blocks too, which it does not name."""

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        registered = [table.registered for table in self.tables[request.number]]
        before = len(self._events)
        super()._register(request, tokens, now)
        del self._events[before:]
        for index, (table, first) in enumerate(zip(self.tables[request.number], registered, strict=True)):
            if table.registered > first:
                span = range(first, table.registered)
                # Neither null blocks are named, nor those that retention leaves out.
                named = [position for position in span if self.pool.is_cached(table.blocks[position])]
                size = self.geometry.groups[index].block_size_tokens
                self._events.append(stored_event(self, request, index, span, named, size))


FINDING = Finding(
    id="007-events-span-null-blocks",
    rank=8,
    fault=EventsSpanNullBlocks,
)
