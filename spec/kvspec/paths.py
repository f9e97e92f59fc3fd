"""All ways that a run can take: code on terms is run once for each.

A run is a function without effects. Whenever it asks for the truth of a statement that could be so and could not be,
it is told that it is; later it is run again, and told that it is not. A way that contradicts what was said before is
not taken. When z3 cannot tell, it is taken: to look at an impossible way costs time, and proves nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import z3

from kvspec.products import Products, RealProducts
from kvspec.symbolic import NotDecidableError, on

PATHS_MAX = 20_000
"""How many ways a run may have."""
BRANCH_EFFORT = 400_000
"""How hard z3 tries to exclude a way, in its own units of work: the same on every machine."""

Result = TypeVar("Result")


class ImpossibleError(Exception):
    """What was assumed cannot be."""


class Path:
    """One way. While it is run it knows what is so on it."""

    def __init__(
        self, solver: z3.Solver, decisions: list[list[bool]], by_lemmas: bool, memory: dict[str, Any] | None = None
    ) -> None:
        self.solver = solver
        self.memory = {} if memory is None else memory
        """What is the same on every way, and need be made only once; gone when the last way was taken."""
        self._decisions = decisions
        """Per fork, the way that is taken, and whether the other is still to be taken."""
        self._taken = 0
        self._example: z3.ModelRef | None = None
        """Values for which all is so that was said up to here: what they show need not be asked."""
        self.products = Products(self) if by_lemmas else RealProducts(self)
        self._named = 0

    def may_be(self, formula: z3.BoolRef) -> bool:
        """Whether ``formula`` is not excluded here."""
        if self._shows(formula):
            return True
        self.solver.set("rlimit", BRANCH_EFFORT)
        answer = self.solver.check(formula)
        if answer == z3.sat and self._example is None:
            self._example = self.solver.model()
        return bool(answer != z3.unsat)

    def _shows(self, formula: z3.BoolRef) -> bool:
        return self._example is not None and z3.is_true(self._example.eval(formula, model_completion=True))

    def _say(self, formula: z3.BoolRef) -> None:
        self.solver.add(formula)
        if not self._shows(formula):
            self._example = None

    def assume(self, formula: z3.BoolRef) -> None:
        """From here on ``formula`` is so.

        Raises:
            ImpossibleError: it cannot be.
        """
        self._say(formula)
        if z3.is_false(z3.simplify(formula)):
            raise ImpossibleError

    def fact(self, formula: z3.BoolRef) -> None:
        """``formula`` is so whatever else is: what a name that was made here means."""
        self._say(formula)

    def decide(self, formula: z3.BoolRef) -> bool:
        """Whether ``formula`` is so on this way."""
        simple = z3.simplify(formula)
        if z3.is_true(simple) or z3.is_false(simple):
            return bool(z3.is_true(simple))
        if self._taken == len(self._decisions):
            can, can_not = self.may_be(formula), self.may_be(z3.Not(formula))
            if not can and not can_not:
                raise ImpossibleError
            self._decisions.append([can, can and can_not])
        choice = self._decisions[self._taken][0]
        self._taken += 1
        self._say(formula if choice else z3.Not(formula))
        return choice

    @property
    def names_something(self) -> bool:
        """Whether an unknown was made on it."""
        return self._named > 0

    def fresh(self, prefix: str) -> z3.ArithRef:
        """A new unknown; the same one whenever this way is run."""
        self._named += 1
        return z3.Int(f"{prefix}!{self._named}")


def all_paths(function: Callable[[], Result], by_lemmas: bool) -> Iterator[tuple[Path, Result]]:
    """Run ``function`` on every way; each is still open when it is yielded, so that more can be asked of it.

    With ``by_lemmas``, of products of unknowns no more is known than ``kvspec.products`` says.

    Raises:
        NotDecidableError: there are too many.
    """
    solver = z3.Solver()
    decisions: list[list[bool]] = []
    memory: dict[str, Any] = {}
    for _ in range(PATHS_MAX):
        solver.push()
        path = Path(solver, decisions, by_lemmas, memory)
        try:
            with on(path):
                result = function()
            yield path, result
        except ImpossibleError:
            pass
        finally:
            solver.pop()
        while decisions and not decisions[-1][1]:
            decisions.pop()
        if not decisions:
            return
        decisions[-1] = [False, False]
    raise NotDecidableError(f"more than {PATHS_MAX} ways")
