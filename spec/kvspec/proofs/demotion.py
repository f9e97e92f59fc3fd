"""Chapter 10: demotion lets in whoever could be let in, and does so only where it is enough.

One demotion is proved for pools of any size: see ``kvspec.pool``. How many there are is proved of the running
``make_room``, for small queues.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from attrs import evolve

from kvreference.block_pool import BlockPool
from kvreference.pinned_tier import PinnedPool
from kvspec.obligation import Count, Obligation, only
from kvspec.pool.contents import Demote, forgotten
from kvspec.pool.induction import after, before, broken, happens, of_every_step
from kvspec.pool.state import FREE, WAITING
from kvspec.symbolic import either, implies

CHAPTER = "pinned-tier"


def _gain(u: Any) -> Any:
    was, now = before(u), after(u)
    more_free = now.where.count(FREE) == was.where.count(FREE) + 1
    as_many = now.where.count(FREE) + now.where.count(WAITING) == was.where.count(FREE) + was.where.count(WAITING)
    kept = (now.content[u.at_block] == was.content[u.at_block]) & (now.begun[u.at_block] == was.begun[u.at_block])
    return more_free & as_many & kept & (now.refs[u.any_block] == was.refs[u.any_block])


GAINS = of_every_step(
    f"{CHAPTER}.demotion-gains-one",
    ("KV-OP-23", "KV-OP-04"),
    "Each demotion lets one block more be taken, takes nothing from anybody and forgets nothing: as many demotions as "
    "blocks are missing let every allocation succeed that could.",
    lambda u: implies(happens(u, Demote), _gain(u)),
    (
        broken(
            "demotion-forgets",
            "A demoted block is not cached any more.",
            Demote,
            lambda state, at: forgotten(state, at.block),
        ),
        broken(
            "demotion-only-unpins",
            "A demoted block is unpinned, and stays where it waits.",
            Demote,
            lambda state, at: evolve(state, pinned=state.pinned.put(at.block, 0)),
        ),
    ),
    {"the last pinned block is demoted": lambda u: happens(u, Demote) & (u.where.count(WAITING) == 1)},
)

SMALL = 3
"""How many blocks are in each queue at most, where the running code makes room."""


def _small_pool(u: Any) -> PinnedPool:
    """Free blocks, and behind them pinned ones that nobody holds."""
    free, waiting = operator.index(u.free), operator.index(u.waiting)
    pool = PinnedPool(1 + free + waiting, scratch_first=False, drop_blocks_min=1)
    for block in range(1 + free, 1 + free + waiting):
        pool.free.remove(block)
        pool.pinned.append(block)
        pool.is_pinned[block] = True
    return pool


def _makes_room(u: Any) -> Any:
    pool = _small_pool(u)
    free, waiting = list(pool.free), list(pool.pinned)
    kept = {block for place, block in enumerate(waiting) if getattr(u, f"kept_{place}") == 1}
    demotable = [block for block in waiting if block not in kept]

    answer = pool.make_room(u.count, kept)
    demoted = demotable[: len(pool.free) - len(free)]
    missing = u.count - len(free)
    as_many = either(answer & (missing > 0), missing, 0)
    moved = list(pool.free) == free + demoted and list(pool.pinned) == [b for b in waiting if b not in demoted]
    unpinned = [block for block in waiting if not pool.is_pinned[block]] == demoted
    return ((missing <= len(demotable)) == answer) & (len(demoted) == as_many) & (moved and unpinned)


def _demotes_in_vain(self: PinnedPool, count: int, kept: Collection[int]) -> bool:
    for block in [block for block in self.pinned if block not in kept]:
        if count > len(self.free):
            self._unpin(block)
    return count <= len(self.free)


MAKE_ROOM = Obligation(
    id=f"{CHAPTER}.makes-room-if-possible",
    statements=("KV-OP-23", "KV-OP-04"),
    sentence="The gate lets a request in exactly if the blocks that it takes are free or can be demoted; then it has "
    "demoted the oldest that the request does not use, as many as were missing, and else none.",
    unknowns={
        "free": Count(0, SMALL),
        "waiting": Count(0, SMALL),
        "count": Count(0),
        **{f"kept_{place}": Count(0, 1) for place in range(SMALL)},
    },
    shows=_makes_room,
    witnesses={
        "a block is kept, and enough others are demoted": lambda u: (
            (u.waiting == 3) & (u.kept_1 == 1) & (u.free == 1) & (u.count == 3)
        )
    },
    mutants=(
        only(
            "gate-does-not-know-the-tier",
            "The gate asks only what is free.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            BlockPool.make_room,
        ),
        only(
            "demotes-in-vain",
            "Blocks are demoted even where that is not enough.",
            "kvreference.pinned_tier:PinnedPool.make_room",
            _demotes_in_vain,
        ),
    ),
    bound=f"at most {SMALL} blocks in each queue, any number asked for: the running code walks through real queues",
)

OBLIGATIONS = (GAINS, MAKE_ROOM)
