"""Refuted: schedulers that hang, each for want of one guard.

z3 chooses the sizes, over blocks that are only counted (``kvspec.progress.counted``); the schedulers that answer are
those of ``kvreference``, over the block manager itself. Every transfer is over before the next step, but where it says
that another node goes on reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kvreference.geometry import Geometry, Group
from kvreference.refuted.scheduling import (
    FirstIsPreempted,
    FullSequenceWithoutRecycling,
    LoadedIsForgotten,
    LookaheadUnreserved,
    OversizeBlocksQueue,
    ParkedCountAsRunning,
    ReservedForLoadsAlone,
    UnreservedLoad,
)
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import Obligation
from kvspec.progress.hanging import Course, Shop, in_fact, on_terms
from kvspec.refuted.replay import Refuted, Replay

SIZES_MAX = 4
"""How many blocks and tokens there are at most: each design is refuted within. Fewer where that finds a smaller one."""
FULL = Geometry((Group("full", 1),))
DRAFTING = Geometry((Group("full", 1, lookahead=True),))
WINDOW = Geometry((Group("sliding_window", 1, 2),))


def _told(course: Course) -> str:
    if course.steps == 0:
        return "what can never fit is refused when it is submitted"
    if course.hangs:
        return f"hangs in step {course.steps}: requests in line: {course.left}, and nothing to wait for"
    if course.set_back:
        return f"in step {course.steps} the first that runs loses all that it computed, for nothing"
    if course.left:
        return f"waits for the transfer, and the first that runs keeps what it computed, for {course.steps} steps"
    return "everybody ends"


def _hang(
    name: str,
    kind: type[Scheduler],
    story: str,
    shop: Shop,
    statement: str = "KV-LIVE-03",
    given: Callable[[Any], Any] = lambda _: True,
    sizes_max: int = SIZES_MAX,
) -> Refuted:
    """A scheduler, and the requests with which it hangs."""

    def shows(u: Any) -> bool:
        course = on_terms(shop, u, kind)
        return not course.hangs and not course.set_back

    def replay(values: Mapping[str, Any]) -> Replay:
        sizes = SimpleNamespace(**values)
        design, sound = in_fact(shop, sizes, kind), in_fact(shop, sizes)
        return Replay(
            shop.settings(sizes),
            tuple(design.operations),
            _told(design),
            _told(sound),
            design_fails=design.hangs or design.set_back,
            sound_fails=sound.hangs or sound.set_back,
        )

    obligation = Obligation(
        id=f"refuted.{name}",
        statements=(statement,),
        sentence="Every step brings somebody on, unless a transfer is waited for, and never sets back the first.",
        unknowns=shop.unknowns(sizes_max, sizes_max),
        given=given,
        shows=shows,
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
        given=lambda u: (u.external0 < u.tokens0) & (u.external1 < u.tokens1),
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
        "Whatever is submitted is accepted: a request that can never fit stays first in line for ever "
        "(vllm-project/vllm#35570).",
        Shop(FULL, (False,), steps=6),
        statement="KV-LIVE-01",
    ),
    _hang(
        "window-counted-whole",
        FullSequenceWithoutRecycling,
        "A window is counted as if it kept all that it ever held: what was accepted is never let in "
        "(vllm-project/vllm#39734).",
        Shop(WINDOW, (False,), steps=6),
        statement="KV-LIVE-01",
    ),
    _hang(
        "parked-counts-as-running",
        ParkedCountAsRunning,
        "Whoever holds blocks counts as running: one that has loaded keeps itself from running "
        "(vllm-project/vllm#53130).",
        Shop(FULL, (True,), steps=6, running_max=1),
    ),
    _hang(
        "loaded-is-forgotten",
        LoadedIsForgotten,
        "Whoever waited for a transfer is not looked at again (vllm-project/vllm-ascend#10559).",
        Shop(FULL, (True,), steps=6),
    ),
    _hang(
        "first-preempted",
        FirstIsPreempted,
        "The only one that runs gives up its blocks when a transfer holds what it needs, and computes all again.",
        Shop(FULL, (False, False), steps=8, chunk_tokens=2, sends=True),
        statement="KV-LIVE-02",
        sizes_max=2,
    ),
)
"""Schedulers, refuted."""
