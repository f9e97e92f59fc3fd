"""The same once more, naively: what each block was filled with is spelled out, and every hit is found by scanning.

Nothing here is interned, counted ahead or aligned by formula. The tokens themselves are spelled out; trying every
boundary finds what is worth caching; and a step caches what was not worth it before.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvreference.answers import Answer, Granted, Hit, Partial, Success
from kvreference.attention import Kind
from kvreference.content import Keys
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import Admit, Dispatch, Evict, Operation, Reset, Schedule, Transferred
from kvreference.population import Request, Status
from kvreference.settings import Settings


def _label(keys: Keys, token: int) -> Hashable:
    """Which item the token at a position belongs to, and where in it."""
    for item in keys.media:
        if item.offset_tokens <= token < item.offset_tokens + item.length_tokens:
            return item.identifier, token - item.offset_tokens
    return None


def spelled(request: Request, group: int, end: int) -> Hashable:
    """All that the first ``end`` tokens of a request depend on in one group."""
    assert end <= len(request.tokens), "only known tokens are content"
    keys = request.keys
    return group, keys.salt, keys.lora, tuple((request.tokens[i], _label(keys, i)) for i in range(end))


def tokens_read(group: Group, length: int) -> range:
    """The tokens before ``length`` that the token there reads; of states, the one after the last of them."""
    window = group.window_tokens or 0
    start = {
        Kind.FULL: 0,
        Kind.SLIDING_WINDOW: length - window + 1,
        Kind.CHUNKED_LOCAL: next((t for t in range(length, -1, -1) if window and t % window == 0), 0),
        Kind.MAMBA: length - 1,
    }[group.kind]
    return range(max(0, start), length)


class Ledger:
    """The content of each cached block, and the beginnings in others, in the order in which they were cached."""

    def __init__(self, system: Settings) -> None:
        self.system = system
        self.groups = system.geometry.groups
        self.filled: dict[int, Hashable] = {}
        self.begun: list[tuple[int, Hashable, int]] = []
        """Block, what it begins with, and how many tokens that is."""
        self.computed_now: set[Hashable] = set()
        """The tokens that this step computes, in groups where that matters."""
        self.offered: dict[int, int] = {}
        """Per request with blocks, how many of its tokens were offered to the cache."""
        self.hits: dict[int, int] = {}
        """Per request with blocks, the hit that it began with, in tokens."""

    # Which blocks are worth caching

    def _fits(self, length: int) -> bool:
        """Whether a hit may end at ``length``."""
        return all(length % group.unit == 0 for group in self.groups)

    def _more(self, group: Group) -> int:
        """How many tokens more than it serves a hit must match."""
        return group.unit if group.lookahead else 0

    def _admitted(self, request: Request, tokens: int, everywhere: bool) -> list[int]:
        """The boundaries within ``tokens`` that hits are kept for: ``everywhere`` one may end, or by the interval."""
        interval = self.system.retention_interval_tokens
        every = interval is None or everywhere
        possible = [length for length in range(1, tokens + 1) if self._fits(length)]
        replayed = [
            length
            for length in range(1, request.prompt_tokens)
            if self._fits(length) and all(length + self._more(group) < request.prompt_tokens for group in self.groups)
        ]
        return [
            length for length in possible if every or length in replayed[-1:] or (interval and length % interval == 0)
        ]

    def _due(self, request: Request, index: int, tokens: int) -> set[int]:
        """The positions whose blocks should have been cached by the time that ``tokens`` tokens are computed."""
        group = self.groups[index]
        full = {position for position in range(tokens) if (position + 1) * group.block_size_tokens <= tokens}
        if self.system.retention_interval_tokens is None:
            return full
        needed = set()
        for length in self._admitted(request, tokens, everywhere=group.kind not in (Kind.SLIDING_WINDOW, Kind.MAMBA)):
            needed |= self._needed(group, length)
        return full & needed

    def _needed(self, group: Group, length: int) -> set[int]:
        """The blocks of which a hit at ``length`` needs all."""
        matched = length + self._more(group)
        tokens = [*tokens_read(group, length), *range(length, matched)]
        blocks = {token // group.block_size_tokens for token in tokens}
        return {block for block in blocks if (block + 1) * group.block_size_tokens <= matched}

    def _ends(self, request: Request, index: int, tokens: int) -> set[int]:
        """Where prefixes end, inside blocks, that should be entries by then."""
        group = self.groups[index]
        if group.unit == group.block_size_tokens:
            return set()
        hit = self.hits.get(request.number, 0)
        matched = {length + self._more(group) for length in self._admitted(request, tokens, False) if length > hit}
        return {end for end in matched if end <= tokens and end % group.block_size_tokens}

    # Operations

    def observe(self, before: Manager, operation: Operation, answer: Answer, after: Manager) -> None:
        """Enter what ``operation`` took, forgot and cached; everything reported as cached must be in here then."""
        if isinstance(operation, Evict):
            self._forget({operation.block})
        elif isinstance(operation, Reset) and answer == Success(succeeded=True):
            self.filled, self.begun = {}, []
        elif isinstance(operation, Dispatch):
            self.computed_now = set()
        elif isinstance(operation, (Admit, Schedule)) and isinstance(answer, Granted):
            self._forget({block for blocks in answer.blocks for block in blocks})
            request = after.population[operation.request]
            if operation.request not in before.tables:
                self.offered[request.number], self.hits[request.number] = 0, answer.hit_tokens
            if not answer.loads:
                verified = min(request.tokens_computed, len(request.tokens))
                had = before.population[operation.request].tokens_computed + answer.hit_tokens + answer.external_tokens
                self.computed_now |= self._enter(after, request, verified, range(had + 1, verified))
        elif isinstance(operation, Transferred) and operation.succeeded:
            request = before.population[operation.request]
            if request.status is Status.LOADING:
                self._enter(after, request, request.tokens_computed)
        self.offered = {number: tokens for number, tokens in self.offered.items() if number in after.tables}
        self._compare(after)

    def _forget(self, blocks: set[int]) -> None:
        self.filled = {block: what for block, what in self.filled.items() if block not in blocks}
        self.begun = [entry for entry in self.begun if entry[0] not in blocks]

    def _enter(self, manager: Manager, request: Request, tokens: int, passed: range = range(0)) -> set[Hashable]:
        """Enter what is worth it with ``tokens`` tokens, and was not before; of that, what cannot serve at once.

        A state that a step ``passed`` is not there if states are kept at the ends of chunks.
        """
        fenced = set()
        seen, self.offered[request.number] = self.offered[request.number], tokens
        if not self.system.caches:
            return set()
        for index, group in enumerate(self.groups):
            size, table = group.block_size_tokens, manager.tables[request.number][index]
            entered = []
            for position in self._due(request, index, tokens) - self._due(request, index, seen):
                if group.states is StateMode.ALIGN and (position + 1) * size in passed:
                    continue
                if table.blocks[position] and (position + 1) * size > self.hits[request.number]:
                    self.filled[table.blocks[position]] = spelled(request, index, (position + 1) * size)
                    entered.append((position + 1) * size)
            for end in sorted(self._ends(request, index, tokens) - self._ends(request, index, seen)):
                self.begun.append((table.blocks[end // size], spelled(request, index, end), end))
                entered.append(end)
            if group.kind is Kind.MAMBA or group.unit != size:
                fenced |= {spelled(request, index, end) for end in entered}
        return fenced

    def _compare(self, manager: Manager) -> None:
        contents = manager.pool.cached.contents()
        assert set(self.filled) == {block for block, content in enumerate(contents) if content is not None}
        partial = manager.pool.partial
        entries = {(block, prefix.tokens) for block in partial.blocks() for _, prefix in partial.contents_of(block)}
        assert {(block, tokens) for block, _, tokens in self.begun} == entries

    # Hits

    def _whole(self, request: Request, index: int, position: int) -> int | None:
        """The block that was cached first of those filled with what a request needs."""
        wanted = spelled(request, index, (position + 1) * self.groups[index].block_size_tokens)
        return next((block for block, what in self.filled.items() if what == wanted), None)

    def _source(self, request: Request, index: int, length: int) -> int | None:
        """The block of which the beginning is copied for a hit at ``length`` inside one."""
        group = self.groups[index]
        matched = length + self._more(group)
        if matched % group.block_size_tokens == 0:
            return self._whole(request, index, matched // group.block_size_tokens - 1)
        wanted = spelled(request, index, matched)
        return next((block for block, what, _ in self.begun if what == wanted), None)

    def _hits(self, request: Request, length: int) -> bool:
        if length == 0:
            return True
        if not self._fits(length):
            return False
        for index, group in enumerate(self.groups):
            matched = length + self._more(group)
            if matched > len(request.tokens) - 1:
                return False
            if any(self._whole(request, index, position) is None for position in self._needed(group, length)):
                return False
            if matched % group.block_size_tokens and self._source(request, index, length) is None:
                return False
        return True

    def longest_hit(self, request: Request) -> Hit:
        """The longest hit: try every length."""
        if not self.system.caches or not request.reads_cache:
            return Hit(0, ((),) * len(self.groups))
        length = max(length for length in range(len(request.tokens)) if self._hits(request, length))
        tables, partials = [], []
        for index, group in enumerate(self.groups):
            size = group.block_size_tokens
            read = {token // size for token in tokens_read(group, length)}
            positions = range(length // size)
            tables.append(tuple((self._whole(request, index, i) or 0) if i in read else 0 for i in positions))
            if length % size:
                partials.append(Partial(index, self._source(request, index, length) or 0, length % size))
        return Hit(length, tuple(tables), tuple(partials))

    def is_ready(self, request: Request, hit: Hit) -> bool:
        """Whether nothing that is copied, and no state, is computed by this very step."""
        inside = {partial.group for partial in hit.partials}
        return not hit.tokens or all(
            spelled(request, index, hit.tokens + self._more(group)) not in self.computed_now
            for index, group in enumerate(self.groups)
            if group.kind is Kind.MAMBA or index in inside
        )
