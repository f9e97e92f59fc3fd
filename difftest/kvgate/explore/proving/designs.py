"""Designs that do not work, refuted twice: by z3, and by the trace that its counterexample becomes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from kvgate.explore.proving.report import format_values
from kvgate.explore.scheduler_world import describe_move
from kvgate.kernel.errors import UsageError
from kvreference.scheduler.operations import Step, Submit
from kvreference.statements import STATEMENTS
from kvspec.proof_result import in_processes
from kvspec.prover import Proof, Verdict, prove
from kvspec.refuted.designs import DESIGNS
from kvspec.refuted.replay import Replay


@frozen
class Refutation:
    """A design, and what was seen of it."""

    name: str
    proof: Proof
    replay: Replay | None
    """None if z3 did not refute it."""

    @property
    def is_refuted(self) -> bool:
        """Whether z3 refutes it, and its trace tells it from the reference."""
        return self.proof.verdict is Verdict.REFUTED and self.replay is not None and self.replay.shows_it


def chosen(names: Sequence[str]) -> list[str]:
    """The designs called so, each once; all of them for ``all``.

    Raises:
        UsageError: there is no such design.
    """
    if "all" in names:
        return list(DESIGNS)
    for name in names:
        if name not in DESIGNS:
            raise UsageError(f"unknown design {name!r}: give one of {', '.join(DESIGNS)}, or all")
    return list(dict.fromkeys(names))


def refute_all(names: Sequence[str]) -> Iterator[Refutation]:
    """Ask z3 about each of the designs called so, and run what it answers: in a process that can be interrupted."""
    yield from in_processes(_refute, names, jobs=1)


def _refute(name: str) -> Refutation:
    design = DESIGNS[name]
    proof = prove(design.obligation)
    return Refutation(name, proof, None if proof.counterexample is None else design.replay(proof.counterexample))


def told(refutation: Refutation) -> str:
    """The refutation as a story: the design, the guarantee, z3's values, the trace, and what both said."""
    design, replay = DESIGNS[refutation.name], refutation.replay
    lines = [
        f"{design.name}: {design.story}",
        f"  violates {design.statement}: {STATEMENTS[design.statement]}",
        f"  z3: {refutation.proof.verdict.value} in {refutation.proof.seconds:.2f} s",
    ]
    if replay is not None:
        lines.append(f"  for {format_values(refutation.proof.counterexample or {})}")
        lines += [f"  {number}. {_line(operation)}" for number, operation in enumerate(replay.operations, 1)]
        lines += [f"  the design: {replay.design}", f"  the reference: {replay.sound}"]
    if not refutation.is_refuted:
        lines.append("  NOT REFUTED: " + (refutation.proof.detail or "its trace does not tell it from the reference"))
    return "\n".join(lines)


def _line(operation: Any) -> str:
    return (
        describe_move(operation)
        if isinstance(operation, (Submit, Step)) or not hasattr(operation, "told")
        else str(operation.told)
    )


def as_json(refutations: Sequence[Refutation], ended: str) -> str:
    """The refutations, for a program."""
    rows = [_row(each) for each in refutations]
    return json.dumps({"format": "kvgate-refutations", "version": 1, "ended": ended, "designs": rows}, indent=1)


def _row(refutation: Refutation) -> dict[str, Any]:
    design, replay = DESIGNS[refutation.name], refutation.replay
    return {
        "design": design.name,
        "statement": design.statement,
        "story": design.story,
        "verdict": refutation.proof.verdict.value,
        "refuted": refutation.is_refuted,
        "values": format_values(refutation.proof.counterexample or {}),
        "operations": [] if replay is None else [_line(operation) for operation in replay.operations],
        "design_says": None if replay is None else replay.design,
        "reference_says": None if replay is None else replay.sound,
    }
