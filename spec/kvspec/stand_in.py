"""Stand-ins: groups, geometries and settings of which the sizes are not known.

The classes of the reference reject all but ints. So a group is made without its validators, and a geometry and settings
are replaced by what a formula reads of them.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen, validators

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode


def group(kind: Kind, block_size_tokens: Any, window_tokens: Any = None, **others: Any) -> Group:
    """A group of any sizes, terms or ints."""
    with validators.disabled():
        return Group(kind, block_size_tokens, window_tokens, **others)


@frozen
class _Geometry:
    """What retention and admission read of a geometry."""

    groups: tuple[Group, ...] = ()
    alignment_tokens: Any = 1
    lookahead_tokens: Any = 0
    hashed_ahead_tokens: int = 0


@frozen
class _Settings:
    """What admission reads of settings."""

    geometry: _Geometry
    chunk_tokens: Any = 1
    tokens_max: Any = 1
    blocks: Any = 2


def any_geometry(*groups: Group, alignment_tokens: Any = 1, lookahead_tokens: Any = 0) -> Any:
    """A geometry of any sizes."""
    return _Geometry(groups, alignment_tokens, lookahead_tokens)


def any_settings(geometry: Any, chunk_tokens: Any, tokens_max: Any, blocks: Any) -> Any:
    """Settings of any sizes."""
    return _Settings(geometry, chunk_tokens, tokens_max, blocks)


def sizes(kind: Kind, *modes: StateMode, **others: str) -> Any:
    """``binds`` of an obligation about one group of ``kind``, of which the unknowns are ``block`` and ``window``.

    Of a group that keeps states it speaks in these ``modes``. ``others`` are more unknowns, and the attribute of the
    geometry, or of the group, that they stand for.
    """

    def bound(geometry: Geometry, its: Group) -> dict[str, int] | None:
        if its.kind is not kind or (its.states is not None and its.states not in modes):
            return None
        values = {"block": its.block_size_tokens}
        if its.window_tokens is not None:
            values["window"] = its.window_tokens
        for unknown, name in others.items():
            values[unknown] = int(getattr(geometry if hasattr(geometry, name) else its, name))
        return values

    return bound
