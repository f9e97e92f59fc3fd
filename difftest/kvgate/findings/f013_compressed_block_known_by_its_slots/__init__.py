"""Finding 013: A compressed block is known by the hash of a part of what it holds.

Block ``i`` of a compressed group is known by as many of the first tokens as it and the blocks before it have slots. By
those keys it is cached, looked up and reported in events. The look-up is otherwise that of vLLM 0.20.2, with its
findings 005, 006 and 014, which cannot be separated from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from kvgate.findings.explaining import explained_by, replays
from kvgate.findings.finding import Engine, Finding
from kvgate.findings.register import with_ids
from kvgate.findings.shared_faults import HitsPastLoad, stored_event
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Hit
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.population import Request


def slots_of(group: Group) -> int:
    """How many slots a block has: what is taken for its tokens."""
    return group.block_size_tokens // group.compress_ratio


class KnownBySlots(HitsPastLoad):
    """What a compressed block holds is known by its number of slots, taken for tokens."""

    spans_null_blocks = False
    """Whether an event has the tokens of null blocks too (007)."""

    def content(self, request: int, group: int, index: int) -> Content:
        end_tokens = (index + 1) * slots_of(self.geometry.groups[group])
        return group, self.prefixes[request][end_tokens // self.geometry.grain_tokens - 1]

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        if not self.settings.caches:
            super()._register(request, tokens, now)
            return
        verified = min(tokens, len(request.tokens))
        for index, (group, table) in enumerate(zip(self.geometry.groups, self.tables[request.number], strict=True)):
            first, end = table.registered, verified // group.block_size_tokens
            if end <= first:
                continue
            table.registered = end
            named = [position for position in range(first, end) if table.blocks[position] != NULL]
            for position in named:
                self.pool.cached.register(self.content(request.number, index, position), table.blocks[position])
            for span in [range(first, end)] if self.spans_null_blocks else _neighbours(named):
                within = [position for position in named if position in span]
                self._events.append(stored_event(self, request, index, span, within, slots_of(group)))

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        return _LookUp(self, request).hit(hit)


class KnownBySlotsSpanning(KnownBySlots):
    """The same, and events have the tokens of null blocks (007)."""

    spans_null_blocks = True


def _neighbours(positions: Sequence[int]) -> list[range]:
    """Ranges of neighbouring positions."""
    ranges: list[range] = []
    for position in positions:
        if ranges and ranges[-1].stop == position:
            ranges[-1] = range(ranges[-1].start, position + 1)
        else:
            ranges.append(range(position, position + 1))
    return ranges


class _LookUp:
    """One look-up: the kinds of groups shorten the hit in turn, and take slots for tokens."""

    def __init__(self, manager: Manager, request: Request) -> None:
        self.manager, self.request = manager, request
        self.groups, self.alignment = manager.geometry.groups, manager.geometry.alignment_tokens
        self.last = len(request.tokens) - 1
        # Groups that are alike are asked as one, full attention before all others.
        self.kinds = sorted(dict.fromkeys(self.groups), key=lambda kind: not kind.keeps_all)
        self.found: dict[Group, list[list[int]]] = {}
        """By kind, the blocks of each of its groups."""
        self.verified: set[Group] = set()

    def hit(self, hit: Hit) -> Hit:
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
        return evolve(hit, tokens=tokens, blocks=tuple(tuple(next(alike[group])) for group in self.groups), partials=())

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
        grains = (at + 1) * slots_of(kind) // self.manager.geometry.grain_tokens
        if grains > len(self.manager.prefixes[self.request.number]):
            return False
        alike = (index for index, group in enumerate(self.groups) if group == kind)
        return all(self._find(index, at) is not None for index in alike)

    def _find(self, index: int, at: int) -> int | None:
        return self.manager.pool.cached.find(self.manager.content(self.request.number, index, at))

    def _block(self, index: int, at: int) -> int:
        found = self._find(index, at)
        assert found is not None, "it was found"
        return found


def _explains(divergence: Divergence, lockstep: Lockstep) -> bool:
    """What 005, 006 or 014 does alone, which this look-up contains, is that finding's.

    vLLM-Ascend's own groups have no states: with states nothing is explained.
    """
    if lockstep.system.population.settings.geometry.keeps_states:
        return False
    together = "002-gate-subtracts-skipped-blocks", "009-load-forgets-its-last-token"
    explained = explained_by(KnownBySlots, divergence, lockstep, together_with=together)
    for spanning in with_ids(["007-events-span-null-blocks"]):
        assert spanning.fault is not None
        explained = explained or explained_by(KnownBySlotsSpanning, divergence, lockstep, spanning.fault)
    return explained and not any(
        other.fault is not None and replays(other.fault, lockstep) for other in with_ids(_CONTAINED)
    )


_CONTAINED = (
    "014-second-full-group-not-cut",
    "005-lookahead-verified-at-another-length",
    "006-aligned-before-the-drop",
)


# If no reference follows

_EXPECTED = re.compile(r"token (\d+) in block (\d+): state (\d+): ", re.DOTALL)
_WHERE = re.compile(r"request \d+, group (\d+)")


def _reads_by_slots(divergence: Divergence, engine: Engine) -> bool:
    """Whether a request read the state of another prefix that has the same key in that block.

    That is the state at the same position of a prefix that has exactly the tokens in common that the block is known by.
    """
    found = divergence.difference
    expected, where = _EXPECTED.match(found.expected), _WHERE.fullmatch(found.subject)
    if divergence.detector != "ghost" or found.statement != "KV-MEM-01" or expected is None or where is None:
        return False
    token, block, state = map(int, expected.groups())
    group = engine.settings.geometry.groups[int(where[1])]
    held = engine.memory.slots(block)
    if group.compress_ratio == 1 or held is None or held[0] != int(where[1]):
        return False
    index, offset = divmod(token, group.block_size_tokens)
    read = held[1][offset]
    if read is None or read < 0:
        return False
    ours, theirs = (_tokens(engine, each) for each in (state, read))
    # Salt and adapter come before the first token.
    shared = 1 + (index + 1) * slots_of(group)
    return len(ours) == len(theirs) and ours[:shared] == theirs[:shared]


def _tokens(engine: Engine, state: int) -> list[tuple[object, ...]]:
    """The origins of a state, without the numbers of the states before it."""
    return [origin[1:] for origin in engine.memory.states.history(state)]


FINDING = Finding(
    id="013-compressed-block-known-by-its-slots",
    # Early: where it occurs, nearly every case shows it.
    rank=2,
    releases=("ascend 0.20.2rc1",),
    fault=KnownBySlots,
    explains=_explains,
    explains_unreferenced=_reads_by_slots,
)
