"""A picture: the state of a manager's blocks, as a state of ``kvspec.pool``.

A table entry is named by request, group and position, a copy by its place among those that are pending, and a content
by itself. A table that waits for steps in flight is named by when it is free, and by its place among those. Parts that
did not change since the previous picture are not read again.

A request that has steps in flight uses all that these may read or write, according to ``population``. Transfers and the
content of slots follow from operations only: ``picture`` leaves ``FOLLOWED`` empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from attrs import frozen

from kvreference.answers import Copy
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Status
from kvreference.settings import Settings
from kvspec.maps import FiniteMap
from kvspec.pool.state import FREE, HELD, WAITING, State

Entry: TypeAlias = tuple[int, ...]
"""Request, group and position; or of a released block, when it is free, which it is of those, group and position."""

IN_BOTH = -1
"""Where a block would be that two queues have."""
NOTHING = FiniteMap()
FOLLOWED = ("filled", "part", "written", "owed", "late", "fixed", "has", "counts", "tentative", "wants")
"""The maps that no state of a manager shows: they are as the transitions left them."""


@frozen(eq=False)
class Parts:
    """What each content has in the slot range that is looked at: of every block, so many grains after its beginning.

    It is the prefix that ends there, in its group. A state is one slot, and has the whole content.
    """

    geometry: Geometry
    range: int

    def end(self, group: Group) -> int:
        """The tokens from the beginning of a block of ``group`` to the end of the range."""
        return self.range % (group.block_size_tokens // self.geometry.grain_tokens) * self.grain + self.grain

    @property
    def grain(self) -> int:
        """How many tokens the range stands for."""
        return self.geometry.grain_tokens

    def __getitem__(self, content: Content | Literal[0]) -> Content | Literal[0]:
        if content == 0:
            return 0
        index, prefix = content
        group = self.geometry.groups[index]
        if group.keeps_states:
            return content
        size = group.block_size_tokens
        end = (prefix.tokens - 1) // size * size + self.end(group)
        found: Prefix | None = prefix
        while found is not None and found.tokens > end:
            found = found.parent
        return 0 if found is None or found.tokens < end else (index, found)

    @classmethod
    def of(cls, settings: Settings) -> Parts:
        """Those of a manager with ``settings``: which range is looked at depends on how many blocks there are."""
        geometry = settings.geometry
        most = max(group.block_size_tokens // geometry.grain_tokens for group in geometry.groups)
        return cls(geometry, settings.blocks % most)


@frozen(eq=False)
class Raw:
    """The state read from a manager, and the maps made of it."""

    tables: Mapping[int, tuple[list[list[int]], Mapping[Entry, int]]]
    """Per request, its tables, and the blocks that they name by entry."""
    references: list[int]
    contents: Sequence[Content | None]
    listed: Mapping[Content, tuple[int, ...]]
    begins: Mapping[Content, tuple[int, ...]]
    copies: tuple[Copy, ...]
    given_up: Mapping[Entry, int]
    """The blocks that wait for steps in flight, by entry."""
    uses: Mapping[Entry, int]
    """The blocks that steps in flight use, by entry."""


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

    def given_up_since(self, before: Picture) -> Mapping[int, Entry]:
        """Where each block is named that was released since ``before``."""
        return {block: entry for entry, block in self.raw.given_up.items() if entry not in before.raw.given_up}


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
        _released(manager),
        _uses(manager, {} if was is None else was.uses) if manager.settings.steps_in_flight_max > 1 else {},
    )

    def map_of(name: str, *fields: str) -> FiniteMap | None:
        """The map ``name`` as it was, if what it is made of did not change."""
        if was is None or before is None or any(getattr(was, each) != getattr(raw, each) for each in fields):
            return None
        known: FiniteMap = getattr(before.state, name)
        return known

    state = State(
        blocks=len(raw.references),
        out_of_turn=int(manager.settings.loads_out_of_turn),
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
        uses=FiniteMap.of(dict(raw.uses)),
        **dict.fromkeys(FOLLOWED, NOTHING),
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
    same = before is not None and before.raw.given_up == raw.given_up
    if before is not None and same and len(before.raw.tables) == len(raw.tables):
        known = before.raw.tables
        if all(known.get(number) is tables for number, tables in raw.tables.items()):
            return before.state.named
    named: dict[Entry, int] = dict(raw.given_up)
    for _, entries in raw.tables.values():
        named.update(entries)
    return FiniteMap.of(named)


def _released(manager: Manager) -> dict[Entry, int]:
    among = Counter[int]()
    entries: dict[Entry, int] = {}
    for steps, tables in manager.holdings.deferred:
        for (_, group, place), block in _entries(0, [table.blocks for table in tables]).items():
            # Below 0, where no request is.
            entries[(-1 - steps, among[steps], group, place)] = block
        among[steps] += 1
    return entries


def _uses(manager: Manager, before: Mapping[Entry, int]) -> Mapping[Entry, int]:
    """The blocks that steps in flight may read or write; ``before`` has those that they used so far.

    All that waits for them. Of a running request, all blocks from the first one that a token reads which may be taken
    back, to the end: any of the drafts may be taken back.
    """
    uses = _released(manager)
    for number, request in manager.population.alive.items():
        if number not in manager.tables or not request.in_flight:
            continue
        if request.status is not Status.RUNNING:
            # It runs no more, or loads anew: at most what steps use that it was part of.
            names = _entries(number, [table.blocks for table in manager.tables[number]])
            uses.update(each for each in before.items() if names.get(each[0]) == each[1])
            continue
        unsure = min(request.tokens_computed, max(sum(request.in_flight), request.drafts_in_flight))
        for index, (group, table) in enumerate(zip(manager.geometry.groups, manager.tables[number], strict=True)):
            first = group.blocks_unread(request.tokens_computed - unsure)
            for place in range(first, min(group.blocks_occupied(request.tokens_computed), len(table.blocks))):
                if table.blocks[place] != NULL:
                    uses[(number, index, place)] = table.blocks[place]
    return uses


def counted(manager: Manager, number: int, parts: Parts) -> Mapping[Entry, Content] | None:
    """What a request counts as computed in the range that is looked at, by its books; None while it loads or ends.

    Of a token that is not known yet, such as a draft, it is not known what it is. States are not listed.
    """
    request = manager.population.alive.get(number)
    if request is None or number not in manager.tables:
        return {}
    if request.status in (Status.LOADING, Status.ENDING):
        return None
    prefixes, grain = manager.prefixes.get(number, []), parts.grain
    known = min(request.tokens_computed, len(prefixes) * grain)
    found: dict[Entry, Content] = {}
    for index, (group, table) in enumerate(zip(manager.geometry.groups, manager.tables[number], strict=True)):
        size, end = group.block_size_tokens, parts.end(group)
        if group.keeps_states:
            continue
        for place in range(min(len(table.blocks), max(0, (known - end) // size + 1))):
            if table.blocks[place] != NULL:
                found[number, index, place] = index, prefixes[(place * size + end) // grain - 1]
    return found


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
