"""Recording: which of the pool's own operations one operation of the manager calls, in order.

Only what the manager calls is recorded, and not what the pool then calls by itself: what a call does to the blocks is
for the transitions to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, TypeVar, cast

from attrs import frozen

from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import CachedMap, Content
from kvreference.holdings import Holdings
from kvreference.partial_map import PartialMap
from kvreference.pinned_tier import PinnedPool

Result = TypeVar("Result")


class Did(Enum):
    """What is called."""

    ROOM = "make room"
    TAKE = "take"
    TOUCH = "touch"
    RELEASE = "release"
    PIN = "pin"
    DEMOTE = "demote"
    EVICT = "evict"
    REGISTER = "register"
    BEGIN = "register a beginning"
    RESET = "reset"


@frozen
class Call:
    """One call, for one block."""

    did: Did
    block: int = NULL
    content: Content | None = None
    """What is registered."""
    count: int = 0
    """For how many blocks room is made."""
    kept: frozenset[int] = frozenset()
    """What must not be demoted for them."""
    answer: bool = True


class RecordedPool(BlockPool):
    """A pool that records what is called. ``record`` makes one of any pool."""

    calls: list[Call]
    _by_itself: bool

    def copy(self) -> RecordedPool:
        other = super().copy()
        other.listen()
        return other

    def listen(self) -> None:
        """From now on calls are recorded, also of the maps that the pool has now."""
        self.calls = []
        self._by_itself = False
        self._listen_to_maps()

    def _listen_to_maps(self) -> None:
        self.cached, self.partial = _recorder(self.cached, RecordedMap), _recorder(self.partial, RecordedPartialMap)
        self.cached.calls = self.partial.calls = self.calls

    def _inside(self, call: Callable[[], Result]) -> Result:
        """Calls that the pool makes itself in ``call`` are not recorded."""
        self._by_itself = True
        try:
            return call()
        finally:
            self._by_itself = False

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        place = len(self.calls)
        answer = super().make_room(count, kept)
        self.calls.insert(place, Call(Did.ROOM, count=count, kept=frozenset(kept), answer=answer))
        return answer

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        blocks, lost = self._inside(lambda: super(RecordedPool, self).take(count))
        self.calls += [Call(Did.TAKE, block) for block in blocks]
        return blocks, lost

    def touch(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        self.calls += [Call(Did.TOUCH, block) for block in blocks]
        self._inside(lambda: super(RecordedPool, self).touch(blocks))

    def release(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        self.calls += [Call(Did.RELEASE, block) for block in blocks if block != NULL]
        self._inside(lambda: super(RecordedPool, self).release(blocks))

    def evict(self, block: int) -> list[Content]:
        self.calls.append(Call(Did.EVICT, block))
        return self._inside(lambda: super(RecordedPool, self).evict(block))

    def reset(self) -> bool:
        done = self._inside(super().reset)
        self.calls.append(Call(Did.RESET, answer=done))
        self._listen_to_maps()
        return done


class RecordedPinnedPool(RecordedPool, PinnedPool):
    """The same with a pinned tier."""

    def _pin(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        self.calls += [Call(Did.PIN, block) for block in blocks if block != NULL]
        super()._pin(blocks)

    def _unpin(self, block: int) -> None:
        if not self._by_itself:
            self.calls.append(Call(Did.DEMOTE, block))
        super()._unpin(block)


class RecordedMap(CachedMap):
    """A cached map that records what is registered."""

    calls: list[Call]

    def register(self, content: Content, block: int) -> None:
        self.calls.append(Call(Did.REGISTER, block, content))
        super().register(content, block)


class RecordedPartialMap(PartialMap):
    """A map of partial entries that records what is registered."""

    calls: list[Call]

    def register(self, content: Content, block: int) -> None:
        self.calls.append(Call(Did.BEGIN, block, content))
        super().register(content, block)


def record(holdings: Holdings) -> None:
    """Put in the place of the pool of ``holdings`` one that records what is called from now on."""
    pool = holdings.pool
    recorded = _recorder(pool, RecordedPinnedPool if isinstance(pool, PinnedPool) else RecordedPool)
    recorded.listen()
    holdings.pool = recorded


Recorder = TypeVar("Recorder")
_BOTH: dict[tuple[type, type], type] = {}
"""Classes that are a recorder and something else, one for each pair, so that copying a pool is cheap."""


def _recorder(thing: Any, recorder: type[Recorder]) -> Recorder:
    """A recorder of the type of ``thing`` with its attributes; ``thing`` itself if it is a recorder."""
    if isinstance(thing, recorder):
        return thing
    kinds = recorder, type(thing)
    if kinds not in _BOTH:
        _BOTH[kinds] = type(f"Recorded{type(thing).__name__}", kinds, {})
    other: Any = object.__new__(_BOTH[kinds])
    vars(other).update(vars(thing))
    return cast(Recorder, other)
