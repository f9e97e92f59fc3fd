"""How much of a prompt can hit at best, once another was computed that begins alike and nothing was evicted.

It is the reference's look-up (``kvreference.hit_lookup``) over what the first prompt leaves in the cache, calculated by
the reference's formulas and not by computing it. Rules that a release has otherwise are asked as the reference asks
them. Where states are kept at block ends only, what is cached depends on where the chunks of the first prompt ended.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve, frozen

from kvgate.explain.chunks import chunk_ends
from kvreference.caching import due_tokens, tokens_looked_at
from kvreference.geometry import Group
from kvreference.hit_lookup import longest_length
from kvreference.prefix_cache import NoPrefixCache, PrefixCache, new_cache
from kvreference.settings import Settings
from kvreference.tables import content_up_to


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


class _Cached:
    """What is cached of the first prompt, in blocks that are known by tokens of the second."""

    def __init__(self, cache: PrefixCache, prompts: Prompts, ends: Collection[int]) -> None:
        self.cache = cache
        self.prompts = prompts
        self.ends = ends
        """After how many tokens states are kept, where they are kept at block ends only."""
        self._known: dict[tuple[Group, int], bool] = {}

    def has(self, group: Group, index: int) -> bool:
        """Whether the block at ``index`` of a table is cached."""
        block = group, index
        if block not in self._known:
            self._known[block] = self._is_due(group, index)
        return self._known[block]

    def _is_due(self, group: Group, index: int) -> bool:
        if group.attention.stops_at_block_ends and (index + 1) * group.block_size_tokens not in self.ends:
            return False
        cache, first = self.cache, self.prompts.first_tokens
        due = cache.rules.ask(due_tokens, cache.retention, group, index, first)
        looked_at = cache.rules.ask(tokens_looked_at, cache.retention, cache.geometry, group, first)
        return due is not None and max(due, (index + 1) * group.block_size_tokens) <= looked_at

    def begins(self, tokens: int) -> bool:
        """Whether the beginning of a block is an entry, for a hit of ``tokens`` that ends inside it."""
        return tokens in self.cache.retention.boundaries(tokens - 1, tokens, self.prompts.first_tokens)


class _Found:
    """The same in one group, as ``kvreference.hit_lookup`` finds it: a prefix is its number of tokens."""

    def __init__(self, left: _Cached, index: int) -> None:
        geometry = left.cache.geometry
        self.left, self.cached = left, self
        self.index, self.group = index, geometry.groups[index]
        self.given = self.group
        """The group itself; a look-up may use another one in ``group``."""
        self.grain_tokens = geometry.grain_tokens
        self.prefixes = range(self.grain_tokens, left.prompts.second_tokens + 1, self.grain_tokens)
        size = self.group.block_size_tokens
        block = range(self.grain_tokens, size + 1, self.grain_tokens)
        self.key_tokens: int = left.cache.rules.ask(content_up_to, geometry, index, block, size)[1]  # type: ignore[arg-type, assignment]  # a prefix is its number of tokens here
        """How many more tokens each block is known by."""

    def satisfies(self, hit_tokens: int, tokens: int) -> bool:
        """Whether a request of ``tokens`` tokens can resume at ``hit_tokens`` here."""
        if hit_tokens == 0:
            return True
        group, matched = self.group, self.group.tokens_matched(hit_tokens)
        if matched > min(tokens - 1, self.left.prompts.shared_tokens):
            return False
        first, end = group.blocks_needed(hit_tokens)
        # Blocks that all are read from are cached in order, so the last of them answers for all.
        needed = range(end - 1, end) if group.keeps_all and end else range(first, end)
        return all(map(self.has, needed)) and (matched % group.block_size_tokens == 0 or self.left.begins(hit_tokens))

    def has(self, index: int) -> bool:
        """Whether the block at ``index`` is found by the second prompt."""
        known = (index + 1) * self.key_tokens <= self.left.prompts.shared_tokens
        return known and self.left.has(self.given, index)

    def find(self, content: tuple[int, int]) -> int | None:
        """A name of the block that is known by that many tokens."""
        blocks, rest = divmod(content[1], self.key_tokens)
        return blocks if not rest and self.has(blocks - 1) else None


def best_hit(
    settings: Settings,
    prompts: Prompts,
    cache: NoPrefixCache | None = None,
    split_tokens: int | None = None,
) -> int:
    """How many tokens of the second prompt can hit.

    ``cache`` has the rules of a release, ``split_tokens`` stands for the multiples at which it cuts chunks.
    """
    cache = new_cache(settings) if cache is None else cache
    if not isinstance(cache, PrefixCache):
        return 0
    geometry = cache.geometry
    # Contents are shared as far as the tokens are that they depend on.
    prompts = evolve(prompts, shared_tokens=max(0, prompts.shared_tokens - geometry.hashed_ahead_tokens))
    ends: Collection[int] = ()
    if geometry.state_block_tokens is not None:
        ends = set(chunk_ends(settings, prompts.first_tokens, split_tokens))
    cached = _Cached(cache, prompts, ends)
    found = [_Found(cached, index) for index in range(len(geometry.groups))]
    alignment, tokens = geometry.alignment_tokens, prompts.second_tokens
    most = min(prompts.shared_tokens, tokens - 1) // alignment * alignment
    return cache.rules.ask(
        longest_length,
        found,  # type: ignore[arg-type]  # as the look-up's own
        range(most, -1, -alignment),
        cache.tokens_readable(tokens),
        settings.partial_hit_tokens_min,
    )


def shortest_prompt(settings: Settings) -> int:
    """The length from which on a replay of a prompt can hit at all, by the geometry alone."""
    return settings.geometry.alignment_tokens + settings.geometry.lookahead_tokens + 1
