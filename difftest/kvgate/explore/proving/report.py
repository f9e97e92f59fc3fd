"""The report of proofs: a line for each obligation, and what a reader must know to weigh them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvgate.kernel.text import counted
from kvreference.statements import STATEMENTS
from kvspec.maps import FiniteMap
from kvspec.obligation import Obligation
from kvspec.proof_result import Judgement, Outcome
from kvspec.registry import obligations

FORMAT = "kvgate-proofs"
FORMAT_VERSION = 1
"""Of the report as JSON."""


def line(judgement: Judgement, width: int) -> str:
    """One obligation on one line: tier, id, outcome, what it rests on, time; ``width`` is that of the longest id."""
    obligation = obligations()[judgement.task.obligation]
    ways = counted(judgement.proof.ways, "way")
    seen = f", {counted(len(judgement.witnesses), 'witness', 'witnesses')}" if judgement.witnesses else ""
    refuted = f", {counted(len(judgement.mutants), 'mutant')} refuted" if judgement.mutants else ""
    proved = judgement.outcome is Outcome.PROVED
    words = f"{ways}{seen}{refuted}" if proved else "; ".join(judgement.why()) or _told(judgement)
    where = f"  {judgement.task.where}" if judgement.task.where else ""
    name = obligation.id.ljust(width)
    return f"{obligation.tier.value}  {name}  {judgement.outcome.value}  {judgement.seconds:6.2f} s  {words}{where}"


def _told(judgement: Judgement) -> str:
    return f"it fails for {values_told(judgement.proof.counterexample or {})}"


def values_told(values: Mapping[str, Any]) -> str:
    """The values of unknowns, in words."""
    return ", ".join(f"{name} = {_value_told(value)}" for name, value in values.items())


def _value_told(value: Any) -> str:
    if not isinstance(value, FiniteMap):
        return str(value)
    return "{" + ", ".join(f"{key}: {each}" for key, each in value.entries.items()) + "}"


def details(judgement: Judgement) -> Iterator[str]:
    """What one obligation says, and what was seen of it."""
    obligation = obligations()[judgement.task.obligation]
    yield f"{obligation.id}: {obligation.title}"
    yield from (f"  supports {statement}: {STATEMENTS[statement]}" for statement in obligation.statements)
    yield f"  tier {obligation.tier.value}: {obligation.bound or 'for all sizes'}"
    if judgement.task.fixed:
        yield f"  with {values_told(judgement.task.fixed)}"
    if judgement.proof.counterexample is not None:
        yield f"  fails for {values_told(judgement.proof.counterexample)}"
        yield f"  {_confirmed(judgement)}"
    for name, values in judgement.witnesses.items():
        yield f"  witness, {name}: {'none found' if values is None else values_told(values)}"
    for mutant in obligation.mutants if judgement.mutants else ():
        proof = judgement.mutants[mutant.name]
        found = f" for {values_told(proof.counterexample)}" if proof.counterexample is not None else ""
        yield f"  mutant {mutant.name}: {mutant.story} {proof.verdict.value.capitalize()}{found}"


def _confirmed(judgement: Judgement) -> str:
    if judgement.proof.confirmed is None:
        return "not run as numbers: maps are among its unknowns, and z3 says only in part what is in them"
    return "run again as numbers: it fails too" if judgement.proof.confirmed else "run again as numbers: it HOLDS"


def summary(judgements: Sequence[Judgement], asked: int, seconds: float) -> Iterator[str]:
    """How many were proved, and up to where those of tier B are."""
    outcomes = Counter(judgement.outcome for judgement in judgements)
    proved = [each for each in judgements if each.outcome is Outcome.PROVED]
    tiers = Counter(obligations()[each.task.obligation].tier.value for each in proved)
    mutants = sum(len(each.mutants) for each in judgements)
    witnesses = sum(len(each.witnesses) for each in judgements)
    if any(each.task.fixed for each in judgements):
        yield (
            f"{len(proved)} of {asked} proved of this model: {tiers['P']} at all lengths and positions (P), "
            f"{tiers['B']} within a bound (B); {seconds:.1f} s"
        )
    else:
        yield (
            f"{len(proved)} of {asked} proved: {tiers['P']} for all sizes (P), {tiers['B']} within a bound (B); "
            f"{counted(witnesses, 'witness', 'witnesses')}, {counted(mutants, 'mutant')}; {seconds:.1f} s"
        )
    if outcomes[Outcome.SILENT]:
        yield f"{outcomes[Outcome.SILENT]} say nothing of this model: what they assume is not so of it"
    well = (Outcome.PROVED, Outcome.SILENT)
    others = [f"{count} {outcome.value}" for outcome, count in outcomes.items() if outcome not in well]
    if others:
        yield f"NOT PROVED: {', '.join(others)}"
    bounded: dict[str, Obligation] = {
        each.task.obligation: found for each in judgements if (found := obligations()[each.task.obligation]).bound
    }
    if bounded:
        yield "bounds of tier B:"
        yield from (f"  {name}: {obligation.bound}" for name, obligation in bounded.items())


def as_json(judgements: Sequence[Judgement], ended: str, seconds: float) -> str:
    """Everything, for a program."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "ended": ended,
            "seconds": round(seconds, 2),
            "obligations": [_row(judgement) for judgement in judgements],
        },
        indent=1,
    )


def _row(judgement: Judgement) -> dict[str, Any]:
    obligation = obligations()[judgement.task.obligation]
    return {
        "id": obligation.id,
        "tier": obligation.tier.value,
        "bound": obligation.bound or None,
        "statements": list(obligation.statements),
        "sentence": obligation.title,
        "where": judgement.task.where or None,
        "fixed": dict(judgement.task.fixed),
        "outcome": judgement.outcome.value,
        "why": list(judgement.why()),
        "ways": judgement.proof.ways,
        "seconds": round(judgement.seconds, 3),
        "counterexample": _plain(judgement.proof.counterexample),
        "confirmed": judgement.proof.confirmed,
        "witnesses": {name: _plain(values) for name, values in judgement.witnesses.items()},
        "mutants": {
            name: {"verdict": proof.verdict.value, "counterexample": _plain(proof.counterexample)}
            for name, proof in judgement.mutants.items()
        },
    }


def _plain(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: value if isinstance(value, int) else _value_told(value) for name, value in values.items()}
