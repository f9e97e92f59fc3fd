"""Findings: known differences between a published system and the reference, each in a folder of its own.

A known difference is counted and reported in every run. Findings are vLLM's, of one release or of many, and
vLLM-Ascend's: in any other system the same fault is a new divergence.
"""

from __future__ import annotations

from typing import Any

from kvgate.adapters.stock import Stock
from kvgate.findings.explaining import explains
from kvgate.findings.finding import Engine, LiveReference, Miscount
from kvgate.findings.register import all_findings
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Hit
from kvreference.geometry import Geometry


def explain(divergence: Divergence, lockstep: Lockstep) -> str | None:
    """The id of the finding that explains ``divergence``, or None. ``lockstep`` is at the point where it diverged."""
    system = lockstep.system
    if not isinstance(system, Stock):
        return None
    # What a system is there to fix is a new divergence in it.
    found = (
        each.id for each in all_findings() if each.id not in system.fixes() and explains(each, divergence, lockstep)
    )
    return next(found, None)


def explain_engine(divergence: Divergence, engine: Engine) -> str | None:
    """The same for a divergence of a scheduler: a finding of the scheduler, or of the block manager."""
    known = all_findings()
    for finding in known:
        if finding.explains_engine is not None and finding.explains_engine(divergence, engine):
            return finding.id
    explained = explain(divergence, engine.lockstep)
    if explained is not None or engine.lockstep.reference is not None:
        return explained
    for finding in known:
        recognises, fixed = finding.explains_unreferenced, engine.followed.fixes()
        applies = finding.releases is None or engine.followed.release in finding.releases
        if recognises is not None and applies and finding.id not in fixed and recognises(divergence, engine):
            return finding.id
    return None


def explain_pair(divergence: Divergence, pair: Any) -> str | None:
    """The same for a divergence of two nodes, by what the node reports; none is known of both together.

    A load on the decode node that waits can hold up the prefill node, and is still the same finding.
    """
    seen = next((each for each in pair.seen if each.told == divergence), None)
    if seen is None or seen.on_node is None:
        return None
    return explain_engine(seen.on_node, seen.engine)


# Live


def explain_hit(live: LiveReference, number: int, hit: Hit) -> str | None:
    """The id of the finding by which a live look-up found ``hit`` for a request, or None."""
    counted = live.cache.statistics
    try:
        for finding in all_findings():
            if finding.explains_hit is not None and finding.explains_hit(live, number, hit):
                return finding.id
        return None
    finally:
        live.cache.statistics = counted


def explain_gate(live: LiveReference, call: Any, hit: Hit) -> str | None:
    """The id of the finding by which the live admission gate gave its answer, or None."""
    for finding in all_findings():
        if finding.explains_gate is not None and finding.explains_gate(live, call, hit):
            return finding.id
    return None


class Miscounted:
    """How many blocks too many a live engine reports as free by known findings: its counter stays off permanently."""

    def __init__(self) -> None:
        self._counts: dict[str, Miscount] = {
            finding.id: finding.miscount() for finding in all_findings() if finding.miscount is not None
        }

    @property
    def blocks(self) -> int:
        """How many blocks too many."""
        return sum(count.blocks for count in self._counts.values())

    def admit(self, geometry: Geometry, call: Any, hit: Hit) -> None:
        """Note an allocation."""
        for count in self._counts.values():
            count.admit(geometry, call, hit)

    def explain(self, expected: int, got: int) -> str | None:
        """The id of the finding by which the engine reports ``got`` free blocks, or None."""
        explaining = [finding for finding, count in self._counts.items() if count.explains(expected, got)]
        return next(iter(explaining), None)
