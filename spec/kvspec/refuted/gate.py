"""Refuted: a gate that does not demote.

z3 chooses how much is free, how much is pinned and how much is asked for; the pools that answer are real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvreference.answers import Refused
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Operation, Run
from kvreference.pinned_tier import PinnedPool
from kvreference.refuted.unguarded_gate import UnguardedGate, UnguardedPool
from kvreference.settings import Settings
from kvspec.obligation import Count, Obligation
from kvspec.refuted.replay import Refuted, Replay

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
    design, sound = (_is_refused(each(settings), operations) for each in (UnguardedGate, Manager))
    return Replay(settings, operations, _told(design), _told(sound), design_fails=design, sound_fails=sound)


def _is_refused(manager: Manager, operations: tuple[Operation, ...]) -> bool:
    *before, last = operations
    for operation in before:
        manager.apply(operation)
    return isinstance(manager.apply(last), Refused)


def _told(refused: bool) -> str:
    return "refused, though nobody holds a block" if refused else "admitted"


GATES = (
    Refuted(
        "gate-without-demotion",
        "KV-LIVE-01",
        "A gate counts what is free and never demotes: pins that nobody uses keep every request out, for ever.",
        Obligation(
            id="refuted.gate-without-demotion",
            statements=("KV-OP-23", "KV-LIVE-01"),
            sentence="There is room exactly if what is asked for fits into what is free or can be demoted.",
            unknowns={name: Count(0, BLOCKS_MAX) for name in ("free", "pinned", "count")},
            shows=_finds_room,
            witnesses={},
            mutants=(),
            bound=f"up to {BLOCKS_MAX} blocks free, pinned and asked for",
        ),
        _replay,
    ),
)
"""The gate, refuted."""
