"""Unsatisfiable cores of the central theorems: what each proof rests on, as files that any SMT solver reads.

A proof rests on questions that z3 answers with unsat (``kvspec.second_solver``). Of the formulas that a question
assumes, a few suffice for that answer: its core. ``cores/ID.smt2`` holds the cores of one theorem, each between a push
and a pop. So a solver that reads the file prints ``unsat`` once for each of them. ``python -m kvspec.cores`` writes the
files anew, or those of the ids that are named.

Two independent steps check them: z3 and cvc5 read each stored core, and the theorem is proved again, where each
question must have all formulas of one of the cores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import z3
from attrs import define, field, frozen

from kvspec.proof_result import JOBS, in_processes
from kvspec.prover import Verdict, prove
from kvspec.registry import obligations
from kvspec.second_solver import LOGIC, answer_of_cvc5
from kvspec.symbolic import heard_by

HOME = Path(__file__).with_name("cores")
CENTRAL = (
    "attention-kinds.window-dead-is-unread",
    "blocks-and-references.no-live-block-handed-out",
    "blocks-and-references.nothing-leaks",
    "blocks-and-references.running-release",
    "blocks-and-references.running-release-of-what-is-dead",
    "content-and-cached-map.hit-reads-what-was-written",
    "hit-lookup.running-longest-hit",
    "retention.mask-sound",
    "scheduler-progress.step-brings-the-first-nearer",
    "scheduler-progress.admission-keeps-room",
)
"""The theorems of which cores are kept."""
BEGIN, END = "(push 1)", "(check-sat)\n(pop 1)"

Core: TypeAlias = "frozenset[str]"
"""Formulas that cannot all be so, each in one line of SMT-LIB."""


@frozen
class CoreCheck:
    """The result of checking the stored cores of one theorem."""

    obligation: str
    cores: int
    z3: int
    """How many cores z3 says cannot be so."""
    cvc5: int
    """How many cores cvc5 says cannot be so."""
    questions: int
    """How many questions the proof of today rests on."""
    covered: int
    """How many of them have all formulas of a stored core."""
    is_proved: bool

    @property
    def holds(self) -> bool:
        """Whether the current proof rests only on stored cores, and both solvers confirm all of them."""
        confirmed = self.cores == self.z3 == self.cvc5 > 0
        return self.is_proved and confirmed and self.questions == self.covered > 0


def conjuncts(formula: z3.BoolRef) -> Iterator[z3.BoolRef]:
    """The parts of ``formula`` that are all so if it is; what follows from a condition is parted, too."""
    if z3.is_and(formula):
        for each in formula.children():
            yield from conjuncts(each)
    elif z3.is_implies(formula) and z3.is_and(formula.arg(1)):
        for each in conjuncts(formula.arg(1)):
            yield z3.Implies(formula.arg(0), each)
    else:
        yield formula


def _line(formula: z3.BoolRef) -> str:
    return " ".join(formula.sexpr().split())


@define
class _Questions:
    """The questions of a proof: those that a core covers, and a core for each other one if they are to be ``found``."""

    cores: set[Core]
    finds: bool
    asked: int = 0
    covered: int = 0
    declared: dict[str, None] = field(factory=dict)
    _lines: dict[int, tuple[z3.BoolRef, dict[str, z3.BoolRef]]] = field(factory=dict)
    """By the id of a formula: the formula, which keeps its id while it is there, and its parts, by their lines."""

    def hear(self, solver: z3.Solver, formula: z3.BoolRef, answer: z3.CheckSatResult) -> None:
        """z3 gave an ``answer``."""
        if answer != z3.unsat:
            return
        self.asked += 1
        parts: dict[str, z3.BoolRef] = {}
        for each in (*solver.assertions(), formula):
            if each.get_id() not in self._lines:
                self._lines[each.get_id()] = each, {_line(part): part for part in conjuncts(each)}
            parts |= self._lines[each.get_id()][1]
        if any(core <= parts.keys() for core in self.cores):
            self.covered += 1
        elif self.finds:
            self._find(parts)

    def _find(self, parts: dict[str, z3.BoolRef]) -> None:
        tracked = z3.Solver()
        tracked.set("core.minimize", True)
        names = {f"part!{number}": line for number, line in enumerate(parts)}
        for name, line in names.items():
            tracked.assert_and_track(parts[line], name)
        if tracked.check() != z3.unsat:
            raise ValueError("z3 does not find the core of what it refuted")
        core = frozenset(names[each.decl().name()] for each in tracked.unsat_core())
        self.cores.add(core)
        written = z3.Solver()
        written.add(*(parts[line] for line in core))
        text = written.to_smt2().splitlines()
        self.declared |= dict.fromkeys(line for line in text if line.startswith("(declare-"))


def found(name: str) -> str:
    """The text of the cores of one theorem."""
    obligation = obligations()[name]
    questions = _Questions(set(), finds=True)
    with heard_by(questions.hear):
        proof = prove(obligation)
    if proof.verdict is not Verdict.PROVED:
        raise ValueError(f"{name} is {proof.verdict.value}")
    blocks = sorted("\n".join((BEGIN, *(f"(assert {line})" for line in sorted(core)), END)) for core in questions.cores)
    head = (f"; {name}: {obligation.title}", LOGIC, *sorted(questions.declared))
    return "\n".join((*head, *blocks, ""))


def stored(name: str) -> tuple[str, list[str]]:
    """The declarations in the file of a theorem, and the assertions of each core."""
    head, *blocks = (HOME / f"{name}.smt2").read_text(encoding="utf-8").split(f"{BEGIN}\n")
    return head, [block.partition(END)[0] for block in blocks]


def check(name: str) -> CoreCheck:
    """Give the stored cores of one theorem to both solvers, and compare its proof with them."""
    head, blocks = stored(name)
    cores = {frozenset(line[len("(assert ") : -1] for line in block.splitlines()) for block in blocks}
    by_z3 = by_cvc5 = 0
    for block in blocks:
        solver = z3.Solver()
        solver.from_string(head + block)
        by_z3 += solver.check() == z3.unsat
        by_cvc5 += answer_of_cvc5(f"{head}{block}(check-sat)\n") == "unsat"
    questions = _Questions(cores, finds=False)
    with heard_by(questions.hear):
        proof = prove(obligations()[name])
    counts = (len(blocks), by_z3, by_cvc5, questions.asked, questions.covered)
    return CoreCheck(name, *counts, proof.verdict is Verdict.PROVED)


def check_all(names: Sequence[str] = CENTRAL, jobs: int = JOBS) -> Iterator[CoreCheck]:
    """Check the stored cores of theorems, each in a process of its own."""
    yield from in_processes(check, names, jobs)


def write(names: Sequence[str], jobs: int = JOBS) -> None:
    """Write the cores of theorems anew."""
    HOME.mkdir(exist_ok=True)
    for name, text in zip(names, in_processes(found, names, jobs), strict=True):
        (HOME / f"{name}.smt2").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:] or CENTRAL)
