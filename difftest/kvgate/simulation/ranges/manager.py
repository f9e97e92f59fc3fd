"""The block manager in ranges: admission, allocation, caching and release, as ``kvreference.manager`` specifies them.

What the integers are is asked of the reference's own functions: what a group needs, what is dead, what a request holds
at its peak, when a block is due. What is left here is to do with ranges what is done there block by block.

It serves requests that look up, compute and answer. It has no drafts, no transfers, no copies and no kept states.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from kvgate.simulation.ranges.content import Lines, Path, Row
from kvgate.simulation.ranges.due import Dense, Sparse
from kvgate.simulation.ranges.lookup import longest_hit, tokens_known
from kvgate.simulation.ranges.pool import Pool, Span
from kvgate.simulation.ranges.witness import Witness
from kvreference.admission import blocks_to_come
from kvreference.answers import Statistics
from kvreference.geometry import Group
from kvreference.operations import Run
from kvreference.retention import junction, replay_boundary
from kvreference.settings import Settings


class Table:
    """One request's blocks in one group: those of its hit, and after them a row of its own."""

    __slots__ = ("dead", "end", "hit", "own", "own_first", "quiet", "registered")

    def __init__(self, hit: list[Span], hit_blocks: int, dead: int, own: Row) -> None:
        self.hit = hit
        self.own = own
        self.own_first = hit_blocks
        self.end = hit_blocks
        """How many entries the table has."""
        self.dead = dead
        """How many of them were freed."""
        self.registered = hit_blocks
        """Up to where it was looked at what is cached."""
        self.quiet = 0
        """A token computed after fewer than this many changes nothing here."""

    def spans(self, first: int, end: int) -> list[Span]:
        """What stands in the entries ``[first, end)``, none of which was freed."""
        spans = [
            (row, max(first, start), min(end, stop)) for row, start, stop in self.hit if start < end and first < stop
        ]
        if end > self.own_first:
            spans.append((self.own, max(first, self.own_first), end))
        return spans


class Request:
    """One request. All counts are in tokens."""

    __slots__ = (
        *("computed", "hit", "junction", "number", "path", "preemptions", "quiet_tokens", "replay", "tables"),
        "tokens",
    )

    def __init__(self, number: int, path: Path, prompt_tokens: int, replay: int) -> None:
        self.number = number
        self.path = path
        """Its prompt and, since that is known here, all that it will be answered."""
        self.tokens = prompt_tokens
        """How many tokens it has so far."""
        self.replay = replay
        """The longest hit that a replay of it can have."""
        self.junction = 0
        """Where it parted from what was cached when it was looked up last; 0: nowhere, or that is not kept."""
        self.computed = 0
        self.hit = 0
        """What it hit when it was admitted last."""
        self.tables: list[Table] = []
        self.preemptions = 0
        self.quiet_tokens = 0
        """A token computed after fewer than this many changes none of its tables."""


def _first_dead(group: Group) -> int | None:
    """After how many computed tokens the first block is dead; each further one is a block later. None: never.

    Attention chunks free several blocks at once: there, every token may be the one.
    """
    if group.keeps_all:
        return None
    if not group.slides:
        return 0
    return next(tokens for tokens in count() if group.blocks_dead(tokens) > 0)


class Manager:
    """The block manager, with the requests it serves; ``settings`` must be such that ranges can follow them."""

    def __init__(self, settings: Settings, keeps_replays: bool = True) -> None:
        self.settings = settings
        self.keeps_replays = keeps_replays
        self.geometry = settings.geometry
        self.groups = settings.geometry.groups
        self.pool = Pool(settings)
        self.lines = Lines(len(self.groups))
        self.statistics = Statistics()
        self.witness = Witness(settings)
        interval = settings.retention_interval_tokens
        self._due: list[Dense | Sparse] = [
            Dense(group) if interval is None else Sparse(self.geometry, group, interval) for group in self.groups
        ]
        self._first_dead = [_first_dead(group) for group in self.groups]

    def arrive(self, number: int, prompt: Iterable[Run], answers: Run) -> Request:
        """A request with that prompt, which will be answered ``answers``."""
        path, prompt_tokens = self.lines.path(), 0
        for run in prompt:
            self.lines.extend(path, run)
            prompt_tokens += run.length
        self.lines.extend(path, answers)
        replay = replay_boundary(self.geometry, prompt_tokens) if self.keeps_replays else 0
        return Request(number, path, prompt_tokens, replay)

    # Allocation

    def admit(self, request: Request, budget_tokens: int) -> tuple[int, int] | None:
        """Admit a waiting request: its hit, and how many tokens are computed now; None if it is rejected."""
        settings, tokens = self.settings, request.tokens
        hit_tokens, spans = longest_hit(self.geometry, request.path, tokens)
        self.statistics = self.statistics.counted(tokens, hit_tokens, request.preemptions > 0)
        if settings.keeps_junctions:
            known = tokens_known(self.geometry, request.path, tokens, hit_tokens)
            request.junction = junction(self.geometry, known, tokens - 1, hit_tokens)
        held = [span for group in spans for span in group]
        free = self.pool.count_free(held)
        if settings.full_sequence_must_fit:
            live = [sum(end - first for _, first, end in group) for group in spans]
            needed = blocks_to_come(settings, tokens, hit_tokens, live)
            if not self.pool.make_room(needed + free, held):
                return None
            free = self.pool.count_free(held)
        chunk = min(tokens - hit_tokens, budget_tokens, settings.chunk_tokens)
        tables = [
            Table(hit, hit_tokens // group.block_size_tokens, group.blocks_unread(hit_tokens), Row(index, request.path))
            for index, (group, hit) in enumerate(zip(self.groups, spans, strict=True))
        ]
        wanted = self._wanted(tables, hit_tokens + chunk)
        if not self.pool.make_room(sum(wanted) + free, held):
            return None
        self.witness.check(request.path, spans)
        request.tables = tables
        self.pool.hold(held)
        self._fill(tables, wanted)
        for place in range(len(tables)):
            self._register(request, place, hit_tokens + chunk)
        request.computed = hit_tokens + chunk
        request.hit = hit_tokens
        request.quiet_tokens = 0
        return hit_tokens, chunk

    def schedule(self, request: Request, budget_tokens: int) -> int | None:
        """Allocate for the next tokens of a running request: how many are computed now; None if it is rejected."""
        computed = request.computed
        pending = request.tokens - computed
        limit = self.settings.tokens_max - 1 - computed
        chunk = min(pending, budget_tokens, self.settings.chunk_tokens, limit)
        if (chunk > 1 or computed >= request.quiet_tokens) and not self._allocate(request, computed, chunk):
            return None
        request.computed += chunk
        return chunk

    def _allocate(self, request: Request, computed: int, chunk: int) -> bool:
        """Release, take and cache the blocks for ``chunk`` tokens after the computed ones; returns whether there were
        enough."""
        tables = request.tables
        busy = [place for place, table in enumerate(tables) if chunk > 1 or table.quiet <= computed]
        for place in busy:
            self._release_dead(self.groups[place], tables[place], computed)
        tokens = computed + chunk
        slots = min(tokens, self.settings.tokens_max)
        wanted = [max(0, self.groups[place].entries(tokens, slots) - tables[place].end) for place in busy]
        if not self.pool.make_room(sum(wanted), []):
            return False
        self._fill([tables[place] for place in busy], wanted)
        for place in busy:
            self._register(request, place, tokens)
            tables[place].quiet = max(tokens, self._quiet(place, tables[place]))
        request.quiet_tokens = min(table.quiet for table in tables)
        return True

    def _quiet(self, place: int, table: Table) -> int:
        """After how many tokens the next one changes a table: it fills the last block, or one more is dead by then."""
        size, first_dead = self.groups[place].block_size_tokens, self._first_dead[place]
        fills = table.end * size - 1
        return fills if first_dead is None else min(fills, first_dead + table.dead * size)

    def _wanted(self, tables: list[Table], tokens: int) -> list[int]:
        """Per group, how many blocks more it takes to have slots for ``tokens`` tokens."""
        slots = min(tokens, self.settings.tokens_max)
        return [
            max(0, group.entries(tokens, slots) - table.end) for group, table in zip(self.groups, tables, strict=True)
        ]

    def _fill(self, tables: list[Table], wanted: list[int]) -> None:
        for table, blocks in zip(tables, wanted, strict=True):
            if blocks:
                self.pool.take(blocks)
                table.end += blocks

    def _register(self, request: Request, place: int, tokens: int) -> None:
        """Cache what the first ``tokens`` tokens make due in one group."""
        if not self.settings.caches:
            return
        table, size = request.tables[place], self.groups[place].block_size_tokens
        ranges, table.registered = self._due[place].take(table.registered, tokens, (request.replay, request.junction))
        for start, end in ranges:
            # What was freed before it was due holds nothing.
            first = max(start, table.dead)
            if first >= end:
                continue
            table.own.cache(first, end)
            for line, begin, stop in request.path.segments(size, first, end):
                line.serving[place].register(begin, stop, table.own)

    # Release

    def _release_dead(self, group: Group, table: Table, computed: int) -> None:
        """Release the blocks that no token after those computed reads, the later ones first."""
        dead = min(group.blocks_dead(computed), table.end)
        if dead > table.dead:
            first, end = self.geometry.anchor(group, dead) if self.pool.drop_blocks_min is not None else (0, 0)
            anchor = table.spans(max(first, table.dead), end) if end > max(first, table.dead) else []
            self.pool.slide(table.spans(table.dead, dead), anchor)
            table.dead = dead

    def release_all(self, request: Request) -> None:
        """Release all blocks of a request that ends or is preempted, group by group, tail first."""
        for table in request.tables:
            if table.end > table.dead:
                self.pool.end(table.spans(table.dead, table.end))
        request.tables = []

    def preempt(self, request: Request) -> None:
        """A running request loses its blocks, and waits again with all its tokens."""
        self.release_all(request)
        request.computed = 0
        request.preemptions += 1
