"""Junctions: where prompts part from what is cached.

Full attention keeps all blocks of a prompt. So if a request finds more of its tokens there than it can hit, another
request has computed these tokens, and what is missing are the blocks of windows that retention left out. The last
boundary in these tokens is the request's junction. The request computes the windows anew, and keeps them there: the
next request with the same beginning, as a shared system prompt, hits it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Any

from attrs import field, frozen

from swa_retention.reachable import GROUP_BYTES, last_boundary_tokens

JUNCTION = "swa_retention_junction_tokens"
"""The attribute of vLLM's request that holds its junction; 0 or absent if it has none."""


@frozen
class Junctions:
    """What finds the junctions of one block manager."""

    pool: Any
    groups: Sequence[tuple[int, int]]
    """The groups of full attention: the index of each, and how many tokens a block of it spans."""
    alignment_tokens: int
    lookahead_tokens: int
    """How much after a boundary must match in the group that asks for most."""
    found: Mapping[int, int] = field(factory=dict)
    """By group, how many blocks from the first on the look-up has just found; none where it is vLLM's own."""
    counts: Counter[str] = field(factory=Counter)
    """By the name of a metric, what was counted since the metrics were last sent."""

    def find(self, hashes: Sequence[bytes], request_tokens: int, hit_tokens: int) -> int:
        """The junction of a request of so many tokens that hits ``hit_tokens``; 0 if it hits as much as is known."""
        known_tokens = max([self._known(*group, hashes, hit_tokens) for group in self.groups], default=0)
        if known_tokens <= hit_tokens:
            return 0
        # The last token is always computed.
        known_tokens = min(known_tokens, request_tokens - 1)
        boundary_tokens = last_boundary_tokens(known_tokens, self.alignment_tokens, self.lookahead_tokens)
        return boundary_tokens if boundary_tokens > hit_tokens else 0

    def _known(self, group: int, block_tokens: int, hashes: Sequence[bytes], hit_tokens: int) -> int:
        """How many tokens a group of full attention holds in whole blocks from the first on: those of the hit at least.

        What follows what was found is looked up until a block is missing, mostly one block.
        """
        cached = cached_of(self.pool, hashes, group, block_tokens)
        blocks = self.found.get(group, hit_tokens // block_tokens)
        end = len(hashes) * self.pool.hash_block_size // block_tokens
        while blocks < end and cached(blocks) is not None:
            blocks += 1
        return blocks * block_tokens


def cached_of(pool: Any, hashes: Sequence[bytes], group: int, block_tokens: int) -> Callable[[int], Any]:
    """From the index of a block of a request to the block of ``group`` that holds its content, or None."""
    # A block's hash followed by its group, as in vLLM's keys, whose own look-up makes two lists for each block.
    find, key_end = pool.cached_block_hash_to_block.get_one_block, group.to_bytes(GROUP_BYTES, "big")
    each = block_tokens // pool.hash_block_size
    if each == 1:
        return lambda index: find(hashes[index] + key_end)
    # The hash of a larger block is those of its parts, one after the other, as in vLLM up to 0.23.
    return lambda index: find(b"".join(hashes[index * each : (index + 1) * each]) + key_end)


def cached_in_order(pool: Any, hashes: Sequence[bytes], group: int, block_tokens: int) -> Iterable[Any]:
    """The same for all blocks of a request, from the first on, looked up one by one as they are asked for."""
    each = block_tokens // pool.hash_block_size
    whole = hashes if each == 1 else map(b"".join, zip(*[iter(hashes)] * each, strict=False))
    # In C as far as it goes: a long prompt has thousands of blocks.
    return map(
        pool.cached_block_hash_to_block.get_one_block, map(add, whole, repeat(group.to_bytes(GROUP_BYTES, "big")))
    )
