"""What every report says, whatever its format: outcome, claims, stories, what is declared, what was not tested.

It is worked out once for all formats, and it is what bounds them: only so many divergences are told, the others are
counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from kvgate.gate.case_runner import MONITORS
from kvgate.gate.story import headline, tell
from kvgate.gate.verdict import Found, Verdict
from kvgate.kernel.text import counted, printable

STORIES_MAX = 20
"""How many divergences one report tells."""
DECLARED_MAX = 20
"""How many declared differences one report lists."""

CLAIMS = {
    "lockstep": "every answer, and the observable state after every operation, is the reference's",
    "following": "every answer, and the observable state after every operation, is that of the reference which follows "
    "the system's choice among free blocks; order apart",
    "twice": "the cases that were run a second time gave the same answers and the same states",
    "check": "the KV-INV statements hold in the system's state after every operation",
    "ghost": "whatever a computed token reads is in its slot (KV-MEM)",
    "leak": "once no request is alive, nothing of any request remains (KV-LEAK)",
    "handover": "what the decode node is to read stays held on the prefill node, and arrives as it was (KV-OP-25, "
    "KV-MEM)",
    "progress": "nobody whom the scheduler could bring on stands still for ever (KV-LIVE)",
    "scheduler": "what the scheduler knows, asks for and tells the worker is what was done (KV-SYS)",
    "batch": "what the worker is told is what was granted, within the limits of a step (KV-SYS-03)",
    "line": "nobody is passed by who came later, or left out where there is room (KV-LIVE-01, KV-LIVE-02)",
    "clients": "every client is told what its requests were answered, and why they ended, once (KV-SYS-05)",
    "chunks": "whoever is served computes as much as there is and the limits allow (KV-SYS-06)",
    "work": "a decode step does the same work at any length of the context (KV-WORK), counted in operations",
}
"""What the silence of each detector would say."""


@frozen
class Told:
    """One divergence, as reports tell it."""

    found: Found
    headline: str
    story: str
    brief: str
    """The story without the operations that led there."""
    reproducer: Path | None
    page: Path | None = None
    """The page that shows it."""


@frozen
class Contents:
    """What is reported of one verdict. All lines are printable."""

    verdict: Verdict
    outcome: str
    """The verdict in one line."""
    claims: tuple[str, ...]
    circumstances: str
    told: tuple[Told, ...]
    left_out: tuple[Found, ...]
    """What was found and is not told."""
    declared: tuple[str, ...]
    """A line for each declared difference, with its finding and how often it was seen."""
    not_tested: tuple[str, ...]


def contents_of(
    verdict: Verdict,
    not_tested: Sequence[str],
    reproducers: Mapping[int, Path],
    pages: Mapping[int, Path] | None = None,
) -> Contents:
    """Work out what is reported of ``verdict``.

    ``reproducers`` maps an index in ``found`` to its trace file, ``pages`` to its page.
    """
    shown = pages or {}
    return Contents(
        verdict=verdict,
        outcome=_outcome(verdict),
        claims=tuple(f"{printable(name)}: {CLAIMS.get(name, 'no violation')}" for name in verdict.detectors),
        circumstances=(
            f"system {printable(verdict.system)}, version {printable(verdict.version)}, "
            f"profile {printable(verdict.profile)}, seed {verdict.seed}, "
            f"{verdict.seconds:.1f} s, {printable(verdict.ended)}"
        ),
        told=tuple(
            _told(verdict, found, reproducers.get(index), shown.get(index))
            for index, found in enumerate(verdict.found[:STORIES_MAX])
        ),
        left_out=verdict.found[STORIES_MAX:],
        declared=_declared(verdict.declared),
        not_tested=(*_not_run(verdict), *map(printable, not_tested)),
    )


def _outcome(verdict: Verdict) -> str:
    number = "no divergence" if verdict.agrees else counted(len(verdict.found), "divergence")
    outcome = f"{number} in {counted(verdict.operations, 'operation')}, {counted(verdict.cases, 'case')}"
    return outcome if verdict.operations else f"{outcome}: nothing was run"


def _told(verdict: Verdict, found: Found, reproducer: Path | None, page: Path | None) -> Told:
    def story(**bounds: int) -> str:
        return tell(
            found,
            system=verdict.system,
            version=verdict.version,
            reproducer=reproducer,
            preloads=verdict.preloads,
            instead=verdict.instead,
            page=page,
            **bounds,
        )

    return Told(found, headline(found), story(), story(operations_max=0), reproducer, page)


def _declared(declared: Sequence[Found]) -> tuple[str, ...]:
    lines = [
        f"{printable(found.finding or 'without an id')}: {found.divergence.difference.statement}, "
        f"{printable(found.divergence.difference.subject)}, found by {printable(found.divergence.detector)}, "
        f"seen {counted(found.times, 'time')}"
        for found in declared[:DECLARED_MAX]
    ]
    if declared[DECLARED_MAX:]:
        lines.append(f"{counted(len(declared) - DECLARED_MAX, 'declared difference')} more, left out here")
    return tuple(lines)


def _not_run(verdict: Verdict) -> list[str]:
    """What the verdict itself says was not tested."""
    sentences = [
        f"What {detector} would judge: {CLAIMS[detector]}."
        for detector in ("lockstep", *MONITORS)
        # In lockstep a state equals one that satisfies the invariants.
        if detector not in verdict.detectors and not (detector == "check" and "lockstep" in verdict.detectors)
    ]
    if verdict.cut:
        sentences.append(
            f"What comes behind a declared difference, which ends its case: {verdict.cut} of "
            f"{counted(verdict.cases, 'case')} ended early."
        )
    if verdict.alone:
        sentences.append(
            "What the reference would say where steps are asynchronous, and behind a load that failed: it did not "
            f"follow {verdict.alone} of {counted(verdict.operations, 'operation')}, which the monitors judged alone."
        )
    if verdict.ended != "completed":
        sentences.append(f"The run ended early ({printable(verdict.ended)}); the cases left were not run.")
    return sentences
