"""What newer releases of vLLM decide otherwise by design: the reference, with the rules overridden that they changed.

No difference here is a defect: each is a choice that is as good as the reference's, or a promise that the release does
not make any more. The comparison stays what it is, exact; what it compares with is a reference that has made the same
choice. A fault is never a dialect: that is a finding (``kvgate.declared``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import evolve

from kvgate.system import System
from kvreference.block_pool import BlockPool
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class ForgottenInPlace(ScratchFirstQueue):
    """Scratch goes to the front when it is released; what is forgotten later stays where it is."""

    def turned_scratch(self, block: int) -> None:
        """It stays."""


class Scratch(Manager):
    """Scratch goes to the front of the free queue, of whatever group, and without prefix caching too."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pool.free = self.queue(settings)

    def queue(self, settings: Settings) -> FreeQueue:
        """The free queue of a pool in which everything is free."""
        return ForgottenInPlace(range(1, settings.blocks))

    def snapshot(self) -> Snapshot:
        # It does not promise that scratch stands before all else.
        return evolve(super().snapshot(), scratch_first=False)


class ScratchOfCaches(Scratch):
    """Without prefix caching everything is queued in the order of release."""

    def queue(self, settings: Settings) -> FreeQueue:
        return super().queue(settings) if settings.caches else FreeQueue(range(1, settings.blocks))


class ScratchOfWindows(Scratch):
    """A request of a group without a window gives up its table in the order of release."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _EndsInOrder(settings)
        self.pool.free = self.queue(settings)


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
    def put(self, blocks: Sequence[int], scratch: Collection[int]) -> None:
        super().put(blocks, ())


class ScratchUncounted(Scratch):
    """Nobody asks any more how many leading blocks all requests share: it is answered with none."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _Uncounted(settings)
        self.pool.free = self.queue(settings)


class _Uncounted(Holdings):
    def leading_shared(self, request: int) -> Sequence[int]:
        return [0] * len(self.groups)


DIALECTS: Mapping[str, type[Manager]] = {
    "scratch": Scratch,
    "scratch-of-caches": ScratchOfCaches,
    "scratch-of-windows": ScratchOfWindows,
    "scratch-uncounted": ScratchUncounted,
}
"""By the name that an adapter gives."""


def reference_for(system: System) -> type[Manager]:
    """The reference that has made the choices of ``system``: the reference itself, but for a dialect."""
    dialect = getattr(system, "dialect", None)
    return Manager if dialect is None else DIALECTS[dialect]
