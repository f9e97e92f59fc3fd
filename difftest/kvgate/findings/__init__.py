"""Findings: known differences between a published system and the reference, each in a folder of its own.

A finding changes the reference that the system is compared with (``kvgate.findings.modelled``). What no rule of the
reference is about, what remains at the end and what a scheduler does, is recognised here. Findings are those of one
release: in any other system the same fault is a new divergence.
"""

from __future__ import annotations

from typing import Any

from kvgate.adapters.releases import LMCACHE
from kvgate.findings.finding import Engine
from kvgate.findings.register import with_ids
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep


def explain(divergence: Divergence, lockstep: Lockstep) -> str | None:
    """The id of the finding that ``divergence`` is, or None. ``lockstep`` is at the point where it diverged."""
    for finding in lockstep.known.findings:
        if finding.explains is not None and finding.explains(divergence, lockstep):
            name: str = finding.id
            return name
    return None


def explain_engine(divergence: Divergence, engine: Engine) -> str | None:
    """The same for a divergence of a scheduler: a finding of the scheduler, or of the block manager."""
    for finding in engine.lockstep.known.findings:
        if finding.explains_engine is not None and finding.explains_engine(divergence, engine):
            name: str = finding.id
            return name
    return explain(divergence, engine.lockstep)


def goes_on(divergence: Divergence, engine: Engine) -> bool:
    """Whether ``divergence`` is a finding of the scheduler after which the run continues; it is then counted."""
    known = engine.lockstep.known
    for finding in known.findings:
        if finding.goes_on and finding.explains_engine is not None and finding.explains_engine(divergence, engine):
            found = divergence.difference
            known.note(finding, found.subject, found.expected, found.got, divergence.detector)
            return True
    return False


def explain_pair(divergence: Divergence, pair: Any) -> str | None:
    """The same for a divergence of two nodes, by what the node reports; none is known of both together.

    A load on the decode node that waits can hold up the prefill node, and is still the same finding.
    """
    seen = next((each for each in pair.seen if each.reported == divergence), None)
    if seen is None or seen.on_node is None:
        return None
    return explain_engine(seen.on_node, seen.engine)


def explain_tiers(divergence: Divergence, engine: Any) -> str | None:
    """The same for a divergence of an engine with a second tier, by the findings of its release and its connector."""
    hosted = LMCACHE.findings if engine.stage.own == LMCACHE.system else frozenset()
    for finding in with_ids(engine.subject.release.findings | hosted):
        explains = finding.explains if divergence.detector == "leak" else None
        if (finding.explains_tiers and finding.explains_tiers(divergence, engine)) or (
            explains and explains(divergence, engine.lockstep)
        ):
            name: str = finding.id
            return name
    return None
