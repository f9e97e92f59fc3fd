"""The geometry of a model's KV cache: its groups, their block sizes, and the alignment that follows.

A group is a set of layers that share one block table. All groups draw from one pool of equal blocks, but a block
may span a different number of tokens in each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, lcm

from attrs import Attribute, field, frozen
from attrs.converters import optional as optional_converter
from attrs.validators import ge, instance_of, le, optional

from kvreference.attention import Attention, ChunkedLocal, Full, Kind, Layout, SlidingWindow, blocks_occupied
from kvreference.mamba import AlignedMamba, Mamba, RunningMamba, StateMode

_count = [instance_of(int), ge(1)]
_MAMBA = {StateMode.NONE: RunningMamba, StateMode.ALL: Mamba, StateMode.ALIGN: AlignedMamba}
_WINDOWED = (Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL)


@frozen
class Group:
    """One KV-cache group.

    Raises:
        ValueError: a window missing where there must be one of at least two tokens, or given where there is none;
            likewise for the mode of a state-space group; a unit that does not divide the block or cuts a slot.
    """

    kind: Kind = field(converter=Kind)
    block_size_tokens: int = field(validator=_count)
    window_tokens: int | None = field(default=None)
    """Sliding window: how many tokens a token attends to, itself included. Chunked local: an attention chunk."""
    lookahead: bool = False
    """Whether the group has an EAGLE/MTP draft layer: a hit must then match one unit more than it serves."""
    compress_ratio: int = field(default=1, validator=_count)
    """How many tokens share a slot."""
    unit_tokens: int | None = field(default=None, validator=optional(_count))
    """A hit may end at every multiple of this; the block size unless partial hits are on."""
    states: StateMode | None = field(default=None, converter=optional_converter(StateMode))
    """State-space groups only: which states are kept."""
    draft_states: int = field(default=0, validator=[instance_of(int), ge(0)])
    """State-space groups only: for how many drafts in flight there is a state."""
    whole_slots: bool = False
    """Whether memory is taken only for complete slots, as vLLM-Ascend does: it writes a slot when the last of its
    tokens is computed."""

    @window_tokens.validator
    def _window_fits_kind(self, _attribute: Attribute[int | None], window_tokens: int | None) -> None:
        windowed = self.kind in _WINDOWED
        if windowed and (type(window_tokens) is not int or window_tokens < 2):
            raise ValueError(f"a {self.kind.value} group needs window_tokens of at least 2, got {window_tokens!r}")
        if not windowed and window_tokens is not None:
            raise ValueError(f"a {self.kind.value} group takes no window_tokens, got {window_tokens!r}")

    @unit_tokens.validator
    def _unit_fits_block(self, _attribute: Attribute[int | None], unit_tokens: int | None) -> None:
        if self.block_size_tokens % self.compress_ratio:
            raise ValueError(f"a block of {self.block_size_tokens} tokens is not whole slots of {self.compress_ratio}")
        if unit_tokens is None:
            return
        if self.block_size_tokens % unit_tokens or unit_tokens % self.compress_ratio:
            raise ValueError(f"a unit of {unit_tokens} tokens must divide the block and be whole slots")
        if self.kind is not Kind.FULL and unit_tokens != self.block_size_tokens:
            raise ValueError(f"a hit cannot end inside a block of a {self.kind.value} group")

    @draft_states.validator
    def _states_fit_kind(self, _attribute: Attribute[int], draft_states: int) -> None:
        if (self.kind is Kind.MAMBA) != (self.states is not None):
            raise ValueError("a mamba group, and no other, needs a mode of states: none, all or align")
        if self.kind is not Kind.MAMBA and draft_states:
            raise ValueError(f"a {self.kind.value} group takes no draft_states")
        if self.states is StateMode.ALIGN and self.block_size_tokens < 2 * draft_states + 2:
            raise ValueError(
                f"states kept at block ends need blocks that two steps of {draft_states} drafts do not fill: "
                f"at least {2 * draft_states + 2} tokens, got {self.block_size_tokens}"
            )
        if self.kind is Kind.MAMBA and self.lookahead:
            raise ValueError("a mamba group has no draft layer")

    @cached_property
    def attention(self) -> Attention:
        """The kind's three answers."""
        if self.states is not None:
            return _MAMBA[self.states](self.draft_states)
        if self.window_tokens is None:
            return Full()
        return (
            SlidingWindow(self.window_tokens) if self.kind is Kind.SLIDING_WINDOW else ChunkedLocal(self.window_tokens)
        )

    @cached_property
    def unit(self) -> int:
        """A hit may end here at every multiple of this many tokens."""
        return self.unit_tokens or self.block_size_tokens

    @cached_property
    def lookahead_tokens(self) -> int:
        """How many tokens more than it serves a hit must match here."""
        return self.unit if self.lookahead else 0

    @cached_property
    def slides(self) -> bool:
        """Whether a sliding window passes blocks that a later hit may read."""
        return self.kind is Kind.SLIDING_WINDOW

    @cached_property
    def keeps_all(self) -> bool:
        """Whether every token's slot is kept for as long as the request runs: full attention only."""
        return self.kind is Kind.FULL

    @cached_property
    def keeps_states(self) -> bool:
        """Whether a block holds one state, and not a slot for each of its tokens."""
        return self.kind is Kind.MAMBA

    @cached_property
    def is_sparse(self) -> bool:
        """Whether a retention interval decides what stays cached here: blocks of a window, and states that are kept."""
        return self.slides or (self.keeps_states and self.attention.serves_hits)

    @cached_property
    def copies(self) -> bool:
        """Whether a hit may end inside a block, and is then served by a copy."""
        return self.unit < self.block_size_tokens

    @cached_property
    def fences(self) -> bool:
        """Whether what a step computes here cannot serve every hit in the same step."""
        return self.keeps_states or self.copies

    def blocks_occupied(self, tokens: int) -> int:
        """How many blocks ``tokens`` tokens occupy."""
        return blocks_occupied(self.tokens_stored(tokens), self.block_size_tokens)

    def tokens_stored(self, tokens: int) -> int:
        """How many of the first ``tokens`` tokens are in slots: without those of a slot that is only begun."""
        return tokens - tokens % self.compress_ratio if self.whole_slots else tokens

    def entries(self, tokens: int, slots: int) -> int:
        """How many entries a table has that holds ``tokens`` tokens and has ``slots`` slots, look-ahead included."""
        return self.attention.entries(tokens, self.tokens_stored(slots), self.block_size_tokens)

    def layout(self, blocks: Sequence[int | None], entries: int, fresh: bool) -> Layout:
        """The table ``blocks`` as it must become to have ``entries``; ``fresh`` if it holds nothing but a hit."""
        return self.attention.layout(blocks, entries, fresh)

    def blocks_dead(self, tokens_computed: int) -> int:
        """How many leading blocks no later token reads once ``tokens_computed`` tokens are computed."""
        return self.attention.tokens_dead(tokens_computed) // self.block_size_tokens

    def blocks_unread(self, tokens: int) -> int:
        """How many leading blocks a resume at token ``tokens`` does not read; no draft is in flight then."""
        return self.attention.tokens_unread(tokens) // self.block_size_tokens

    def tokens_matched(self, hit_tokens: int) -> int:
        """How many tokens must match to serve a hit of ``hit_tokens`` here: a unit more with a look-ahead."""
        return hit_tokens + self.lookahead_tokens

    def blocks_needed(self, hit_tokens: int) -> tuple[int, int]:
        """The half-open range of indices of the full blocks that must be present to resume at token ``hit_tokens``.

        Every block that the token at ``hit_tokens`` reads, and the look-ahead after it where this group has a draft
        layer. A resume at token 0 needs nothing.
        """
        if hit_tokens == 0:
            return 0, 0
        return self.blocks_unread(hit_tokens), self.tokens_matched(hit_tokens) // self.block_size_tokens

    def ends_inside(self, hit_tokens: int) -> bool:
        """Whether a hit of ``hit_tokens`` ends inside a block here, and is served by a copy."""
        return hit_tokens % self.block_size_tokens != 0

    def blocks_held_at_most(self, chunk_tokens: int, tokens_max: int) -> int:
        """The most blocks that one request, computed in chunks, holds here at once."""
        return self.attention.blocks_held_at_most(chunk_tokens, tokens_max, self.block_size_tokens)


@frozen
class Geometry:
    """The groups of one model, in the order in which the manager serves them; none if no layer has a cache.

    Raises:
        ValueError: blocks of states that differ in size.
    """

    groups: tuple[Group, ...] = field()
    hashed_ahead_tokens: int = field(default=0, validator=[instance_of(int), ge(0), le(1)])
    """How many tokens after a block its content depends on as well: the one that a draft layer has read there.

    Then hits need no look-ahead block.
    """

    @groups.validator
    def _ends_together(self, _attribute: Attribute[tuple[Group, ...]], groups: tuple[Group, ...]) -> None:
        if len({group.block_size_tokens for group in groups if group.attention.stops_at_block_ends}) > 1:
            raise ValueError("all groups that keep states at block ends must have blocks of the same size")

    @cached_property
    def alignment_tokens(self) -> int:
        """Every hit length is a multiple of this: the least common multiple of the units that serve hits."""
        return lcm(*(group.unit for group in self.groups if group.attention.serves_hits))

    @cached_property
    def grain_tokens(self) -> int:
        """The greatest token count that divides the unit of every group that serves hits: the grain of content."""
        return gcd(*(group.unit for group in self.groups if group.attention.serves_hits)) or 1

    @cached_property
    def lookahead_tokens(self) -> int:
        """How many tokens more than it serves a hit must match in the group that asks for most."""
        return max((group.lookahead_tokens for group in self.groups), default=0)

    @cached_property
    def has_draft_layer(self) -> bool:
        """Whether a layer that drafts keeps what it computes in one of the groups."""
        return self.lookahead_tokens > 0 or self.hashed_ahead_tokens > 0

    def anchor(self, group: Group, end: int) -> tuple[int, int]:
        """The half-open range of blocks before index ``end`` that a hit at the last boundary there reads.

        The look-ahead after the boundary is before ``end`` too, so these blocks suffice for a hit in this group. Empty
        where no window slides.
        """
        if not group.slides:
            return end, end
        alignment = self.alignment_tokens
        within_tokens = max(0, end * group.block_size_tokens - group.lookahead_tokens)
        return group.blocks_needed(within_tokens // alignment * alignment)

    @cached_property
    def state_block_tokens(self) -> int | None:
        """The block at whose ends the chunks of a prompt end, where states are kept at block ends only; else None."""
        stops = (group.block_size_tokens for group in self.groups if group.attention.stops_at_block_ends)
        return next(stops, None)

    @cached_property
    def keeps_states(self) -> bool:
        """Whether some group keeps states, which cannot be taken back by a token."""
        return any(group.keeps_states for group in self.groups)

    @cached_property
    def fences(self) -> bool:
        """Whether a step matters: what it computes cannot serve every hit before it was dispatched."""
        return any(group.fences for group in self.groups)
