"""Faults of other releases than vLLM 0.20.2, and of what only some models show, planted into the reference.

Those of vLLM 0.20.2 are in ``kvgate.findings.faults``. One that is not planted, but recognised, is in
``kvgate.findings.prompt_tails``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from attrs import evolve

from kvreference.answers import Hit
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Retention, Sparse
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class MaskOmitsLookAhead(Manager):
    """What is cached is what hits read without their look-ahead blocks; what is looked up is with them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        interval = settings.retention_interval_tokens
        if isinstance(self.cache, PrefixCache) and interval is not None:
            bare = Geometry(tuple(evolve(group, lookahead=False) for group in settings.geometry.groups))
            self.cache.retention = _WithoutLookAhead(Sparse(bare, interval))


class _WithoutLookAhead:
    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        return self._retention.due_tokens(evolve(group, lookahead=False), index, prompt_tokens)

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        return self._retention.boundaries(start_tokens, end_tokens, prompt_tokens)


class HitsBehindTheLoad(Manager):
    """Where a table of full attention goes on behind what is loaded, fewer blocks than none are taken for the load.

    That is what the pool is asked for, and what it counts: so many blocks more are free for it than are in its queue.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        own = type(self.holdings)
        # Late, for another fault may have put holdings of its own in place.
        self.holdings.__class__ = type(own.__name__, (_FewerThanNone, own), {})

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        assert isinstance(self.holdings, _FewerThanNone)
        return evolve(snapshot, blocks_free=snapshot.blocks_free + self.holdings.blocks_miscounted)


class _FewerThanNone(Holdings):
    blocks_miscounted = 0
    """How many more blocks are counted as free than there are. Whether they let somebody in is not asked: the case is
    over by then."""

    def copy(self) -> Holdings:
        other = super().copy()
        assert isinstance(other, _FewerThanNone)
        other.blocks_miscounted = self.blocks_miscounted
        return other

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        holds_already = request in self.tables
        allocation = super().allocate(request, span, hit)
        if allocation is not None and span.provided and not holds_already:
            for group, blocks in zip(self.groups, hit.blocks, strict=True):
                if group.keeps_all:
                    self.blocks_miscounted += max(0, len(blocks) - group.blocks_occupied(span.provided))
        return allocation


class SecondGroupUncut(HitsBehindTheLoad):
    """Of several kinds of full attention only the first is cut to the hit; the others keep what they had found."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        groups, alignment = self.geometry.groups, self.geometry.alignment_tokens
        kinds = list(dict.fromkeys(group for group in groups if group.keeps_all))
        blocks, tokens = list(hit.blocks), len(request.tokens) - 1
        for kind in kinds:
            alike = [index for index, group in enumerate(groups) if group == kind]
            tokens = min(self._leading(request, alike, kind, tokens)) // alignment * alignment
            if kind != kinds[0]:
                for index in alike:
                    kept = (self._block(request, index, i) for i in range(tokens // kind.block_size_tokens))
                    blocks[index] = tuple(block for block in kept if block is not None)
        return evolve(hit, blocks=tuple(blocks))

    def _leading(self, request: Request, groups: list[int], kind: Group, tokens: int) -> Iterator[int]:
        """How many leading tokens are cached in each of ``groups``, of ``tokens`` at most."""
        for index in groups:
            end = tokens // kind.block_size_tokens
            found = next((i for i in range(end) if self._block(request, index, i) is None), end)
            yield found * kind.block_size_tokens

    def _block(self, request: Request, group: int, index: int) -> int | None:
        return self.pool.cached.find(self.content(request.number, group, index))


class _Replays(Manager):
    """The boundaries that a replay is said to resume at decide what is kept besides the interval."""

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        interval, cache = self.settings.retention_interval_tokens, self.cache
        sparse = interval is not None and interval != self.geometry.alignment_tokens
        # Late, for what a release decides otherwise by design is put in place when all else is built.
        if sparse and isinstance(cache, PrefixCache) and not isinstance(cache.retention, _KeepsTails):
            assert interval is not None
            cache.retention = _KeepsTails(cache.retention, self.geometry, interval, self.boundaries)
        super()._register(request, tokens, now)

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


class ReplayAboveItsLookAhead(_Replays):
    """A replay is taken to resume at the last boundary before the prompt's last token, look-ahead or not."""

    def boundaries(self, prompt_tokens: int) -> Collection[int]:
        alignment = self.geometry.alignment_tokens
        return [(prompt_tokens - 1) // alignment * alignment]


class LookAheadKeptAtZero(_Replays):
    """A replay that cannot resume anywhere is taken to resume at 0, where its look-ahead block is kept."""

    def boundaries(self, prompt_tokens: int) -> Collection[int]:
        alignment = self.geometry.alignment_tokens
        if not self.geometry.lookahead_tokens:
            return [(prompt_tokens - 1) // alignment * alignment]
        ends = prompt_tokens - 1, prompt_tokens
        return [max(end // alignment - 1, 0) * alignment for end in ends]
