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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kvgate.explorer.shapes import Shapes, named
from kvgate.monitors.ghost import GhostMemory
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.settings import Settings
from kvreference.tables import Table

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "Manager.prefixes": "follow from each request's tokens and keys",
        "Manager._interned": "equal content is the same object, in whatever order it was met",
        "Manager._events": "told outside, never read again",
        "PrefixCache.statistics": "told outside, never read again",
        "PartialMap.offers": "counts work, decides nothing",
        "Population.arrived": "only gives the next request its number",
        "Request.number": "a name",
        "Request.preemptions": "only sorts the statistics",
        "GhostMemory._chains": "follow from each request's tokens and keys",
        "GhostMemory._computed": "each request's tokens_computed, as it was told last",
    }
)


class _InOrder(dict[int, int]):
    """Numbers things in the order in which they are asked for first."""

    def __missing__(self, thing: int) -> int:
        self[thing] = number = len(self)
        return number


class _Walk:
    """One walk through a state, and the names that were given on it."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._families = _InOrder()
        self.blocks = _InOrder({NULL: 0})

    def along(self, blocks: Iterable[int]) -> Hashable:
        """Blocks by name."""
        return tuple(self.blocks[block] for block in blocks)

    def tokens(self, tokens: Sequence[int]) -> Hashable:
        """Tokens by name."""
        return named(self._shapes.of_tokens(tuple(tokens)), self._families)

    def content(self, content: Content) -> Hashable:
        """What a cached block holds, by name."""
        group, prefix = content
        return group, named(self._shapes.of_prefix(prefix), self._families)

    def memory(self, ghost: GhostMemory, block: int) -> Hashable:
        """What a worker wrote into a block, by name."""
        return named(self._shapes.of_slots(ghost.slots(block), ghost.states), self._families)


class Canonical:
    """The canonical forms of the managers of one world.

    A form is short: its rows are stored once for all states, and stand in it as numbers. They are numbered as they are
    met, so only forms made by the same ``Canonical`` can be compared.
    """

    def __init__(self, settings: Settings) -> None:
        self._groups = settings.geometry.groups
        # Where nothing depends on it, this would tell states apart that have the same future.
        self._prompts_matter = settings.retention_interval_tokens is not None
        self._rows: dict[Hashable, int] = {}
        self._shapes = Shapes()

    def key(self, manager: Manager, ghost: GhostMemory) -> tuple[int, ...]:
        """The form of a manager, and of the memory that its blocks stand for."""
        walk = _Walk(self._shapes)
        rows = [*self._requests(manager, walk), *_waiting(manager, walk), *_blocks(manager, ghost, walk)]
        return tuple(self._rows.setdefault(row, len(self._rows)) for row in rows)

    def _requests(self, manager: Manager, walk: _Walk) -> Iterator[Hashable]:
        for request in manager.population.alive.values():
            tables = manager.tables.get(request.number)
            yield self._request(request, walk), None if tables is None else tuple(self._tables(tables, walk))

    def _request(self, request: Request, walk: _Walk) -> Hashable:
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

    def _tables(self, tables: Sequence[Table], walk: _Walk) -> Iterator[Hashable]:
        for group, table in zip(self._groups, tables, strict=True):
            # As above: elsewhere no boundary is ever offered.
            boundary_tokens = table.boundary_tokens if group.copies else None
            yield walk.along(table.blocks), table.registered, boundary_tokens, table.fresh


def _waiting(manager: Manager, walk: _Walk) -> Iterator[Hashable]:
    """The blocks that wait for a holder, in order, and what waits for the worker."""
    yield walk.along(manager.pool.free)
    yield walk.along(manager.pool.pinned_blocks().queue)
    yield tuple((copy.group, walk.along((copy.source, copy.destination)), copy.tokens) for copy in manager.copies)
    if isinstance(manager.cache, PrefixCache):
        yield frozenset(map(walk.content, manager.cache.fenced))


def _blocks(manager: Manager, ghost: GhostMemory, walk: _Walk) -> Iterator[Hashable]:
    """Block by block, the null block first: who holds it, and what it holds."""
    pool = manager.pool
    for block in range(len(pool.references)):
        walk.blocks[block]  # Whatever was not met on the walk comes last.
    whole, listed = pool.cached.contents(), _listed(pool.cached.entries())
    begun = _listed(pool.partial.entries())
    pinned = pool.pinned_blocks().blocks
    for block in walk.blocks:
        held = whole[block]
        yield (
            pool.references[block],
            block in pinned,
            None if held is None else walk.content(held),
            tuple((place, walk.content(content)) for place, content in listed.get(block, ())),
            frozenset((place, walk.content(content)) for place, content in begun.get(block, ())),
            frozenset(map(walk.content, pool.partial.contents_of(block))),
            walk.memory(ghost, block),
        )


def _listed(entries: Mapping[Content, Sequence[int]]) -> Mapping[int, Sequence[tuple[int, Content]]]:
    """Per block, the contents that it is listed under, and its place among the blocks listed there."""
    listed: dict[int, list[tuple[int, Content]]] = defaultdict(list)
    for content, blocks in entries.items():
        for place, block in enumerate(blocks):
            listed[block].append((place, content))
    return listed
