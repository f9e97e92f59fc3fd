"""Finding 013: A compressed block is known by the hash of a part of what it holds.

Block ``i`` of a compressed group is known by as many of the first tokens as it and the blocks before it have slots. By
those keys it is cached, looked up and reported in events.

The look-up takes slots for tokens in some places and not in others, so that its findings 005, 006 and 014 cannot be
separated from it. For the length of a hit and its tables it does not build on the reference's own rule. It acts on
compressed groups of vLLM-Ascend 0.20.2rc1 alone; everywhere else the reference's rule is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from kvgate.findings.finding import Acts, Also, Finding
from kvgate.findings.past_load import TablesPastLoad, miscounted
from kvgate.monitors.slot_memory import Misread
from kvreference.answers import BlockTable
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.caching import stored_events
from kvreference.events import Event
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_length, partials_found, tables_found
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.tables import content_up_to


def slots_of(group: Group) -> int:
    """How many slots a block has: what is taken for its tokens."""
    return group.block_size_tokens // group.compress_ratio


class _LookUp:
    """One look-up: the kinds of groups shorten the hit in turn, and take slots for tokens."""

    def __init__(self, geometry: Geometry, cached: Sequence[Any], tokens: int) -> None:
        self.cached, self.groups, self.alignment = cached, geometry.groups, geometry.alignment_tokens
        self.last = tokens - 1
        # Groups that are alike are asked as one, full attention before all others.
        self.kinds = sorted(dict.fromkeys(self.groups), key=lambda kind: not kind.keeps_all)
        self.found: dict[Group, list[list[int]]] = {}
        """By kind, the blocks of each of its groups."""
        self.verified: set[Group] = set()

    def hit(self) -> tuple[int, BlockTable]:
        """How many tokens, and the blocks in each group."""
        tokens = self.last
        while True:
            reached = self._round(tokens)
            if reached >= tokens:
                break
            tokens = reached
            if len(self.kinds) == 2 and self.kinds[0].keeps_all:
                break
        first = self.kinds[0]
        if first.keeps_all:
            self.found[first] = [blocks[: tokens // slots_of(first)] for blocks in self.found[first]]
        alike = {kind: iter(self.found[kind]) for kind in self.kinds}
        return tokens, tuple(tuple(next(alike[group])) for group in self.groups)

    def _round(self, tokens: int) -> int:
        """What remains of a hit of ``tokens`` once every kind was asked."""
        for kind in self.kinds:
            slots = slots_of(kind)
            if kind.keeps_all and kind in self.found:
                tokens = tokens // slots * slots
                continue
            asks = kind.lookahead and kind not in self.verified
            most = min(tokens + slots, self.last) if asks else tokens
            positions = (self._leading if kind.keeps_all else self._in_window)(kind, most // slots, asks)
            if asks:
                self.verified.add(kind)
            elif len(positions) * slots < tokens:
                self.verified.clear()
            alike = [index for index, group in enumerate(self.groups) if group == kind]
            self.found[kind] = [[NULL if at is None else self._block(index, at) for at in positions] for index in alike]
            tokens = len(positions) * kind.block_size_tokens
        return tokens

    def _leading(self, kind: Group, most: int, asks: bool) -> list[int | None]:
        """The leading blocks of full attention that are cached."""
        slots, aligned = slots_of(kind), -(-self.alignment // kind.compress_ratio)
        count = next((at for at in range(most) if not self._is_cached(kind, at)), most)
        count = max(0, count - asks)
        while count * slots % aligned:
            count -= 1
        return list(range(count))

    def _in_window(self, kind: Group, most: int, asks: bool) -> list[int | None]:
        """The blocks of a window before the last boundary at which all that it reads are cached; None for unread."""
        assert kind.window_tokens is not None
        size = kind.block_size_tokens
        needed = kind.blocks_occupied(kind.window_tokens - 1) + asks
        ends = [end for end in range(most, 0, -1) if (end - asks) * size % self.alignment == 0]
        for end in ends:
            if end >= needed and all(self._is_cached(kind, at) for at in range(end - needed, end)):
                found = [None if at < end - needed else at for at in range(end)]
                break
        else:
            whole = next((end for end in ends if all(self._is_cached(kind, at) for at in range(end))), 0)
            found = list(range(whole // self._blocks_aligned(size) * self._blocks_aligned(size)))
        if asks and found:
            found.pop()
        return found[: len(found) // self._blocks_aligned(size) * self._blocks_aligned(size)]

    def _blocks_aligned(self, size: int) -> int:
        return self.alignment // size

    def _is_cached(self, kind: Group, at: int) -> bool:
        return all(self._find(index, at) is not None for index, group in enumerate(self.groups) if group == kind)

    def _find(self, index: int, at: int) -> int | None:
        found = self.cached[index]
        grains = (at + 1) * slots_of(self.groups[index]) // found.grain_tokens
        if grains > len(found.prefixes):
            return None
        block: int | None = found.cached.find((index, found.prefixes[grains - 1]))
        return block

    def _block(self, index: int, at: int) -> int:
        found = self._find(index, at)
        assert found is not None, "it was found"
        return found


def _acts(settings: Settings, _release: str) -> Acts:
    geometry, groups = settings.geometry, settings.geometry.groups
    in_slots = (evolve(each, block_size_tokens=slots_of(each), compress_ratio=1) for each in groups)
    by_slots = Geometry(tuple(evolve(each, unit_tokens=None) for each in in_slots))

    def content(content_up_to: Callable[..., Content], _geometry: Geometry, index: int, *rest: Any) -> Content:
        prefixes, tokens = rest
        return content_up_to(geometry, index, prefixes, tokens // geometry.groups[index].compress_ratio)

    def events(stored_events: Callable[..., list[Event]], _geometry: Geometry, index: int, *rest: Any) -> list[Event]:
        return stored_events(_WithGrain(by_slots.groups, geometry.grain_tokens), index, *rest)

    def length(_longest: Callable[..., int], found: Sequence[Any], _lengths: range, tokens: int, _minimum: int) -> int:
        return _LookUp(geometry, found, tokens).hit()[0]

    def tables(_tables: Callable[..., BlockTable], found: Sequence[Any], _hit_tokens: int, tokens: int) -> BlockTable:
        return _LookUp(geometry, found, tokens).hit()[1]

    return Acts(
        [
            Delta(content_up_to.__name__, content),
            Delta(stored_events.__name__, events),
            Delta(longest_length.__name__, length),
            Delta(tables_found.__name__, tables),
        ],
        follow=[*TablesPastLoad(geometry).deltas(), Delta(partials_found.__name__, lambda *_found: ())],
        misreads=lambda misread: _known_by_the_same(geometry, misread),
    )


@frozen
class _WithGrain:
    """Groups by slots, and content by the grain of the tokens."""

    groups: Sequence[Group]
    grain_tokens: int
    hashed_ahead_tokens: int = 0


def _known_by_the_same(geometry: Geometry, misread: Misread) -> bool:
    """Whether the state is that of another prefix at the same position that the block is known by as well, or none.

    A block is known before its last slots are written, so a hit may read those. After it, a request has written itself.
    """
    group = geometry.groups[misread.reader.group]
    index = misread.token // group.block_size_tokens
    # Salt and adapter come before the first token.
    shared = 1 + (index + 1) * slots_of(group)
    if group.compress_ratio == 1 or misread.block <= NULL:
        return False
    own = misread.reader.computed_from
    if not misread.found:
        return own is None or misread.token < own
    wanted, found = ([origin[1:] for origin in history[:shared]] for history in (misread.wanted, misread.found))
    return len(misread.wanted) == len(misread.found) and wanted == found


def _is_uncut(_ideal: BlockTable, answered: BlockTable, found: Sequence[Any], hit_tokens: int, _tokens: int) -> bool:
    """Finding 014, which it contains: a group of full attention has more blocks than the hit's tokens occupy."""
    return any(
        each.group.keeps_all and len(table) > each.group.blocks_occupied(hit_tokens)
        for each, table in zip(found, answered, strict=True)
    )


FINDING = Finding(
    id="013-compressed-block-known-by-its-slots",
    rank=17,
    statement="KV-OP-09",
    also=[Also("KV-OP-02", tables_found.__name__, _is_uncut)],
    condition="a compressed group, and no states",
    where=lambda settings: (
        not settings.geometry.keeps_states and any(group.compress_ratio > 1 for group in settings.geometry.groups)
    ),
    contains=(
        "005-lookahead-verified-at-another-length",
        "006-aligned-before-the-drop",
        "014-second-full-group-not-cut",
    ),
    acts=_acts,
    explains=miscounted,
)
