"""The canonical form of a manager: the same for all states that differ in names alone.

Requests are named by their order of arrival among those alive. Blocks and token families are named by where they appear
first on a walk whose order depends on structure only: the requests, their tables group by group and position by
position, the free queue front to back, the pinned queue, the copies. The form holds everything that can influence the
future. It also holds what the invariants derive from something else, so a state that violates one is never taken for a
sound one. Left out is what only describes the past or follows from the rest; ``LEFT_OUT`` says what and why. New state
of the manager must be added here or there.

A token id encodes its family, its track and its position. Families are prompts that share nothing, and all have the
same shape, so any two may be exchanged without a difference to a block manager. Within a family there are two tracks:
requests on the same track agree from position 0 on, for as long as neither changes over to the other. A shape numbers
the families by where they appear first within one content. Content never changes, so its shape is computed once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import field, frozen
from attrs.validators import ge

from kvgate.explore.steps_in_flight import AheadMemory
from kvgate.monitors.slot_memory import JUNK, GhostMemory, Slots, States, Work
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.manager import Manager
from kvreference.operations import Run
from kvreference.partial_map import PartialMap
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.settings import Settings
from kvreference.tables import Table

_FAMILY = 1000
_TRACK = 100
TRACKS = 2


def token_at(family: int, track: int, position: int) -> int:
    """The id of the token at ``position`` on a track of a family."""
    return family * _FAMILY + track * _TRACK + position


def family_of(token: int) -> int:
    """The family that a token belongs to."""
    return token // _FAMILY


def track_of(token: int) -> int:
    """The track that a token lies on."""
    return token % _FAMILY // _TRACK


def within_family(token: int) -> int:
    """What a token is besides its family: its track and position."""
    return token % _FAMILY


@frozen
class Prompt:
    """The shape of a prompt, the same in every family."""

    length_tokens: int = field(validator=ge(1))
    diverges_at: int | None = None
    """The position, in tokens, where it leaves the first track for the second; None if it does not."""

    def runs(self, family: int) -> tuple[Run, ...]:
        """The prompt of one family."""
        shared = self.length_tokens if self.diverges_at is None else self.diverges_at
        runs = (
            (token_at(family, 0, 0), shared),
            (token_at(family, 1, shared), self.length_tokens - shared),
        )
        return tuple(Run(first, length) for first, length in runs if length > 0)

    def __str__(self) -> str:
        branch = "" if self.diverges_at is None else f" leaving at {self.diverges_at}"
        return f"{self.length_tokens}{branch}"


Shape: TypeAlias = tuple[int, tuple[int, ...]]
"""A number, equal exactly for equal shapes, and the families in the order in which they appear."""
_Token: TypeAlias = Callable[[int], Hashable]
"""What stands for a token in a shape."""


def named(shape: Shape, families: Mapping[int, int]) -> tuple[int, ...]:
    """The canonical name of content, given the canonical numbers of the families."""
    number, own = shape
    return (number, *[families[family] for family in own])


class Shapes:
    """The shapes of all content of one world, whose memories number their states by ``states``."""

    def __init__(self, states: States) -> None:
        self.states = states
        self._known: dict[Hashable, Shape] = {}
        self._numbers: dict[Hashable, int] = {}

    def of_tokens(self, tokens: tuple[int, ...]) -> Shape:
        """The shape of some tokens in a row."""
        return self._known.get(tokens) or self._learn(tokens, lambda token: tuple(map(token, tokens)))

    def of_prefix(self, prefix: Prefix) -> Shape:
        """The shape of a token prefix and of its keys."""
        return self._known.get(prefix) or self._learn(prefix, lambda token: _pieces(prefix, token))

    def of_slots(self, slots: Slots | None) -> Shape:
        """The shape of what the slots of a block hold."""
        return self._known.get(slots) or self._learn(slots, lambda token: _memory(slots, self.states, token))

    def _learn(self, content: Hashable, describe: Callable[[_Token], Hashable]) -> Shape:
        order: dict[int, int] = {}
        description = describe(
            lambda token: (order.setdefault(family_of(token), len(order)), within_family(token)),
        )
        number = self._numbers.setdefault(description, len(self._numbers))
        shape = self._known[content] = (number, tuple(order))
        return shape


def _pieces(prefix: Prefix, token: _Token) -> Hashable:
    """Piece by piece the tokens, and what else their content depends on."""
    pieces: Any = prefix.pieces
    return tuple((tuple(map(token, tokens)), names) for tokens, names in pieces)


def _memory(slots: Slots | None, states: States, token: _Token) -> Hashable:
    """Who wrote the block, and slot by slot the history of the state there."""
    if slots is None:
        return None
    writer, numbers = slots
    return (writer, *[_history(number, states, token) for number in numbers])


def _history(number: int | None, states: States, token: _Token) -> Hashable:
    if number is None or number == JUNK:
        return number
    origins: list[Any] = states.history(number)
    return (origins[0][1], *[(token(each), media) for _, each, media in origins[1:]])


class _InOrder(dict[int, int]):
    """Numbers things in the order in which they are asked for first."""

    def __missing__(self, thing: int) -> int:
        self[thing] = number = len(self)
        return number


class Walk:
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
        return named(self._shapes.of_slots(ghost.slots(block)), self._families)

    def chain(self, chain: tuple[int, ...]) -> Hashable:
        """The states of tokens in a row, by name."""
        return named(self._shapes.of_slots((0, chain)), self._families)


LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "Manager.prefixes": "follow from each request's tokens and keys",
        "Manager._interned": "equal content is the same object, independent of the order of discovery",
        "Manager._events": "reported outside, never read again",
        "Manager.performed": "a number that only what a followed scheduler reserves goes by",
        "PrefixCache.statistics": "reported outside, never read again",
        "PhysicalSlots.shared": "only recognises what follows from a finding, and none acts here",
        "PartialMap.offers": "counts work, decides nothing",
        "Population.arrived": "only gives the next request its number",
        "Request.answers_step": "only read where a request is taken out of a step, and none is here",
        "Request.number": "a name",
        "Request.parts": "no session is explored: of a request there is one part",
        "Request.preemptions": "only sorts the statistics",
        "Holdings.rules": "the same for all states",
        "PinnedPool.rules": "the same for all states",
        "PrefixCache.rules": "the same for all states",
        "Population.rules": "the same for all states",
        "PhysicalSlots.is_known": "the same for all states",
        "GhostMemory._computed_from": "only says which misreads finding 013 explains",
        "GhostMemory._loaded": "follow from what is under way, and decide nothing in the reference",
        "GhostMemory._failed": "only says of a misreading after a failed load which finding it is",
        "GhostMemory._chains": "follow from each request's tokens and keys",
        "GhostMemory._computed": "each request's tokens_computed",
        "PhysicalSlots._readings": "what need not be read again, for it would be read the same; no copy has any",
        "PhysicalSlots._read": "the same by block",
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
        # If nothing depends on it, this would separate states that have the same future.
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
            # Without blocks it is looked up again before its junction matters.
            held = None if tables is None else (request.junction_tokens, *self._tables(tables, walk))
            yield self._request(request, walk), held

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
            tuple(request.awaited),
            tuple(request.in_flight),
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
    over = manager.population.over
    deferred = (
        (steps - over, tuple(walk.along(table.blocks) for table in tables))
        for steps, tables in manager.holdings.deferred
    )
    yield manager.population.dispatched - over, *deferred


def _under_way(manager: Manager, ghost: GhostMemory, walk: Walk) -> Iterator[Hashable]:
    """What the worker, or another node, has yet to read and to write."""
    places = {number: place for place, number in enumerate(manager.population.alive)}

    def row(work: Work) -> Hashable:
        positions = work.provided, work.start, work.end, work.verified, work.drafted
        return places.get(work.request), tuple(map(walk.along, work.tables)), walk.chain(tuple(work.chain)), positions

    yield from map(row, ghost.under_way())
    for step in ghost.in_flight if isinstance(ghost, AheadMemory) else ():
        yield tuple(map(row, step))


def _blocks(manager: Manager, ghost: GhostMemory, walk: Walk) -> Iterator[Hashable]:
    """Block by block, the null block first: who holds it, and what it holds."""
    pool = manager.pool
    for block in range(len(pool.references)):
        walk.blocks[block]  # Blocks not met on the walk come last.
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
