"""The designs that were tried elsewhere and dropped, and small faults injected into the reference.

The first live in ``kvspec.refuted``, each with its history. The others break one guarantee each, so that no check
of the explorer is there in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvgate.adapters.reference import Reference
from kvreference.ahead import is_fenced
from kvreference.answers import Answer, Copy, Hit
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.caching import holds_its_end
from kvreference.choices import Choices
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings, tokens_passed
from kvreference.operations import Abort, Operation
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Population, Request
from kvreference.prefix_cache import PrefixCache, new_cache
from kvreference.retention import Dense, Sparse
from kvreference.rules import Delta, Rules
from kvreference.settings import Settings


class StalePins(Reference):
    """A hit does not take a pinned block out of the pinned queue."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.pin_drop_blocks_min is not None
        self.holdings.pool = _StalePool(settings.blocks, settings.scratch_first, settings.pin_drop_blocks_min)


class _StalePool(PinnedPool):
    def _unqueue(self, block: int) -> None:
        if not self.is_pinned[block]:
            super()._unqueue(block)


class PinsScratch(Reference):
    """All blocks that a window drops or a request frees are pinned, cached or not."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.pin_drop_blocks_min is not None
        self.holdings.pool = _PinsScratch(settings.blocks, settings.scratch_first, settings.pin_drop_blocks_min)


class _PinsScratch(PinnedPool):
    def _pin(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.is_pinned[block] = block != NULL


class ForgetsTheMask(Reference):
    """Caches every full block and ignores the retention interval."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cache = PrefixCache(self.geometry, Dense(self.geometry))


class PartsWithoutLookAhead(Reference):
    """Keeps the last boundary of what prompts share, and not the last one with a look-ahead that they share too."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cache = new_cache(settings, Rules((Delta("junction", _without_look_ahead),)))


def _without_look_ahead(_rule: object, geometry: Geometry, known: int, readable: int, hit_tokens: int) -> int:
    boundary = min(known, readable) // geometry.alignment_tokens * geometry.alignment_tokens
    return boundary if boundary > hit_tokens else 0


class ForgetsJunctions(Reference):
    """Knows where prompts part, and keeps nothing there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert isinstance(self.cache, PrefixCache)
        self.cache.retention = _WithoutJunctions(self.geometry, settings.retention_interval_tokens or 0)


class _WithoutJunctions(Sparse):
    def at_junction(self, junction_tokens: int) -> Sparse:
        del junction_tokens
        return self


class ScratchLast(Reference):
    """Scratch is put at the back of the free queue, like cached blocks."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pool.free = FreeQueue(self.pool.free)


class CopiesTooLittle(Reference):
    """A copy is a slot short."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _CopyingTooLittle(settings)


class _CopyingTooLittle(Holdings):
    def dispatch(self) -> tuple[Copy, ...]:
        return tuple(Copy(copy.group, copy.source, copy.destination, copy.tokens - 1) for copy in super().dispatch())


class Unfenced(Reference):
    """What a step computes may be copied, and states read, in the same step."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        cache = new_cache(settings)
        assert isinstance(cache, PrefixCache)
        self.cache = _UnfencedCache(cache.geometry, cache.retention)


class _UnfencedCache(PrefixCache):
    def is_ready(self, hit: Hit, prefixes: Sequence[Prefix]) -> bool:
        del hit, prefixes
        return True


class KeepsEntries(Reference):
    """An allocated block keeps the entries inside it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = _KeepingPool(settings.blocks, settings.scratch_first)


class _KeepingPool(BlockPool):
    def _forget(self, block: int) -> Content | None:
        return self.cached.forget(block)


class HoldsHitsLate(Reference):
    """New blocks are taken before the hit is held: one of them may be the hit itself."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = _LatePool(settings.blocks, settings.scratch_first)


class _LatePool(BlockPool):
    late: tuple[int, ...] = ()

    def touch(self, blocks: Iterable[int]) -> None:
        self.late = tuple(blocks)

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        taken = super().take(count)
        super().touch(self.late)
        self.late = ()
        return taken


class GivesUpLoading(Reference):
    """An abort frees the blocks at once, although a transfer still writes into them."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.holdings.release_all(operation.request)
        return super().apply(operation)


CACHES_WHAT_IS_PASSED = Choices(rules=Rules((Delta(holds_its_end.__name__, lambda *_: True),)))


class FreesInFlight(Reference):
    """Released blocks are free at once, even if a step in flight writes them or another node may write them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Choices(rules=Rules((Delta(is_fenced.__name__, lambda *_: False),))))


class LeavesDrafts(Reference):
    """A window counts what is in flight as computed, with drafts that may not hold."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Choices(rules=Rules((Delta(tokens_passed.__name__, _counts_drafts),))))


def _counts_drafts(_rule: object, request: int, groups: Sequence[Group], computed: int, unsure: int) -> int:
    del request, groups, unsure
    return computed


class AnyChunk(Reference):
    """The chunks of a prompt end anywhere, also where states are kept at block ends only, and all blocks are cached."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, CACHES_WHAT_IS_PASSED)
        self.population = _AnyChunk(settings)


class _AnyChunk(Population):
    def tokens_from(self, request: Request, computed: int, budget_tokens: int) -> int:
        return min(len(request.tokens) + len(request.drafts) - computed, budget_tokens, self.settings.chunk_tokens)
