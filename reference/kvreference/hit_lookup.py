"""The longest prefix-cache hit, as one sentence.

The hit length is the largest multiple of the alignment, at most the request's length minus one, at which every group
is satisfied. A group is satisfied at a length if every block that a resume there needs is cached; where a draft
layer lives, the look-ahead block is one of them, and it too must end within the request's length minus one.

The last token is never served from the cache: its state would be there, but not the answer that follows it.
"""

from __future__ import annotations

from itertools import accumulate

from kvreference.answers import Hit
from kvreference.block_pool import NULL
from kvreference.cached_map import CachedMap
from kvreference.content import Prefix
from kvreference.geometry import Geometry


def longest_hit(geometry: Geometry, cached: CachedMap, prefixes: list[Prefix], tokens: int) -> Hit:
    """The longest hit of a request of ``tokens`` tokens.

    ``prefixes[i]`` is the request's prefix of ``(i + 1) * geometry.grain_tokens`` tokens. The blocks returned cover
    the hit; those that no later token reads are the null block.
    """
    found: list[list[int | None]] = []
    absent: list[list[int]] = []
    for index, group in enumerate(geometry.groups):
        grains = group.block_size_tokens // geometry.grain_tokens
        blocks = [cached.find((index, prefix)) for prefix in prefixes[grains - 1 :: grains]]
        found.append(blocks)
        # absent[i] counts the missing among the first i blocks, so that a range is complete if its ends agree.
        absent.append(list(accumulate((block is None for block in blocks), initial=0)))

    def satisfied(index: int, hit_tokens: int) -> bool:
        group = geometry.groups[index]
        if hit_tokens > 0 and group.tokens_matched(hit_tokens) > tokens - 1:
            return False
        first, end = group.blocks_needed(hit_tokens)
        return absent[index][first] == absent[index][end]

    alignment = geometry.alignment_tokens
    candidates = range((tokens - 1) // alignment * alignment, -1, -alignment)
    hit_tokens = next(
        length for length in candidates if all(satisfied(index, length) for index in range(len(geometry.groups)))
    )
    tables = []
    for group, blocks in zip(geometry.groups, found, strict=True):
        first, _ = group.blocks_needed(hit_tokens)
        kept = blocks[first : hit_tokens // group.block_size_tokens]
        tables.append((*(NULL,) * first, *(block for block in kept if block is not None)))
    return Hit(hit_tokens, tuple(tables))
