"""The world of a second tier: a device of a few blocks, a host of a few chunks, jobs that succeed, fail or never end.

What is in the slots of either tier is part of the state. While a job copies, what it writes is junk; what it copies is
what it finds at its end. So a block that is reused or known too early is seen. A reset stands for new weights:
what was computed before is not what its tokens stand for afterwards.

Blocks hold one token. A request asks for its prompt and one token more, so that a hit may cover all of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import evolve, field, frozen

from kvgate.explore.designs import Design
from kvgate.explore.world import Outcome
from kvgate.kernel.text import counted
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.second_tier import SecondTier, Stage
from kvreference.snapshot import Snapshot, Violation

Factory: TypeAlias = Callable[[BlockPool, int], SecondTier]
Held: TypeAlias = "tuple[int, Content] | None"
"""What is in a slot: how many resets were before it was computed, and what it is; None for junk."""


@frozen
class Start:
    """A request asks for a prompt, and begins to load what the device lacks."""

    prompt: str


@frozen
class Store:
    """A job begins that stores a block."""

    block: int


@frozen
class StoreAll:
    """Jobs begin that store all that is known of a request, or none: the request at this place among those alive."""

    place: int


@frozen
class End:
    """A job ends: the one at this place among those under way."""

    place: int
    succeeded: bool


@frozen
class Leave:
    """A request ends or is aborted: the one at this place among those alive."""

    place: int


@frozen
class Reset:
    """Nothing that was computed before is of use any more."""


Move: TypeAlias = Start | Store | StoreAll | End | Leave | Reset


@frozen
class Ordered:
    """A job as it was ordered."""

    number: int
    content: Content
    block: int
    chunk: int
    to_device: bool
    before: int
    """How many resets were before it began."""


@frozen
class Row:
    """A request."""

    prompt: str
    hit_tokens: int
    tables: tuple[tuple[int, ...], ...]
    loads: frozenset[int] = frozenset()
    """The numbers of the jobs that it waits for."""


@frozen(eq=False)
class Moment:
    """A state; it is not changed any more."""

    tier: SecondTier
    rows: tuple[Row, ...] = ()
    jobs: tuple[Ordered, ...] = ()
    device: Mapping[int, Held] = field(factory=dict)
    host: Mapping[int, Held] = field(factory=dict)
    resets: int = 0


@frozen
class TierScope:
    """How small a world of two tiers is."""

    geometry: Geometry
    prompts: tuple[str, ...]
    blocks: int
    chunks: int
    requests_max: int = 2
    resets_max: int = 1

    @property
    def bounds(self) -> Mapping[str, str]:
        """The bounds by what they bound."""
        return {
            "groups": f"{len(self.geometry.groups)}: {', '.join(each.kind.value for each in self.geometry.groups)}",
            "device": f"{counted(self.blocks, 'block')} of one token and the null block",
            "host": counted(self.chunks, "chunk"),
            "requests": f"at most {self.requests_max} at once, without end, with prompts {', '.join(self.prompts)}",
            "resets": f"at most {self.resets_max}",
            "operations": "start, store any cached block, or all of a request, jobs succeed and fail in any order, "
            "end or abort, reset",
        }


class TierWorld:
    """A second tier of some design, in a scope."""

    def __init__(self, name: str, scope: TierScope, factory: Factory = SecondTier) -> None:
        self.name, self.scope, self.factory = name, scope, factory
        self._prefixes: dict[str, list[Prefix]] = {}
        known: dict[str, Prefix] = {}
        for prompt in scope.prompts:
            parts = [prompt[:end] for end in range(1, len(prompt) + 1)]
            for part in parts:
                known.setdefault(part, Prefix(known.get(part[:-1]), part[-1], len(part)))
            self._prefixes[prompt] = [known[part] for part in parts]

    @property
    def bounds(self) -> Mapping[str, str]:
        return self.scope.bounds

    def initial(self) -> Moment:
        return Moment(self.factory(BlockPool(self.scope.blocks + 1), self.scope.chunks))

    def moves(self, state: Moment) -> Iterator[Move]:
        tier = state.tier
        if len(state.rows) < self.scope.requests_max:
            yield from (Start(prompt) for prompt in self.scope.prompts if self._fits(state, prompt))
        if len(tier.host.free):
            for block in range(1, self.scope.blocks + 1):
                content = tier.device.cached.content_of(block)
                if content is not None and tier.stage(content) is Stage.MISSING:
                    yield Store(block)
        for place, row in enumerate(state.rows):
            if len(_cached(tier, row)) > 1:
                yield StoreAll(place)
        for place in range(len(state.jobs)):
            yield End(place, succeeded=True)
            yield End(place, succeeded=False)
        yield from map(Leave, range(len(state.rows)))
        if not state.rows and state.resets < self.scope.resets_max:
            yield Reset()

    def _contents(self, prompt: str, group: int, places: range) -> list[Content]:
        return [(group, self._prefixes[prompt][place]) for place in places]

    def _fits(self, state: Moment, prompt: str) -> bool:
        """Whether there are blocks for what the device lacks of a prompt."""
        tier, pool = state.tier, state.tier.device
        hit = tier.hit_tokens(self.scope.geometry, self._prefixes[prompt], len(prompt) + 1)
        new = free = 0
        for index, group in enumerate(self.scope.geometry.groups):
            first, end = group.blocks_needed(hit)
            blocks = [pool.cached.find(content) for content in self._contents(prompt, index, range(end))[first:]]
            new += blocks.count(None) + len(prompt) - end
            free += sum(block is not None and pool.references[block] == 0 for block in blocks)
        return len(pool.free) - free >= new

    def step(self, state: Moment, move: Move) -> Outcome[Moment]:
        # What a move changes is a copy.
        now = evolve(state, tier=state.tier.copy(), device=dict(state.device), host=dict(state.host))
        if isinstance(move, Start):
            after, wrong = self._start(now, move.prompt)
        elif isinstance(move, Store):
            after, wrong = self._store(now, move.block)
        elif isinstance(move, StoreAll):
            after, wrong = self._store_all(now, _cached(now.tier, state.rows[move.place]))
        elif isinstance(move, End):
            after, wrong = self._end(now, state.jobs[move.place], move.succeeded)
        elif isinstance(move, Leave):
            after, wrong = self._leave(now, state.rows[move.place]), []
        else:
            for block in range(1, self.scope.blocks + 1):
                now.tier.device.evict(block)
            now.tier.reset()
            after, wrong = evolve(now, resets=now.resets + 1), []
        return Outcome(after, None, True, tuple(wrong))

    def _start(self, now: Moment, prompt: str) -> tuple[Moment, list[Violation]]:
        tier, pool, geometry = now.tier, now.tier.device, self.scope.geometry
        prefixes = self._prefixes[prompt]
        hit = tier.hit_tokens(geometry, prefixes, len(prompt) + 1)
        lacks = tier.lacks(geometry, prefixes, hit)
        found: list[list[int | None]] = []
        wrong = []
        for index, group in enumerate(geometry.groups):
            first, end = group.blocks_needed(hit)
            contents = self._contents(prompt, index, range(end))
            found.append([*(NULL,) * first, *(pool.cached.find(content) for content in contents[first:])])
            for content in contents[first:]:
                there = content in lacks and tier.stage(content) in (Stage.READABLE, Stage.READ)
                if pool.cached.find(content) is None and not there:
                    wrong.append(Violation("KV-TIER-03", f"{_label(content)} is part of a hit, and cannot be loaded"))
            tier.use(contents[first:])
        if wrong:
            return now, wrong
        for table in found:
            pool.touch(block for block in table if block)
        tables, jobs = [], list(now.jobs)
        for index, table in enumerate(found):
            blocks = []
            for place in range(len(prompt)):
                block = table[place] if place < len(table) else None
                if block is None:
                    (block,), _ = pool.take(1)
                    now.device[block] = None  # type: ignore[index]  # it is a copy
                blocks.append(block)
            tables.append(tuple(blocks))
            for content in lacks:
                if content[0] == index:
                    block = blocks[content[1].tokens - 1]
                    jobs.append(self._ordered(tier, tier.load(content, block), content, now.resets))
        loads = frozenset(job.number for job in jobs[len(now.jobs) :])
        after = evolve(now, rows=(*now.rows, Row(prompt, hit, tuple(tables), loads)), jobs=tuple(jobs))
        return after, [] if loads else self._run(after, after.rows[-1])

    def _ordered(self, tier: SecondTier, number: int, content: Content, resets: int) -> Ordered:
        job = tier.jobs[number]
        return Ordered(number, content, job.block, job.chunk, job.to_device, resets)

    def _run(self, now: Moment, row: Row) -> list[Violation]:
        """A request reads its hit, and computes the rest of its prompt."""
        wrong = []
        for index, (group, table) in enumerate(zip(self.scope.geometry.groups, row.tables, strict=True)):
            for place in range(*group.blocks_needed(row.hit_tokens)):
                content = (index, self._prefixes[row.prompt][place])
                if now.device.get(table[place]) != (now.resets, content):
                    wrong.append(Violation("KV-MEM-01", f"{_label(content)} is read in a block that does not hold it"))
            for place in range(row.hit_tokens, len(row.prompt)):
                content = (index, self._prefixes[row.prompt][place])
                now.device[table[place]] = now.resets, content  # type: ignore[index]  # it is a copy
                now.tier.device.cached.register(content, table[place])
        return wrong

    def _store(self, now: Moment, block: int) -> tuple[Moment, list[Violation]]:
        content = now.tier.device.cached.content_of(block)
        assert content is not None, "only what is cached is stored"
        return self._stored(now, {now.tier.store(block): content}), []

    def _store_all(self, now: Moment, known: Mapping[int, Content]) -> tuple[Moment, list[Violation]]:
        before = {content: now.tier.stage(content) for content in known.values()}
        new = {content for content, stage in before.items() if stage is Stage.MISSING}
        numbers = now.tier.store_all(list(known))
        after = self._stored(now, {number: known[now.tier.jobs[number].block] for number in numbers or ()})
        stored = [job.content for job in after.jobs[len(now.jobs) :]]
        wrong = [
            Violation("KV-TIER-02", f"{_label(content)} is evicted to store what goes with it")
            for content, stage in before.items()
            if stage is not Stage.MISSING and after.tier.stage(content) is not stage
        ]
        if len(stored) != (0 if numbers is None else len(new)) or not set(stored) <= new:
            wrong.append(Violation("KV-TIER-02", f"of {counted(len(new), 'content')} to store, {len(stored)} are"))
        return after, wrong

    def _stored(self, now: Moment, begun: Mapping[int, Content]) -> Moment:
        """The moment after jobs began that store ``begun``, by their numbers."""
        jobs = [self._ordered(now.tier, number, content, now.resets) for number, content in begun.items()]
        for job in jobs:
            now.host[job.chunk] = None  # type: ignore[index]  # it is a copy
        return evolve(now, jobs=(*now.jobs, *jobs))

    def _end(self, now: Moment, job: Ordered, succeeded: bool) -> tuple[Moment, list[Violation]]:
        copied = now.host.get(job.chunk) if job.to_device else now.device.get(job.block)
        wrong = []
        if succeeded and copied != (job.before, job.content):
            statement = "KV-TIER-01" if job.to_device else "KV-TIER-04"
            wrong.append(Violation(statement, f"a job copies something else than {_label(job.content)}"))
        if job.to_device:
            now.device[job.block] = copied if succeeded else None  # type: ignore[index]  # it is a copy
        else:
            now.host[job.chunk] = copied if succeeded else None  # type: ignore[index]  # it is a copy
        now.tier.end(job.number, succeeded)
        now = evolve(now, jobs=tuple(each for each in now.jobs if each is not job))
        for place, row in enumerate(now.rows):
            if job.number in row.loads:
                left = evolve(row, loads=row.loads - {job.number})
                now = evolve(now, rows=(*now.rows[:place], left, *now.rows[place + 1 :]))
                if not succeeded:
                    return self._leave(now, left), wrong
                return now, wrong + ([] if left.loads else self._run(now, left))
        return now, wrong

    def _leave(self, now: Moment, row: Row) -> Moment:
        for table in row.tables:
            now.tier.device.end(table[::-1])
        return evolve(now, rows=tuple(each for each in now.rows if each is not row))

    def violations_in(self, state: Moment) -> Sequence[Violation]:
        return [*self._held(state), *self._known(state)]

    def _held(self, state: Moment) -> Iterator[Violation]:
        """Blocks and chunks that are not held for a job under way, or are held for none."""
        tier = state.tier
        sides = (
            (tier.host, "chunk", [job.chunk for job in state.jobs]),
            (tier.device, "block", [job.block for job in state.jobs]),
        )
        named = [block for row in state.rows for table in row.tables for block in table if block]
        for pool, what, used in sides:
            others = named if pool is tier.device else []
            for number in range(1, len(pool.references)):
                holders = used.count(number) + others.count(number)
                count = pool.references[number]
                if number in used and (count < holders or number in pool.free):
                    yield Violation("KV-TIER-02", f"{what} {number} has {count} holders, of {holders} that use it")
                elif count != holders:
                    yield Violation("KV-TIER-05", f"{what} {number} has {count} holders, and {holders} use it")
        for row in state.rows:
            if row.loads - {job.number for job in state.jobs}:
                yield Violation("KV-TIER-06", "a request waits for a job that is not under way")
        if set(tier.jobs) != {job.number for job in state.jobs}:
            yield Violation("KV-TIER-05", "the tier remembers other jobs than those under way")

    def _known(self, state: Moment) -> Iterator[Violation]:
        """What a tier says that it holds, and does not."""
        for pool, holds, statement in (
            (state.tier.host, state.host, "KV-TIER-04"),
            (state.tier.device, state.device, "KV-TIER-01"),
        ):
            for number, content in enumerate(pool.cached.contents()):
                if content is not None and holds.get(number) != (state.resets, content):
                    yield Violation(
                        statement, f"{_label(content)} is said to be in {number}, which holds something else"
                    )

    def key(self, state: Moment) -> Hashable:
        """Blocks by where they stand: in the free queue, in tables, with jobs; chunks in their order of use."""
        tier = state.tier
        names: dict[int, int] = {NULL: NULL}
        standing = [
            *tier.device.free,
            *(block for row in state.rows for table in row.tables for block in table),
            *(job.block for job in state.jobs),
        ]
        for block in standing:
            names.setdefault(block, len(names))
        order = sorted(range(1, self.scope.chunks + 1), key=lambda each: tier.order.used.get(each, 0))
        places = {job.number: place for place, job in enumerate(state.jobs)}
        chunks = {chunk: place for place, chunk in enumerate(order)}
        return (
            len(tier.device.free),
            tuple(
                (
                    row.prompt,
                    row.hit_tokens,
                    tuple(tuple(names[block] for block in table) for table in row.tables),
                    tuple(sorted(places.get(number, -1) for number in row.loads)),
                )
                for row in state.rows
            ),
            tuple(
                (
                    _label(job.content),
                    tier.jobs[job.number].content is None,
                    *(names[job.block], chunks[job.chunk], job.to_device, job.before),
                )
                for job in state.jobs
                if job.number in tier.jobs
            ),
            tuple(self._side(tier.device, block, state.device) for block in names if block),
            tuple((chunk in tier.order.used, self._side(tier.host, chunk, state.host)) for chunk in order),
            state.resets,
        )

    def _side(self, pool: BlockPool, number: int, holds: Mapping[int, Held]) -> Hashable:
        content, held = pool.cached.content_of(number), holds.get(number)
        used = pool.references[number]
        if content is None:
            return None, None if held is None or not used else (held[0], _label(held[1])), used
        first = pool.cached.blocks_of(content).index(number)
        return _label(content), None if held is None else (held[0], _label(held[1])), used, first

    def snapshot(self, state: Moment) -> Snapshot:
        pool = state.tier.device
        return Snapshot(
            tables={place: row.tables for place, row in enumerate(state.rows)},
            references=tuple(pool.references),
            free=tuple(pool.free),
            blocks_free=len(pool.free),
            contents=pool.cached.contents(),
            read_entries=pool.cached.entries,
        )

    def describe_edge(self, move: Move, answer: object) -> str:
        del answer
        if isinstance(move, Start):
            return f"A request asks for {move.prompt}"
        if isinstance(move, Store):
            return f"Block {move.block} is to be stored"
        if isinstance(move, StoreAll):
            return f"All that is known of request {move.place} is to be stored"
        if isinstance(move, End):
            return f"Job {move.place} of those under way {'succeeds' if move.succeeded else 'fails'}"
        return f"Request {move.place} leaves" if isinstance(move, Leave) else "Reset"


def _cached(tier: SecondTier, row: Row) -> dict[int, Content]:
    """Per block of a request, what the device knows that it holds."""
    blocks = {block: tier.device.cached.content_of(block) for table in row.tables for block in table}
    return {block: content for block, content in blocks.items() if content is not None}


def _label(content: Content) -> str:
    """A content, in words."""
    return f"{''.join(map(str, content[1].pieces))} of group {content[0]}"


@frozen
class TinyTier:
    """A second tier in two scopes; what ``Tiny`` is for a block manager."""

    name: str
    mechanism: str
    """What it is about, in one line."""
    shallow: TierScope = field(repr=False)
    deep: TierScope = field(repr=False)

    def world(self, deep: bool = False, design: Design | None = None) -> TierWorld:
        """The world to explore: of the reference, or of a design that does not work."""
        scope = self.deep if deep else self.shallow
        return TierWorld(self.name, scope) if design is None else TierWorld(self.name, scope, design.factory)
