"""Parts of faults that several findings have in common: a look-up, a count of blocks, retained tails, an event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from attrs import evolve

from kvreference.answers import Hit
from kvreference.choices import Choices
from kvreference.events import Stored
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.holdings import Allocation, Span
from kvreference.manager import OWN, Manager
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Retention, Sparse
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class LookUpInTurn(Manager):
    """The groups shorten the hit in turn, and each asks for its look-ahead block only the first time it is asked.

    It asks again if the hit was shortened by a group that did not ask.
    """

    aligns_before_the_drop = False

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        bare = Geometry(tuple(evolve(group, lookahead=False) for group in self.geometry.groups))
        return longest_hit(bare, self.pool.cached, self.prefixes[request.number], self._hit_tokens(request) + 1)

    def _hit_tokens(self, request: Request) -> int:
        alignment = self.geometry.alignment_tokens
        tokens = (len(request.tokens) - 1) // alignment * alignment
        # Groups that are alike are asked as one, full attention before all others.
        kinds = sorted(dict.fromkeys(self.geometry.groups), key=lambda kind: kind.window_tokens is not None)
        verified: set[Group] = set()
        while True:
            before = tokens
            for kind in kinds:
                asks = kind.lookahead and kind not in verified
                longest = self._longest(request, kind, tokens, asks)
                if asks:
                    verified.add(kind)
                elif longest < tokens:
                    verified.clear()
                tokens = longest
            if tokens == before:
                return tokens

    def _longest(self, request: Request, kind: Group, tokens: int, asks: bool) -> int:
        """The longest hit of at most ``tokens`` that the groups like ``kind`` can serve."""
        indices = [index for index, group in enumerate(self.geometry.groups) if group == kind]
        asked = evolve(kind, lookahead=asks)
        last = len(request.tokens) - (0 if getattr(self.cache, "matches_last_token", False) else 1)

        def satisfied(hit_tokens: int) -> bool:
            if hit_tokens > 0 and asked.tokens_matched(hit_tokens) > last:
                return False
            needed = range(*asked.blocks_needed(hit_tokens))
            contents = (self.content(request.number, index, block) for index in indices for block in needed)
            return all(self.pool.cached.find(content) is not None for content in contents)

        alignment = self.geometry.alignment_tokens
        longest = next(length for length in range(tokens, -1, -alignment) if satisfied(length))
        if self.aligns_before_the_drop and asks and kind.window_tokens and kind.block_size_tokens != alignment:
            whole_window = kind.blocks_occupied(kind.window_tokens - 1) * kind.block_size_tokens
            return longest if longest >= whole_window else max(0, longest - alignment)
        return longest


class HitsPastLoad(Manager):
    """Where a table of full attention continues past what is loaded, a negative number of blocks is taken for the load.

    The pool is asked for that number and counts it: it reports that many more free blocks than are in its queue.
    """

    blocks_miscounted = 0
    """How many more blocks are counted as free than there are. They admit no request: the case is over by then."""

    def copy(self) -> Manager:
        other = super().copy()
        assert isinstance(other, HitsPastLoad)
        other.blocks_miscounted = self.blocks_miscounted
        return other

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        return evolve(snapshot, blocks_free=snapshot.blocks_free + self.blocks_miscounted)

    def _allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        holds_already = request in self.tables
        allocation = super()._allocate(request, span, hit)
        if allocation is not None and span.provided and not holds_already:
            for group, blocks in zip(self.geometry.groups, hit.blocks, strict=True):
                if group.keeps_all:
                    self.blocks_miscounted += max(0, len(blocks) - group.blocks_occupied(span.provided))
        return allocation


class ChangesSpan(Manager):
    """The holdings are asked for slots for another span of tokens."""

    def _changed(self, span: Span) -> Span:
        return span

    def _allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super()._allocate(request, self._changed(span), hit)


class KeepsReplays(Manager):
    """The boundaries that a replay is said to resume at decide what is kept besides the interval."""

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        super().__init__(settings, choices)
        interval, cache = settings.retention_interval_tokens, self.cache
        if interval is not None and interval != self.geometry.alignment_tokens and isinstance(cache, PrefixCache):
            cache.retention = _KeepsTails(cache.retention, self.geometry, interval, self.boundaries)

    def boundaries(self, prompt_tokens: int) -> Collection[int]:
        """Where a replay of a prompt is said to resume."""
        raise NotImplementedError


class _KeepsTails:
    def __init__(
        self,
        retention: Retention,
        geometry: Geometry,
        interval_tokens: int,
        boundaries: Callable[[int], Collection[int]],
    ) -> None:
        self._retention = retention
        self._interval = Sparse(geometry, interval_tokens)
        self._masked = Sparse(geometry, geometry.alignment_tokens)
        self._boundaries = boundaries

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        if not group.slides:
            return self._retention.due_tokens(group, index, prompt_tokens)
        kept = self._interval.due_tokens(group, index, 0) is not None
        if not kept and not any(_ends_at(group, index, boundary) for boundary in self._boundaries(prompt_tokens)):
            return None
        return self._masked.due_tokens(group, index, prompt_tokens)

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        return self._retention.boundaries(start_tokens, end_tokens, prompt_tokens)


def _ends_at(group: Group, index: int, boundary: int) -> bool:
    """Whether a block is of the tail that a hit at ``boundary`` would read, if there were one at 0 as well."""
    assert group.window_tokens is not None
    end = (boundary + group.lookahead_tokens) // group.block_size_tokens
    needed = group.blocks_occupied(group.window_tokens - 1) + group.lookahead
    return end - needed <= index < end


def stored_event(
    manager: Manager, request: Request, index: int, span: range, named: Sequence[int], block_size_tokens: int
) -> Stored:
    """One event with all tokens of the blocks at ``span`` of a group's table, which names the blocks at ``named``."""
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
