"""The reference, followed call by call with the numbers that a live scheduler counted on.

The operations of ``kvreference.operations`` leave it to the reference's own books how many tokens are computed. A live
scheduler may count on more, tokens in flight among them. So here the reference's parts are asked directly, with the
scheduler's numbers: what is a hit, what fits, which blocks are given, released and cached is all the reference's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import cast

from attrs import evolve

from kvgate.shadow.calls import Allocated, Arrived, Checkpoint, Gated, Grew, Standing
from kvreference.admission import blocks_said_free
from kvreference.answers import Hit
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.choices import Choices
from kvreference.content import Keys, Prefix
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.holdings import Span
from kvreference.manager import OWN, Manager, tokens_computed
from kvreference.population import Request, Status
from kvreference.settings import Settings
from kvreference.tables import Table

ENTRIES_MAX = 2**24
"""The most entries in all tables of a request: those of ten million tokens in blocks of 16, in two dozen groups."""


class OrderAgnosticReference(Manager):
    """The reference of a live block manager. What a request's tokens are it does not know, only their digests.

    Of the system's answers it needs only the hit that its scheduler used.
    """

    def __init__(self, settings: Settings, choices: Choices = OWN, key_sizes_tokens: Sequence[int] = ()) -> None:
        super().__init__(settings, choices)
        self._key_sizes = key_sizes_tokens or [group.block_size_tokens for group in self.geometry.groups]
        self._digests: dict[bytes, Prefix] = {}
        self.due: list[Event] = []
        """The events that are due, where any are published."""

    # Requests

    def arrive(self, record: Arrived) -> None:
        """A request is there."""
        request = Request(
            record.number, _unknown(record.tokens), Keys(), record.reads_cache, prompt_tokens=record.prompt_tokens
        )
        self.population.alive[record.number] = request
        self.prefixes[record.number] = []
        self._extend(record.number, record.digests)

    def grow(self, record: Grew) -> None:
        """A request has more tokens."""
        self.population[record.number].tokens = _unknown(record.tokens)
        self._extend(record.number, record.digests)

    def _extend(self, number: int, digests: Sequence[bytes]) -> None:
        known = self.prefixes[number]
        for digest in digests:
            parent = known[-1] if known else None
            known.append(self._prefix(digest, parent, (len(known) + 1) * self.geometry.grain_tokens))

    def _prefix(self, digest: bytes, parent: Prefix | None, tokens: int) -> Prefix:
        prefix = self._digests.get(digest)
        if prefix is None:
            prefix = self._digests[digest] = Prefix(parent, digest, tokens)
        elif not prefix.tokens:
            # It was known as what a block holds, before a request came that begins with it.
            prefix.parent, prefix.tokens = parent, tokens
        return prefix

    def leave(self, number: int) -> None:
        """A request is over."""
        self.population.alive.pop(number, None)
        self.prefixes.pop(number, None)

    # What the block manager is asked

    def hit(self, number: int, was_preempted: bool) -> Hit:
        """The longest hit, counted."""
        request = self.population[number]
        request.preemptions = int(was_preempted)
        return self._hit(request)

    def fits(self, call: Gated, hit: Hit) -> bool:
        """Whether a waiting request passes the gate."""
        request = self.population[call.number]
        end = call.computed + call.hit_tokens + call.external_tokens
        ready = self.cache.is_ready(hit, self.prefixes[call.number])
        return ready and self._fits(request, hit, self._computed(end, request))

    def _computed(self, end: int, request: Request) -> int:
        return self.choices.rules.ask(tokens_computed, end, len(request.tokens))

    def allocate(self, call: Allocated, hit: Hit) -> tuple[tuple[int, ...], ...] | None:
        """Give slots, and cache what that makes due: what the tables gained, or None.

        Raises:
            ValueError: more is asked for than any request has.
        """
        slots = call.computed + call.hit_tokens + call.external_tokens + call.tokens + call.lookahead_tokens
        entries = sum(slots // group.block_size_tokens for group in self.geometry.groups)
        if entries > ENTRIES_MAX:
            raise ValueError(f"tables of {entries} entries, at most {ENTRIES_MAX} are followed")
        request = self.population[call.number]
        if call.is_first:
            end = call.computed + hit.tokens + call.external_tokens
            computed = self._computed(end, request)
            tokens = end + call.tokens - computed
            provided = end if call.external_tokens else 0
            span = Span(computed, tokens, call.lookahead_tokens, provided, call.reserved, call.unsure)
            ready = self.cache.is_ready(hit, self.prefixes[call.number])
            if call.must_fit and not (ready and self._fits(request, hit, computed)):
                return None
        else:
            span, ready = Span(call.computed, call.tokens, call.lookahead_tokens, unsure=call.unsure), True
        allocation = self.holdings.allocate(call.number, span, hit) if ready else None
        if allocation is None:
            return None
        self._lose(allocation)
        request.status = Status.LOADING if call.delayed else Status.RUNNING
        if not call.delayed:
            self.register(call.number, span.computed + span.tokens, span.computed)
        return allocation.entries

    def register(self, number: int, tokens: int, begun: int | None) -> None:
        """Cache what the first tokens of a request make due; a step computes those after ``begun``, if it is one."""
        if number in self.tables:
            self._register(self.population[number], tokens, begun)

    def take_registered(self, number: int) -> list[tuple[int, int, int]]:
        """What was cached of a request since the last time: group, position in its table, block; in order."""
        events, self._events = self._events, []
        if self.settings.tells_events:
            self.due += events
        tables = self.tables.get(number)
        found = []
        for event in events:
            if isinstance(event, Stored) and tables is not None:
                size = self._key_sizes[event.group]
                for content in event.contents:
                    position = cast(Content, content)[1].tokens // size - 1
                    found.append((event.group, position, tables[event.group].blocks[position]))
        return found

    def take_due(self) -> list[Event]:
        """The events since the last time."""
        due, self.due = self.due, []
        return due

    def evict(self, block: int) -> None:
        """Forget what a block holds."""
        self._events += map(Removed, self.pool.evict(block))

    def reset(self) -> bool:
        """Forget everything that is cached, if no block is held."""
        succeeded = self.pool.reset()
        if succeeded:
            self.cache.statistics = evolve(self.cache.statistics, reset=True)
            self._events.append(Cleared())
        return succeeded

    def skip(self, number: int, computed: int) -> None:
        """Release what no later token reads."""
        if number in self.tables:
            self.holdings.release_dead(number, computed)

    def entries_freed(self, number: int) -> tuple[int, ...]:
        """How many leading entries of a request's tables are freed, in each group with a window."""
        tables = self.tables.get(number)
        if tables is None:
            return (0,) * sum(group.window_tokens is not None for group in self.geometry.groups)
        windowed = (table for group, table in zip(self.geometry.groups, tables, strict=True) if group.window_tokens)
        return tuple(min(table.dead, len(table.blocks)) for table in windowed)

    def free(self, number: int) -> None:
        """A request frees its blocks. What was copied into them was so with the last step, which is over here."""
        named = {block for table in self.tables.get(number, ()) for block in table.live()}
        if any(copy.destination in named for copy in self.copies):
            self.holdings.dispatch()
        self.holdings.release_all(number)

    def share(self, number: int) -> list[int]:
        """How many leading blocks all requests share with this one."""
        return list(self.cache.shared(self.holdings.leading_shared(number)))

    @property
    def blocks_said_free(self) -> int:
        """How many blocks the pool says that are free."""
        return self.choices.rules.ask(blocks_said_free, self.pool)

    @property
    def contents_cached(self) -> int:
        """How many contents are cached, counted without a copy of them."""
        return len(self.pool.cached._blocks)

    def last_free(self, count: int) -> tuple[int, ...]:
        """The last blocks of the free queue, the last one first, found without walking it."""
        return tuple(islice(reversed(self.pool.free._order), count))

    # Beginning in the middle

    @classmethod
    def at(
        cls, settings: Settings, checkpoint: Checkpoint, choices: Choices = OWN, key_sizes_tokens: Sequence[int] = ()
    ) -> OrderAgnosticReference:
        """The reference in the state of a checkpoint.

        Raises:
            ValueError, LookupError: it does not describe a state.
        """
        ours = cls(settings, choices, key_sizes_tokens)
        for arrival in checkpoint.arrivals:
            ours.arrive(arrival)
        pool = ours.pool
        if len(checkpoint.references) != settings.blocks:
            raise ValueError(f"{len(checkpoint.references)} blocks, and the settings say {settings.blocks}")
        pool.references[:] = checkpoint.references
        pool.free = type(pool.free)(checkpoint.free)
        first = [block for blocks in checkpoint.several for block in blocks]
        for block in dict.fromkeys([*first, *checkpoint.contents]):
            if block in checkpoint.contents:
                pool.cached.register(ours.content_at(*checkpoint.contents[block]), block)
        for standing in checkpoint.standing:
            if standing.number in ours.population.alive:
                ours.population[standing.number].junction_tokens = standing.junction_tokens
            if standing.holds:
                ours.tables[standing.number] = ours._tables(standing)
        return ours

    def content_at(self, group: int, digest: bytes) -> Content:
        """The content that a digest stands for in a group."""
        return group, self._prefix(digest, None, 0)

    def _tables(self, standing: Standing) -> list[Table]:
        return [
            Table(list(blocks), registered, 0, dead=_leading_nulls(blocks), fresh=False)
            for blocks, registered in zip(standing.tables, standing.registered, strict=True)
        ]


def _leading_nulls(blocks: Sequence[int]) -> int:
    return next((index for index, block in enumerate(blocks) if block != NULL), len(blocks))


def _unknown(tokens: int) -> list[int]:
    """So many tokens, of which only the number is known."""
    return cast("list[int]", range(tokens))
