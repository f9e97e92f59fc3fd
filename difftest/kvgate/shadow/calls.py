"""What a live block manager was asked, call by call, with the numbers it was given and what it answered.

Other than the alphabet of ``kvreference.operations``, these say what vLLM's scheduler passed: how many tokens it counts
as computed, placeholders of asynchronous steps included. So the reference follows them as they are, without the
scheduler's assumptions.

``Arriving``, ``Appended`` and ``Decoding`` carry token ids. They pass from the engine to the sidecar and are never
stored: ``kvgate.shadow.salting`` makes ``Arrived``, ``Grew`` and ``Decoded`` of them. A ``Decoded`` holds calls of many
requests; ``expanded`` takes it apart.

None of these can be part of a cycle, so the garbage collector of the engine need not look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
"""Tokens, slots or blocks, or the id of a block. What is read is bounded, for it may come from anywhere."""
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""What only ever grows: requests, steps, milliseconds, tokens that were asked for."""
Seen: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]
"""What a broken engine may count below zero: that is a difference to report."""
MaybeFollowed: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A request by its number; below zero if the shadow does not follow it."""
GROUPS_MAX = 1024
REGISTERED_MAX = 2**14
REQUESTS_MAX = 2**20
Blocks: TypeAlias = Annotated[list[list[Count]], msgspec.Meta(max_length=GROUPS_MAX)]
"""Per group, block ids."""
Nulls: TypeAlias = tuple[Count, ...]
"""How many leading entries are freed, in each group with a window."""


class After(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is cheap to see of the pool after a call."""

    free: Seen
    """How many blocks are free."""
    entries: Count
    """How many contents are cached."""
    tail: tuple[Count, ...]
    """The last blocks of the free queue, the last one first."""


class Registered(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Blocks of a table, from the position ``first`` on, that are known to the cache from now on; 0 for null blocks."""

    group: Count
    first: Count
    blocks: list[Count]


RegisteredRuns: TypeAlias = Annotated[list[Registered], msgspec.Meta(max_length=REGISTERED_MAX)]


class Media(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A multimodal item of a request."""

    identifier: str
    offset_tokens: Count
    length_tokens: Count


class Arriving(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="arriving"):
    """A request is there, with its tokens in clear: not to be stored."""

    number: int
    tokens: bytes
    """Token ids, four bytes each, in the machine's order."""
    prompt_tokens: int
    reads_cache: bool
    salt: str | None = None
    lora: str | None = None
    media: list[Media] = []


class Appended(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="appended"):
    """A request has more tokens, in clear: not to be stored."""

    number: int
    tokens: list[int]


Changing: TypeAlias = tuple[
    Count,
    Blocks,
    Nulls | None,
    Annotated[list[tuple[Count, Count, list[Count]]], msgspec.Meta(max_length=REGISTERED_MAX)],
    tuple[Seen, Count, tuple[Count, ...]],
]
"""Which of the calls of a ``Decoding`` changed the pool, what its tables gained, how many leading entries are freed in
each group with a window if that was read, what was registered (``Registered``), and the pool after it (``After``)."""


class Decoding(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="decoding"):
    """Running requests were given slots, one after the other: nearly all calls of a server. Most change nothing.

    Lists of numbers, because the engine makes them at every step.
    """

    lookahead_tokens: int
    numbers: list[int]
    """The request of each call."""
    computed: list[int]
    slots: list[int]
    """For how many it was asked; empty if it was one in each call."""
    unsure: list[int]
    """Of how many of the computed tokens the step was in flight; empty if the release does not ask."""
    appended: list[int]
    """How many tokens the request gained since its last call; empty if it was one in each call."""
    tokens: list[int]
    """All of these, in clear."""
    after: tuple[int, int, tuple[int, ...]]
    """The pool before the first call."""
    changing: list[Changing]


class SentAsGiven(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="sent-as-given"):
    """What the step sends to the worker of these running requests is what they were given in it."""

    numbers: list[int]


class Arrived(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="arrived"):
    """A request is there. ``digests[i]`` stands for its first ``(i + 1) * grain`` tokens and all they depend on."""

    number: Number
    tokens: Count
    prompt_tokens: Count
    reads_cache: bool
    digests: list[bytes]


class Grew(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="grew"):
    """A request has ``tokens`` tokens now; the digests are those of its newly complete grains."""

    number: Number
    tokens: Count
    digests: list[bytes] = []


class LookedUp(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="looked-up"):
    """The longest hit was asked for."""

    number: Number
    hit_tokens: Count
    blocks: Blocks
    was_preempted: bool


class Gated(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="gated"):
    """It was asked whether all of a waiting request fits."""

    number: Number
    computed: Count
    hit_tokens: Count
    external_tokens: Count
    fits: bool


class Allocated(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="allocated"):
    """Slots were asked for."""

    number: Number
    computed: Count
    """How many tokens the scheduler counted as computed, without the hit."""
    tokens: Count
    hit_tokens: Count
    lookahead_tokens: Count
    external_tokens: Count
    delayed: bool
    """Whether what another node provides comes later, so that nothing is cached now."""
    is_first: bool
    """Whether the request was admitted, and did not run before."""
    given: Blocks | None
    """What the tables gained; the whole tables if ``is_whole``; None if it was rejected."""
    is_whole: bool
    nulls: Nulls | None
    """How many leading entries are freed, in each group with a window; None if that was not read."""
    registered: RegisteredRuns
    after: After
    must_fit: bool = False
    """Whether it was checked in the same call that all of the request fits."""
    reserved: Count = 0
    """How many blocks had to stay free for other requests."""
    unsure: Count = 0
    """Of how many of the computed tokens the step was in flight: what they leave is not released yet."""


class Decoded(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="decoded"):
    """A ``Decoding`` as it is stored: with digests, and without tokens."""

    groups: Annotated[int, msgspec.Meta(ge=1, le=GROUPS_MAX)]
    lookahead_tokens: Count
    numbers: Annotated[list[Number], msgspec.Meta(max_length=REQUESTS_MAX)]
    computed: list[Count]
    slots: list[Count]
    unsure: list[Count]
    appended: list[Count]
    tokens: list[Count]
    """How many tokens each request has now."""
    digests: Annotated[list[tuple[Count, list[bytes]]], msgspec.Meta(max_length=REQUESTS_MAX)]
    """Which of the requests completed grains, and their digests."""
    after: tuple[Seen, Count, tuple[Count, ...]]
    changing: Annotated[list[Changing], msgspec.Meta(max_length=REQUESTS_MAX)]

    def calls(self) -> Iterator[Grew | Allocated]:
        """Each call, and before it what its request gained.

        Raises:
            ValueError: the lists do not fit each other.
        """
        count = len(self.numbers)
        zeros, ones = [0] * count, [1] * count
        columns = self.computed, self.slots or ones, self.unsure or zeros, self.appended or ones, self.tokens
        digests = dict(self.digests)
        changing = {each[0]: each[1:] for each in self.changing}
        is_sound = all(len(each) == count for each in columns) and max((*digests, *changing, -1)) < count
        are_single = (len(digests), len(changing)) == (len(self.digests), len(self.changing))
        if not is_sound or not are_single or not all(columns[3][index] for index in digests):
            raise ValueError("calls that were made together have lists that do not fit each other")
        nothing: Blocks = [[]] * self.groups
        after = After(*self.after)
        for index, (number, computed, slots, unsure, gained, tokens) in enumerate(
            zip(self.numbers, *columns, strict=True)
        ):
            if gained:
                yield Grew(number, tokens, digests.get(index, []))
            given, nulls, registered = nothing, None, list[Registered]()
            if index in changing:
                given, nulls, runs, pool = changing[index]
                registered, after = [Registered(*run) for run in runs], After(*pool)
            asked = number, computed, slots, 0, self.lookahead_tokens, 0, False, False
            yield Allocated(*asked, given, False, nulls, registered, after, unsure=unsure)

    @property
    def records(self) -> int:
        """How many records ``calls`` gives."""
        count = len(self.numbers)
        return count + (sum(map(bool, self.appended)) if self.appended else count)


class Cached(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="cached"):
    """What the first ``tokens`` tokens fill was to be cached."""

    number: Number
    tokens: Count
    registered: RegisteredRuns
    after: After


class Skipped(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="skipped"):
    """Blocks were to be released that no token after the first ``computed`` reads."""

    number: Number
    computed: Count
    nulls: Nulls
    after: After


class Freed(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="freed"):
    """A request gave up its blocks; ``is_over`` if nothing of it follows."""

    number: Number
    is_over: bool
    after: After
    because: str = ""
    """How it ended, in the words of the system; nothing if it did not, or in older recordings."""


class Forgotten(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="forgotten"):
    """The scheduler has forgotten a request, and its blocks were never freed."""

    number: Number
    because: str


class Sent(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="sent"):
    """Block ids that a step sent to the worker; the whole tables if ``is_whole``, and else what they gained."""

    number: Number
    is_whole: bool
    blocks: Blocks
    is_as_given: bool = False
    """Whether they are what the last ``Allocated`` of the step says, and ``blocks`` is left empty."""


class EventRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """KV events of one kind and one group that follow each other."""

    kind: str
    group: Count
    hashes: list[bytes]
    """What the blocks are known by outside. Salted where it is stored."""


class Published(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="published"):
    """The KV events since the last time were taken, to be published."""

    runs: Annotated[list[EventRun], msgspec.Meta(max_length=REGISTERED_MAX)]


_NOT_ERRORS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")


class Raised(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="raised"):
    """A call of the block manager or the scheduler raised."""

    call: str
    error: str
    """The type of the exception. Its text may hold names and tokens, and is not stored."""
    where: str
    """The file and line that raised it, below its package."""
    number: MaybeFollowed = -1
    """The request that the call was about; -1 if there was none, or it is not known."""

    @property
    def is_error(self) -> bool:
        """Whether the engine failed; not if it ends, or rejects a request."""
        return self.error not in _NOT_ERRORS and self.call != "add_request"

    @property
    def headline(self) -> str:
        """What raised what, in a few words."""
        return f"{self.error} in {self.call}" + (f" of request {self.number}" if self.number >= 0 else "")


class Evicted(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="evicted"):
    """Blocks were to be forgotten, in this order."""

    blocks: list[Count]
    after: After


class Reset(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="reset"):
    """Everything was to be forgotten."""

    succeeded: bool
    after: After


class Shared(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="shared"):
    """It was asked how many leading blocks all requests share."""

    number: Number
    blocks: list[Count]


class Counted(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="counted"):
    """The statistics of the prefix cache were taken."""

    requests: Number
    queries_tokens: Number
    hits_tokens: Number
    preempted_requests: Number
    preempted_queries_tokens: Number
    preempted_hits_tokens: Number
    reset: bool


class Step(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="step"):
    """A step of the scheduler begins."""

    number: Number
    since_start_ms: Number


class Standing(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a request stands at a checkpoint, besides its tokens."""

    number: Number
    tables: Blocks
    registered: list[Count]
    """Per group, how many leading blocks were looked at for the cache."""
    holds: bool
    """Whether it has tables at all."""
    junction_tokens: Count = 0
    """Where its prompt parted from what was cached at its last look-up, if that is kept."""


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="checkpoint"):
    """All of a block manager's state: a reader that starts here needs no earlier record."""

    references: list[Seen]
    free: list[Count]
    identities: dict[Count, bytes]
    """What a block that is cached is known by. Salted where it is stored."""
    several: list[Annotated[list[Count], msgspec.Meta(min_length=2)]]
    """The blocks that have one content with others, in the order in which they serve it."""
    standing: Annotated[list[Standing], msgspec.Meta(max_length=REQUESTS_MAX)]
    contents: dict[Count, tuple[Count, bytes]] = {}
    """What a cached block holds: its group, and the digest. The content of missing blocks is unknown."""
    arrivals: Annotated[list[Arrived], msgspec.Meta(max_length=REQUESTS_MAX)] = []
    """The requests alive, with the tokens that they have now."""


class Restart(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="restart"):
    """Between what was before and the checkpoint after this, ``lost`` calls and maybe more were not recorded."""

    lost: Number
    because: str


class Suspended(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="suspended"):
    """From here on nothing can be followed, up to the next restart."""

    because: str


class Stall(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request that makes no progress, and what it waits for."""

    number: MaybeFollowed
    seconds: float
    why: str


class Stalls(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="stalls"):
    """The requests that make no progress now. Passes to the sidecar at any time, and is not part of a recording."""

    requests: list[Stall]
    ended: str = ""
    """Why the stall clocks ended; nothing as long as they run."""


def request_name(number: int) -> str:
    """What a request is called, by its number."""
    return f"request {number}" if number >= 0 else f"unfollowed request {-number}"


class End(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="end"):
    """The engine ended its shadow, and nothing is missing."""


Stored: TypeAlias = (
    Arrived
    | Grew
    | LookedUp
    | Gated
    | Allocated
    | Cached
    | Skipped
    | Freed
    | Forgotten
    | Sent
    | Published
    | Raised
    | Evicted
    | Reset
    | Shared
    | Counted
    | Step
    | Checkpoint
    | Restart
    | Suspended
    | End
)
"""What a recording says, call by call."""
Written: TypeAlias = Decoded | Stored
"""What a recording holds."""
Raw: TypeAlias = Arriving | Appended | Decoding | SentAsGiven | Stalls | Stored
"""What the engine sends to the sidecar."""


def calls_in(records: Sequence[Raw]) -> int:
    """How many calls were made, with those that one record holds together."""
    return sum(len(record.numbers) if isinstance(record, Decoding | SentAsGiven) else 1 for record in records)


def expanded(records: Iterable[Written]) -> Iterator[Stored]:
    """The records, call by call.

    Raises:
        ValueError: the lists of a ``Decoded`` do not fit each other.
    """
    for record in records:
        if isinstance(record, Decoded):
            yield from record.calls()
        else:
            yield record


def records_in(records: Iterable[Written]) -> int:
    """How many records ``expanded`` gives."""
    return sum(record.records if isinstance(record, Decoded) else 1 for record in records)


ENCODER = msgspec.msgpack.Encoder()
RAW = msgspec.msgpack.Decoder(list[Raw])
WRITTEN = msgspec.msgpack.Decoder(list[Written])
STORED = msgspec.msgpack.Decoder(list[Stored])
