"""Chapter 07: a look-ahead is matched once, is one unit, and costs no more than one alignment."""

from __future__ import annotations

from typing import Any

from kvreference import retention
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs import hit_lookup
from kvspec.proofs.hit_lookup import ACCEPTED, accepts
from kvspec.stand_in import any_geometry, group, sizes

WINDOW = {"block": Count(1), "window": Count(2)}

TWICE = only(
    "dropped-twice",
    "The look-ahead is asked for twice, as where every round of a look-up drops a block again.",
    "kvreference.geometry:Group.tokens_matched",
    lambda self, hit_tokens: hit_tokens + 2 * self.lookahead_tokens,
)
NEVER = only(
    "not-dropped",
    "No look-ahead is asked for.",
    "kvreference.geometry:Group.tokens_matched",
    lambda self, hit_tokens: hit_tokens,
)


def window_of(u: Any, lookahead: bool) -> Group:
    """A sliding window, with a draft layer or without."""
    return group(Kind.SLIDING_WINDOW, u.block, u.window, lookahead=lookahead)


def full_of(u: Any, lookahead: bool) -> Group:
    """Full attention, compressed or not, with a draft layer or without."""
    return group(Kind.FULL, u.block, unit_tokens=u.unit, lookahead=lookahead)


def _one_block_more(u: Any) -> Any:
    (first, end), (before, until) = (window_of(u, flag).blocks_needed(u.hit) for flag in (False, True))
    return (first == before) & (until == end + 1) & (end * u.block == u.hit)


ONE_BLOCK = Obligation(
    id="eagle.one-block-behind-the-hit",
    statements=("KV-OP-01", "KV-OP-15"),
    title="With a draft layer a hit needs the same blocks and one more: the block that begins where the hit ends.",
    unknowns={**WINDOW, "hit": Count(1)},
    assumes=lambda u: u.hit % u.block == 0,
    claim=_one_block_more,
    witnesses={
        "in a window of several blocks": lambda u: (u.window > 2 * u.block) & (u.block >= 2) & (u.hit > u.window)
    },
    mutants=(TWICE, NEVER),
    binds=sizes(Kind.SLIDING_WINDOW),
)

ONE_UNIT = Obligation(
    id="eagle.one-unit-is-matched",
    statements=("KV-OP-01",),
    title="A group with a draft layer accepts no hit after which less than a unit is cached, at any length: "
    " all full blocks up to the end of that unit are there, and if it ends inside a block, its beginning is.",
    unknowns=ACCEPTED,
    assumes=lambda u: (u.lookahead == 1) & (u.hit >= 1) & (u.block % u.unit == 0) & (u.hit % u.unit == 0) & accepts(u),
    claim=lambda u: (
        (u.absent[0] == u.absent[(u.hit + u.unit) // u.block])
        & (u.hit + u.unit < u.tokens)
        & (((u.hit + u.unit) % u.block == 0) | (u.begins == 1))
    ),
    witnesses={"inside a block": lambda u: ((u.hit + u.unit) % u.block > 0) & (u.hit > u.block) & (u.unit >= 2)},
    mutants=(NEVER,),
    binds=lambda geometry, its: hit_lookup.binds(geometry, its) if its.lookahead else None,
)

COST = Obligation(
    id="eagle.costs-one-alignment",
    statements=("KV-OP-01",),
    title="Where full attention accepts a hit without a draft layer, it accepts the hit one alignment shorter with "
    "one: it needs no block, and no token, that the longer hit does not.",
    unknowns={"block": Count(1), "unit": Count(1), "alignment": Count(1), "hit": Count(1)},
    assumes=lambda u: (u.alignment % u.unit == 0) & (u.hit > u.alignment),
    claim=lambda u: (
        (full_of(u, True).tokens_matched(u.hit - u.alignment) <= full_of(u, False).tokens_matched(u.hit))
        & (full_of(u, True).blocks_needed(u.hit - u.alignment)[0] >= full_of(u, False).blocks_needed(u.hit)[0])
        & (full_of(u, True).blocks_needed(u.hit - u.alignment)[1] <= full_of(u, False).blocks_needed(u.hit)[1])
    ),
    witnesses={
        "a unit of several in a block": lambda u: (u.unit >= 2) & (u.block == 2 * u.unit) & (u.alignment == u.block)
    },
    mutants=(TWICE,),
    binds=lambda geometry, its: (
        {"block": its.block_size_tokens, "unit": its.unit, "alignment": geometry.alignment_tokens}
        if its.kind is Kind.FULL
        else None
    ),
)


WINDOW_COST = Obligation(
    id="eagle.window-costs-one-alignment",
    statements=("KV-OP-01",),
    title="In a sliding window with a draft layer, the hit one alignment shorter needs no block after the end of "
    "the longer hit: if all before that is cached, it loses one alignment and no more.",
    unknowns={**WINDOW, "alignment": Count(1), "hit": Count(1)},
    assumes=lambda u: (u.alignment % u.block == 0) & (u.hit % u.block == 0) & (u.hit > u.alignment),
    claim=lambda u: window_of(u, True).blocks_needed(u.hit - u.alignment)[1] * u.block <= u.hit,
    witnesses={"in a window of several blocks": lambda u: (u.window > 2 * u.block) & (u.block >= 2)},
    mutants=(TWICE,),
    binds=sizes(Kind.SLIDING_WINDOW, alignment="alignment_tokens"),
)


def _replay(u: Any, lookahead_tokens: Any) -> Any:
    its = any_geometry(alignment_tokens=u.alignment, lookahead_tokens=lookahead_tokens)
    return retention.replay_boundary(its, u.prompt)


REPLAY = Obligation(
    id="eagle.replay-costs-one-alignment",
    statements=("KV-OP-16",),
    title="With a draft layer, a replay hits what it would hit without one, or one alignment less.",
    unknowns={"alignment": Count(1), "lookahead_most": Count(0), "prompt": Count(1)},
    assumes=lambda u: u.lookahead_most <= u.alignment,
    claim=lambda u: (
        (_replay(u, u.lookahead_most) <= _replay(u, 0)) & (_replay(u, u.lookahead_most) + u.alignment >= _replay(u, 0))
    ),
    witnesses={
        "it costs one": lambda u: (_replay(u, u.lookahead_most) < _replay(u, 0)) & (u.lookahead_most < u.alignment),
        "it costs nothing": lambda u: (_replay(u, u.lookahead_most) == _replay(u, 0)) & (u.lookahead_most > 1),
    },
    mutants=(
        only(
            "dropped-in-every-group",
            "Each of three groups asks for a look-ahead of its own after that of the others.",
            "kvreference.retention:replay_boundary",
            lambda geometry, prompt: (
                max(0, prompt - 1 - 3 * geometry.lookahead_tokens)
                // geometry.alignment_tokens
                * geometry.alignment_tokens
            ),
        ),
    ),
    binds=lambda geometry, _its: {
        "alignment": geometry.alignment_tokens,
        "lookahead_most": geometry.lookahead_tokens,
    },
)

OBLIGATIONS = (ONE_BLOCK, ONE_UNIT, COST, WINDOW_COST, REPLAY)
