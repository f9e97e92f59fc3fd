"""The canonical form of a manager: the same for all states that differ in names alone.

Requests are named by their order of arrival among those alive, blocks and token families by where they appear first on
a walk whose order depends on structure only: the requests, their tables group by group and position by position, the
free queue front to back, the pinned queue, the copies. The form holds everything that can influence the future, what
the invariants derive from something else included, so that a state that violates one is never taken for a sound one.

Left out is what only tells of the past or follows from the rest; ``LEFT_OUT`` says what and why. Whatever is added to
the manager's state must be added here, or there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from kvgate.explore.shapes import Shapes
from kvgate.explore.walk import Walk
from kvgate.monitors.slot_memory import GhostMemory, States
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.partial_map import PartialMap
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.settings import Settings
from kvreference.tables import Table

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "Manager.prefixes": "follow from each request's tokens and keys",
        "Manager._interned": "equal content is the same object, in whatever order it was met",
        "Manager._events": "told outside, never read again",
        "Manager.performed": "a number that only what a followed scheduler reserves goes by",
        "PrefixCache.statistics": "told outside, never read again",
        "PartialMap.offers": "counts work, decides nothing",
        "Population.arrived": "only gives the next request its number",
        "Request.number": "a name",
        "Request.preemptions": "only sorts the statistics",
        "GhostMemory._chains": "follow from each request's tokens and keys",
        "GhostMemory._computed": "each request's tokens_computed",
    }
)


_Listed: TypeAlias = Mapping[int, Sequence[tuple[int, Content]]]


class Canonical:
    """The canonical forms of the managers of one world.

    A form is short: its rows are stored once for all states, and stand in it as numbers. They are numbered as they are
    met, so only forms made by the same ``Canonical`` can be compared.
    """

    def __init__(self, settings: Settings, states: States) -> None:
        self._groups = settings.geometry.groups
        # Where nothing depends on it, this would tell states apart that have the same future.
        self._prompts_matter = settings.retention_interval_tokens is not None
        self._rows: dict[Hashable, int] = {}
        self._shapes = Shapes(states)

    def key(self, manager: Manager, ghost: GhostMemory) -> tuple[int, ...]:
        """The form of a manager, and of the memory that its blocks stand for."""
        assert ghost.states is self._shapes.states, "other states have other numbers"
        walk = Walk(self._shapes)
        rows = [
            *self._requests(manager, walk),
            *_waiting(manager, walk),
            *_under_way(manager, ghost, walk),
            *_blocks(manager, ghost, walk),
        ]
        return tuple(self._rows.setdefault(row, len(self._rows)) for row in rows)

    def _requests(self, manager: Manager, walk: Walk) -> Iterator[Hashable]:
        for request in manager.population.alive.values():
            tables = manager.tables.get(request.number)
            yield self._request(request, walk), None if tables is None else tuple(self._tables(tables, walk))

    def _request(self, request: Request, walk: Walk) -> Hashable:
        return (
            walk.tokens(request.tokens),
            walk.tokens(request.drafts),
            request.prompt_tokens if self._prompts_matter else None,
            request.tokens_computed,
            request.drafts_in_flight,
            request.status.value,
            request.undispatched,
            request.keys,
            request.reads_cache,
        )

    def _tables(self, tables: Sequence[Table], walk: Walk) -> Iterator[Hashable]:
        for group, table in zip(self._groups, tables, strict=True):
            # As above: elsewhere no boundary is ever offered.
            boundary_tokens = table.boundary_tokens if group.copies else None
            yield walk.along(table.blocks), table.registered, boundary_tokens, table.dead, table.fresh


def _waiting(manager: Manager, walk: Walk) -> Iterator[Hashable]:
    """The blocks that wait for a holder, in order, and what waits for the worker."""
    yield walk.along(manager.pool.free)
    yield walk.along(manager.pool.pinned_blocks().queue)
    yield tuple((copy.group, walk.along((copy.source, copy.destination)), copy.tokens) for copy in manager.copies)
    if isinstance(manager.cache, PrefixCache):
        yield frozenset(map(walk.content, manager.cache.fenced))


def _under_way(manager: Manager, ghost: GhostMemory, walk: Walk) -> Iterator[Hashable]:
    """What the worker, or another node, has yet to read and to write."""
    places = {number: place for place, number in enumerate(manager.population.alive)}
    for work in ghost.under_way():
        positions = work.provided, work.start, work.end, work.verified, work.drafted
        yield places.get(work.request), tuple(map(walk.along, work.tables)), walk.chain(work.chain), positions


def _blocks(manager: Manager, ghost: GhostMemory, walk: Walk) -> Iterator[Hashable]:
    """Block by block, the null block first: who holds it, and what it holds."""
    pool = manager.pool
    for block in range(len(pool.references)):
        walk.blocks[block]  # Whatever was not met on the walk comes last.
    pinned = pool.pinned_blocks().blocks
    whole, listed = pool.cached.contents(), _listed(pool.cached.entries())
    begun = _listed(pool.partial.entries())
    for block in walk.blocks:
        content = whole[block]
        yield (
            pool.references[block],
            block in pinned,
            None if content is None else walk.content(content),
            # Content that is listed as it is held, as it should be, needs no name again.
            tuple(place if also == content else (place, walk.content(also)) for place, also in listed.get(block, ())),
            _beginnings(pool.partial, begun, block, walk) if begun else None,
            walk.memory(ghost, block),
        )


def _beginnings(partial: PartialMap, begun: _Listed, block: int, walk: Walk) -> Hashable:
    """The boundaries inside a block, by both sides of the map."""
    listed = frozenset((place, walk.content(content)) for place, content in begun.get(block, ()))
    return listed, frozenset(map(walk.content, partial.contents_of(block)))


def _listed(entries: Mapping[Content, Sequence[int]]) -> _Listed:
    """Per block, the contents that it is listed under, and its place among the blocks listed there."""
    listed: dict[int, list[tuple[int, Content]]] = defaultdict(list)
    for content, blocks in entries.items():
        for place, block in enumerate(blocks):
            listed[block].append((place, content))
    return listed
