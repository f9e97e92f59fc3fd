"""What newer releases of vLLM decide otherwise by design: the reference, with the rules overridden that they changed.

No difference here is a defect: each is a choice that is as good as the reference's, or a promise that the release does
not make any more. The comparison stays what it is, exact; what it compares with is a reference that has made the same
choice. A fault is never a dialect: that is a finding (``kvgate.findings``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import evolve

from kvgate.adapters.native import TRAITS
from kvgate.adapters.scheduler_variants import scheduled
from kvgate.kernel.protocol import System
from kvreference.answers import Hit
from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.prefix_cache import NoPrefixCache, PrefixCache
from kvreference.retention import Sparse
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class ForgottenInPlace(ScratchFirstQueue):
    """Scratch goes to the front when it is released; what is forgotten later stays where it is."""

    def turned_scratch(self, block: int) -> None:
        """It stays."""


class WhenFull:
    """What an admitted boundary reads is cached at the first multiple of the alignment, and not at that boundary.

    It serves nobody until then, and no one is served it wrongly.
    """

    def __init__(self, geometry: Geometry, interval_tokens: int, keeps_extension: bool) -> None:
        self.geometry = geometry
        self.admitted = Sparse(geometry, interval_tokens)
        self.masked = Sparse(geometry, geometry.alignment_tokens)
        self.keeps_extension = keeps_extension

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        kept = self.admitted.due_tokens(group, index, prompt_tokens) is not None
        if not kept and self.keeps_extension and self.geometry.lookahead_tokens:
            alignment = self.geometry.alignment_tokens
            first, end = group.blocks_needed(max(prompt_tokens // alignment - 1, 0) * alignment)
            kept = first <= index < end
        return self.masked.due_tokens(group, index, prompt_tokens) if kept else None

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        return self.admitted.boundaries(start_tokens, end_tokens, prompt_tokens)


class Dialect(Manager):
    """The reference with the choices of a release.

    They are made of a manager that is built already, so that a fault can be planted into it.
    """

    holds: type[Holdings] | None = None
    """What holdings do otherwise."""
    keeps_extension = False
    """Whether with a draft layer, for prompts that end with an alignment, the boundary of a longer one is kept too."""
    matches_last_token = False
    """Whether a look-ahead block may hold the request's last token."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.adapt()

    def adapt(self) -> None:
        """Make the choices. Nothing was performed yet."""
        own = type(self.holdings)
        if self.holds is not None and not issubclass(own, self.holds):
            self.holdings.__class__ = type(own.__name__, (self.holds, own), {})
        self.pool.free = self.queue(self.settings)
        interval, cache = self.settings.retention_interval_tokens, self.cache
        if interval is not None and isinstance(cache, PrefixCache):
            cache.retention = WhenFull(self.geometry, interval, self.keeps_extension)

    def queue(self, settings: Settings) -> FreeQueue:
        """The free queue of a pool in which everything is free."""
        return ForgottenInPlace(range(1, settings.blocks))

    def snapshot(self) -> Snapshot:
        # It does not promise that scratch stands before all else.
        return evolve(super().snapshot(), scratch_first=False)


class Scratch(Dialect):
    """Scratch goes to the front of the free queue, of whatever group, and without prefix caching too."""


class ScratchOfCaches(Dialect):
    """Without prefix caching everything is queued in the order of release."""

    def queue(self, settings: Settings) -> FreeQueue:
        return super().queue(settings) if settings.caches else FreeQueue(range(1, settings.blocks))


class _EndsInOrder(Holdings):
    def release_all(self, request: int) -> None:
        for group, table in zip(self.groups, self.tables.pop(request, []), strict=False):
            if group.slides:
                self.pool.end(table.blocks[::-1])
            else:
                _in_order(self.pool, table.blocks[::-1])


def _in_order(pool: BlockPool, blocks: Sequence[int]) -> None:
    """Release ``blocks`` to the back, cached or not."""
    queue = pool.free
    pool.free = _Appends(queue)
    pool.release(blocks)
    pool.free = type(queue)(pool.free)


class _Appends(FreeQueue):
    def put(self, blocks: Sequence[int], _scratch: Collection[int]) -> None:
        super().put(blocks, ())


class ScratchOfWindows(Dialect):
    """A request of a group without a window gives up its table in the order of release."""

    holds = _EndsInOrder


class _Uncounted(Holdings):
    def leading_shared(self, _request: int) -> Sequence[int]:
        return [0] * len(self.groups)


class LookAheadAtTheEnd(Dialect):
    """Of several groups, a look-ahead block may hold the request's last token, which is computed again all the same.

    And nobody asks any more how many leading blocks all requests share: it is answered with none.
    """

    holds = _Uncounted
    keeps_extension = True

    def adapt(self) -> None:
        super().adapt()
        cache = self.cache
        self.matches_last_token = len(self.geometry.groups) > 1
        if self.matches_last_token and isinstance(cache, PrefixCache):
            self.cache = _UpToTheEnd(cache.geometry, cache.retention, cache.partial_hit_tokens_min)


class _UpToTheEnd(PrefixCache):
    def look_up(self, pool: BlockPool, request: Request, prefixes: list[Prefix]) -> Hit:
        if not (request.reads_cache and self.geometry.lookahead_tokens):
            return super().look_up(pool, request, prefixes)
        tokens = len(request.tokens)
        # A look-ahead block lies behind every hit, so none reaches the last token.
        hit = longest_hit(self.geometry, pool.cached, prefixes, tokens + 1)
        self.statistics = self.statistics.counted(tokens, hit.tokens, request.preemptions > 0)
        return hit


class CountsShared(Dialect):
    """vLLM-Ascend has one coordinator, with prefix caching and without: what all requests share is counted in both."""

    def adapt(self) -> None:
        if not self.settings.caches:
            self.cache = _Counting(self.geometry)

    def snapshot(self) -> Snapshot:
        return Manager.snapshot(self)


class _Counting(NoPrefixCache):
    def shared(self, leading: Sequence[int]) -> tuple[int, ...]:
        return tuple(leading)


DIALECTS: Mapping[str, type[Dialect]] = {
    "counts-shared": CountsShared,
    "scratch": Scratch,
    "scratch-of-caches": ScratchOfCaches,
    "scratch-of-windows": ScratchOfWindows,
    "look-ahead-at-the-end": LookAheadAtTheEnd,
}
"""By the name that an adapter gives."""


def reference_for(system: System) -> type[Manager]:
    """The reference that has made the choices of ``system``: the reference itself, but for a dialect."""
    dialect = getattr(system, "dialect", None)
    own = Manager if dialect is None else DIALECTS[dialect]
    # Where a scheduler drives it, that asks for things in its own way too.
    return scheduled(own, system)


def reference_named(system: str) -> type[Manager]:
    """The same for the system of that name, built or not."""
    name, _, version = system.partition("@")
    if name in ("ascend", "ascend-retention"):
        return CountsShared
    traits = TRAITS.get(version) if name == "native" else None
    return Manager if traits is None or traits.dialect is None else DIALECTS[traits.dialect]


def spoken(kind: type[Manager], system: System) -> type[Manager]:
    """A manager of ``kind`` that has made the choices of ``system``."""
    own = reference_for(system)
    if Manager in (kind, own):
        return own if kind is Manager else kind
    adapt = getattr(own, "adapt", None)

    # Which classes they are is known when it runs.
    class Spoken(kind, own):  # type: ignore[misc, valid-type]
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            if adapt is not None:
                adapt(self)

    return Spoken
