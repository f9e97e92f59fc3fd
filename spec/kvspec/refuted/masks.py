"""Refuted: a mask that does not know the look-ahead.

z3 finds the smallest model and boundary at which a block is never cached that a hit there reads. Played on the block
manager, a prompt that was computed to its end is sent again, and nothing is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import validators

from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, LookUp, Operation, Run
from kvreference.settings import Settings
from kvspec.obligation import Count, Obligation
from kvspec.refuted.block_managers import MaskWithoutShift, UnshiftedSparse
from kvspec.refuted.replay import Refuted, Replay
from kvspec.stand_in import any_geometry, group


def _is_cached(u: Any) -> Any:
    its = group(Kind.SLIDING_WINDOW, u.block_size_tokens, u.window_tokens, lookahead=True)
    geometry = any_geometry(alignment_tokens=u.boundary_tokens, lookahead_tokens=its.lookahead_tokens)
    # The design makes a group of its own, of the same sizes.
    with validators.disabled():
        due = UnshiftedSparse(geometry, u.boundary_tokens).due_tokens(its, u.index, u.boundary_tokens)
    first, end = its.blocks_needed(u.boundary_tokens)
    return due is not None or u.index < first or u.index >= end


def _replay(values: Mapping[str, Any]) -> Replay:
    block, window, boundary = (values[name] for name in ("block_size_tokens", "window_tokens", "boundary_tokens"))
    geometry = Geometry((Group("full", boundary), Group("sliding_window", block, window, lookahead=True)))
    prompt_tokens = boundary + block + 1
    settings = Settings(
        geometry, blocks=64, chunk_tokens=prompt_tokens, retention_interval_tokens=geometry.alignment_tokens
    )
    prompt = (Run(0, prompt_tokens),)
    operations: tuple[Operation, ...] = (
        Arrive(0, prompt),
        Admit(0, prompt_tokens),
        Finish(0),
        Arrive(1, prompt),
        LookUp(1),
    )
    design, sound = (_hit_tokens(each(settings), operations) for each in (MaskWithoutShift, Manager))
    return Replay(
        settings,
        operations,
        f"a hit of {design} tokens",
        f"a hit of {sound} tokens",
        design_fails=design != boundary,
        sound_fails=sound != boundary,
    )


def _hit_tokens(manager: Manager, operations: tuple[Operation, ...]) -> int:
    *before, last = operations
    for operation in before:
        manager.apply(operation)
    hit = manager.apply(last)
    assert isinstance(hit, Hit)
    return hit.tokens


MASKS = (
    Refuted(
        "mask-without-shift",
        "KV-OP-16",
        "The mask keeps the tail before each boundary and not the look-ahead block after it: no replay ever hits.",
        Obligation(
            id="refuted.mask-without-shift",
            statements=("KV-OP-16",),
            title="Every block that a hit at an admitted boundary reads is cached.",
            unknowns={
                "block_size_tokens": Count(1),
                "window_tokens": Count(2),
                "boundary_tokens": Count(1),
                "index": Count(0),
            },
            assumes=lambda u: u.boundary_tokens % u.block_size_tokens == 0,
            claim=_is_cached,
            witnesses={},
            mutants=(),
        ),
        _replay,
    ),
)
"""The mask, refuted."""
