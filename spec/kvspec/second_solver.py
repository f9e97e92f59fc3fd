"""A second solver: what z3 answered is asked of cvc5, as SMT-LIB text.

A proof rests on every formula that z3 finds unsatisfiable: that a statement fails on an execution path, or that a path
is taken which z3 excludes. A refutation rests on the one that it finds satisfiable. Each is written as SMT-LIB, with
all that was assumed on the path, and read by another solver, which gets nothing else from z3. Not asked: what z3
simplifies to true or false without a search.

cvc5 has a limit of effort, too, and not of time. What it does not decide is counted, and does not count as agreement.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import z3
from attrs import define, field, frozen

EFFORT = 200_000
"""How hard cvc5 tries to answer one question, in its own units of work: half a second at most."""

LOGIC = "(set-logic ALL)"
"""The beginning of each question."""


@frozen
class Opinion:
    """The answers of a second solver to the questions of one obligation."""

    agreed: int = 0
    undecided: int = 0
    inexpressible: int = 0
    """How many it cannot read."""
    disagreements: tuple[str, ...] = ()
    """The questions that it answers otherwise, as SMT-LIB."""
    seconds: float = 0.0

    @property
    def asked(self) -> int:
        """How many different questions there were."""
        return self.agreed + self.undecided + self.inexpressible + len(self.disagreements)

    @property
    def agrees(self) -> bool:
        """Whether it comes to the same on every question, and there was one."""
        return self.agreed == self.asked > 0

    def __add__(self, other: Opinion) -> Opinion:
        return Opinion(
            self.agreed + other.agreed,
            self.undecided + other.undecided,
            self.inexpressible + other.inexpressible,
            self.disagreements + other.disagreements,
            self.seconds + other.seconds,
        )


@define
class SecondSolver:
    """Listens to z3's answers, and asks cvc5 the same; each question once."""

    refutations_only: bool = False
    """Whether only that something can be is asked again: of a mutant nothing else counts."""
    _known: dict[str, str] = field(factory=dict)
    _answers: Counter[str] = field(factory=Counter)
    _disagreements: list[str] = field(factory=list)
    _seconds: float = 0.0

    def hear(self, solver: z3.Solver, formula: z3.BoolRef, answer: z3.CheckSatResult) -> None:
        """z3 gave an ``answer``."""
        if self.refutations_only and answer == z3.unsat:
            return
        text = question(solver.assertions(), formula)
        if text in self._known:
            return
        started = time.perf_counter()
        other = self._known[text] = answer_of_cvc5(text)
        self._seconds += time.perf_counter() - started
        if other in ("sat", "unsat") and other != str(answer):
            self._disagreements.append(text)
        else:
            self._answers[other] += 1

    @property
    def opinion(self) -> Opinion:
        """The result so far."""
        return Opinion(
            self._answers["sat"] + self._answers["unsat"],
            self._answers["unknown"],
            self._answers[""],
            tuple(self._disagreements),
            self._seconds,
        )


def question(assumed: Sequence[z3.BoolRef], formula: z3.BoolRef) -> str:
    """Whether ``formula`` can be where all is so that is ``assumed``, as SMT-LIB."""
    written = z3.Solver()
    written.add(*assumed, formula)
    return f"{LOGIC}\n{written.to_smt2()}"


def answer_of_cvc5(text: str) -> str:
    """The answer of cvc5 to the SMT-LIB ``text`` of one question: sat, unsat or unknown; empty if it cannot read it."""
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("rlimit", str(EFFORT))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
    said: list[Any] = []
    try:
        while not (command := parser.nextCommand()).isNull():
            said.append(command.invoke(solver, parser.getSymbolManager()).strip())
    except RuntimeError:
        return ""
    answer = next((each for each in said if each), "")
    if answer in ("sat", "unsat"):
        return str(answer)
    return "unknown" if answer.startswith("unknown") else ""
