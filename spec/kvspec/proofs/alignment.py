"""Chapter 05: hits end where a unit of every group ends, and never reach the last token.

The look-up itself, over all that may be cached, is ``proofs.hit_lookup``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from kvreference import hit_lookup, retention
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvspec.obligation import AMap, Count, Lemma, Obligation, Unknown, only
from kvspec.proofs.multiples import MULTIPLE
from kvspec.stand_in import any_geometry, group
from kvspec.symbolic import implies

UNIT_MOST = 6


def geometry_of(u: Any) -> Geometry:
    """Three groups with these units, as ints: each value on a way of its own."""
    return Geometry(tuple(Group(Kind.FULL, unit.__index__()) for unit in (u.one, u.two, u.three)))


def _least(u: Any) -> Any:
    units, alignment = (u.one, u.two, u.three), geometry_of(u).alignment_tokens
    whole = all(alignment % unit.__index__() == 0 for unit in units)
    common = all_of(u.tokens % unit.__index__() == 0 for unit in units)
    return whole & implies(common, u.tokens % alignment == 0)


def all_of(conditions: Any) -> Any:
    """That all are so, without a fork."""
    every: Any = True
    for condition in conditions:
        every = condition & every
    return every


LEAST = Obligation(
    id="hit-lookup.least-common-multiple",
    statements=("KV-OP-01",),
    sentence="The alignment is whole units of every group, and any length that is whole units of every group is a "
    "multiple of it.",
    unknowns={**{name: Count(1, UNIT_MOST) for name in ("one", "two", "three")}, "tokens": Count(0)},
    shows=_least,
    witnesses={"none divides another": lambda u: (u.one == 4) & (u.two == 6) & (u.three == 5) & (u.tokens > 60)},
    mutants=(
        only(
            "product-of-units",
            "The alignment is taken to be the product of the units.",
            "kvreference.geometry:lcm",
            lambda *units: prod(units),
        ),
        only(
            "largest-unit",
            "The alignment is taken to be the largest unit.",
            "kvreference.geometry:lcm",
            lambda *units: max(units),
        ),
    ),
    bound=f"three groups with units of up to {UNIT_MOST} tokens, at all lengths: the least common multiple is a loop "
    "in the standard library, for which no formula stands",
)

WHOLE = Obligation(
    id="hit-lookup.hits-are-whole-units",
    statements=("KV-OP-01", "KV-OP-16"),
    sentence="If the alignment is whole units of a group, every multiple of it is, and the longest hit of a replay "
    "with it: no hit ends where a unit of some group does not.",
    unknowns={
        "unit": Count(1),
        "alignment": Count(1),
        "times": Count(0),
        "prompt": Count(1),
        "lookahead_most": Count(0),
    },
    given=lambda u: u.alignment % u.unit == 0,
    shows=lambda u: (_replay(u) % u.unit == 0) & ((u.times * u.alignment) % u.unit == 0),
    lemmas=lambda u: tuple(
        Lemma(MULTIPLE, {"factor": factor, "multiple": u.alignment, "unit": u.unit})
        for factor in (u.times, _replay(u) // u.alignment)
    ),
    witnesses={"a replay hits": lambda u: (_replay(u) > 2 * u.alignment) & (u.alignment > u.unit) & (u.unit >= 2)},
    mutants=(
        only(
            "replay-to-the-token",
            "The longest hit of a replay is not cut to the alignment.",
            "kvreference.retention:replay_boundary",
            lambda geometry, prompt: max(0, prompt - 1 - geometry.lookahead_tokens),
        ),
    ),
    binds=lambda geometry, its: (
        {
            "unit": its.unit,
            "alignment": geometry.alignment_tokens,
            "lookahead_most": geometry.lookahead_tokens,
        }
        if its.attention.serves_hits
        else None
    ),
)


def _replay(u: Any) -> Any:
    its = any_geometry(alignment_tokens=u.alignment, lookahead_tokens=u.lookahead_most)
    return retention.replay_boundary(its, u.prompt)


class AnythingFound(hit_lookup._Found):
    """Whatever may be cached of one request in one group: counts of what is missing that are not known."""

    def __init__(self, its: Group, absent: Any, begins: Any) -> None:
        self.group = its
        self.absent = absent
        self.begins = begins

    def _beginning(self, _matched_tokens: int) -> int | None:
        return 1 if self.begins else None


def full_of(u: Any) -> Group:
    """A compressed group, inside of whose blocks hits may end, with a draft layer or not."""
    return group(Kind.FULL, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead))


def accepts(u: Any) -> Any:
    """Whether the group accepts the hit, by the code that runs."""
    return AnythingFound(full_of(u), u.absent, u.begins == 1).satisfies(u.hit, u.tokens)


ACCEPTED: dict[str, Unknown] = {
    "block": Count(1),
    "unit": Count(1),
    "lookahead": Count(0, 1),
    "hit": Count(0),
    "tokens": Count(1),
    "absent": AMap(),
    "begins": Count(0, 1),
}


def binds(_geometry: Geometry, its: Group) -> dict[str, int] | None:
    """A group of full attention, compressed or not."""
    if its.kind is not Kind.FULL:
        return None
    return {"block": its.block_size_tokens, "unit": its.unit, "lookahead": int(its.lookahead)}


LAST = Obligation(
    id="hit-lookup.last-token-is-computed",
    statements=("KV-OP-01",),
    sentence="No group accepts a hit that reaches the last token of a request, nor one behind which the look-ahead "
    "does, whatever is cached.",
    unknowns=ACCEPTED,
    given=accepts,
    shows=lambda u: (u.hit == 0) | (full_of(u).tokens_matched(u.hit) < u.tokens),
    witnesses={"all but the last": lambda u: (u.hit + u.unit == u.tokens - 1) & (u.hit > u.block) & (u.lookahead == 1)},
    mutants=(
        only(
            "last-token-served",
            "A hit may serve every token of a request.",
            "kvreference.hit_lookup:_Found.satisfies",
            lambda self, hit_tokens, tokens: hit_tokens == 0 or self.group.tokens_matched(hit_tokens) <= tokens,
        ),
    ),
    binds=binds,
)

OBLIGATIONS = (LEAST, WHOLE, LAST)
