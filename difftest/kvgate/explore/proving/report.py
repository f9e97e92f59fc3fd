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
from kvspec.proof_result import Outcome, ProofResult
from kvspec.registry import obligations

FORMAT = "kvgate-proofs"
FORMAT_VERSION = 1
"""Of the report as JSON."""


def line(result: ProofResult, width: int) -> str:
    """One obligation on one line: tier, id, outcome, what it rests on, time; ``width`` is that of the longest id."""
    obligation = obligations()[result.task.obligation]
    ways = counted(result.proof.ways, "way")
    seen = f", {counted(len(result.witnesses), 'witness', 'witnesses')}" if result.witnesses else ""
    refuted = f", {counted(len(result.mutants), 'mutant')} refuted" if result.mutants else ""
    proved = result.outcome is Outcome.PROVED
    summary_text = f"{ways}{seen}{refuted}" if proved else "; ".join(result.why()) or _counterexample(result)
    where = f"  {result.task.where}" if result.task.where else ""
    name = obligation.id.ljust(width)
    return f"{obligation.tier.value}  {name}  {result.outcome.value}  {result.seconds:6.2f} s  {summary_text}{where}"


def _counterexample(result: ProofResult) -> str:
    return f"it fails for {format_values(result.proof.counterexample or {})}"


def format_values(values: Mapping[str, Any]) -> str:
    """The values of unknowns, in words."""
    return ", ".join(f"{name} = {_format_value(value)}" for name, value in values.items())


def _format_value(value: Any) -> str:
    if not isinstance(value, FiniteMap):
        return str(value)
    return "{" + ", ".join(f"{key}: {each}" for key, each in value.entries.items()) + "}"


def details(result: ProofResult) -> Iterator[str]:
    """What one obligation says, and what was seen of it."""
    obligation = obligations()[result.task.obligation]
    yield f"{obligation.id}: {obligation.title}"
    yield from (f"  supports {statement}: {STATEMENTS[statement]}" for statement in obligation.statements)
    yield f"  tier {obligation.tier.value}: {obligation.bound or 'for all sizes'}"
    if result.task.fixed:
        yield f"  with {format_values(result.task.fixed)}"
    if result.proof.counterexample is not None:
        yield f"  fails for {format_values(result.proof.counterexample)}"
        yield f"  {_confirmed(result)}"
    for name, values in result.witnesses.items():
        yield f"  witness, {name}: {'none found' if values is None else format_values(values)}"
    for mutant in obligation.mutants if result.mutants else ():
        proof = result.mutants[mutant.name]
        found = f" for {format_values(proof.counterexample)}" if proof.counterexample is not None else ""
        yield f"  mutant {mutant.name}: {mutant.story} {proof.verdict.value.capitalize()}{found}"


def _confirmed(result: ProofResult) -> str:
    if result.proof.confirmed is None:
        return "not run as numbers: maps are among its unknowns, and z3 says only in part what is in them"
    return "run again as numbers: it fails too" if result.proof.confirmed else "run again as numbers: it HOLDS"


def summary(results: Sequence[ProofResult], asked: int, seconds: float) -> Iterator[str]:
    """How many were proved, and up to where those of tier B are."""
    outcomes = Counter(result.outcome for result in results)
    proved = [each for each in results if each.outcome is Outcome.PROVED]
    tiers = Counter(obligations()[each.task.obligation].tier.value for each in proved)
    mutants = sum(len(each.mutants) for each in results)
    witnesses = sum(len(each.witnesses) for each in results)
    if any(each.task.fixed for each in results):
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
        each.task.obligation: found for each in results if (found := obligations()[each.task.obligation]).bound
    }
    if bounded:
        yield "bounds of tier B:"
        yield from (f"  {name}: {obligation.bound}" for name, obligation in bounded.items())


def as_json(results: Sequence[ProofResult], ended: str, seconds: float) -> str:
    """Everything, for a program."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "ended": ended,
            "seconds": round(seconds, 2),
            "obligations": [_row(result) for result in results],
        },
        indent=1,
    )


def _row(result: ProofResult) -> dict[str, Any]:
    obligation = obligations()[result.task.obligation]
    return {
        "id": obligation.id,
        "tier": obligation.tier.value,
        "bound": obligation.bound or None,
        "statements": list(obligation.statements),
        "sentence": obligation.title,
        "where": result.task.where or None,
        "fixed": dict(result.task.fixed),
        "outcome": result.outcome.value,
        "why": list(result.why()),
        "ways": result.proof.ways,
        "seconds": round(result.seconds, 3),
        "counterexample": _plain(result.proof.counterexample),
        "confirmed": result.proof.confirmed,
        "witnesses": {name: _plain(values) for name, values in result.witnesses.items()},
        "mutants": {
            name: {"verdict": proof.verdict.value, "counterexample": _plain(proof.counterexample)}
            for name, proof in result.mutants.items()
        },
    }


def _plain(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: value if isinstance(value, int) else _format_value(value) for name, value in values.items()}
