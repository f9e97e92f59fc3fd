"""The report of a campaign, of a replay and of a conformance run: a ``Verdict`` of the gate as a ``Report``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cattrs

from kvgate import findings
from kvgate.findings.register import folder_of, with_ids
from kvgate.gate.level import Case
from kvgate.gate.story import command_to_replay, headline, tell
from kvgate.gate.verdict import FAILED, Found, PatchCoverage, TooSeldom, Verdict
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, FAULT, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.kernel.text import counted, printable
from kvgate.levels.manager import MONITORS
from kvgate.report.document import Column, Report, Section, Story
from kvreference.operations import Operation
from kvreference.statements import STATEMENTS

STORIES_MAX = 20
"""How many divergences one report shows."""
NEVER_RAN_MAX = 10
"""How many lines and branches of a patch one report names that never ran."""
LANES_MAX = 10
"""How many models and presets one report names of which no case was run."""
KNOWN_MAX = 20
"""How many known findings one report lists."""
TEXT_CHARACTERS_MAX = 10_000
"""How much of one text from outside is written."""
OPERATIONS_CHARACTERS_MAX = 100_000
"""How much of one case's operations is written, the last ones."""

CLAIMS = {
    "lockstep": "every answer, and the observable state after every operation, is the reference's",
    "following": "every answer, and the observable state after every operation, is that of the reference which follows "
    "the system's choice among free blocks; the order of free blocks is not compared",
    "twice": "the cases that were run a second time gave the same answers and the same states",
    "check": "the KV-INV statements hold in the system's state after every operation",
    "ghost": "the slot of every token that a computed token reads holds that token (KV-MEM)",
    "leak": "once no request is alive, nothing of any request remains (KV-LEAK)",
    "handover": "blocks that the decode node is to read stay held on the prefill node, and arrive unchanged "
    "(KV-OP-25, KV-MEM)",
    "progress": "every request that the scheduler could advance makes progress (KV-LIVE)",
    "worker": "the worker's block tables and slots, also those given to attention, are those of the blocks that were "
    "granted (KV-MEM-03, KV-SYS-03)",
    "scheduler": "the scheduler's own state, its requests to the block manager and its output to the worker agree with "
    "what was done (KV-SYS)",
    "batch": "the output of a step to the worker is what was granted, within the limits of a step (KV-SYS-03)",
    "line": "no request is overtaken by a later one, or left out where there is room (KV-LIVE-01, KV-LIVE-02)",
    "connector": "the connector of a scheduler is sent the hits and the blocks that requests have (KV-OP-24, KV-OP-25)",
    "encoder": "items are computed once, within limits, and kept while they are needed (KV-SYS-03, KV-MEM-01)",
    "statistics": "statistics and events that are published are those of what was done (KV-OP-12, KV-OP-13)",
    "clients": "every client receives the answers of its requests, and the reason why each ended, once (KV-SYS-05)",
    "chunks": "every scheduled request computes as many tokens as there are and the limits allow (KV-SYS-06)",
    "tiers": "jobs bring and take what their keys name, and nothing else uses a block of either tier then (KV-TIER, "
    "KV-MEM)",
    "work": "a decode step does the same work at any length of the context (KV-WORK), counted in operations",
}
"""What is claimed if a detector finds nothing."""
_TESTED = (
    *(Column("model"), Column("preset"), Column("cases"), Column("operations")),
    *(Column("cases_ended_early", shown=False), Column("operations_not_followed", shown=False)),
)


def report_of(
    verdict: Verdict,
    not_tested: Sequence[str] = (),
    reproducers: Mapping[int, Path] | None = None,
    pages: Mapping[int, Path] | None = None,
    command: str = "check",
) -> Report:
    """The report of ``verdict``.

    ``reproducers`` maps an index in ``found`` to its trace file, ``pages`` to its page.
    """
    files, shown = reproducers or {}, pages or {}
    tallies = tuple(
        (_cut(each.model), _cut(each.preset), each.cases, each.operations, each.cut, each.alone)
        for each in verdict.tallies
    )
    total = ("all", None, verdict.cases, verdict.operations, verdict.cut, verdict.alone)
    claimed = [(name, CLAIMS.get(name, "no violation")) for name in map(_cut, verdict.detectors)]
    return Report(
        command=command,
        outcome=_outcome(verdict),
        exit_code=_exit_code(verdict, command),
        ended=_cut(verdict.ended),
        circumstances={
            "system": _cut(verdict.system),
            "version": _cut(verdict.version),
            **({"changed by": printable(_cut(" ".join(verdict.changed)))} if verdict.changed else {}),
            "profile": _cut(verdict.profile),
            "seed": verdict.seed,
            **({"digest": verdict.digest} if verdict.digest else {}),
            "seconds": round(verdict.seconds, 3),
        },
        claimed=tuple(f"{printable(name)}: {claim}" for name, claim in claimed),
        tested=(
            *([Section("", notes=tuple(printable(_cut(each)) for each in verdict.models))] if verdict.models else []),
            Section("", _TESTED, tallies, total, keys=2),
            *_patch(verdict.patch),
            Section("detectors", (Column("detector"), Column("claim")), tuple(claimed), shown=False),
        ),
        found=(
            *(
                _story(verdict, found, files.get(index), shown.get(index))
                for index, found in enumerate(verdict.found[:STORIES_MAX])
            ),
            *map(_story_of_silence, verdict.too_seldom),
        ),
        found_left_out=len(verdict.found[STORIES_MAX:]),
        known=tuple(map(_known, verdict.declared[:KNOWN_MAX])),
        known_left_out=len(verdict.declared[KNOWN_MAX:]),
        not_tested=(*_not_run(verdict), *map(printable, not_tested)) or ("Anything outside these cases.",),
    )


def _patch(patch: PatchCoverage | None) -> Iterator[Section]:
    """How much of a patch ran."""
    if patch is None:
        return
    lines, ways = counted(patch.lines, "changed line"), counted(patch.branches, "branch", "branches")
    note = f"patch: {patch.lines_ran} of {lines} ran, {patch.branches_ran} of {ways}"
    columns = (Column("path"), Column("line"), Column("text"), Column("to"))
    rows = tuple((each.path, each.line, each.text, each.to) for each in patch.never)
    yield Section("", notes=(note,))
    yield Section("never ran", columns, rows, shown=False)


def _never_ran(patch: PatchCoverage) -> Iterator[str]:
    """What of a patch a run says nothing about."""
    if patch.lines and not patch.lines_ran:
        yield f"The patch: none of its {counted(patch.lines, 'line')} ran, so this run says nothing about it."
        return
    for each in patch.never[:NEVER_RAN_MAX]:
        text = f"`{printable(each.text)}` in line {each.line} of {printable(Path(each.path).name)}"
        if each.to is None:
            yield f"The patch: {text} never ran."
        else:
            to = f"line {each.to}" if each.to > 0 else "the end of the function"
            yield f"The patch: {text} ran, and its branch to {to} was never taken."
    if len(patch.never) > NEVER_RAN_MAX:
        yield f"The patch: {len(patch.never) - NEVER_RAN_MAX} more lines or branches never ran."


def _exit_code(verdict: Verdict, command: str) -> int:
    if not verdict.agrees:
        return DIVERGENCE
    if verdict.ended == FAILED:
        return FAULT
    if verdict.ended == "interrupted":
        return INTERRUPTED
    # A fuzzing run can lose all its workers.
    is_partial = command == "fuzz" and (verdict.operations == 0 or verdict.ended.endswith("lost"))
    return NOT_EXHAUSTIVE if is_partial else AGREEMENT


def _outcome(verdict: Verdict) -> str:
    divergences = len(verdict.found) + len(verdict.too_seldom)
    number = "no divergence" if verdict.agrees else counted(divergences, "divergence")
    outcome = f"{number} in {counted(verdict.operations, 'operation')}, {counted(verdict.cases, 'case')}"
    if verdict.ended == FAILED:
        return f"{outcome}, and then {FAILED}"
    return outcome if verdict.operations else f"{outcome}: nothing was run"


def _story(verdict: Verdict, found: Found, reproducer: Path | None, page: Path | None) -> Story:
    def story(**bounds: int) -> str:
        return tell(
            found,
            system=verdict.system,
            version=verdict.version,
            reproducer=reproducer,
            changed=verdict.changed,
            instead=verdict.instead,
            page=page,
            **bounds,
        )

    again = found.again
    if again is None and reproducer is not None:
        changed = (*verdict.changed, *found.options)
        again = command_to_replay(reproducer, verdict.system, changed, instead=verdict.instead)
    suspects = () if found.diagnosis is None else found.diagnosis.suspects
    return Story(
        headline=headline(found),
        anomaly="" if found.diagnosis is None else found.anomaly.value,
        suspects=tuple(_cut(each.function) for each in suspects),
        file=_cut(suspects[0].file) if suspects else None,
        line=suspects[0].line if suspects else None,
        text=story(),
        brief=story(operations_max=0),
        place=(found.case.model, found.case.preset),
        statement=found.divergence.difference.statement,
        sentence=found.divergence.sentence,
        detector=found.divergence.detector,
        times=found.times,
        finding=found.finding,
        reproducer=None if reproducer is None else str(reproducer),
        again=again,
        page=None if page is None else str(page),
        details={**_details(found), "case": _case(found.case)},
    )


def _story_of_silence(seldom: TooSeldom) -> Story:
    """A known finding that should have acted more often; no single case can show that."""
    (finding,) = with_ids([seldom.finding])
    name, of_model = f"finding {seldom.finding}", f" of {seldom.model}" if seldom.model else ""
    number = f"in about {seldom.expected:.0f} of {seldom.cases} cases{of_model}"
    expected = f"acts {number}, as it did when it was counted"
    acted = f"acted in {seldom.acted or 'none'}"
    got, trace = f"{acted} of them", Path(findings.__file__).parent / folder_of(seldom.finding) / "trace.jsonl"
    again = f"kvgate replay {trace}"
    lines = (
        f"{finding.statement}: {STATEMENTS[finding.statement]}",
        f"expected: {name} {expected}",
        f"got: it {got}",
        "The reference may have the same bug as the system; then the two agree, and no comparison shows it. Or the "
        "part of kvgate that finds it is broken, the cases no longer reach it, or the system was fixed.",
        "to see whether the system still has it:",
        f"  {again}",
    )
    return Story(
        headline=f"{finding.statement}: {name} {acted}, and was expected {number}",
        text="\n".join(lines),
        brief="\n".join(lines),
        place=("known findings", f"{seldom.level}: {seldom.finding}"),
        statement=finding.statement,
        sentence=STATEMENTS[finding.statement],
        detector="known findings",
        again=again,
        details={"step": None, "operation": None, "subject": name, "expected": expected, "got": got},
    )


def _known(found: Found) -> Story:
    difference, detector = found.divergence.difference, found.divergence.detector
    return Story(
        headline=f"{difference.statement}, {printable(difference.subject)}, found by {printable(detector)}",
        severity="notice",
        place=(found.case.model, found.case.preset),
        statement=difference.statement,
        sentence=found.divergence.sentence,
        detector=detector,
        times=found.times,
        finding=found.finding,
        details=_details(found),
    )


def _details(found: Found) -> dict[str, Any]:
    divergence, difference = found.divergence, found.divergence.difference
    return {
        "step": divergence.step,
        "operation": None if divergence.operation is None else _record(divergence.operation),
        "subject": _cut(difference.subject),
        "expected": _cut(difference.expected),
        "got": _cut(difference.got),
        "may_get_smaller": found.out_of_time,
    }


def _case(case: Case) -> dict[str, Any]:
    operations: list[dict[str, Any]] = []
    room = OPERATIONS_CHARACTERS_MAX
    for operation in reversed(case.operations):
        written = _record(operation)
        room -= len(json.dumps(written))
        if room < 0:
            break
        operations.append(written)
    return {
        "model": _cut(case.model),
        "preset": _cut(case.preset),
        "seed": case.seed,
        "settings": cattrs.unstructure(case.settings),
        "operations": operations[::-1],
        "operations_left_out": len(case.operations) - len(operations),
    }


def _record(operation: Operation) -> dict[str, Any]:
    """An operation with the name of its type under ``type``."""
    return {"type": type(operation).__name__, **cattrs.unstructure(operation)}


def _not_run(verdict: Verdict) -> list[str]:
    """What the verdict itself says was not tested."""
    sentences = [
        f"What {detector} checks: {CLAIMS[detector]}."
        for detector in ("lockstep", *MONITORS)
        # In lockstep a state equals one that satisfies the invariants.
        if detector not in verdict.detectors and not (detector == "check" and "lockstep" in verdict.detectors)
    ]
    if verdict.patch is not None:
        sentences += _never_ran(verdict.patch)
    if verdict.cut:
        sentences.append(
            f"Operations after a known finding, which ends its case: {verdict.cut} of "
            f"{counted(verdict.cases, 'case')} ended early."
        )
    if verdict.alone:
        sentences.append(
            "Equality with the reference where kvgate does not describe the block manager: it did not follow "
            f"{verdict.alone} of {counted(verdict.operations, 'operation')}; there only the "
            "monitors checked."
        )
    large = sum(found.out_of_time for found in verdict.found)
    if large:
        sentences.append(
            f"Smaller cases: the profile's time for them ended before {large} of "
            f"{counted(len(verdict.found), 'divergence')} had the smallest."
        )
    if verdict.ended != "completed":
        sentences.append(f"The run ended early ({printable(verdict.ended)}); the remaining cases were not run.")
    never = [f"{each.model} {each.preset}" for each in verdict.tallies if not each.cases]
    if never and verdict.cases:
        more = f" and {len(never) - LANES_MAX} more" if len(never) > LANES_MAX else ""
        sentences.append(f"No case was run of {printable(', '.join(never[:LANES_MAX]))}{more}.")
    return sentences


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]
