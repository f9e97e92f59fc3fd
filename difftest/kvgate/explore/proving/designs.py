"""Designs that do not work, refuted twice: by z3, and by the trace that its counterexample becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvspec.maps import FiniteMap
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
        """Whether z3 refutes it, and its trace distinguishes it from the reference."""
        return self.proof.verdict is Verdict.REFUTED and self.replay is not None and self.replay.shows_it


def chosen(names: Sequence[str]) -> list[str]:
    """The designs called so, each once; all of them for ``all``.

    Raises:
        UsageError: the design is unknown.
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


def describe_values(values: Mapping[str, Any]) -> str:
    """The values of unknowns."""
    return ", ".join(f"{name} = {_describe_value(value)}" for name, value in values.items())


def _describe_value(value: Any) -> str:
    if not isinstance(value, FiniteMap):
        return str(value)
    return "{" + ", ".join(f"{key}: {each}" for key, each in value.entries.items()) + "}"
