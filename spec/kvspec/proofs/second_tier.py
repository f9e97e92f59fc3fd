"""Chapter 14: a second tier of any size, over a device of any size, with any number of jobs that end or never do.

The running tier has two pools, of which one thing is assumed: each of their steps is the transition that
``running_pool`` proves of the running pool. So a pool is two maps here: block to the number of its holders, and block
to what it is known to hold. Jobs are maps from their number. What is in the slots of either tier is followed as well.
The rest of the engine does what it may to the device: a request takes a block, computes into one that no job uses, or
gives one up, and a block is evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import frozen

from kvreference import second_tier
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.hit_lookup import longest_length
from kvreference.second_tier import ByUse, Job, SecondTier
from kvspec.maps import Map
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.proofs.hit_lookup import AnythingFound, all_of
from kvspec.running import Cells, Key, fresh, key
from kvspec.stand_in import group
from kvspec.symbolic import current_path, either, formula_of, implies

TIER, ORDER = "kvreference.second_tier:SecondTier", "kvreference.second_tier:ByUse"
STORE, LOAD, END, RESET, TAKE, GIVE_UP, COMPUTE, EVICT = range(8)
"""What happens: what the tier does, and then what the rest of the engine does to the device."""
MAPS = ("holders", "known", "holds", "chunk_holders", "chunk_known", "chunk_holds")
OF_JOBS = ("block_of", "chunk_of", "content_of", "to_device")
ANY_TIER: dict[str, Unknown] = {
    **{name: AMap() for name in (*MAPS, *OF_JOBS, "named")},
    "step": Count(0, 7),
    **{name: Count(1) for name in ("block", "job", "entry", "content", "any_block", "any_chunk", "any_job")},
    "succeeded": Count(0, 1),
}
"""Both tiers, the jobs, other holders by their entry, a step with what it is about, and a point to look at."""


@frozen
class _State:
    """Both tiers, as maps. ``holds`` is what is in the slots, ``known`` what the tier says of them."""

    holders: Map
    known: Map
    holds: Map
    chunk_holders: Map
    chunk_known: Map
    chunk_holds: Map
    block_of: Map
    chunk_of: Map
    content_of: Map
    to_device: Map
    named: Map


def _before(u: Any) -> _State:
    return _State(**{name: getattr(u, name) for name in _State.__annotations__})


def _recalled(state: Any, job: Any) -> None:
    """A job is counted where it is."""
    for names in (state.block_of, state.chunk_of):
        names.sees(job, names[job])


def held(state: Any, job: Any, block: Any, chunk: Any) -> Any:
    """What is held is what jobs and entries name, and a job has a block and a chunk. Said of one of each."""
    there = state.block_of[job] != 0
    return (
        (state.holders[block] == state.block_of.count(block) + state.named.count(block))
        & (state.chunk_holders[chunk] == state.chunk_of.count(chunk))
        & (there == (state.chunk_of[job] != 0))
    )


def _alone(state: Any, job: Any) -> Any:
    """Nothing is known of what a job writes to, and no other job uses it."""
    block, chunk, to_device = state.block_of[job], state.chunk_of[job], state.to_device[job] != 0
    alone = either(to_device, state.block_of.count(block), state.chunk_of.count(chunk)) == 1
    unknown = either(to_device, state.known[block], state.chunk_known[chunk]) == 0
    return implies(block != 0, alone & unknown)


def right(state: Any, job: Any, block: Any, chunk: Any) -> Any:
    """What is known is what is there, and what a job copies is what its other side will be known to hold."""
    source = either(state.to_device[job] != 0, state.chunk_holds[state.chunk_of[job]], state.holds[state.block_of[job]])
    return (
        _alone(state, job)
        & implies(state.known[block] != 0, state.holds[block] == state.known[block])
        & implies(state.chunk_known[chunk] != 0, state.chunk_holds[chunk] == state.chunk_known[chunk])
        & implies((state.block_of[job] != 0) & (state.content_of[job] != 0), source == state.content_of[job])
    )


def _sound(state: Any, job: Any, block: Any, chunk: Any) -> Any:
    _recalled(state, job)
    return held(state, job, block, chunk) & right(state, job, block, chunk)


def _initial(u: Any) -> Any:
    return SimpleNamespace(**{name: getattr(u, name).emptied() for name in _State.__annotations__})


def _is_sound(u: Any) -> Any:
    """At any place that the step or the look-up reaches."""
    state = _before(u)
    u.named.sees(u.entry, u.named[u.entry])
    own, other = (u.block, u.any_chunk), (u.any_block, u.any_chunk)
    fine = _sound(state, u.any_job, *other) & _sound(state, u.job, *own)
    for job in (u.any_job, u.job):
        fine = fine & _sound(state, job, state.block_of[job], state.chunk_of[job])
    return fine & _may(u)


def _may(u: Any) -> Any:
    """What the step asks of who calls."""
    unused = u.block_of.count(u.block) == 0
    own = (u.named[u.entry] == u.block) & (u.known[u.block] == 0) & unused
    may: Any = True
    for step, asks in (
        (STORE, u.known[u.block] != 0),
        (LOAD, own),
        (END, u.block_of[u.job] != 0),
        (TAKE, (u.holders[u.block] == 0) & (u.named[u.entry] == 0)),
        (GIVE_UP, u.named[u.entry] == u.block),
        (COMPUTE, own),
    ):
        may = implies(u.step == step, asks) & may
    # A job that begins is a new one.
    new = (u.block_of[u.job] == 0) & (u.chunk_of[u.job] == 0)
    return may & implies((u.step == STORE) | (u.step == LOAD), new)


class _Pool:
    """A pool whose steps are those that are proved: it stands for one."""

    def __init__(self, holders: Map, known: Map, sound_at: Callable[[Any], Any]) -> None:
        self.references, self.known = Cells(holders.__getitem__), Cells(known.__getitem__)
        self._sound_at, self.cached = sound_at, self
        self.has_room: Any = True
        self._answers: list[tuple[Any, Key | None]] = []

    @property
    def found(self) -> list[Key]:
        """What was found for the contents that were asked for."""
        return [answer for _, answer in self._answers if answer is not None]

    def take(self, _count: int) -> tuple[list[Key], list[Any]]:
        """Any block that has no holder: which one, the order of eviction says."""
        block = self._some()
        current_path().assume(formula_of(self.references[block] == 0))
        self.references[block], self.known[block] = 1, 0
        return [block], []

    def _some(self) -> Key:
        block = fresh("block")
        current_path().fact(formula_of((block >= 1) & self._sound_at(block)))
        return block

    def make_room(self, _count: int, _kept: Any) -> bool:
        """Whether there are as many without a holder."""
        self.has_room = has_room = bool(self.has_room)
        return has_room

    def touch(self, blocks: Any) -> None:
        for block in blocks:
            self.references[block] = self.references[block] + 1

    def release(self, blocks: Any) -> None:
        for block in blocks:
            self.references[block] = self.references[block] - 1

    def evict(self, block: Any) -> list[Any]:
        content, self.known[block] = self.known[block], 0
        return [content] if content != 0 else []

    # The cached map

    def content_of(self, block: Any) -> Any:
        content = self.known[block]
        return key(content) if content != 0 else None

    def find(self, content: Any) -> Any:
        """Any block that is known to hold it; the same when it is asked for again."""
        for asked, answer in self._answers:
            if asked == content and (answer is None or self.known[answer] == content):
                return answer
        block: Any = self._some()
        if self.known[block] != content:
            block = None
        self._answers.append((content, block))
        return block

    def register(self, content: Any, block: Any) -> None:
        if self.known[block] != 0:
            raise ValueError("it is registered already")
        self.known[block] = content


class _Jobs:
    """The jobs by number: those that are looked at."""

    def __init__(self, u: Any) -> None:
        self._u = u
        self.put: list[tuple[Any, Job | None]] = []
        """What changed: a job, or None if it is gone."""

    def _job(self, number: Any) -> Job:
        u = self._u
        content, to_device = u.content_of[number], bool(u.to_device[number] != 0)
        known: Any = key(content) if content != 0 else None
        block: Any = key(u.block_of[number])
        chunk: Any = key(u.chunk_of[number])
        return Job(known, block, chunk, to_device)

    def items(self) -> Iterator[tuple[Any, Job]]:
        if self._u.block_of[self._u.any_job] != 0:
            yield key(self._u.any_job), self._job(self._u.any_job)

    def values(self) -> Iterator[Job]:
        return (job for _, job in self.items())

    def pop(self, number: Any) -> Job:
        self.put.append((number, None))
        return self._job(number)

    def __setitem__(self, _number: Any, job: Job) -> None:
        # Numbers are counted on; here the one that begins is a number that no job has.
        self.put.append((self._u.job, job))


def _after(u: Any) -> Any:
    """Both tiers after the step, which the running tier has made if it is one of its own."""
    state = _before(u)
    jobs: Any = _Jobs(u)
    tier: Any = object.__new__(SecondTier)
    tier.device = _Pool(u.holders, u.known, lambda block: _sound(state, u.any_job, block, u.any_chunk))
    tier.host = _Pool(u.chunk_holders, u.chunk_known, lambda chunk: _sound(state, u.any_job, u.any_block, chunk))
    tier.order, tier.jobs, tier.begun = SimpleNamespace(use=lambda chunk: None), jobs, 0
    named, holds, chunk_holds = u.named, u.holds, u.chunk_holds
    block = key(u.block)
    step = u.step.__index__()
    if step in (STORE, LOAD):
        # A rejected call must have changed nothing.
        with suppress(ValueError):
            tier.store(block) if step == STORE else tier.load(key(u.content), block)
    elif step == END:
        # What it has copied is there: all of it if it succeeded, and else anything.
        succeeded = bool(u.succeeded == 1)
        copied, junk = _copied(u), fresh("junk")
        if u.to_device[u.job] != 0:
            holds = holds.put(u.block_of[u.job], copied if succeeded else junk)
        else:
            chunk_holds = chunk_holds.put(u.chunk_of[u.job], copied if succeeded else junk)
        tier.end(u.job, succeeded)
    elif step == RESET:
        looked: Any = {"len": lambda _references: 0, "range": lambda *_chunks: [key(u.any_chunk)]}
        with patch.multiple(second_tier, create=True, **looked):
            tier.reset()
        jobs.put += list(tier.jobs.items())
    else:
        named, holds = _of_the_engine(u, step, tier.device)
    maps = {name: getattr(u, name) for name in OF_JOBS}
    for number, job in jobs.put:
        values = (0, 0, 0, 0)
        if job is not None:
            values = job.block, job.chunk, 0 if job.content is None else job.content, int(job.to_device)
        maps = {name: maps[name].put(number, value) for name, value in zip(OF_JOBS, values, strict=True)}
    pools = {
        "holders": tier.device.references,
        "known": tier.device.known,
        "chunk_holders": tier.host.references,
        "chunk_known": tier.host.known,
    }
    after = SimpleNamespace(**pools, **maps, named=named, holds=holds, chunk_holds=chunk_holds)
    _recalled(after, u.any_job)
    return after


def _copied(u: Any) -> Any:
    return either(u.to_device[u.job] != 0, u.chunk_holds[u.chunk_of[u.job]], u.holds[u.block_of[u.job]])


def _of_the_engine(u: Any, step: int, device: _Pool) -> tuple[Map, Map]:
    """Who names a block, and what is in the slots, after a step of a request."""
    named, holds = u.named, u.holds
    if step == TAKE:
        device.references[u.block], device.known[u.block] = 1, 0
        return named.put(u.entry, u.block), holds.put(u.block, fresh("junk"))
    if step == GIVE_UP:
        device.release([u.block])
        return named.put(u.entry, 0), holds
    if step == COMPUTE:
        device.register(u.content, u.block)
        return named, holds.put(u.block, u.content)
    device.evict(u.block)
    return named, holds


def _fenced(u: Any) -> Any:
    state = _after(u)
    fine = held(_initial(u), u.any_job, u.any_block, u.any_chunk) & held(state, u.any_job, u.any_block, u.any_chunk)
    under_way = (u.block_of[u.any_job] != 0) & ((u.step != END) | (u.job != u.any_job))
    block, chunk = u.block_of[u.any_job], u.chunk_of[u.any_job]
    keeps = (state.block_of[u.any_job] == block) & (state.chunk_of[u.any_job] == chunk)
    taken = (u.step == TAKE) & (u.block == block)
    return fine & implies(
        under_way,
        keeps & (state.holders[block] >= 1) & (state.chunk_holders[chunk] >= 1) & (taken == False),  # noqa: E712  # a truth is compared
    )


FENCE = Obligation(
    id="second-tier.fence",
    statements=("KV-TIER-02", "KV-TIER-05"),
    title="While a job is under way, its block and its chunk have a holder and nothing takes them while others "
    "begin, end, fail, never end, are dropped or reset; a chunk has as many holders as jobs that are under way.",
    unknowns=ANY_TIER,
    assumes=_is_sound,
    claim=_fenced,
    witnesses={
        "a chunk is evicted while another is read": lambda u: (
            (u.step == STORE) & (u.block_of[u.any_job] != 0) & (u.to_device[u.any_job] == 1)
        ),
        "a request gives up what is loaded for it": lambda u: (
            (u.step == GIVE_UP) & (u.block_of[u.any_job] == u.block) & (u.to_device[u.any_job] == 1)
        ),
        "another job of the same chunk fails": lambda u: (
            (u.step == END)
            & (u.succeeded == 0)
            & (u.job != u.any_job)
            & (u.chunk_of[u.any_job] == u.chunk_of[u.job])
            & (u.chunk_of[u.job] != 0)
        ),
    },
    mutants=(
        only(
            "load-holds-no-chunk",
            "A chunk that a load reads may be evicted.",
            f"{TIER}.load",
            lambda self, content, block: _holds_no_chunk(self, content, block),
        ),
        only(
            "job-holds-no-block",
            "A block of the device that a job uses may be taken.",
            f"{TIER}._begin",
            lambda self, job: self.jobs.__setitem__(self.begun, job),
        ),
        only(
            "failed-job-keeps-its-chunk",
            "A job that fails never gives its chunk back.",
            f"{TIER}.end",
            lambda self, number, succeeded: _keeps_its_chunk(self, number, succeeded),
        ),
        only(
            "reset-ends-jobs",
            "A reset gives back what jobs under way use.",
            f"{TIER}.reset",
            lambda self: [self.host.release([job.chunk]) for job in self.jobs.values()],
        ),
    ),
)

ENDS, LOADS = SecondTier.end, SecondTier.load


def _holds_no_chunk(self: Any, content: Any, block: Any) -> int:
    number = LOADS(self, content, block)
    self.host.release([self.jobs.put[-1][1].chunk])
    return number


def _keeps_its_chunk(self: SecondTier, number: Any, succeeded: bool) -> None:
    if succeeded:
        ENDS(self, number, succeeded)
    else:
        self.device.release([self.jobs.pop(number).block])


def _kept_right(u: Any) -> Any:
    state = _after(u)
    nothing = implies(state.block_of[u.any_job] != 0, state.content_of[u.any_job] == 0)
    forgotten = (state.chunk_known[u.any_chunk] == 0) & nothing
    at = u.any_job, u.any_block, u.any_chunk
    return right(_initial(u), *at) & right(state, *at) & implies(u.step == RESET, forgotten)


RIGHT = Obligation(
    id="second-tier.known-is-copied",
    statements=("KV-TIER-01", "KV-TIER-04"),
    title="What a chunk or a block is known to hold is in its slots, after loads and stores too: a job copies what its "
    "content names, and what a failed job or one from before a reset has copied is known nowhere.",
    unknowns=ANY_TIER,
    assumes=_is_sound,
    claim=_kept_right,
    witnesses={
        "a load succeeds": lambda u: (
            (u.step == END) & (u.succeeded == 1) & (u.to_device[u.job] == 1) & (u.content_of[u.job] != 0)
        ),
        "a store fails": lambda u: (
            (u.step == END) & (u.succeeded == 0) & (u.to_device[u.job] == 0) & (u.content_of[u.job] != 0)
        ),
        "a block is evicted while it is stored": lambda u: (
            (u.step == EVICT) & (u.block_of[u.any_job] == u.block) & (u.to_device[u.any_job] == 0)
        ),
    },
    mutants=(
        only(
            "failed-job-counts",
            "What a failed job has copied is known.",
            f"{TIER}.end",
            lambda self, number, succeeded: ENDS(self, number, True),
        ),
        only(
            "stored-before-it-is-there",
            "A chunk is known to hold what a store under way has yet to bring.",
            f"{TIER}._begin",
            lambda self, job: _known_at_once(self, job),
        ),
        only(
            "reset-forgets-no-job",
            "What is on its way at a reset is known when it has arrived.",
            f"{TIER}.reset",
            lambda self: [self.host.evict(chunk) for chunk in second_tier.range(1)],  # type: ignore[attr-defined]  # it is replaced
        ),
    ),
)

BEGINS = SecondTier._begin


def _known_at_once(self: SecondTier, job: Job) -> int:
    if not job.to_device:
        assert job.content is not None
        self.host.cached.register(job.content, job.chunk)
    return BEGINS(self, job)


class _Lists:
    """A cached map: of a group and a place, the block or the chunk that holds it, or none."""

    def __init__(self, blocks: Map, arriving: Map | None = None) -> None:
        self._blocks, self.arriving = blocks, arriving

    def find(self, content: Any) -> Any:
        block = self._blocks[content]
        return key(block) if block != 0 else None

    def content_of(self, _block: Any) -> None:
        """Of a block that a request has taken, nothing."""


class _Prefixes:
    """The prefixes of a request: that up to the end of the block that is looked at."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def __getitem__(self, _at: Any) -> Any:
        return self._place


def _groups(u: Any) -> tuple[Group, ...]:
    return group(Kind.FULL, u.block), group(Kind.SLIDING_WINDOW, u.window_block, u.window)


def _covers(u: Any) -> Any:
    groups, place = _groups(u), key(u.place)
    tier: Any = object.__new__(SecondTier)
    tier.device = SimpleNamespace(cached=_Lists(u.on_device), touch=lambda blocks: None)
    held: list[Any] = []
    tier.host = SimpleNamespace(cached=_Lists(u.on_host, u.arriving), touch=held.extend)
    tier.jobs, tier.begun = {}, 0
    watched = u.watched.__index__()
    content: Any = (watched, place)

    def longest(_geometry: Any, both: Any, _prefixes: Any, tokens: Any) -> Any:
        """The longest hit, as the reference looks it up, where this is known of the place that is looked at."""
        absent, others = Cells(u.absent.__getitem__), Cells(u.others.__getitem__)
        first, end = groups[watched].blocks_needed(u.hit)
        lacks = 0 if both.find(content) is not None else 1
        counts = (absent[first] <= absent[u.place]) & (absent[u.place + 1] <= absent[end])
        counts = counts & (absent[u.place + 1] == absent[u.place] + lacks)
        current_path().fact(formula_of(implies((first <= u.place) & (u.place < end), counts)))
        found = [AnythingFound(its, absent if at == watched else others, False) for at, its in enumerate(groups)]
        return SimpleNamespace(tokens=longest_length(found, [u.hit, 0], tokens, 0))  # type: ignore[arg-type]  # a range

    prefixes: Any = _Prefixes(place)
    with patch.object(second_tier, "longest_hit", longest):
        hit = tier.hit_tokens(_geometry(groups), prefixes, u.tokens)
    first, end = groups[watched].blocks_needed(hit)
    asked: list[Any] = []

    def looked(begin: Any, end: Any) -> list[Any]:
        # The groups are asked for in order. Of the one that is looked at, it is the place that is looked at.
        asked.append(begin)
        return [place] if len(asked) == watched + 1 and (begin <= place) & (place < end) else []

    with patch.object(second_tier, "range", looked, create=True):
        missing = tier.lacks(_geometry(groups), prefixes, hit)
    for each in missing:
        tier.load(each, key(u.free))
    there = (u.on_device[content] != 0) | (len(missing) == 1)
    return implies((first <= u.place) & (u.place < end), there) & (len(held) == len(missing))


def _geometry(groups: tuple[Group, ...]) -> Any:
    return SimpleNamespace(groups=groups, grain_tokens=1)


COVERS = Obligation(
    id="second-tier.hits-are-loadable",
    statements=("KV-TIER-03",),
    title="At the hit that is reported, every block that a resume there reads is on the device or can be loaded at "
    "once, in full attention and in a window; what is still being stored counts as nothing.",
    unknowns={
        "block": Count(1),
        "window_block": Count(1),
        "window": Count(2),
        "hit": Count(0),
        "tokens": Count(1),
        "watched": Count(0, 1),
        "place": Count(0),
        "free": Count(1),
        **{name: AMap() for name in ("absent", "others")},
        **{name: AMap(2) for name in ("on_device", "on_host", "arriving")},
    },
    claim=_covers,
    witnesses={
        "the window is loaded, the rest is there": lambda u: (
            (u.hit == 8)
            & (u.block == 4)
            & (u.window_block == 4)
            & (u.window == 4)
            & (u.tokens == 9)
            & (u.place == 1)
            & (u.on_device[(0, 1)] != 0)
            & (u.on_device[(1, 1)] == 0)
            & (u.on_host[(1, 1)] != 0)
        )
    },
    mutants=(
        only(
            "one-group-is-enough",
            "A hit is reported where one of the groups can be resumed.",
            f"{__name__}:longest_length",
            lambda found, lengths, tokens, _minimum: next(
                length for length in lengths if any(each.satisfies(length, tokens) for each in found)
            ),
        ),
        only(
            "counts-what-is-on-its-way",
            "What is still being stored counts as there.",
            "kvreference.second_tier:_Both.find",
            lambda self, content: (
                self._device.find(content) or self._host.find(content) or self._host.arriving[content]
            ),
        ),
        only(
            "loads-full-attention-alone",
            "What a window needs is not loaded.",
            f"{TIER}.lacks",
            lambda self, geometry, prefixes, hit: _of_one_group(self, geometry, prefixes, hit),
        ),
    ),
)

LACKS = SecondTier.lacks


def _of_one_group(self: SecondTier, geometry: Any, prefixes: Any, hit: Any) -> list[Any]:
    return [content for content in LACKS(self, geometry, prefixes, hit) if content[0] == 0]


class _Queue:
    """A queue of any size: the block that is looked at, if it is in it, and another."""

    def __init__(self, u: Any) -> None:
        self.there, self._looked = Cells(u.there.__getitem__), (key(u.any_block), key(u.block))

    def __iter__(self) -> Iterator[Key]:
        return (block for block in self._looked if block in self)

    def __contains__(self, block: Any) -> bool:
        return bool(self.there[block] != 0)

    def __setitem__(self, block: Any, _value: None) -> None:
        self.there[block] = 1

    def __delitem__(self, block: Any) -> None:
        self.there[block] = 0


class _Uses:
    """When each block was used."""

    def __init__(self, used: Map) -> None:
        self.at = Cells(used.__getitem__)

    def get(self, block: Any, _never: int) -> Any:
        return self.at[block]

    def pop(self, block: Any, _never: None) -> None:
        self.at[block] = 0

    def __setitem__(self, block: Any, when: Any) -> None:
        self.at[block] = when


def _evicts(u: Any) -> Any:
    order: Any = object.__new__(ByUse)
    order._order, order.used = _Queue(u), _Uses(u.used)
    block = order.pop()
    there = order._order.there
    right = (u.there[block] != 0) & (there[block] == 0) & implies(u.any_block != block, _same(u, there))
    least = implies(u.there[u.any_block] != 0, u.used[block] <= u.used[u.any_block])
    order.put([block], [block] if u.empty == 1 else [])
    back = (there[block] != 0) & implies(u.any_block != block, _same(u, there))
    back = back & (order.used.at[block] == either(u.empty == 1, 0, u.used[block]))
    tier: Any = object.__new__(SecondTier)
    tier.order, tier.jobs, order.uses = order, {}, u.uses
    tier.host = SimpleNamespace(cached=SimpleNamespace(find=lambda content: block))
    tier.use([key(u.any_block)])
    last = implies(u.any_block != block, order.used.at[block] > order.used.at[u.any_block])
    return right & least & back & last


def _same(u: Any, there: Cells) -> Any:
    return (there[u.any_block] != 0) == (u.there[u.any_block] != 0)


EVICTS = Obligation(
    id="second-tier.least-recently-used",
    statements=("KV-TIER-02",),
    title="Of the chunks without a holder, however many, that which was used least recently is taken, and no other; a "
    "chunk that is let go waits there, and counts as never used if it holds nothing; one that is used goes last.",
    unknowns={
        "there": AMap(),
        "used": AMap(),
        "block": Count(1),
        "any_block": Count(1),
        "empty": Count(0, 1),
        "uses": Count(0),
    },
    assumes=lambda u: (u.there[u.block] != 0) & (u.used[u.block] <= u.uses) & (u.used[u.any_block] <= u.uses),
    claim=_evicts,
    witnesses={
        "another was used earlier": lambda u: (
            (u.there[u.any_block] != 0) & (u.used[u.any_block] == 3) & (u.used[u.block] == 5)
        ),
    },
    mutants=(
        only(
            "most-recently-used",
            "What was used last is evicted first.",
            f"{ORDER}.pop",
            lambda self: _popped(self, max(self, key=lambda each: self.used.get(each, 0))),
        ),
        only(
            "stays-in-the-queue",
            "A chunk that is taken stays among those without a holder.",
            f"{ORDER}.pop",
            lambda self: min(self, key=lambda each: self.used.get(each, 0)),
        ),
        only(
            "uses-do-not-count",
            "A chunk that is used stays where it is.",
            f"{ORDER}.use",
            lambda self, block: None,
        ),
        only(
            "empty-ones-wait",
            "A chunk that holds nothing is taken when its turn comes.",
            f"{ORDER}.turned_scratch",
            lambda self, block: None,
        ),
    ),
)


def _popped(self: ByUse, block: int) -> int:
    self.remove(block)
    return block


def _stores_all(u: Any) -> Any:
    state = _before(u)
    tier: Any = object.__new__(SecondTier)
    tier.device = _Pool(u.holders, u.known, lambda block: True)
    tier.host = _Pool(u.chunk_holders, u.chunk_known, lambda chunk: held(state, u.any_job, u.any_block, chunk))
    tier.host.has_room = u.room == 1
    jobs: Any = _Jobs(u)
    tier.order, tier.jobs, tier.begun = SimpleNamespace(use=lambda chunk: None), jobs, 0
    begun = tier.store_all([key(u.block), key(u.other)])
    fine: Any = (begun is None) == (not tier.host.has_room)
    for chunk in tier.host.found:
        kept = tier.host.known[chunk] == u.chunk_known[chunk]
        fine = fine & kept & all_of(job.chunk != chunk for _, job in jobs.put)
    for pool, holders, at, uses in (
        (tier.device, u.holders, u.any_block, [job.block for _, job in jobs.put]),
        (tier.host, u.chunk_holders, u.any_chunk, [job.chunk for _, job in jobs.put]),
    ):
        more: Any = sum(either(each == at, 1, 0) for each in uses)
        fine = fine & (pool.references[at] == holders[at] + more)
    return fine & (len(jobs.put) == len(begun or []))


ALL = SecondTier.store_all

STORES_ALL = Obligation(
    id="second-tier.all-or-none-are-stored",
    statements=("KV-TIER-02",),
    bound="two blocks at once, in tiers of any size: they are a list",
    title="When several blocks are to be stored, either a job begins for each that the tier lacks or nothing changes, "
    "and what the tier has of the others is not evicted for it.",
    unknowns={**ANY_TIER, "other": Count(1), "room": Count(0, 1)},
    assumes=lambda u: (u.block != u.other) & (u.known[u.block] != u.known[u.other]) & (u.known[u.block] != 0),
    claim=_stores_all,
    witnesses={"one is cached": lambda u: (u.known[u.other] == 0) & (u.room == 1)},
    mutants=(
        only(
            "evicts-what-it-names",
            "What is there is not kept while the others take chunks.",
            f"{TIER}.store_all",
            lambda self, blocks: _unkept(self, blocks),
        ),
        only(
            "stores-what-fits",
            "If there is no room for all, the first is stored.",
            f"{TIER}.store_all",
            lambda self, blocks: ALL(self, blocks) or [self.store(blocks[0])],
        ),
    ),
)


def _unkept(self: Any, blocks: Any) -> Any:
    self.host.touch = lambda chunks: None
    self.host.release = lambda chunks: None
    return ALL(self, blocks)


def _forgets(u: Any) -> Any:
    """Two chunks are to be evicted, of which jobs may hold either."""
    state = _before(u)
    tier: Any = object.__new__(SecondTier)
    tier.host = _Pool(u.chunk_holders, u.chunk_known, lambda chunk: held(state, u.any_job, u.any_block, chunk))
    lost: list[Any] = tier.evict([key(u.any_chunk), key(u.other)])
    fine: Any = True
    for chunk in (u.any_chunk, u.other):
        gone = u.chunk_holders[chunk] == 0
        fine = fine & (tier.host.known[chunk] == either(gone, 0, u.chunk_known[chunk]))
        fine = fine & (tier.host.references[chunk] == u.chunk_holders[chunk])
        was_lost: Any = gone & (u.chunk_known[chunk] != 0)
        fine = fine & implies(was_lost, any(each == u.chunk_known[chunk] for each in lost))
    return fine & (len(lost) <= 2)


EVICT_ALL = SecondTier.evict

FORGETS = Obligation(
    id="second-tier.evicts-what-no-job-holds",
    statements=("KV-TIER-02",),
    title="Of the chunks that are to be evicted, those that no job holds are forgotten, and what they held is "
    "reported; a chunk that a job reads or writes keeps what it is known to hold.",
    unknowns={**ANY_TIER, "other": Count(1)},
    assumes=lambda u: u.any_chunk != u.other,
    claim=_forgets,
    witnesses={
        "one of two is read": lambda u: (
            (u.chunk_holders[u.any_chunk] == 1)
            & (u.chunk_known[u.any_chunk] != 0)
            & (u.chunk_holders[u.other] == 0)
            & (u.chunk_known[u.other] != 0)
        )
    },
    mutants=(
        only(
            "evicts-what-is-read",
            "What a job reads is evicted, too.",
            f"{TIER}.evict",
            lambda self, chunks: [content for chunk in chunks for content in self.host.evict(chunk)],
        ),
        only(
            "stops-at-the-first-that-is-held",
            "Chunks after one that a job holds stay as they are.",
            f"{TIER}.evict",
            lambda self, chunks: EVICT_ALL(self, () if self.host.references[chunks[0]] else chunks),
        ),
    ),
)

OBLIGATIONS = (FENCE, RIGHT, COVERS, EVICTS, STORES_ALL, FORGETS)
