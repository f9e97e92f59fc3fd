"""Admission: how many blocks a request will hold, and whether they can be had.

A request is admitted only if all of its tokens so far fit, not merely its first chunk: otherwise admitted requests wait
for each other's blocks. The peak counts: a sliding window frees blocks as it slides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kvreference.answers import Hit
from kvreference.block_pool import NULL, BlockPool
from kvreference.geometry import Group
from kvreference.rules import OWN_RULES, Rules
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


def blocks_to_come_with(settings: Settings, tokens: int, computed: int, tables: Sequence[Sequence[int]]) -> int:
    """The same for a request whose table in each group is one of ``tables``; the null block is not a live one."""
    return blocks_to_come(settings, tokens, computed, tuple(sum(block != NULL for block in table) for table in tables))


def fits_empty_pool(settings: Settings, tokens: int) -> bool:
    """Whether a request of ``tokens`` tokens passes the admission gate while all blocks are free, for any hit.

    The source of a copy is held on top of all that the request itself holds.
    """
    groups = settings.geometry.groups
    needed = blocks_to_come(settings, tokens, 0, (0,) * len(groups)) + sum(group.copies for group in groups)
    return needed <= settings.blocks - 1


def tables_of_hit(settings: Settings, hit: Hit, computed: int) -> Sequence[Sequence[int]]:
    """Per group, the table of a hit, with the null block where no token after the first ``computed`` reads."""
    unread = (group.blocks_unread(computed) for group in settings.geometry.groups)
    return tuple((*(NULL,) * dead, *blocks[dead:]) for dead, blocks in zip(unread, hit.blocks, strict=True))


def blocks_said_free(pool: BlockPool) -> int:
    """How many blocks the pool says that are free."""
    return len(pool.free)


def has_room(pool: BlockPool, count: int, kept: Collection[int], rules: Rules = OWN_RULES) -> bool:
    """Whether ``count`` blocks can be taken, by what the pool says; ``kept`` must stay what they are."""
    return pool.make_room(count + len(pool.free) - rules.ask(blocks_said_free, pool), kept)


def passes_gate(
    settings: Settings, pool: BlockPool, hit: Hit, tokens: int, computed: int, rules: Rules = OWN_RULES
) -> bool:
    """Whether the blocks that a waiting request of ``tokens`` tokens will still take fit into what can be taken now.

    The live blocks of the hit are part of its peak; to hold those that are free, and the sources of its copies, takes
    them out of the free queue.
    """
    tables = tables_of_hit(settings, hit, computed)
    held = {block for table in tables for block in table if block != NULL}
    held.update(partial.source for partial in hit.partials)
    needed = rules.ask(blocks_to_come_with, settings, tokens, computed, tables)
    return has_room(pool, needed + pool.count_free(held), held, rules)
