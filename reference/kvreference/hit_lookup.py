"""The longest prefix-cache hit, as one sentence.

The hit length is the largest multiple of the alignment, at most the request's length minus one, at which every group
is satisfied. A group is satisfied at a length if every block that a resume there needs is cached. With a draft layer,
the look-ahead after it must match too, and end within the request's length minus one. Where a hit ends inside a block,
the beginning of that block must be an entry of its own. Such a hit must reach the minimum length, since it costs a
copy.

The last token is never served from the cache: its state would be there, but not the answer that follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile

from kvreference.answers import Hit, Partial
from kvreference.block_pool import NULL
from kvreference.cached_map import CachedMap
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.partial_map import PartialMap
from kvreference.rules import OWN_RULES, Rules


class _Found:
    """The cached content of one request in one group."""

    def __init__(
        self, geometry: Geometry, index: int, maps: tuple[CachedMap, PartialMap], prefixes: list[Prefix]
    ) -> None:
        self.cached, self.partial_map = maps
        self.group = geometry.groups[index]
        self.index = index
        self.grain_tokens = geometry.grain_tokens
        self.prefixes = prefixes
        grains = self.group.block_size_tokens // self.grain_tokens
        self.blocks = [self.cached.find((index, prefix)) for prefix in prefixes[grains - 1 :: grains]]
        # absent[i] counts the missing among the first i blocks, so that a range is complete if its ends agree.
        self.absent = list(accumulate((block is None for block in self.blocks), initial=0))

    def satisfies(self, hit_tokens: int, tokens: int) -> bool:
        """Whether a request of ``tokens`` tokens can resume at ``hit_tokens`` here."""
        if hit_tokens == 0:
            return True
        matched = self.group.tokens_matched(hit_tokens)
        if matched > tokens - 1:
            return False
        first, end = self.group.blocks_needed(hit_tokens)
        if self.absent[first] != self.absent[end]:
            return False
        return matched % self.group.block_size_tokens == 0 or self._beginning(matched) is not None

    def _beginning(self, matched_tokens: int) -> int | None:
        """The block that begins with the last of the request's first ``matched_tokens`` tokens."""
        prefix = self.prefixes[matched_tokens // self.grain_tokens - 1]
        return self.partial_map.find((self.index, prefix))

    def table(self, hit_tokens: int) -> tuple[int, ...]:
        """The full blocks of the hit, with the null block where no later token reads."""
        first, _ = self.group.blocks_needed(hit_tokens)
        kept = self.blocks[first : hit_tokens // self.group.block_size_tokens]
        return (*(NULL,) * first, *(block for block in kept if block is not None))

    def partial(self, hit_tokens: int) -> Partial | None:
        """The block of which a beginning is copied, if the hit ends inside one."""
        if not self.group.ends_inside(hit_tokens):
            return None
        matched = self.group.tokens_matched(hit_tokens)
        whole = matched % self.group.block_size_tokens == 0
        source = self.blocks[matched // self.group.block_size_tokens - 1] if whole else self._beginning(matched)
        assert source is not None, "a satisfied group has a source"
        return Partial(self.index, source, hit_tokens % self.group.block_size_tokens)


def longest_length(found: Sequence[_Found], lengths: range, tokens: int, partial_hit_tokens_min: int) -> int:
    """The first of ``lengths``, which end with 0, at which every group of ``found`` is satisfied."""
    return next(
        length
        for length in lengths
        if is_worthwhile(tuple(each.group for each in found), length, partial_hit_tokens_min)
        and all(each.satisfies(length, tokens) for each in found)
    )


def tables_found(found: Sequence[_Found], hit_tokens: int, _tokens: int) -> tuple[tuple[int, ...], ...]:
    """The blocks of a hit in each group."""
    return tuple(each.table(hit_tokens) for each in found)


def partials_found(found: Sequence[_Found], hit_tokens: int) -> tuple[Partial, ...]:
    """The blocks of which a beginning is copied."""
    partials = (each.partial(hit_tokens) for each in found)
    return tuple(partial for partial in partials if partial is not None)


def is_worthwhile(groups: Sequence[Group], hit_tokens: int, partial_hit_tokens_min: int) -> bool:
    """Whether a hit of ``hit_tokens`` is as long as the minimum, or ends inside no block."""
    return hit_tokens >= partial_hit_tokens_min or not any(group.ends_inside(hit_tokens) for group in groups)


def longest_hit(
    geometry: Geometry,
    cached: CachedMap,
    prefixes: list[Prefix],
    tokens: int,
    partial: PartialMap | None = None,
    partial_hit_tokens_min: int = 0,
    rules: Rules = OWN_RULES,
    tokens_readable: int | None = None,
) -> Hit:
    """The longest hit of a request of ``tokens`` tokens, given what is cached and the entries inside blocks.

    ``prefixes[i]`` is the request's prefix of ``(i + 1) * geometry.grain_tokens`` tokens. The blocks returned cover
    the hit; those that no later token reads are the null block. A hit shorter than ``partial_hit_tokens_min`` ends
    inside no block. ``tokens_readable`` may be more than ``tokens``: then look-ahead may match the last token too.
    """
    maps = cached, PartialMap() if partial is None else partial
    found = tuple(_Found(geometry, index, maps, prefixes) for index in range(len(geometry.groups)))
    alignment = geometry.alignment_tokens
    lengths = range((tokens - 1) // alignment * alignment, -1, -alignment)
    hit_tokens = rules.ask(longest_length, found, lengths, tokens_readable or tokens, partial_hit_tokens_min)
    tables = rules.ask(tables_found, found, hit_tokens, tokens)
    return Hit(hit_tokens, tables, rules.ask(partials_found, found, hit_tokens))


def tokens_known(geometry: Geometry, cached: CachedMap, prefixes: Sequence[Prefix]) -> int:
    """How many of a request's first tokens are cached in whole blocks of full attention, in the group that has most.

    Full attention keeps all blocks, and windows do not. So this is how far the request's prompt agrees with that of an
    earlier request. 0 if the model has no full attention.
    """
    longest = 0
    for index, group in enumerate(geometry.groups):
        if group.keeps_all:
            grains = group.block_size_tokens // geometry.grain_tokens
            blocks = (cached.find((index, prefix)) for prefix in prefixes[grains - 1 :: grains])
            leading = list(takewhile(lambda block: block is not None, blocks))
            longest = max(longest, len(leading) * group.block_size_tokens)
    return longest
