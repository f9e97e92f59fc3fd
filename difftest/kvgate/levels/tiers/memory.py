"""Ghost memory of two tiers: what each slot on the device and each chunk on the host holds, and which jobs use them.

A job reads and writes from the moment in which the worker begins it until it ends. The content of a slot is the prefix
up to its token, so two slots hold the same if and only if they may stand for each other. A block of states has one
slot, which holds the prefix up to the last token that went into the state. What a key of the tier names
is known from the requests whose block hashes it was made of, and not from the tier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.text import counted
from kvgate.levels.tiers.files import FileJob, Folder, Key, Written
from kvgate.monitors.slot_memory import first_read, states_written
from kvreference.geometry import Group
from kvreference.settings import Settings

Content: TypeAlias = tuple[int, tuple[int | None, ...]]
"""A group, and the prefix up to the token in each slot; None where nothing was written."""
Number: TypeAlias = tuple[int, int, int]
"""A job: its tier, its number there, and which of the jobs it is that end together."""


class Prefixes:
    """Prefixes by number: two are one number if and only if they are the same tokens under the same salt."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, int], int] = {}
        self._before: list[tuple[object, int]] = []
        """Of each prefix the one before its last token, and that token."""

    def after(self, prefix: object, token: int) -> int:
        """The prefix extended by a token."""
        number = self._numbers.setdefault((prefix, token), len(self._before))
        if number == len(self._before):
            self._before.append((prefix, token))
        return number

    def origin(self, prefix: int) -> object:
        """What a prefix begins with: a salt, or a load that failed."""
        at: object = prefix
        while isinstance(at, int):
            at = self._before[at][0]
        return at

    def length(self, prefix: int) -> int:
        """How many tokens a prefix has."""
        return len(self.last(prefix, len(self._before)))

    def tokens(self, prefix: int) -> list[int]:
        """The tokens of a prefix, whatever it begins with, the last one first."""
        found: list[int] = []
        at: object = prefix
        while isinstance(at, int):
            at, token = self._before[at]
            found.append(token)
        return found

    def last(self, prefix: int, tokens: int) -> tuple[int, ...]:
        """The prefixes up to each of the last tokens of one, in order."""
        found: list[int] = []
        at: object = prefix
        while len(found) < tokens and isinstance(at, int):
            found.append(at)
            at = self._before[at][0]
        return tuple(reversed(found))


def _slots(group: Group, prefixes: Sequence[int], place: int) -> tuple[int, ...]:
    """What the block at a place holds of these tokens: the prefix up to each, or the state after the last."""
    size = group.block_size_tokens
    slots = tuple(prefixes[place * size : (place + 1) * size])
    return slots[-1:] if group.keeps_states else slots


def _prefixes(named: Content | None) -> tuple[int, ...]:
    """What a key names of a block, slot by slot."""
    return () if named is None else tuple(each for each in named[1] if each is not None)


def _has(held: Content | None, named: Content) -> bool:
    """Whether a block holds what is named; after that it may hold more."""
    return held is not None and held[0] == named[0] and held[1][: len(named[1])] == named[1]


@frozen
class Copy:
    """One block of a job: between a block of the device, and a part of a chunk on the host."""

    group: int
    block: int
    chunk: int
    part: int
    index: int
    """The place of the block in its request."""


@define
class Job:
    """A transfer."""

    number: Number
    loads: bool
    request: str
    copies: Sequence[Copy]
    keys: Mapping[int, tuple[bytes, int]]
    """What each chunk stands for: the hash of its last block, and the group."""
    reset_at: int | None = None
    """See ``TierMemory.reset_at``: of its request, when the scheduler made the job."""
    left: Sequence[int] = ()
    """See ``TierMemory.left``: of its request, when the scheduler made the job."""
    is_done: bool = False

    @property
    def tier(self) -> int:
        return self.number[0]

    @property
    def words(self) -> str:
        return f"{'load' if self.loads else 'store'} job {self.number[1]} of {self.request}"


@define(eq=False)
class Failure:
    """A load of a request that has not brought what it was to bring."""

    request: str
    is_reported: bool = False
    """Whether the worker's half has reported it."""
    is_known: bool = False
    """Whether the scheduler has taken the report."""
    is_late: bool = False
    """Whether its request had freed its blocks by then."""


@frozen(eq=False)
class Computed:
    """What a request computed from what a failed load left."""

    failure: Failure
    request: str


@define
class Claim:
    """A request continues from what a load is to bring."""

    tokens: int
    """How many tokens are then computed."""
    tables: Sequence[Sequence[int]]
    first: int = 0
    """How many tokens the request hit on the device, which the load does not bring."""
    failure: Failure | None = None
    """What the load is until it brings something, where only that shows that it ends."""

    def brings(self, group: int, place: int, block: int, size: int) -> bool:
        """Whether the load is to bring this block to that place of the request."""
        table = self.tables[group]
        is_of_it = self.first <= place * size < self.tokens
        return block != 0 and is_of_it and place < len(table) and table[place] == block


@frozen
class Misread:
    """What a step is to read of a request and reads, where these differ."""

    expected: str
    got: str
    group: int
    place: int
    block: int
    origin: object = None
    """The failed load that left it, or what was computed from that."""
    request: str = ""
    """The request that reads it."""
    claim: Claim | None = None
    """What a load was to bring that request for this step."""

    @property
    def computed_by(self) -> str:
        """The request that computed it from what the load left; empty if the load left it."""
        return self.origin.request if isinstance(self.origin, Computed) else ""

    @property
    def failure(self) -> Failure | None:
        """The failed load that it goes back to."""
        origin = self.origin.failure if isinstance(self.origin, Computed) else self.origin
        return origin if isinstance(origin, Failure) else None


@frozen
class StepUse:
    """The blocks that a step uses."""

    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()


@define
class TierMemory:
    """Both tiers, and the jobs under way. ``found`` is the first violation."""

    settings: Settings
    blocks_per_chunk: int
    prefixes: Prefixes = field(factory=Prefixes)
    device: MutableMapping[int, Content] = field(factory=dict)
    host: MutableMapping[tuple[int, int, int], Content] = field(factory=dict)
    """By tier, chunk and part."""
    brought: dict[int, Job] = field(factory=dict)
    """By block of the device, the load that brought what it holds, unless something else was written there since."""
    folder: Folder | None = None
    """The files of the tier below, if there is one."""
    engine: int = 0
    """Which of the engines over that folder this is."""
    file_jobs: dict[int, FileJob] = field(factory=dict)
    """Those between files and the host that are not known to have ended, in the order in which they began."""
    jobs: dict[Number, Job] = field(factory=dict)
    """Those under way, in the order in which they began."""
    lost: set[Number] = field(factory=set)
    """Those of them that never end: not before every request has ended that does not wait for one."""
    waited_for: str = ""
    """The first of them for which the engine waits as a whole, in words."""
    tokens: dict[str, list[int]] = field(factory=dict)
    """The prefix up to each token of each request, as far as the worker knows them."""
    names: dict[bytes, int] = field(factory=dict)
    """Which prefix each block hash stands for."""
    claims: dict[str, Claim] = field(factory=dict)
    loaded: dict[str, int] = field(factory=dict)
    """Of each request whose claim a load has met: the tokens that then counted as computed."""
    reset_at: dict[str, int] = field(factory=dict)
    """Of each request that has run on since the last reset of the connector's cache: its tokens computed then."""
    left: Callable[[str], Sequence[int]] = field(default=lambda _request: ())
    """Of a request, how many of the first places of each group its window has left."""
    in_flight: Sequence[StepUse] = ()
    """The step that may not have ended, and the one that runs."""
    left_out: set[tuple[int, int, int]] = field(factory=set)
    """The parts of chunks that the store which began last did not bring."""
    found: Difference | None = None
    culprits: tuple[tuple[Job, Copy], ...] = ()
    """Which copies of which jobs show it, if some do."""
    unfit: str = ""
    """The request of the job of which blocks and chunks do not fit, if that shows it."""
    taken: Content | None = None
    """What the block of a store held, if that shows it: a step may have written there since."""
    shown_by: Misread | None = None
    """What was read that shows it, if that does."""
    blocks_loaded: int = 0
    blocks_stored: int = 0

    def _find(self, statement: str, subject: str, expected: str, got: str, *culprits: tuple[Job, Copy]) -> None:
        if self.found is None:
            self.found, self.culprits = Difference(statement, subject, expected, got), culprits

    # Names

    def name(self, block_hash: bytes, prefix: int) -> None:
        """A block hash stands for a prefix."""
        known = self.names.setdefault(block_hash, prefix)
        if known != prefix:
            self._find("KV-OP-09", "a block hash", "one prefix", "two prefixes")

    def _named(self, key: tuple[bytes, int], part: int) -> Content | None:
        """What a part of the chunk with this key is to hold; None if no request has such a hash."""
        block_hash, group = key
        if block_hash not in self.names:
            return None
        kind, prefix = self._group(group), self.names[block_hash]
        # The hash of a part of a block names the tokens before its end.
        tokens = (self.prefixes.length(prefix) - 1) % (kind.block_size_tokens * self.blocks_per_chunk) + 1
        return group, _slots(kind, self.prefixes.last(prefix, tokens), part)

    def _group(self, index: int) -> Group:
        return self.settings.geometry.groups[index]

    # The device

    def copy(self, source: int, destination: int) -> None:
        """The worker copies a block."""
        self._check_unused(destination, "is copied to")
        self.brought.pop(destination, None)
        if source in self.device:
            self.device[destination] = self.device[source]

    def clear(self, block: int) -> None:
        """The worker clears a block."""
        self._check_unused(block, "is cleared")
        self.brought.pop(block, None)
        self.device.pop(block, None)

    def write(self, group: int, table: Sequence[int], first: int, prefixes: Sequence[int]) -> None:
        """A step writes tokens of a request, the first of which has this place in it."""
        size = self.settings.geometry.groups[group].block_size_tokens
        at = first
        while at < first + len(prefixes):
            place, slot = divmod(at, size)
            count = min(size - slot, first + len(prefixes) - at)
            if place >= len(table) or table[place] == 0:
                self._find("KV-MEM-02", f"group {group}, token {at}", "a slot of its own", "no block")
                return
            block = table[place]
            self._check_unused(block, "is written by a step", slot)
            self.brought.pop(block, None)
            had = self.device.get(block)
            slots: list[int | None] = list(had[1]) if had is not None and had[0] == group else [None] * size
            slots[slot : slot + count] = prefixes[at - first : at - first + count]
            self.device[block] = group, tuple(slots)
            at += count

    def write_states(
        self, group: int, table: Sequence[int], start: int, prefixes: Sequence[int], passing: bool
    ) -> None:
        """A step writes the state after the last of the prefixes; see ``states_written``."""
        for place, token in states_written(self._group(group), start, len(prefixes), passing):
            block = table[place] if place < len(table) else 0
            if block:
                self._check_unused(block, "is written by a step")
                self.brought.pop(block, None)
                self.device[block] = group, (prefixes[token],)
            elif token + 1 == len(prefixes):
                self._find("KV-MEM-02", f"group {group}, the state after token {token}", "a block of its own", "none")

    def wrong_state(self, group: int, table: Sequence[int], prefixes: Sequence[int]) -> Misread | None:
        """What is read instead of the state after the last of the prefixes; None if that is there."""
        if not prefixes:
            return None
        place = (len(prefixes) - 1) // self._group(group).block_size_tokens
        block = table[place] if place < len(table) else 0
        held = self.device.get(block) if block else None
        expected = (prefixes[-1],)
        if held == (group, expected):
            return None
        expects = f"the state after token {len(prefixes) - 1} in block {block}"
        return Misread(expects, self._words(held, expected), group, place, block)

    def wrong(self, group: int, table: Sequence[int], first: int, prefixes: Sequence[int]) -> Misread | None:
        """What a step is to read and reads that computes a request from ``first`` on; None if that is the same.

        The prefixes end with the last token that it computes.
        """
        lowest = first_read(self.settings.geometry.groups[group], first)
        return self._wrong(group, table, lowest, prefixes)

    def misread(self, request: str, wrong: Misread, claim: Claim | None = None) -> None:
        """What a request read was wrong; ``claim`` is what a load was to bring it."""
        if self.found is not None:
            return
        statement, subject = "KV-MEM-01", f"what {request} reads in group {wrong.group}"
        if claim is not None and self.came(wrong, claim):
            # What goes back to the failure of another load was stored.
            statement = "KV-TIER-01" if wrong.failure in (None, claim.failure) else "KV-TIER-04"
            subject = f"what a load of {request} brings to group {wrong.group}"
        self.shown_by = evolve(wrong, request=request, claim=claim)
        self._find(statement, subject, wrong.expected, wrong.got)

    def counts(self, request: str, wrong: Misread) -> None:
        """The scheduler took what a request computed from a failed load, although it had the report by then."""
        if self.found is None:
            self.shown_by = evolve(wrong, request=request)
            subject = f"what a step computed of {request} from {wrong.got}"
            self._find("KV-SYS-02", subject, "it is thrown away", "it counts")

    def came(self, wrong: Misread, claim: Claim) -> bool:
        """Whether it is what a load brought, of which no report says that it failed."""
        size = self.settings.geometry.groups[wrong.group].block_size_tokens
        is_reported = wrong.failure is not None and wrong.failure is claim.failure and wrong.failure.is_reported
        return claim.brings(wrong.group, wrong.place, wrong.block, size) and not is_reported

    # Loads that fail

    def expect(self, request: str, claim: Claim) -> None:
        """A load is to bring what a request claims. Until it does, its blocks hold nothing that may be read."""
        claim.failure = Failure(request)
        self.claims[request] = claim
        for group in range(len(claim.tables)):
            self.spoil(group, claim.tables[group], claim.first, claim.tokens, claim.failure)

    def fail(self, blocks: Collection[int], requests: Collection[str]) -> list[Failure]:
        """The worker's half reports that nothing valid came to these blocks, or to these requests."""
        failures = []
        for name, claim in self.claims.items():
            for group, table in enumerate(claim.tables):
                size = self.settings.geometry.groups[group].block_size_tokens
                for place, block in enumerate(table):
                    if (
                        claim.failure
                        and claim.brings(group, place, block, size)
                        and (block in blocks or name in requests)
                    ):
                        claim.failure.is_reported = True
                        failures.append(claim.failure)
                        self.spoil(group, table, place * size, (place + 1) * size, claim.failure)
        return failures

    def spoil(self, group: int, table: Sequence[int], first: int, end: int, origin: Failure | Computed) -> None:
        """The slots of these tokens hold what a failed load left, or what was computed from that."""
        size = self.settings.geometry.groups[group].block_size_tokens
        for at in range(first, end):
            block = table[at // size] if at // size < len(table) else 0
            if block:
                had = self.device.get(block)
                slots: list[int | None] = list(had[1]) if had is not None and had[0] == group else [None] * size
                slots[at % size] = self.prefixes.after(origin, at)
                self.device[block] = group, tuple(slots)

    def _wrong(self, group: int, table: Sequence[int], first: int, prefixes: Sequence[int]) -> Misread | None:
        """What is expected and what is got, where a table does not hold the tokens of a request from ``first`` on."""
        size = self.settings.geometry.groups[group].block_size_tokens
        for place in range(first // size, -(-len(prefixes) // size)):
            low, high = max(first, place * size), min(len(prefixes), (place + 1) * size)
            block = table[place] if place < len(table) else 0
            held = self.device.get(block) if block else None
            expected = tuple(prefixes[low:high])
            if held is None or held[0] != group or held[1][low % size : low % size + high - low] != expected:
                expects, origin = f"its own tokens {low} to {high - 1} in block {block}", None
                if held is not None:
                    slots = held[1][low % size : low % size + high - low]
                    origins = [self.prefixes.origin(slot) for slot in slots if slot is not None]
                    origin = next((each for each in origins if isinstance(each, Failure | Computed)), None)
                return Misread(expects, self._words(held, expected, origin), group, place, block, origin)
        return None

    def _words(self, held: Content | None, expected: tuple[int, ...], origin: object = None) -> str:
        if held is None:
            return "nothing was written there"
        if isinstance(origin, Computed):
            return f"what {origin.request} computed from a load of {origin.failure.request} that failed"
        if isinstance(origin, Failure):
            reported = (
                "that failed" if origin.is_reported else "that brought nothing, and was not reported to have failed"
            )
            return f"what a load of {origin.request} left {reported}"
        if self._group(held[0]).keeps_states:
            tokens = 0 if held[1][0] is None else self.prefixes.length(held[1][0])
            return f"group {held[0]}, the state after {tokens} tokens"
        right = sum(each in held[1] for each in expected)
        return f"group {held[0]}, {right} of these {len(expected)} tokens"

    def _check_unused(self, block: int, what: str, slot: int = 0) -> None:
        for job in self.jobs.values():
            for each in job.copies:
                if each.block == block and (job.loads or slot < self._slots_named(job, each)):
                    verb = "writes" if job.loads else "reads"
                    got = f"{job.words} {verb} it"
                    self._find("KV-TIER-02", f"a block that {what}", "no job uses it", got, (job, each))
                    return

    def _slots_named(self, job: Job, copy: Copy) -> int:
        """How many slots of a block are for its key: what a store takes after them is of no use."""
        size = self._group(copy.group).block_size_tokens
        named = self._named(job.keys[copy.chunk], copy.part) if copy.chunk in job.keys else None
        return size if named is None or self._group(copy.group).keeps_states else len(named[1])

    # Jobs

    def misfit(self, loads: bool, got: str, request: str = "") -> None:
        """A job of a request does not say of each block which chunk it goes to or comes from, and by which key."""
        statement, kind = ("KV-TIER-01", "load") if loads else ("KV-TIER-04", "store")
        self.unfit = self.unfit if self.found else request
        self._find(statement, f"the blocks of a {kind}", "a part of a chunk for each, and a key for each chunk", got)

    def check_unordered(self, blocks: Iterable[int], loads: bool) -> None:
        """A job begins that waits for no step: those in flight may run at the same time."""
        used = frozenset().union(*(step.reads if loads else step.writes for step in self.in_flight))
        early = sorted(used.intersection(blocks))
        if early and loads:
            subject, got = "a block that a load writes at once", f"a step reads block {early[0]}"
            self._find("KV-TIER-02", subject, "no step in flight uses it", got)
        elif early:
            subject, got = "a block that a store reads at once", f"a step writes block {early[0]}"
            self._find("KV-TIER-04", subject, "the steps that write it have ended", got)

    def place_of(self, request: str, group: int, block: int) -> int:
        """The place of a block in a request that a load is to bring it to; the place after its last if it has none."""
        table = self.claims[request].tables[group] if request in self.claims else ()
        return table.index(block) if block in table else len(self.tokens.get(request, ()))

    def begin(self, job: Job) -> None:
        """The worker begins a job."""
        for other in self.jobs.values():
            for mine in job.copies:
                for theirs in other.copies:
                    is_chunk = (job.tier, mine.chunk, mine.part) == (other.tier, theirs.chunk, theirs.part)
                    if (mine.block == theirs.block and (job.loads or other.loads)) or (
                        is_chunk and not (job.loads and other.loads)
                    ):
                        tier = "chunk of the host" if is_chunk else "block of the device"
                        kind = "load" if job.loads else "store"
                        self._find(
                            "KV-TIER-02",
                            f"a {tier} that a {kind} uses",
                            "no other job's",
                            other.words,
                            (other, theirs),
                            (job, mine),
                        )
        if self.file_jobs:
            what = f"a chunk of the host that a {'load' if job.loads else 'store'} uses"
            self._check_files(job.keys, not job.loads, what, *((job, each) for each in job.copies))
        if not job.loads:
            parts = {(job.tier, each.chunk, each.part) for each in job.copies}
            of_chunks = {(job.tier, chunk, part) for chunk in job.keys for part in range(self.blocks_per_chunk)}
            self.left_out = (self.left_out - parts) | (of_chunks - parts)
            for each in job.copies:
                self._check_stored(job, each)
        self.jobs[job.number] = job

    def _check_stored(self, job: Job, copy: Copy) -> None:
        named = self._named(job.keys[copy.chunk], copy.part)
        held = self.device.get(copy.block)
        if named is None or named[0] != copy.group:
            self._find("KV-TIER-04", "the key of a stored chunk", "a prefix of a request", "none")
        elif not _has(held, named):
            expected = _prefixes(named)
            subject, got = f"what a store takes of group {copy.group}", self._words(held, expected)
            self.taken = self.taken if self.found else held
            self._find("KV-TIER-04", subject, f"{counted(len(expected), 'slot')} that its key names", got, (job, copy))

    def end(self, number: Number) -> None:
        """A job ends: what it copies has arrived."""
        job = self.jobs.pop(number)
        job.is_done = True
        for each in job.copies:
            if not job.loads:
                self.blocks_stored += 1
                held = self.device.get(each.block)
                if held is None:
                    self.host.pop((job.tier, each.chunk, each.part), None)
                else:
                    self.host[job.tier, each.chunk, each.part] = held
                continue
            self.blocks_loaded += 1
            self.brought[each.block] = job
            content = self.host.get((job.tier, each.chunk, each.part))
            self._check_loaded(job, each, content)
            if content is None:
                self.device.pop(each.block, None)
            else:
                self.device[each.block] = content
        if job.loads and job.request in self.claims:
            self._check_claim(job, self.claims[job.request])
            if self.found is None:
                self.loaded[job.request] = self.claims.pop(job.request).tokens

    def _check_loaded(self, job: Job, copy: Copy, content: Content | None) -> None:
        if copy.chunk not in job.keys:
            # Another node sends it, which knows no keys.
            return
        named = self._named(job.keys[copy.chunk], copy.part)
        expected = _prefixes(named)
        if named is None or not _has(content, named):
            subject = f"what a load brings to group {copy.group}"
            self._find("KV-TIER-01", subject, "what its key names", self._words(content, expected), (job, copy))
            return
        size = self.settings.geometry.groups[copy.group].block_size_tokens
        first, prefixes = copy.index * size, self.tokens[job.request]
        ends = prefixes.index(expected[-1]) + 1 if expected[-1] in prefixes[first : first + size] else 0
        if named != (copy.group, _slots(self._group(copy.group), prefixes[:ends], copy.index)):
            subject = f"where a load goes in group {copy.group}"
            self._find("KV-TIER-01", subject, "tokens of its request", "others", (job, copy))

    def _check_claim(self, job: Job, claim: Claim) -> None:
        for group, table in enumerate(claim.tables):
            prefixes = self.tokens[job.request][: claim.tokens]
            if self._group(group).keeps_states:
                wrong = self.wrong_state(group, table, prefixes)
            else:
                wrong = self._wrong(group, table, first_read(self._group(group), claim.tokens), prefixes)
            if wrong is not None:
                subject = f"what a hit of the tier brings in group {group}"
                self._find("KV-TIER-03", subject, wrong.expected, wrong.got, *((job, each) for each in job.copies))

    # Files

    def begin_file(self, job: FileJob) -> None:
        """A job begins to bring files to the host, or to write files."""
        what = f"a chunk of the host that a {'read' if job.reads else 'write'} of files uses"
        self._check_files(job.keys, job.reads, what)
        for other in self.jobs.values():
            if job.keys.keys() & other.keys.keys() and (job.reads or not other.loads):
                concerned = ((other, each) for each in other.copies if each.chunk in job.keys)
                self._find("KV-TIER-02", what, "no other job's", other.words, *concerned)
        for chunk, key in job.keys.items():
            for part in range(0 if job.reads else self.blocks_per_chunk):
                if (0, chunk, part) not in self.left_out:
                    self._check_file("KV-TIER-04", "what a file is written from", key, part, chunk)
        self.file_jobs[job.number] = job

    def _check_files(self, chunks: Collection[int], writes_host: bool, what: str, *culprits: tuple[Job, Copy]) -> None:
        for each in self.file_jobs.values():
            if (writes_host or each.reads) and each.keys.keys() & set(chunks):
                self._find("KV-TIER-02", what, "no other job's", each.words, *culprits)

    def _check_file(self, statement: str, subject: str, key: Key, part: int, chunk: int) -> None:
        named, held = self._named(key, part), self.host.get((0, chunk, part))
        if named is None or held != named:
            expected = _prefixes(named)
            self._find(statement, f"{subject} for group {key[1]}", "what its key names", self._words(held, expected))

    def wrote(self, job: FileJob, files: Collection[Key]) -> None:
        """The disk has done what a job asks for, or not; ``files`` are those of its files that are there now."""
        folder = self._below
        for chunk, key in job.keys.items():
            if key not in files:
                folder.written.pop(key, None)
            elif not job.reads and key not in folder.written:
                left_out = frozenset(part for _, at, part in self.left_out if at == chunk)
                folder.written[key] = Written(left_out, self.engine)
                folder.chunks_written += 1

    def end_file(self, number: int, done: Collection[Key] | None) -> None:
        """The tier says that a job has ended, and with which files; None: with all."""
        job, folder = self.file_jobs.pop(number), self._below
        if not job.reads:
            folder.writes_failed += done is not None
            return
        folder.reads_failed += done is not None
        for chunk, key in job.keys.items():
            if done is not None and key not in done:
                continue
            written = folder.written.get(key)
            if written is None:
                self._find("KV-TIER-01", "what a read of files brings", "a file", "there is none")
                return
            folder.chunks_read += 1
            folder.chunks_read_of_others += written.by != self.engine
            self.left_out -= {(0, chunk, part) for part in range(self.blocks_per_chunk)}
            self.left_out |= {(0, chunk, part) for part in written.left_out}
            for part in set(range(self.blocks_per_chunk)) - written.left_out:
                self._check_file("KV-TIER-01", "what a read of a file brings to the host", key, part, chunk)

    @property
    def _below(self) -> Folder:
        assert self.folder is not None, "there is a tier of files"
        return self.folder

    def under_way(self, loads: bool, tier: int | None = None) -> Iterator[Number]:
        """The jobs of one direction, of one tier or of all, in the order in which they began, but those that never
        end."""
        jobs = [job for job in self.jobs.values() if job.number not in self.lost]
        return (job.number for job in jobs if job.loads == loads and tier in (None, job.tier))
