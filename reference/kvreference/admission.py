"""Admission: how many blocks a request will hold, and whether they can be had.

A request is admitted only if all of its tokens so far fit, not merely its first chunk: else requests that were let in
together wait for each other's blocks. What counts is the peak: a sliding window gives blocks back as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvreference.answers import Hit
from kvreference.block_pool import NULL, BlockPool
from kvreference.geometry import Group
from kvreference.settings import Settings


def blocks_at_peak(settings: Settings, group: Group, tokens: int, computed: int) -> int:
    """A bound on the blocks that a request of ``tokens`` tokens holds at once after its first ``computed`` ones.

    Look-ahead slots are not counted.
    """
    return min(
        group.entries(tokens, tokens) - group.blocks_unread(computed),
        group.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max),
    )


def blocks_to_come(settings: Settings, tokens: int, computed: int, live: Sequence[int]) -> int:
    """How many blocks such a request still takes at most, over all groups, if it has ``live`` blocks per group."""
    return sum(
        max(0, blocks_at_peak(settings, group, tokens, computed) - count)
        for group, count in zip(settings.geometry.groups, live, strict=True)
    )


def fits_empty_pool(settings: Settings, tokens: int) -> bool:
    """Whether a request of ``tokens`` tokens passes the admission gate when nobody holds a block, whatever it hits.

    The source of a copy is held on top of all that the request itself holds.
    """
    groups = settings.geometry.groups
    needed = blocks_to_come(settings, tokens, 0, (0,) * len(groups)) + sum(group.copies for group in groups)
    return needed <= settings.blocks - 1


def blocks_of_hit(settings: Settings, hit: Hit, computed: int) -> list[list[int]]:
    """Per group, the blocks of the hit that a token after the first ``computed`` reads."""
    return [
        [block for block in blocks[group.blocks_unread(computed) :] if block != NULL]
        for group, blocks in zip(settings.geometry.groups, hit.blocks, strict=True)
    ]


def passes_gate(settings: Settings, pool: BlockPool, hit: Hit, tokens: int, computed: int) -> bool:
    """Whether the blocks that a waiting request of ``tokens`` tokens will still take fit into what can be taken now.

    The live blocks of the hit are part of its peak; to hold those that are free, and the sources of its copies, takes
    them out of the free queue.
    """
    live = blocks_of_hit(settings, hit, computed)
    held = {*(block for blocks in live for block in blocks), *(partial.source for partial in hit.partials)}
    needed = blocks_to_come(settings, tokens, computed, [len(blocks) for blocks in live])
    return pool.make_room(needed + pool.count_free(held), held)
