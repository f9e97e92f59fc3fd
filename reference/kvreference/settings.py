"""The settings of a block manager, and the limits that its scheduler keeps."""

from __future__ import annotations

from functools import cached_property

from attrs import Attribute, field, frozen
from attrs.validators import ge, instance_of, optional

from kvreference.geometry import Geometry


@frozen
class Settings:
    """The settings of one system.

    Raises:
        ValueError: a pool without a usable block, a limit below one; a retention interval that is not a multiple of the
            alignment, or for a model without a sliding window or states; prefix caching where no states are kept for
            it.
    """

    geometry: Geometry
    blocks: int = field(validator=[instance_of(int), ge(1)])
    """How many blocks the pool has, including the null block: only this one if the model has no group."""
    tokens_max: int = field(default=1024, validator=[instance_of(int), ge(2)])
    """The longest a request may become, in tokens."""
    chunk_tokens: int = field(default=64, validator=[instance_of(int), ge(1)])
    """The most tokens that one step computes for a request."""
    requests_max: int = field(default=8, validator=[instance_of(int), ge(1)])
    """How many requests may be alive at once."""
    drafts_max: int = field(default=0, validator=[instance_of(int), ge(0)])
    """How many draft tokens are proposed at most after a sampled one."""
    caches: bool = field(default=True)
    """Whether prefix caching is on."""
    tells_events: bool = True
    """Whether KV events are reported."""
    full_sequence_must_fit: bool = True
    """Whether a request is admitted only if all of its tokens fit, not merely its first chunk."""
    retention_interval_tokens: int | None = field(default=None, validator=optional([instance_of(int), ge(0)]))
    """At which boundaries sliding windows and states are cached; see ``kvreference.retention``."""
    scratch_first: bool = False
    """Whether scratch goes to the front of the free queue when it is released."""
    pin_drop_blocks_min: int | None = field(default=None, validator=optional([instance_of(int), ge(1)]))
    """The shortest window drop, in blocks, of which a tail is pinned; None: nothing is ever pinned."""
    partial_hit_tokens_min: int = field(default=0, validator=[instance_of(int), ge(0)])
    """The shortest hit that may end inside a block: a shorter one is not worth a copy."""
    draft_model: bool = False
    """Whether a model of its own drafts, which keeps what it computes in the same blocks."""
    keeps_junctions: bool = False
    """Whether, with a retention interval, the boundary is kept at which a prompt parts from what is cached."""
    steps_in_flight_max: int = field(default=1, validator=[instance_of(int), ge(1)])
    """How many steps are dispatched at most before the answers of the first are known; see ``kvreference.ahead``."""
    loads_out_of_turn: bool = False
    """Whether another node may write a block before the steps that were dispatched earlier are over."""

    @blocks.validator
    def _has_a_block(self, _attribute: Attribute[int], blocks: int) -> None:
        if blocks < 2 and self.geometry.groups:
            raise ValueError(f"a pool of {blocks} blocks has none besides the null block: at least 2 are needed")

    @retention_interval_tokens.validator
    def _interval_fits_geometry(self, _attribute: Attribute[int | None], interval_tokens: int | None) -> None:
        if interval_tokens is None:
            return
        alignment = self.geometry.alignment_tokens
        if interval_tokens % alignment:
            raise ValueError(
                f"a retention interval of {interval_tokens} tokens is not a multiple of the scheduler block size, "
                f"{alignment} tokens"
            )
        if not any(group.is_sparse for group in self.geometry.groups):
            raise ValueError("a retention interval needs a sliding-window or a mamba group, and the model has neither")

    @caches.validator
    def _caches_states(self, _attribute: Attribute[bool], caches: bool) -> None:
        if caches and not all(group.attention.serves_hits for group in self.geometry.groups):
            raise ValueError("prefix caching needs the states of a mamba group kept: mode all or align, not none")

    @drafts_max.validator
    def _drafts_have_states(self, _attribute: Attribute[int], drafts_max: int) -> None:
        if any(group.keeps_states and group.draft_states < drafts_max for group in self.geometry.groups):
            raise ValueError(f"{drafts_max} drafts in flight need as many draft_states in every mamba group")

    @cached_property
    def lookahead_tokens(self) -> int:
        """How many slots after the tokens to be computed a running request gets for the draft layers."""
        return self.drafts_max if self.geometry.has_draft_layer or self.draft_model else 0
