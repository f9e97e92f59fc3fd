"""The report for programs: one versioned JSON document.

Every key is written out here, so that renaming an attribute inside the gate never changes the document. Operations
and settings are written attribute by attribute; they are the vocabulary of the reference. A key may be added within
a version; none changes its meaning or goes.
"""

from __future__ import annotations

import json
from typing import Any

import cattrs

from kvgate.gate.verdict import Found
from kvgate.kernel.case import Case
from kvgate.report.contents import DECLARED_MAX, Contents
from kvreference.operations import Operation

FORMAT = "kvgate-verdict"
VERSION = 1

TEXT_CHARACTERS_MAX = 10_000
"""How much of one text from outside is written."""
OPERATIONS_CHARACTERS_MAX = 100_000
"""How much of one case's operations is written, the last ones."""


def json_report(contents: Contents) -> str:
    """The document, as ASCII with a final newline."""
    verdict = contents.verdict
    document = {
        "format": FORMAT,
        "version": VERSION,
        "outcome": contents.outcome,
        "agrees": verdict.agrees,
        "system": {
            "name": _cut(verdict.system),
            "version": _cut(verdict.version),
            "profile": _cut(verdict.profile),
        },
        "seed": verdict.seed,
        "seconds": verdict.seconds,
        "ended": verdict.ended,
        "detectors": list(verdict.detectors),
        "claimed": list(contents.claims),
        "operations": verdict.operations,
        "cases": verdict.cases,
        "tested": [
            {
                "model": _cut(tally.model),
                "preset": _cut(tally.preset),
                "cases": tally.cases,
                "operations": tally.operations,
            }
            for tally in verdict.tallies
        ],
        "found": [
            {
                **_found(told.found),
                "case": _case(told.found.case),
                "reproducer": None if told.reproducer is None else str(told.reproducer),
                "page": None if told.page is None else str(told.page),
                "story": told.story,
            }
            for told in contents.told
        ],
        "found_left_out": len(contents.left_out),
        "declared": [_found(found) for found in verdict.declared[:DECLARED_MAX]],
        "declared_left_out": len(verdict.declared[DECLARED_MAX:]),
        "not_tested": list(contents.not_tested),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _found(found: Found) -> dict[str, Any]:
    divergence, difference = found.divergence, found.divergence.difference
    return {
        "statement": difference.statement,
        "sentence": divergence.sentence,
        "detector": divergence.detector,
        "step": divergence.step,
        "operation": None if divergence.operation is None else record(divergence.operation),
        "subject": _cut(difference.subject),
        "expected": _cut(difference.expected),
        "got": _cut(difference.got),
        "times": found.times,
        "finding": found.finding,
        "may_get_smaller": found.out_of_time,
    }


def _case(case: Case) -> dict[str, Any]:
    operations: list[dict[str, Any]] = []
    room = OPERATIONS_CHARACTERS_MAX
    for operation in reversed(case.operations):
        written = record(operation)
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


def record(operation: Operation) -> dict[str, Any]:
    """An operation with the name of its type under ``type``."""
    return {"type": type(operation).__name__, **cattrs.unstructure(operation)}


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]
