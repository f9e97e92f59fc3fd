"""What a block manager is built with, and the limits that its scheduler keeps."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, instance_of

from kvreference.geometry import Geometry


@frozen
class Settings:
    """The settings of one system.

    Raises:
        ValueError: a pool without a usable block, a limit below one.
    """

    geometry: Geometry
    blocks: int = field(validator=[instance_of(int), ge(2)])
    """How many blocks the pool has, the null block among them."""
    tokens_max: int = field(default=1024, validator=[instance_of(int), ge(2)])
    """The longest a request may become, in tokens."""
    chunk_tokens: int = field(default=64, validator=[instance_of(int), ge(1)])
    """The most tokens that one step computes for a request."""
    requests_max: int = field(default=8, validator=[instance_of(int), ge(1)])
    """How many requests may be alive at once."""
    drafts_max: int = field(default=0, validator=[instance_of(int), ge(0)])
    """How many draft tokens are proposed at most behind a sampled one."""
    caches: bool = True
    """Whether prefix caching is on."""
    tells_events: bool = True
    """Whether KV events are told."""
    full_sequence_must_fit: bool = True
    """Whether a request is admitted only if all of its tokens fit, not merely its first chunk."""

    @property
    def lookahead_tokens(self) -> int:
        """How many slots behind the tokens to be computed a running request gets for its draft layers."""
        return self.drafts_max if any(group.lookahead for group in self.geometry.groups) else 0
