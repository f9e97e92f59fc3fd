"""The groups that the scenarios are made of."""

from __future__ import annotations

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode


def full(size: int = 16, *, eagle: bool = False, ratio: int = 1, whole_slots: bool = False) -> Group:
    """Full attention, or latent attention of which ``ratio`` tokens share a slot; ``size`` in tokens."""
    return Group(Kind.FULL, size, lookahead=eagle, compress_ratio=ratio, whole_slots=whole_slots)


def window(tokens: int, size: int = 16, *, eagle: bool = False) -> Group:
    """A sliding window."""
    return Group(Kind.SLIDING_WINDOW, size, tokens, eagle)


def states(size: int = 16, mode: StateMode = StateMode.ALIGN, drafts: int = 0) -> Group:
    """A group of a state-space layer."""
    return Group(Kind.MAMBA, size, states=mode, draft_states=drafts)


def of(*groups: Group) -> Geometry:
    """A geometry."""
    return Geometry(groups)
