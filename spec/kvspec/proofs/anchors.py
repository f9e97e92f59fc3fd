"""Chapter 10: what a long drop pins serves a hit, with nothing else of its group."""

from __future__ import annotations

from typing import Any

from kvreference.attention import Kind
from kvreference.geometry import Geometry
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs.retention import WINDOW, window_of
from kvspec.stand_in import any_geometry, sizes


def anchor(u: Any) -> Any:
    """What is pinned of a drop that ends before block ``end``, by the code that runs."""
    return Geometry.anchor(any_geometry(alignment_tokens=u.alignment), window_of(u), u.end)


def _is_last_within(u: Any) -> Any:
    """Whether ``boundary`` is the last at which a hit matches nothing behind the drop."""
    dropped, matched = u.end * u.block, window_of(u).tokens_matched(u.boundary)
    return (u.boundary % u.alignment == 0) & (matched <= dropped) & (matched + u.alignment > dropped)


def _reads_just_that(u: Any) -> Any:
    (first, end), (reads, behind) = anchor(u), window_of(u).blocks_needed(u.boundary)
    return (first == reads) & (end == behind) & (end <= u.end)


ANCHOR = Obligation(
    id="pinned-tier.anchor-serves-a-hit",
    statements=("KV-OP-21",),
    sentence="What a long window drop pins is exactly what a hit at the last boundary within the drop reads, "
    "look-ahead included, and nothing behind the drop: the pins serve that hit without another block of the group.",
    unknowns={**WINDOW, "alignment": Count(1), "end": Count(1), "boundary": Count(1)},
    given=_is_last_within,
    shows=_reads_just_that,
    witnesses={
        "a draft layer, and a drop behind the boundary": lambda u: (
            (u.lookahead == 1) & (u.alignment >= 2 * u.block) & (u.end * u.block > u.boundary + u.block)
        )
    },
    mutants=(
        only(
            "anchor-without-lookahead",
            "The blocks before the drop's end are pinned, of which a draft layer needs one behind it.",
            "kvreference.geometry:Geometry.anchor",
            lambda its, group, end: group.blocks_needed(
                end * group.block_size_tokens // its.alignment_tokens * its.alignment_tokens
            ),
        ),
        only(
            "anchor-at-no-boundary",
            "The blocks before the drop's end are pinned, whether a hit may end there or not.",
            "kvreference.geometry:Geometry.anchor",
            lambda its, group, end: group.blocks_needed(end * group.block_size_tokens - group.lookahead_tokens),
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead", alignment="alignment_tokens"),
)

OBLIGATIONS = (ANCHOR,)
