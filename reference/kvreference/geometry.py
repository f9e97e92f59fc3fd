"""The geometry of a model's KV cache: its groups, their block sizes, and the alignment that follows.

A group is a set of layers that share one block table. All groups draw from one pool of equal blocks, but a block
may span a different number of tokens in each group.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd, lcm

from attrs import Attribute, field, frozen
from attrs.validators import ge, instance_of

from kvreference.attention import Kind, blocks_held_at_most, blocks_occupied, tokens_skipped


@frozen
class Group:
    """One KV-cache group.

    Raises:
        ValueError: a sliding-window group without a window of at least two tokens, or a full group with one.
    """

    kind: Kind = field(converter=Kind)
    block_size_tokens: int = field(validator=[instance_of(int), ge(1)])
    window_tokens: int | None = field(default=None)
    """How many tokens a token attends to, itself included. Sliding-window groups only."""
    lookahead: bool = False
    """Whether an EAGLE/MTP draft layer lives here: a hit must then match one block more than it serves."""

    @window_tokens.validator
    def _window_fits_kind(self, _attribute: Attribute[int | None], window_tokens: int | None) -> None:
        if self.kind is Kind.SLIDING_WINDOW and (type(window_tokens) is not int or window_tokens < 2):
            raise ValueError(f"a sliding_window group needs window_tokens of at least 2, got {window_tokens!r}")
        if self.kind is Kind.FULL and window_tokens is not None:
            raise ValueError(f"a full group takes no window_tokens, got {window_tokens!r}")

    def blocks_occupied(self, tokens: int) -> int:
        """How many blocks ``tokens`` tokens occupy."""
        return blocks_occupied(tokens, self.block_size_tokens)

    def blocks_dead(self, tokens_computed: int) -> int:
        """How many leading blocks no later token reads once ``tokens_computed`` tokens are computed."""
        if self.window_tokens is None:
            return 0
        return tokens_skipped(tokens_computed, self.window_tokens) // self.block_size_tokens

    def blocks_needed(self, hit_tokens: int) -> tuple[int, int]:
        """The half-open range of block indices that must be present to resume at token ``hit_tokens``.

        Every block that the token at ``hit_tokens`` reads, and the look-ahead block behind it where a draft layer
        lives in this group. A resume at token 0 needs nothing.
        """
        if hit_tokens == 0:
            return 0, 0
        last = hit_tokens // self.block_size_tokens
        return self.blocks_dead(hit_tokens), last + 1 if self.lookahead else last

    def tokens_matched(self, hit_tokens: int) -> int:
        """How many tokens must match to serve a hit of ``hit_tokens`` here: one block more with a look-ahead."""
        return hit_tokens + self.block_size_tokens if self.lookahead else hit_tokens

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int) -> int:
        """The most blocks that one request, computed in chunks, holds here at once."""
        if self.window_tokens is None:
            return self.blocks_occupied(tokens_max)
        return blocks_held_at_most(self.window_tokens, chunk_tokens, tokens_max, self.block_size_tokens)


@frozen
class Geometry:
    """The groups of one model, in the order in which the manager serves them.

    Raises:
        ValueError: no group at all.
    """

    groups: tuple[Group, ...] = field()

    @groups.validator
    def _has_a_group(self, _attribute: Attribute[tuple[Group, ...]], groups: tuple[Group, ...]) -> None:
        if not groups:
            raise ValueError("a geometry needs at least one group")

    @cached_property
    def alignment_tokens(self) -> int:
        """Every hit length is a multiple of this: the least common multiple of the groups' block sizes."""
        return lcm(*(group.block_size_tokens for group in self.groups))

    @cached_property
    def grain_tokens(self) -> int:
        """The greatest token count that divides every group's block size: the grain of content."""
        return gcd(*(group.block_size_tokens for group in self.groups))
