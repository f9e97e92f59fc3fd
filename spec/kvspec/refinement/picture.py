"""A picture: the state of a manager's blocks, as a state of ``kvspec.pool``.

A table entry is named by request, group and position, a copy by its place among those that are pending, and a content
by itself. What did not change since the picture before is not looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from kvreference.answers import Copy
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.pinned_tier import PinnedPool
from kvspec.maps import FiniteMap
from kvspec.pool.state import FREE, HELD, WAITING, State

Entry: TypeAlias = tuple[int, int, int]
"""Request, group and position."""

IN_BOTH = -1
"""Where a block would be that two queues have."""
NOTHING = FiniteMap()


@frozen(eq=False)
class Raw:
    """What was read of a manager, and the maps made of it."""

    tables: Mapping[int, tuple[list[list[int]], Mapping[Entry, int]]]
    """Per request, its tables, and the blocks that they name by entry."""
    references: list[int]
    contents: Sequence[Content | None]
    listed: Mapping[Content, tuple[int, ...]]
    begins: Mapping[Content, tuple[int, ...]]
    copies: tuple[Copy, ...]


@frozen(eq=False)
class Picture:
    """A state, and what it was made of."""

    state: State
    raw: Raw

    def entries(self, request: int | None) -> Mapping[int, Entry]:
        """Where the tables of ``request`` name each block."""
        if request is None or request not in self.raw.tables:
            return {}
        return {block: entry for entry, block in self.raw.tables[request][1].items()}


def picture(manager: Manager, before: Picture | None = None) -> Picture:
    """The picture of ``manager``, which does not change with it."""
    pool = manager.pool
    was = None if before is None else before.raw
    raw = Raw(
        {} if not manager.tables else _tables(manager, {} if was is None else was.tables),
        list(pool.references),
        pool.cached.contents(),
        pool.cached.entries(),
        pool.partial.entries(),
        tuple(manager.copies),
    )

    def map_of(name: str, *fields: str) -> FiniteMap | None:
        """The map ``name`` as it was, if what it is made of did not change."""
        if was is None or before is None or any(getattr(was, each) != getattr(raw, each) for each in fields):
            return None
        known: FiniteMap = getattr(before.state, name)
        return known

    state = State(
        blocks=len(raw.references),
        refs=map_of("refs", "references") or _numbered(raw.references),
        named=_named(raw, before),
        reads=map_of("reads", "copies") or _numbered([copy.source for copy in raw.copies]),
        writes=map_of("writes", "copies") or _numbered([copy.destination for copy in raw.copies]),
        where=_where(manager),
        pinned=_numbered(list(map(int, pool.is_pinned))) if isinstance(pool, PinnedPool) else NOTHING,
        content=map_of("content", "contents") or _numbered([0 if each is None else each for each in raw.contents]),
        listed=map_of("listed", "listed") or _listed(raw.listed),
        begun=_begun(manager) if raw.begins or pool.partial.blocks() else NOTHING,
        begins=map_of("begins", "begins") or _listed(raw.begins),
    )
    return Picture(state, raw)


def _tables(manager: Manager, known: Mapping[int, Any]) -> Mapping[int, Any]:
    found = {}
    for number, tables in manager.tables.items():
        now = [list(table.blocks) for table in tables]
        was = known.get(number)
        found[number] = was if was is not None and was[0] == now else (now, _entries(number, now))
    return found


def _entries(number: int, tables: list[list[int]]) -> dict[Entry, int]:
    return {
        (number, group, place): block
        for group, blocks in enumerate(tables)
        for place, block in enumerate(blocks)
        if block != NULL
    }


def _named(raw: Raw, before: Picture | None) -> Any:
    if before is not None and len(before.raw.tables) == len(raw.tables):
        known = before.raw.tables
        if all(known.get(number) is tables for number, tables in raw.tables.items()):
            return before.state.named
    named: dict[Entry, int] = {}
    for _, entries in raw.tables.values():
        named.update(entries)
    return FiniteMap.of(named)


def _numbered(values: Sequence[Any]) -> FiniteMap:
    return FiniteMap.of({place: value for place, value in enumerate(values) if value != 0})


def _where(manager: Manager) -> FiniteMap:
    pool = manager.pool
    where = dict.fromkeys(range(1, len(pool.references)), HELD)
    where.update(dict.fromkeys(pool.free, FREE))
    if isinstance(pool, PinnedPool):
        waiting = dict.fromkeys(pool.pinned, WAITING)
        both = [block for block in waiting if where[block] == FREE]
        where.update(waiting)
        where.update(dict.fromkeys(both, IN_BOTH))
    return FiniteMap.of(where)


def _listed(entries: Mapping[Content, tuple[int, ...]]) -> FiniteMap:
    """A block that is listed twice for one content stands there as its negative."""
    return FiniteMap.of(
        {
            (content, block): block if blocks.count(block) == 1 else -block
            for content, blocks in entries.items()
            for block in blocks
        }
    )


def _begun(manager: Manager) -> FiniteMap:
    partial = manager.pool.partial
    return FiniteMap.of({block: len(partial.contents_of(block)) for block in partial.blocks()})
