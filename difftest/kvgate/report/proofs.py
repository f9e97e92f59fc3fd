"""The reports of ``kvgate prove``: obligations that were proved, designs that were refuted, lists of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvgate.explore.proving.designs import Refutation, describe_values
from kvgate.explore.scheduler_world import describe_move
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.kernel.text import counted
from kvgate.report.document import Column, Report, Section, Story, columns
from kvreference.statements import STATEMENTS
from kvspec.cores import CoreCheck
from kvspec.executed import NOT_EXECUTED, never_executed, of_the_reference, stored
from kvspec.functions import functions
from kvspec.proof_result import PLAIN, Options, Outcome, ProofResult
from kvspec.prover import Verdict
from kvspec.refuted.designs import DESIGNS
from kvspec.registry import obligations
from kvspec.second_solver import Opinion

COLUMNS = (
    *(Column("tier"), Column("obligation"), Column("outcome"), Column("seconds", ".2f"), Column("evidence")),
    *(Column(name, optional=True) for name in ("where", "cvc5", "seeds")),
    *(
        Column(name, shown=False)
        for name in (
            *("bound", "statements", "sentence", "fixed", "why", "ways", "counterexample", "confirmed"),
            *("witnesses", "mutants"),
        )
    ),
)
_FINE = (Outcome.PROVED, Outcome.SILENT)


def report_of(
    results: Sequence[ProofResult],
    asked: int,
    seconds: float,
    ended: str,
    in_detail: bool = False,
    options: Options = PLAIN,
) -> Report:
    """The report of obligations; ``asked`` is how many were to be proved. With ``in_detail``, all are shown in full."""
    outcome, *notes = _summary(results, asked, options)
    details = [line for each in results if in_detail and each.outcome in _FINE for line in ("", *_details(each))]
    return Report(
        command="prove",
        outcome=outcome,
        exit_code=INTERRUPTED if ended == "interrupted" else _exit_code(results),
        ended=ended,
        circumstances={
            "processor seconds": round(sum(each.processor_seconds for each in results), 2),
            "seconds": round(seconds, 2),
        },
        tested=(Section("", COLUMNS, tuple(map(_row, results)), notes=(*notes, *details), keys=2),),
        found=tuple(_story(each) for each in results if each.outcome not in _FINE),
        found_noun="unproved obligation",
    )


def _exit_code(results: Sequence[ProofResult]) -> int:
    outcomes = {each.outcome for each in results}
    if outcomes & {Outcome.REFUTED, Outcome.VACUOUS, Outcome.DISPUTED}:
        return DIVERGENCE
    agreed = all(each.agrees for result in results for each in _opinions(result))
    return AGREEMENT if agreed and Outcome.UNKNOWN not in outcomes else NOT_EXHAUSTIVE


def _opinions(result: ProofResult) -> Iterator[Opinion]:
    """What the second solver says, where it was asked something."""
    yield from (each for each in (result.second, result.second_of_mutants) if each and each.asked)


def _summary(results: Sequence[ProofResult], asked: int, options: Options) -> Iterator[str]:
    """How many were proved, and up to which bounds those of tier B are."""
    outcomes = Counter(result.outcome for result in results)
    proved = [each for each in results if each.outcome is Outcome.PROVED]
    tiers = Counter(obligations()[each.task.obligation].tier.value for each in proved)
    if any(each.task.fixed for each in results):
        what = f"{len(proved)} of {asked} proved of this model: {tiers['P']} at all lengths and positions (P)"
        evidence = ""
    else:
        witnesses = counted(sum(len(each.witnesses) for each in results), "witness", "witnesses")
        tried = f", {counted(sum(len(each.mutants) for each in results), 'mutant')}"
        evidence = f"; {witnesses}{tried if options.mutants else '; mutants not tried: --full'}"
        what = f"{len(proved)} of {asked} proved: {tiers['P']} for all sizes (P)"
    others = [f"{count} {outcome.value}" for outcome, count in outcomes.items() if outcome not in _FINE]
    unproved = f"; NOT PROVED: {', '.join(others)}" if others else ""
    models = f"{tiers['M']} of a model that stands for the code (M), " if tiers["M"] else ""
    yield f"{what}, {models}{tiers['B']} within a bound (B){evidence}{unproved}"
    if any(each.second for each in results):
        yield from _of_second_solver(results)
    if seeds := max((len(each.by_seed) for each in results), default=0):
        same = sum({*each.by_seed.values()} <= {each.outcome} for each in results)
        yield f"with {seeds + 1} seeds of z3: {same} of {asked} come to the same with each"
    if outcomes[Outcome.SILENT]:
        yield f"{outcomes[Outcome.SILENT]} say nothing of this model: their assumptions do not hold for it"
    bounds = {each.task.obligation: bound for each in results if (bound := obligations()[each.task.obligation].bound)}
    if bounds:
        yield "bounds of tier B:"
        yield from (f"  {name}: {bound}" for name, bound in bounds.items())


def _of_second_solver(results: Sequence[ProofResult]) -> Iterator[str]:
    """What cvc5 says, per tier and in all; what it does not decide agrees with nothing."""
    asked = [each for each in results if each.second]
    full = Counter(
        obligations()[each.task.obligation].tier.value for each in asked if each.second and each.second.agrees
    )
    tiers = Counter(obligations()[each.task.obligation].tier.value for each in asked)
    parts = ", ".join(f"{full[tier]} of {count} of tier {tier}" for tier, count in sorted(tiers.items(), reverse=True))
    yield f"cvc5 comes to the same on every question of {full.total()} of {len(asked)} proofs: {parts}"
    of_proofs = sum((each.second for each in asked if each.second), Opinion())
    of_mutants = sum((each.second_of_mutants for each in asked if each.second_of_mutants), Opinion())
    for what, opinion in (("questions of proofs", of_proofs), ("refutations of mutants", of_mutants)):
        if opinion.asked:
            yield f"cvc5, {what}: {_opinion(opinion)}, in {opinion.seconds:.1f} s"


def _opinion(opinion: Opinion) -> str:
    parts = {
        "not decided": opinion.undecided,
        "not expressible": opinion.inexpressible,
        "DISAGREED": len(opinion.disagreements),
    }
    others = [f", {count} {what}" for what, count in parts.items() if count]
    return f"{opinion.agreed} of {opinion.asked} agreed{''.join(others)}"


def _evidence(result: ProofResult) -> str:
    if result.outcome is not Outcome.PROVED:
        return "; ".join(result.why()) or f"it fails for {describe_values(result.proof.counterexample or {})}"
    seen = f", {counted(len(result.witnesses), 'witness', 'witnesses')}" if result.witnesses else ""
    refuted = f", {counted(len(result.mutants), 'mutant')} refuted" if result.mutants else ""
    return f"{counted(result.proof.ways, 'execution path')}{seen}{refuted}"


def _row(result: ProofResult) -> tuple[Any, ...]:
    obligation, proof = obligations()[result.task.obligation], result.proof
    return (
        *(obligation.tier.value, obligation.id, result.outcome.value, round(result.seconds, 3)),
        *(_evidence(result), result.task.where or None),
        *(_opinion(result.second) if result.second else None, _seeds(result), obligation.bound or None),
        *(list(obligation.statements), obligation.title, dict(result.task.fixed), list(result.why())),
        *(proof.ways, _plain(proof.counterexample), proof.confirmed),
        {name: _plain(values) for name, values in result.witnesses.items()},
        {
            name: {"verdict": each.verdict.value, "counterexample": _plain(each.counterexample)}
            for name, each in result.mutants.items()
        },
    )


def _seeds(result: ProofResult) -> str | None:
    """The outcome with each seed of z3, if there was more than one."""
    outcomes = Counter(each.value for each in result.by_seed.values())
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or None


def _plain(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        name: value if isinstance(value, int) else describe_values({name: value}).partition(" = ")[2]
        for name, value in values.items()
    }


def _story(result: ProofResult) -> Story:
    obligation = obligations()[result.task.obligation]
    return Story(
        headline=f"{obligation.id}: {result.outcome.value}",
        text="\n".join(_details(result)),
        severity="warning" if result.outcome is Outcome.UNKNOWN else "error",
        place=(obligation.tier.value, obligation.id),
        statement=obligation.statements[0] if obligation.statements else "",
    )


def _details(result: ProofResult) -> Iterator[str]:
    """What one obligation says, and what was seen of it."""
    obligation = obligations()[result.task.obligation]
    yield f"{obligation.id}: {obligation.title}"
    yield from (f"  supports {statement}: {STATEMENTS[statement]}" for statement in obligation.statements)
    yield f"  tier {obligation.tier.value}: {obligation.bound or 'for all sizes'}"
    if result.task.fixed:
        yield f"  with {describe_values(result.task.fixed)}"
    if result.proof.counterexample is not None:
        yield f"  fails for {describe_values(result.proof.counterexample)}"
        yield f"  {_confirmed(result)}"
    for opinion in _opinions(result):
        yield from (f"  cvc5 answers the other way:\n{text}" for text in opinion.disagreements)
    for name, values in result.witnesses.items():
        yield f"  witness, {name}: {'none found' if values is None else describe_values(values)}"
    for mutant in obligation.mutants if result.mutants else ():
        proof = result.mutants[mutant.name]
        found = f" for {describe_values(proof.counterexample)}" if proof.counterexample is not None else ""
        yield f"  mutant {mutant.name}: {mutant.story} {proof.verdict.value.capitalize()}{found}"


def _confirmed(result: ProofResult) -> str:
    if result.proof.confirmed is None:
        return "not run as numbers: maps are among its unknowns, and z3 reports only part of what is in them"
    return "run again as numbers: it fails too" if result.proof.confirmed else "run again as numbers: it HOLDS"


def report_of_designs(refuted: Sequence[Refutation], ended: str) -> Report:
    """The report of designs that do not work. Refuting all of them is the expected result, with exit code 1."""
    undecided = any(each.proof.verdict is Verdict.UNKNOWN for each in refuted)
    all_refuted = all(each.is_refuted for each in refuted)
    decided = NOT_EXHAUSTIVE if undecided else DIVERGENCE if all_refuted else AGREEMENT
    names = ("design", "statement", "verdict", "refuted", "values", "story", "operations", "design_says")
    shown = (*columns(*names[:5]), *(Column(name, shown=False) for name in (*names[5:], "reference_says")))
    return Report(
        command="prove --design",
        outcome=f"{sum(each.is_refuted for each in refuted)} of {len(refuted)} refuted",
        exit_code=INTERRUPTED if ended == "interrupted" else decided,
        ended=ended,
        tested=(Section("", shown, tuple(map(_design_row, refuted))),),
        found=tuple(map(_design_story, refuted)),
        found_noun="refutation",
        tested_title="Designs that do not work",
    )


def _design_row(refutation: Refutation) -> tuple[Any, ...]:
    design, replay, proof = DESIGNS[refutation.name], refutation.replay, refutation.proof
    return (
        *(design.name, design.statement, proof.verdict.value, refutation.is_refuted),
        *(describe_values(proof.counterexample or {}), design.story),
        [] if replay is None else [describe_move(operation) for operation in replay.operations],
        *((None, None) if replay is None else (replay.design, replay.sound)),
    )


def _design_story(refutation: Refutation) -> Story:
    """The design, the guarantee, z3's values, the trace, and what the design and the reference answer."""
    design, replay = DESIGNS[refutation.name], refutation.replay
    sentence = STATEMENTS[design.statement]
    lines = [
        f"{design.name}: {design.story}",
        f"  violates {design.statement}: {sentence}",
        f"  z3: {refutation.proof.verdict.value} in {refutation.proof.seconds:.2f} s",
    ]
    if replay is not None:
        lines.append(f"  for {describe_values(refutation.proof.counterexample or {})}")
        lines += [f"  {number}. {describe_move(each)}" for number, each in enumerate(replay.operations, 1)]
        lines += [f"  the design: {replay.design}", f"  the reference: {replay.sound}"]
    if not refutation.is_refuted:
        lines.append(
            "  NOT REFUTED: " + (refutation.proof.detail or "its trace does not distinguish it from the reference")
        )
    verdict = "refuted" if refutation.is_refuted else "NOT REFUTED"
    return Story(
        f"{design.name}: {verdict}",
        "\n".join(lines),
        place=(design.name,),
        statement=design.statement,
        sentence=sentence,
    )


def report_of_cores(checked: Sequence[CoreCheck]) -> Report:
    """The report of the stored cores."""
    holding = sum(each.holds for each in checked)
    names = ("obligation", "holds", "cores", "confirmed by z3", "confirmed by cvc5", "questions", "with a stored core")
    rows = tuple(
        (each.obligation, each.holds, each.cores, each.z3, each.cvc5, each.questions, each.covered) for each in checked
    )
    return Report(
        command="prove --cores",
        outcome=f"{holding} of {len(checked)} proofs rest on stored cores alone, which z3 and cvc5 confirm",
        exit_code=AGREEMENT if holding == len(checked) else DIVERGENCE,
        tested=(Section("", columns(*names), rows),),
    )


def functions_of() -> Report:
    """Which functions of the reference the obligations execute, and which no obligation does."""
    by_trace = stored()
    by_obligation = {name: of_the_reference(names) for name, names in by_trace.items()}
    left = never_executed(by_obligation)
    known = functions()
    changing = sum(each.changes_state for each in known)
    summary = (
        f"{sum(map(bool, by_obligation.values()))} of {len(by_obligation)} obligations execute functions of the "
        f"reference: {len(known) - len(left)} of {len(known)}",
        f"of those that change state: {changing - sum(each.changes_state for each in left)} of {changing}",
    )
    rows = tuple((each.name, "yes" if each.changes_state else "no", NOT_EXECUTED.get(each.name, "")) for each in left)
    names = columns("function", "changes state", "why")
    without = Section("executed by no obligation:", names, rows, notes=summary, keys=1)
    executes = Section(
        "obligations:",
        columns("tier", "id", "functions", "transcribed"),
        tuple(
            (each.tier.value, name, len(by_obligation[name]), len(by_trace[name]) - len(by_obligation[name]))
            for name, each in obligations().items()
        ),
        keys=2,
    )
    return Report("prove --functions", tested=(without, executes))


def list_of(names: Sequence[str], designs: Sequence[str]) -> Report:
    """What can be proved, and what can be refuted."""
    found = [obligations()[name] for name in names]
    rows = tuple((each.tier.value, each.id, list(each.statements), each.title, each.bound or None) for each in found)
    proved = Section(
        "obligations:", (*columns("tier", "id", "statements", "sentence"), Column("bound", shown=False)), rows
    )
    refuted = Section(
        "designs that do not work:",
        columns("design", "statement", "story"),
        tuple((name, DESIGNS[name].statement, DESIGNS[name].story) for name in designs),
    )
    return Report("prove --list", tested=(*([proved] if rows else []), *([refuted] if designs else [])))
