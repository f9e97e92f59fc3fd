"""What is known of vLLM, told from what is new: the findings that explain a live difference.

A finding explains a difference only if the reference with its fault planted, in the same state, answers what the
engine answered.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.findings.declared import AlignedBeforeTheDrop, GateSubtractsSkippedBlocks, LookAheadVerifiedOnce
from kvgate.findings.faults import spread
from kvgate.findings.faults_of_releases import SecondGroupUncut
from kvgate.shadow.calls import Allocated, Gated
from kvgate.shadow.order_agnostic_reference import Following
from kvreference.answers import Hit
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit


class _Verified(LookAheadVerifiedOnce, Following):
    pass


class _Aligned(AlignedBeforeTheDrop, Following):
    pass


class _Uncut(SecondGroupUncut, Following):
    pass


class _Subtracts(GateSubtractsSkippedBlocks, Following):
    pass


_UNCUT = "014-second-full-group-not-cut"
_LOOK_UPS: Mapping[str, type[Following]] = {
    "005-lookahead-verified-at-another-length": _Verified,
    "006-aligned-before-the-drop": _Aligned,
    _UNCUT: _Uncut,
}


def explain_hit(following: Following, number: int, theirs: Hit) -> str | None:
    """The finding by which a live look-up answered ``theirs``, or None."""
    counted = following.cache.statistics
    try:
        for finding, kind in _LOOK_UPS.items():
            if following.seen_as(kind)._hit(following.population[number]) == theirs:
                return finding
        return "010-lookahead-spreads-to-equal-groups" if _spreads(following, number) == theirs else None
    finally:
        following.cache.statistics = counted


def _spreads(following: Following, number: int) -> Hit | None:
    geometry = spread(following.geometry)
    if geometry == following.geometry:
        return None
    tokens = len(following.population[number].tokens)
    return longest_hit(geometry, following.pool.cached, following.prefixes[number], tokens)


def explain_gate(following: Following, call: Gated, hit: Hit) -> str | None:
    """The finding by which the gate answered otherwise, or None."""
    answers = following.seen_as(_Subtracts).fits(call, hit)
    return "002-gate-subtracts-skipped-blocks" if answers == call.fits else None


class Miscounted:
    """How many blocks more than there are vLLM says to be free, by finding 014: its counter stays off for good."""

    def __init__(self) -> None:
        self.blocks = 0
        self._suspected = 0

    def admit(self, geometry: Geometry, call: Allocated, hit: Hit) -> None:
        """A request is let in: where tables go on behind what is loaded, fewer blocks than none may be taken."""
        self._suspected = 0
        if call.is_first and call.external_tokens:
            end = call.computed + hit.tokens + call.external_tokens
            self._suspected = sum(
                max(0, len(blocks) - group.blocks_occupied(end))
                for group, blocks in zip(geometry.groups, hit.blocks, strict=True)
                if group.keeps_all
            )

    def explain(self, expected: int, said: int) -> str | None:
        """The finding by which so many blocks are said to be free, or None. From then on it is expected."""
        suspected, self._suspected = self._suspected, 0
        if not suspected or said != expected + suspected:
            return None
        self.blocks += suspected
        return _UNCUT
