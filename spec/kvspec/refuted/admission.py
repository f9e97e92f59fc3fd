"""Refuted: a gate that does not demote, and schedulers that hang, each because one guard is missing.

z3 chooses the sizes: of the queues of real pools, and of blocks that are only counted (``kvspec.progress.counted``).
The schedulers that answer are those of ``kvreference``, over the block manager itself. Every transfer is over before
the next step, except where a replay says that another node continues to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kvreference.answers import Refused
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Operation, Run
from kvreference.pinned_tier import PinnedPool
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.obligation import Count, Obligation
from kvspec.progress.hanging import Course, Shop, in_fact, on_terms
from kvspec.refuted.block_managers import UnguardedGate, UnguardedPool
from kvspec.refuted.replay import Refuted, Replay
from kvspec.refuted.schedulers import (
    FirstIsPreempted,
    FullSequenceWithoutRecycling,
    LoadedIsForgotten,
    LookaheadUnreserved,
    OversizeBlocksQueue,
    ParkedCountAsRunning,
    ReservedForLoadsAlone,
    UnreservedLoad,
)

BLOCKS_MAX = 3
"""How many blocks are free, pinned and asked for at most."""


def filled(pool: PinnedPool, free: int, pinned: int) -> PinnedPool:
    """``pool`` with so many blocks in its two queues, and the others held."""
    taken, _ = pool.take(len(pool.free))
    for block in taken:
        pool.cached.register((0, Prefix(None, f"block {block}", 1)), block)
    pool.release(taken[:free])
    pool.end(taken[free : free + pinned])
    return pool


def _finds_room(u: Any) -> Any:
    pool = filled(UnguardedPool(2 * BLOCKS_MAX + 1, False, 1), u.free.__index__(), u.pinned.__index__())
    return pool.make_room(u.count.__index__(), ()) == (u.count <= u.free + u.pinned)


def _replay(values: Mapping[str, Any]) -> Replay:
    """A request leaves its blocks pinned; the pool has no others but the free ones; another request comes."""
    free, pinned, count = (int(values[name]) for name in ("free", "pinned", "count"))
    settings = Settings(Geometry((Group("full", 1),)), blocks=1 + free + pinned, tokens_max=16, pin_drop_blocks_min=1)
    operations: tuple[Operation, ...] = (
        Arrive(0, (Run(0, pinned),)),
        Admit(0, pinned),
        Finish(0),
        Arrive(1, (Run(100, count),)),
        Admit(1, count),
    )
    design, sound = (_is_rejected(each(settings), operations) for each in (UnguardedGate, Manager))
    return Replay(
        settings,
        operations,
        _describe_admission(design),
        _describe_admission(sound),
        design_fails=design,
        sound_fails=sound,
    )


def _is_rejected(manager: Manager, operations: tuple[Operation, ...]) -> bool:
    *before, last = operations
    for operation in before:
        manager.apply(operation)
    return isinstance(manager.apply(last), Refused)


def _describe_admission(rejected: bool) -> str:
    return "rejected, although no block is held" if rejected else "admitted"


GATES = (
    Refuted(
        "gate-without-demotion",
        "KV-LIVE-01",
        "A gate counts free blocks and never demotes: unused pins keep every request out permanently.",
        Obligation(
            id="refuted.gate-without-demotion",
            statements=("KV-OP-23", "KV-LIVE-01"),
            title="There is room if and only if what is asked for fits into what is free or can be demoted.",
            unknowns={name: Count(0, BLOCKS_MAX) for name in ("free", "pinned", "count")},
            claim=_finds_room,
            witnesses={},
            mutants=(),
            bound=f"up to {BLOCKS_MAX} blocks free, pinned and asked for",
        ),
        _replay,
    ),
)
"""The gate, refuted."""


SIZES_MAX = 4
"""How many blocks and tokens there are at most: each design is refuted within. Fewer where that finds a smaller one."""
FULL = Geometry((Group("full", 1),))
DRAFTING = Geometry((Group("full", 1, lookahead=True),))
WINDOW = Geometry((Group("sliding_window", 1, 2),))


def _describe_course(course: Course) -> str:
    if course.steps == 0:
        return "a request that can never fit is rejected when it is submitted"
    if course.hangs:
        return f"hangs in step {course.steps}: live requests: {course.left}, and nothing to wait for"
    if course.set_back:
        return f"in step {course.steps} the first that runs loses all that it computed, for nothing"
    if course.left:
        return f"waits for the transfer, and the first that runs keeps what it computed, for {course.steps} steps"
    return "all requests end"


def _hang(
    name: str,
    kind: type[Scheduler],
    story: str,
    shop: Shop,
    statement: str = "KV-LIVE-03",
    assumes: Callable[[Any], Any] = lambda _: True,
    sizes_max: int = SIZES_MAX,
) -> Refuted:
    """A scheduler, and the requests with which it hangs."""

    def claim(u: Any) -> bool:
        course = on_terms(shop, u, kind)
        return not course.hangs and not course.set_back

    def replay(values: Mapping[str, Any]) -> Replay:
        sizes = SimpleNamespace(**values)
        design, sound = in_fact(shop, sizes, kind), in_fact(shop, sizes)
        return Replay(
            shop.settings(sizes),
            tuple(design.operations),
            _describe_course(design),
            _describe_course(sound),
            design_fails=design.hangs or design.set_back,
            sound_fails=sound.hangs or sound.set_back,
        )

    obligation = Obligation(
        id=f"refuted.{name}",
        statements=(statement,),
        title="Every step advances a request, unless it waits for a transfer, and never sets back the first.",
        unknowns=shop.unknowns(sizes_max, sizes_max),
        assumes=assumes,
        claim=claim,
        witnesses={},
        mutants=(),
        bound=f"{len(shop.loads)} requests, up to {sizes_max} blocks, and as many tokens and answers each",
    )
    return Refuted(name, statement, story, obligation, replay)


HANGS = (
    _hang(
        "load-unreserved",
        UnreservedLoad,
        "A load is begun if it fits by itself: two of them fill the pool, and neither finds the blocks for the tokens "
        "that it has to compute (vllm-project/vllm#45388).",
        Shop(FULL, (True, True), steps=6),
        assumes=lambda u: (u.external0 < u.tokens0) & (u.external1 < u.tokens1),
    ),
    _hang(
        "load-reserved-for-loads-alone",
        ReservedForLoadsAlone,
        "A load is begun if what is free covers what all loads still need; a request that runs takes it as it grows.",
        Shop(FULL, (False, True), steps=8, chunk_tokens=2),
        sizes_max=2,
    ),
    _hang(
        "lookahead-unreserved",
        LookaheadUnreserved,
        "What is needed is counted without speculation: loads fill the pool, and none gets its look-ahead slots "
        "(vllm-project/vllm#57104).",
        Shop(DRAFTING, (True, True), steps=6, drafts=1),
    ),
    _hang(
        "oversize-accepted",
        OversizeBlocksQueue,
        "Every request is accepted: one that can never fit stays at the head of the queue permanently "
        "(vllm-project/vllm#35570).",
        Shop(FULL, (False,), steps=6),
        statement="KV-LIVE-01",
    ),
    _hang(
        "window-counted-whole",
        FullSequenceWithoutRecycling,
        "A window is counted as if it kept all that it ever held: an accepted request is never admitted "
        "(vllm-project/vllm#39734).",
        Shop(WINDOW, (False,), steps=6),
        statement="KV-LIVE-01",
    ),
    _hang(
        "parked-counts-as-running",
        ParkedCountAsRunning,
        "A request that holds blocks counts as running: one that has loaded keeps itself from running "
        "(vllm-project/vllm#53130).",
        Shop(FULL, (True,), steps=6, running_max=1),
    ),
    _hang(
        "loaded-is-forgotten",
        LoadedIsForgotten,
        "A request that waited for a transfer is not looked at again (vllm-project/vllm-ascend#10559).",
        Shop(FULL, (True,), steps=6),
    ),
    _hang(
        "first-preempted",
        FirstIsPreempted,
        "The only running request frees its blocks when a transfer holds what it needs, and computes all again.",
        Shop(FULL, (False, False), steps=8, chunk_tokens=2, sends=True),
        statement="KV-LIVE-02",
        sizes_max=2,
    ),
)
"""Schedulers, refuted."""
