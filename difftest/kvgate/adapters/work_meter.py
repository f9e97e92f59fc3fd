"""The work of vLLM's block manager, counted where it happens: hashes, table entries, queue links, map entries, offers.

Everything that is counted is replaced in one manager, by something that does the same and counts: the function that
hashes, the lists that are block tables, the links of the blocks, the dictionaries of the cached maps. Work outside a
call of the manager is not counted, so looking at its state costs nothing.

What is counted is what Python code reads, writes or goes over, entry by entry; a slice counts as the entries in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, SupportsIndex

from kvgate.adapters.tap import Tap
from kvgate.monitors.work import Work

CALLS = (
    "allocate_slots",
    "cache_blocks",
    "can_fit_full_sequence",
    "evict_blocks",
    "free",
    "get_computed_blocks",
    "get_num_common_prefix_blocks",
    "new_step_starts",
    "remove_skipped_blocks",
    "reset_prefix_cache",
    "take_events",
)
"""The calls of a block manager that are work; the others only report state."""


class Tally:
    """The counters of one manager."""

    def __init__(self, groups: int) -> None:
        self.depth = 0
        """How many calls of the manager are under way; nothing is counted outside of them."""
        self.tables = [0] * groups
        self.followed = 0
        """How many links were followed or changed, by the manager or by others."""
        self.links = 0
        """How many of them the manager followed or changed, in calls that are over."""
        self.entries = 0
        self.offers: list[Hashable] = []


class _Hashing:
    computed = 0


def counted_hash(function: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """The hash function that requests are to be hashed with: ``function``, counted."""

    def counting(value: Any) -> bytes:
        _Hashing.computed += 1
        return function(value)

    return counting


def following(block: Any, backward: bool = False) -> Callable[[Any], Any]:
    """How to go from one block of a queue to its neighbour, whether its links are counted or not, without counting."""
    name = _LINKS[0] if backward else _LINKS[1]
    return attrgetter(_UNCOUNTED + name if hasattr(block, _UNCOUNTED + name) else name)


_LINKS = ("prev_free_block", "next_free_block")
_UNCOUNTED = "uncounted_"


class WorkMeter:
    """Counts what one block manager of vLLM does, from now on."""

    def __init__(self, manager: Any) -> None:
        self.pool = manager.block_pool
        groups = manager.coordinator.single_type_managers
        self.tally = tally = Tally(len(groups))
        self._hashed = self._paused = _Hashing.computed
        self._followed_before = 0
        for index, group in enumerate(groups):
            group.req_to_blocks = _Tables(tally, index, group.req_to_blocks)
        linked = _linked(type(self.pool.null_block), tally)
        tier = getattr(self.pool, "pinned_tier", None)
        queues = [self.pool.free_block_queue, *(() if tier is None else (tier.queue,))]
        ends = (end for queue in queues for end in (queue.fake_free_list_head, queue.fake_free_list_tail))
        for block in (*self.pool.blocks, *ends):
            block.__class__ = linked
        self._count_maps()
        tap = Tap(self)
        tap.watch(self.pool, "cache_full_blocks", before=self._offers)
        boundaries = getattr(self.pool, "boundaries", None)
        if boundaries is not None:
            tap.watch(boundaries, "register", before=self._offers_boundary)
        # Of these other releases lack one.
        for name in filter(partial(hasattr, manager), CALLS):
            tap.watch(manager, name, before=self._begin, after=self._end)

    def pause(self) -> None:
        """Other managers are at work from now on. Hashes are counted for the whole process: theirs are not to count."""
        self._paused = _Hashing.computed

    def resume(self) -> None:
        """This manager is at work again."""
        self._hashed += _Hashing.computed - self._paused

    def take(self) -> Work:
        """What was done since this was last asked."""
        tally, hashed = self.tally, _Hashing.computed
        work = Work(hashed - self._hashed, tuple(tally.tables), tally.links, tally.entries, tuple(tally.offers))
        self._hashed = hashed
        tally.tables = [0] * len(tally.tables)
        tally.links = tally.entries = 0
        tally.offers.clear()
        return work

    def _begin(self, *_arguments: Any, **_named: Any) -> None:
        # A reset puts a new map in place of the old one.
        self._count_maps()
        tally = self.tally
        if tally.depth == 0:
            self._followed_before = tally.followed
        tally.depth += 1

    def _end(self, _answer: object = None, *_arguments: Any, **_named: Any) -> None:
        tally = self.tally
        tally.depth -= 1
        if tally.depth == 0:
            tally.links += tally.followed - self._followed_before

    def raised(self, name: str, error: BaseException, arguments: Sequence[Any]) -> None:
        """A call that raises is over as well."""
        del name, error, arguments
        self._end()

    def failed(self, error: Exception) -> bool:
        """Errors in the meter are reported to the gate."""
        del error
        return False

    def _count_maps(self) -> None:
        cached, boundaries = self.pool.cached_block_hash_to_block, getattr(self.pool, "boundaries", None)
        if type(cached._cache) is not _Map:
            cached._cache = _Map(self.tally, cached._cache)
        if boundaries is not None and type(boundaries._blocks) is not _Map:
            boundaries._blocks = _Map(self.tally, boundaries._blocks)

    def _offers(self, *arguments: Any, **named: Any) -> None:
        self.tally.offers.extend(_offered(*arguments, **named))

    def _offers_boundary(self, key: bytes, _block: Any) -> None:
        self.tally.offers.append(f"the boundary {key.hex()}")


def _offered(
    request: Any,
    blocks: Any,
    num_cached_blocks: int,
    num_full_blocks: int,
    block_size: int,
    kv_cache_group_id: int,
    block_mask: Any = None,
    **_newer: Any,
) -> Iterator[str]:
    """The blocks that a call offers to the cache: those of its range that are there and that the mask wants."""
    del request, block_size
    # Too many blocks are rejected where they are cached.
    for position in range(num_cached_blocks, min(num_full_blocks, list.__len__(blocks))):
        wanted = block_mask is None or block_mask[position - num_cached_blocks]
        if wanted and not list.__getitem__(blocks, position).is_null:
            yield f"block {position} in group {kv_cache_group_id}"


def _linked(kind: Any, tally: Tally) -> type:
    """The class of a block whose links are counted; a block can be made one of it, and stays the same object."""

    def counted(name: str) -> property:
        get, put = vars(kind)[name].__get__, vars(kind)[name].__set__

        def read(block: Any) -> Any:
            tally.followed += 1
            return get(block)

        def write(block: Any, link: Any) -> None:
            tally.followed += 1
            put(block, link)

        return property(read, write)

    def equals(block: Any, other: object) -> Any:
        # Whether two blocks are the same is asked of all that they have, links too: these are not followed.
        followed = tally.followed
        try:
            return kind.__eq__(block, other)
        finally:
            tally.followed = followed

    replaced: dict[str, Any] = {name: counted(name) for name in _LINKS}
    replaced.update({_UNCOUNTED + name: vars(kind)[name] for name in _LINKS})
    named = {"__slots__": (), "__module__": kind.__module__, "__eq__": equals, "__hash__": kind.__hash__}
    return type(kind.__name__, (kind,), {**named, **replaced})


class _Table(list[Any]):
    """A block table that counts which of its entries are read and written."""

    __slots__ = ("_group", "_tally")

    def __init__(self, tally: Tally, group: int, entries: Iterable[Any] = ()) -> None:
        super().__init__(entries)
        self._tally = tally
        self._group = group

    def _count(self, entries: int) -> None:
        if self._tally.depth:
            self._tally.tables[self._group] += entries

    def _counted(self, entries: Iterator[Any]) -> Iterator[Any]:
        for entry in entries:
            self._count(1)
            yield entry

    def __iter__(self) -> Iterator[Any]:
        return self._counted(super().__iter__()) if self._tally.depth else super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        return self._counted(super().__reversed__()) if self._tally.depth else super().__reversed__()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self._count(len(found) if isinstance(index, slice) else 1)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)
        self._count(len(value) if isinstance(index, slice) else 1)
        super().__setitem__(index, value)

    def __contains__(self, entry: object) -> bool:
        self._count(len(self))
        return super().__contains__(entry)

    def append(self, entry: Any) -> None:
        self._count(1)
        super().append(entry)

    def extend(self, entries: Iterable[Any]) -> None:
        before = len(self)
        super().extend(entries)
        self._count(len(self) - before)

    def pop(self, index: SupportsIndex = -1) -> Any:
        self._count(1)
        return super().pop(index)

    def copy(self) -> list[Any]:
        self._count(len(self))
        return super().copy()

    def index(self, *arguments: Any) -> int:
        self._count(len(self))
        return super().index(*arguments)

    def count(self, entry: Any) -> int:
        self._count(len(self))
        return super().count(entry)


class _Tables(defaultdict[str, Any]):
    """The block tables of one group, by request: each table that is put in becomes one that counts."""

    def __init__(self, tally: Tally, group: int, tables: Any) -> None:
        super().__init__(lambda: _Table(tally, group))
        self._tally = tally
        self._group = group
        for request, entries in tables.items():
            self[request] = entries

    def __setitem__(self, request: str, entries: Any) -> None:
        counting = entries if type(entries) is _Table else _Table(self._tally, self._group, entries)
        super().__setitem__(request, counting)


class _Map(dict[Any, Any]):
    """A dictionary that counts which of its entries are asked for, changed or gone over."""

    __slots__ = ("_tally",)

    def __init__(self, tally: Tally, entries: Any) -> None:
        super().__init__(entries)
        self._tally = tally

    def _count(self, entries: int = 1) -> None:
        if self._tally.depth:
            self._tally.entries += entries

    def get(self, *arguments: Any) -> Any:
        self._count()
        return super().get(*arguments)

    def setdefault(self, *arguments: Any) -> Any:
        self._count()
        return super().setdefault(*arguments)

    def pop(self, *arguments: Any) -> Any:
        self._count()
        return super().pop(*arguments)

    def __getitem__(self, key: Any) -> Any:
        self._count()
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._count()
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        self._count()
        super().__delitem__(key)

    def __contains__(self, key: object) -> bool:
        self._count()
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        self._count(len(self))
        return super().__iter__()

    def keys(self) -> Any:
        self._count(len(self))
        return super().keys()

    def values(self) -> Any:
        self._count(len(self))
        return super().values()

    def items(self) -> Any:
        self._count(len(self))
        return super().items()
