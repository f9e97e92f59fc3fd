"""How much of a prompt can hit at best, once another was computed that begins alike and nothing was evicted.

It is the reference's sentence (``kvreference.hit_lookup``) with its own formulas: the longest multiple of the alignment
at which every block that a resume reads, and the look-ahead after it, is cached. What is cached of the first prompt is
asked of the retention, and where states are kept at block ends only, of where its chunks ended.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from kvgate.explain.chunks import chunk_ends
from kvreference.geometry import Group
from kvreference.hit_lookup import is_worthwhile
from kvreference.prefix_cache import PrefixCache, new_cache
from kvreference.retention import Retention
from kvreference.settings import Settings


@frozen
class Prompts:
    """Two prompts that begin alike, one computed after the other."""

    first_tokens: int
    second_tokens: int
    shared_tokens: int
    """How many leading tokens they share."""

    @classmethod
    def replay(cls, tokens: int) -> Prompts:
        """The same prompt twice."""
        return cls(tokens, tokens, tokens)


def retention_of(settings: Settings) -> Retention:
    """What is cached, by the settings' retention interval."""
    cache = new_cache(settings)
    assert isinstance(cache, PrefixCache), "prefix caching is on"
    return cache.retention


def best_hit(
    settings: Settings,
    prompts: Prompts,
    retention: Retention | None = None,
    split_tokens: int | None = None,
    state_boundary: int | None = None,
) -> int:
    """How many tokens of the second prompt can hit.

    ``retention``, ``split_tokens`` and ``state_boundary`` stand for what a release does otherwise: what it caches, at
    what multiples it cuts chunks, and at which boundary alone it keeps a state.
    """
    if not settings.caches:
        return 0
    geometry = settings.geometry
    kept = retention_of(settings) if retention is None else retention
    ends: Collection[int] = ()
    if geometry.state_block_tokens is not None:
        ends = set(chunk_ends(settings, prompts.first_tokens, split_tokens))
        if state_boundary is not None:
            ends &= {state_boundary}
    alignment = geometry.alignment_tokens
    limit = min(prompts.shared_tokens, prompts.second_tokens - 1)
    # Groups that are alike but for their place answer alike.
    groups = tuple(dict.fromkeys(group for group in geometry.groups if group.attention.serves_hits))
    for tokens in range(limit // alignment * alignment, 0, -alignment):
        if is_worthwhile(geometry.groups, tokens, settings.partial_hit_tokens_min) and all(
            _serves(group, tokens, limit, prompts.first_tokens, kept, ends) for group in groups
        ):
            return tokens
    return 0


def _serves(
    group: Group, tokens: int, limit: int, first_tokens: int, retention: Retention, ends: Collection[int]
) -> bool:
    """Whether a resume at ``tokens`` finds all that it reads in this group."""
    matched = group.tokens_matched(tokens)
    if matched > limit:
        return False
    if group.attention.stops_at_block_ends:
        return tokens in ends
    first, end = group.blocks_needed(tokens)
    # Blocks that all are read from are cached in order, so the last of them answers for all.
    for index in range(end - 1, end) if group.keeps_all and end else range(first, end):
        due_tokens = retention.due_tokens(group, index, first_tokens)
        if due_tokens is None or due_tokens > first_tokens:
            return False
    if matched % group.block_size_tokens == 0:
        return True
    # It ends inside a block: the boundary itself must be an entry.
    return tokens in retention.boundaries(tokens - 1, tokens, first_tokens)


def shortest_prompt(settings: Settings) -> int:
    """The length from which on a replay of a prompt can hit at all, by the geometry alone."""
    return settings.geometry.alignment_tokens + settings.geometry.lookahead_tokens + 1
