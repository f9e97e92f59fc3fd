"""The hybrid block manager: one table per request and group, over one pool.

Every operation has the same bands: what must hold before, what it does to the state, what it answers. ``apply``
takes an operation of the alphabet and returns the answer; ``step`` does the same without touching the state it was
given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import evolve

from kvreference.answers import Answer, BlockTable, Done, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix, Prefixes
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.hit_lookup import longest_hit
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
)
from kvreference.population import Population, Request
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class Table:
    """The blocks of one request in one group, in token order.

    ``registered`` counts the leading blocks that were offered to the cache: each is offered once.
    """

    __slots__ = ("blocks", "registered")

    def __init__(self, blocks: list[int], registered: int) -> None:
        self.blocks = blocks
        self.registered = registered


class Manager:
    """The reference of the block manager, with the requests it serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.geometry = settings.geometry
        self.population = Population(settings)
        self.pool = BlockPool(settings.blocks)
        self.tables: dict[int, list[Table]] = {}
        """Per request that holds blocks, its table in every group."""
        self._interned = Prefixes(self.geometry.grain_tokens)
        self.prefixes: dict[int, list[Prefix]] = {}
        """Per request alive, its prefixes at every whole grain."""
        self._events: list[Event] = []
        self._statistics = Statistics()

    def copy(self) -> Manager:
        """An independent manager in the same state. Content identities are shared: they are immutable."""
        other = Manager.__new__(Manager)
        other.settings = self.settings
        other.geometry = self.geometry
        other.population = self.population.copy()
        other.pool = self.pool.copy()
        other.tables = {
            number: [Table(list(table.blocks), table.registered) for table in tables]
            for number, tables in self.tables.items()
        }
        other._interned = self._interned
        other.prefixes = {number: list(prefixes) for number, prefixes in self.prefixes.items()}
        other._events = list(self._events)
        other._statistics = self._statistics
        return other

    def apply(self, operation: Operation) -> Answer:
        """Perform a legal operation (see ``Population.resolve``), in place."""
        answer = _PERFORM[type(operation)](self, operation)
        self.population.settle(operation, answer)
        if isinstance(operation, (Arrive, Sample)):
            request = self.population[operation.request]
            self._interned.extend(self.prefixes.setdefault(request.number, []), request.tokens, request.keys)
        elif isinstance(operation, (Finish, Abort)):
            del self.prefixes[operation.request]
        return answer

    def content(self, request: int, group: int, index: int) -> Content:
        """What the block at ``index`` of a request's table holds once it is full."""
        grains = self.geometry.groups[group].block_size_tokens // self.geometry.grain_tokens
        return group, self.prefixes[request][(index + 1) * grains - 1]

    # Queries

    def _look_up(self, operation: LookUp) -> Hit:
        return self._count_look_up(self.population[operation.request])

    def _count_look_up(self, request: Request) -> Hit:
        """Look up and count it. A request that may not read the cache is not counted either."""
        if not (self.settings.caches and request.reads_cache):
            return Hit(0, ((),) * len(self.geometry.groups))
        hit = longest_hit(self.geometry, self.pool.cached, self.prefixes[request.number], len(request.tokens))
        self._statistics = self._statistics.counted(len(request.tokens), hit.tokens, request.preemptions > 0)
        return hit

    def _common_prefix(self, operation: CommonPrefix) -> Shared:
        """Blocks that every request with blocks holds; not told for sliding windows, nor without prefix caching."""
        everyone = len(self.tables)
        shared = []
        for group, table in zip(self.geometry.groups, self.tables[operation.request], strict=True):
            references = [self.pool.references[block] for block in table.blocks]
            told = self.settings.caches and group.window_tokens is None
            leading = next((i for i, count in enumerate(references) if count != everyone), len(references))
            shared.append(leading if told else 0)
        return Shared(tuple(shared))

    # Allocation

    def _admit(self, operation: Admit) -> Granted | Refused:
        request = self.population[operation.request]
        hit = self._count_look_up(request)
        if self.settings.full_sequence_must_fit and not self._passes_gate(request, hit):
            return Refused(hit.tokens, gate=True)
        tokens = min(len(request.tokens) - hit.tokens, operation.tokens, self.settings.chunk_tokens)
        # A request without computed tokens gets no look-ahead slots: it drafts nothing in its first step.
        granted = self._allocate(request, hit, tokens, lookahead_tokens=0)
        return Refused(hit.tokens, gate=False) if granted is None else Granted(hit.tokens, granted)

    def _schedule(self, operation: Schedule) -> Granted | Refused:
        request = self.population[operation.request]
        tokens = self.population.tokens_to_schedule(request, operation.tokens)
        granted = self._allocate(request, None, tokens, self.settings.lookahead_tokens)
        return Refused(0, gate=False) if granted is None else Granted(0, granted)

    def _passes_gate(self, request: Request, hit: Hit) -> bool:
        """Whether the blocks that the whole request will still take fit into what is free now.

        At its peak the request holds no more of a group than what is left of it after the hit, nor more than a
        window and a chunk; the live blocks of the hit are part of that.
        """
        needed = 0
        for index, group in enumerate(self.geometry.groups):
            dead = group.blocks_dead(hit.tokens)
            live = hit.blocks[index][dead:]
            peak = min(
                group.blocks_occupied(len(request.tokens)) - dead,
                group.blocks_held_at_most(self.settings.chunk_tokens, self.settings.tokens_max),
            )
            needed += max(0, peak - len(live)) + self._count_free(live)
        return needed <= len(self.pool.free)

    def _count_free(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` nobody holds: to use them takes them out of the free queue."""
        return sum(self.pool.references[block] == 0 for block in blocks)

    def _allocate(self, request: Request, hit: Hit | None, tokens: int, lookahead_tokens: int) -> BlockTable | None:
        """Give ``request`` slots for its next ``tokens`` tokens and some look-ahead; None if they do not fit.

        In this order, each over all groups: release what no later token reads; refuse if too few blocks are free;
        hold the blocks of the hit, so that none of them is taken; take new ones; cache the blocks that are full.
        The release stands even if the rest is refused.
        """
        computed = request.tokens_computed + (0 if hit is None else hit.tokens)
        slots = min(computed + tokens + lookahead_tokens, self.settings.tokens_max)
        tables = self.tables.get(request.number)
        if tables is not None:
            self._release_dead(tables, computed)

        groups = self.geometry.groups
        planned = tables or [self._table_of_hit(index, hit, computed) for index in range(len(groups))]
        taken = [
            max(0, group.blocks_occupied(slots) - len(table.blocks))
            for group, table in zip(groups, planned, strict=True)
        ]
        held_again = 0 if tables else self._count_free(b for t in planned for b in t.blocks if b != NULL)
        if sum(taken) + held_again > len(self.pool.free):
            return None

        if tables is None:
            for table in planned:
                self.pool.touch(block for block in table.blocks if block != NULL)
            self.tables[request.number] = planned
        granted = []
        for table, count in zip(planned, taken, strict=True):
            blocks, lost = self.pool.take(count)
            table.blocks += blocks
            granted.append(tuple(blocks))
            self._events += [Removed(content) for content in lost]
        if self.settings.caches:
            self._register(request, min(computed + tokens, len(request.tokens)))
        return tuple(granted)

    def _table_of_hit(self, group: int, hit: Hit | None, computed: int) -> Table:
        """A first table: the hit, with the null block where no later token reads."""
        assert hit is not None, "a running request has its tables"
        dead = self.geometry.groups[group].blocks_dead(computed)
        blocks = [*(NULL,) * dead, *hit.blocks[group][dead:]]
        return Table(blocks, registered=len(blocks))

    def _register(self, request: Request, tokens: int) -> None:
        """Cache the blocks that the first ``tokens`` tokens fill, each once; drafts are never among them."""
        for index, (group, table) in enumerate(zip(self.geometry.groups, self.tables[request.number], strict=True)):
            size = group.block_size_tokens
            full = tokens // size
            # Accepted drafts may span a whole window: the blocks they filled can be dead before they are cached.
            new = [position for position in range(table.registered, full) if table.blocks[position] != NULL]
            if not new:
                continue
            for position in new:
                self.pool.cached.register(self.content(request.number, index, position), table.blocks[position])
            self._events.append(
                Stored(
                    group=index,
                    contents=tuple(self.content(request.number, index, position) for position in new),
                    parent=self.content(request.number, index, new[0] - 1) if new[0] else None,
                    tokens=tuple(request.tokens[new[0] * size : full * size]),
                    block_size_tokens=size,
                    lora=request.keys.lora,
                    extra_keys=tuple(request.keys.of_block(i * size, (i + 1) * size) for i in new),
                )
            )
            table.registered = full

    # Release

    def _release_dead(self, tables: list[Table], tokens_computed: int) -> None:
        """Release the blocks that no token after ``tokens_computed`` reads, the later ones first."""
        for group, table in zip(self.geometry.groups, tables, strict=True):
            dead = min(group.blocks_dead(tokens_computed), len(table.blocks))
            self.pool.release(reversed(table.blocks[:dead]))
            table.blocks[:dead] = (NULL,) * dead

    def _release_skipped(self, operation: ReleaseSkipped) -> Done:
        self._release_dead(self.tables[operation.request], self.population[operation.request].tokens_computed)
        return Done()

    def _end(self, operation: Preempt | Finish | Abort) -> Done:
        """Release all blocks, group by group, tail first: a prefix is worth more than what follows it."""
        for table in self.tables.pop(operation.request, []):
            self.pool.release(reversed(table.blocks))
        return Done()

    def _evict(self, operation: Evict) -> Done:
        content = self.pool.cached.forget(operation.block)
        if content is not None:
            self._events.append(Removed(content))
        return Done()

    def _reset(self, _operation: Reset) -> Success:
        succeeded = self.pool.reset()
        if succeeded:
            self._statistics = evolve(self._statistics, reset=True)
            self._events.append(Cleared())
        return Success(succeeded)

    # What is told outside

    def _take_events(self, _operation: TakeEvents) -> Happened:
        events, self._events = self._events, []
        return Happened(tuple(events) if self.settings.tells_events else ())

    def _take_statistics(self, _operation: TakeStatistics) -> Statistics:
        statistics, self._statistics = self._statistics, Statistics()
        return statistics

    def snapshot(self) -> Snapshot:
        """The state, as far as it can be observed from outside."""
        cached = self.pool.cached
        return Snapshot(
            tables={number: [list(table.blocks) for table in tables] for number, tables in self.tables.items()},
            references=list(self.pool.references),
            free=list(self.pool.free),
            blocks_free=len(self.pool.free),
            contents=cached.contents(),
            read_entries=cached.entries,
        )


def _nothing(_manager: Manager, _operation: Operation) -> Done:
    return Done()


_PERFORM: dict[type, Callable[[Manager, Any], Answer]] = {
    Arrive: _nothing,
    LookUp: Manager._look_up,
    Admit: Manager._admit,
    Schedule: Manager._schedule,
    Sample: _nothing,
    Preempt: Manager._end,
    Finish: Manager._end,
    Abort: Manager._end,
    ReleaseSkipped: Manager._release_skipped,
    CommonPrefix: Manager._common_prefix,
    Evict: Manager._evict,
    Reset: Manager._reset,
    TakeEvents: Manager._take_events,
    TakeStatistics: Manager._take_statistics,
}


def step(manager: Manager, operation: Operation) -> tuple[Manager, Answer]:
    """The state after a legal operation, and the answer. The given state stays as it is."""
    after = manager.copy()
    return after, after.apply(operation)
