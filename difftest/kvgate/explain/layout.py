"""What a model's cache looks like, wherever that is known from: groups, bytes, and how many blocks there are."""

from __future__ import annotations

from attrs import frozen

from kvgate.explain.layers import Placed
from kvreference.geometry import Geometry


@frozen
class Layout:
    """The groups of a model as it is served."""

    name: str
    source: str
    """Where the groups are known from, in a few words."""
    groups: tuple[Placed, ...]
    caches: bool
    """Whether prefix caching is on."""
    block_bytes: int | None = None
    """How many bytes one block of the pool takes; None if that is not known."""
    blocks: int | None = None
    """How many blocks the pool has, the null block among them; None if that is not known."""
    max_model_len: int | None = None
    """How long a request may become, if it is known from the model."""
    notes: tuple[str, ...] = ()
    """What was taken for granted."""
    hashed_ahead_tokens: int = 0
    """How many tokens after a block its hash covers."""
    counts_draft_layers: bool = True
    """Whether the layers of the draft model, if there is one that keeps any, are among the groups."""

    @property
    def geometry(self) -> Geometry:
        """The groups as the reference knows them."""
        return Geometry(tuple(placed.group for placed in self.groups), self.hashed_ahead_tokens)

    @property
    def has_states(self) -> bool:
        """Whether there are state-space layers."""
        return self.geometry.keeps_states
