"""What a live block manager was asked, call by call, with the numbers it was given and what it answered.

Other than the alphabet of ``kvreference.operations``, these say what vLLM's scheduler passed: how many tokens it counts
as computed, placeholders of asynchronous steps included. So the reference follows them as they are, whatever the
scheduler counted on.

``Arriving`` and ``Appended`` carry token ids. They pass from the engine to the process beside it and are never stored:
``kvgate.shadow.salted`` makes ``Arrived`` and ``Grew`` of them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Blocks: TypeAlias = list[list[int]]
"""Per group, block ids."""


class After(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is cheap to see of the pool after a call."""

    free: int
    """How many blocks are free."""
    entries: int
    """How many contents are cached."""
    tail: tuple[int, ...]
    """The last blocks of the free queue, the last one first."""


class Registered(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Blocks of a table, from the position ``first`` on, that are known to the cache from now on; 0 for null blocks."""

    group: int
    first: int
    blocks: list[int]


class Media(msgspec.Struct, array_like=True, frozen=True):
    """A multimodal item of a request."""

    identifier: str
    offset_tokens: int
    length_tokens: int


class Arriving(msgspec.Struct, array_like=True, frozen=True, tag="arriving"):
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


class Arrived(msgspec.Struct, array_like=True, frozen=True, tag="arrived"):
    """A request is there. ``digests[i]`` stands for its first ``(i + 1) * grain`` tokens and all they depend on."""

    number: int
    tokens: int
    prompt_tokens: int
    reads_cache: bool
    digests: list[bytes]


class Grew(msgspec.Struct, array_like=True, frozen=True, tag="grew"):
    """A request has ``tokens`` tokens now; the digests are those of its newly complete grains."""

    number: int
    tokens: int
    digests: list[bytes] = []


class LookedUp(msgspec.Struct, array_like=True, frozen=True, tag="looked-up"):
    """The longest hit was asked for."""

    number: int
    hit_tokens: int
    blocks: Blocks
    was_preempted: bool


class Gated(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="gated"):
    """It was asked whether all of a waiting request fits."""

    number: int
    computed: int
    hit_tokens: int
    external_tokens: int
    fits: bool


class Allocated(msgspec.Struct, array_like=True, frozen=True, tag="allocated"):
    """Slots were asked for."""

    number: int
    computed: int
    """How many tokens the scheduler counted as computed, without the hit."""
    tokens: int
    hit_tokens: int
    lookahead_tokens: int
    external_tokens: int
    delayed: bool
    """Whether what another node provides comes later, so that nothing is cached now."""
    is_first: bool
    """Whether the request was let in, and did not run before."""
    given: Blocks | None
    """What the tables gained; the whole tables if ``is_whole``; None if it was refused."""
    is_whole: bool
    nulls: tuple[int, ...]
    """How many leading entries are given up, in each group with a window."""
    registered: list[Registered]
    after: After


class Cached(msgspec.Struct, array_like=True, frozen=True, tag="cached"):
    """What the first ``tokens`` tokens fill was to be cached."""

    number: int
    tokens: int
    registered: list[Registered]
    after: After


class Skipped(msgspec.Struct, array_like=True, frozen=True, tag="skipped"):
    """Blocks were to be released that no token behind the first ``computed`` reads."""

    number: int
    computed: int
    nulls: tuple[int, ...]
    after: After


class Freed(msgspec.Struct, array_like=True, frozen=True, tag="freed"):
    """A request gave up its blocks; ``is_over`` if nothing of it follows."""

    number: int
    is_over: bool
    after: After


class Evicted(msgspec.Struct, array_like=True, frozen=True, tag="evicted"):
    """Blocks were to be forgotten, in this order."""

    blocks: list[int]
    after: After


class Reset(msgspec.Struct, array_like=True, frozen=True, tag="reset"):
    """Everything was to be forgotten."""

    succeeded: bool
    after: After


class Shared(msgspec.Struct, array_like=True, frozen=True, tag="shared"):
    """It was asked how many leading blocks everybody shares."""

    number: int
    blocks: list[int]


class Counted(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="counted"):
    """The statistics of the prefix cache were taken."""

    requests: int
    queries_tokens: int
    hits_tokens: int
    preempted_requests: int
    preempted_queries_tokens: int
    preempted_hits_tokens: int
    reset: bool


class Step(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="step"):
    """A step of the scheduler begins."""

    number: int
    since_start_ms: int


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """Where a request stands at a checkpoint, besides its tokens."""

    number: int
    tables: Blocks
    registered: list[int]
    """Per group, how many leading blocks were looked at for the cache."""
    holds: bool
    """Whether it has tables at all."""


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, tag="checkpoint"):
    """All of a block manager's state: who starts to read here needs nothing that was before."""

    references: list[int]
    free: list[int]
    identities: dict[int, bytes]
    """What a block that is cached is known by. Salted where it is stored."""
    several: Blocks
    """The blocks that have one content with others, in the order in which they serve it."""
    standing: list[Standing]
    contents: dict[int, tuple[int, bytes]] = {}
    """What a cached block holds: its group, and the digest. Those that are missing nobody knows."""
    arrivals: list[Arrived] = []
    """The requests alive, with the tokens that they have now."""


class Restart(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="restart"):
    """Between what was before and the checkpoint behind this, ``lost`` calls and maybe more were not recorded."""

    lost: int
    because: str


class Suspended(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="suspended"):
    """From here on nothing can be followed, up to the next restart."""

    because: str


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
"""What a recording holds."""
Raw: TypeAlias = Arriving | Appended | Stored
"""What the engine tells the process beside it."""

ENCODER = msgspec.msgpack.Encoder()
RAW = msgspec.msgpack.Decoder(list[Raw])
STORED = msgspec.msgpack.Decoder(list[Stored])
