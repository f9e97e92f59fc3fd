"""A way that is not run: it takes down what is said on it."""

from __future__ import annotations

import z3


class Heard:
    """Stands for a path where code only says facts, and makes new unknowns."""

    def __init__(self) -> None:
        self._facts: dict[int, z3.BoolRef] = {}
        self._names = 0

    @property
    def facts(self) -> tuple[z3.BoolRef, ...]:
        """What was said, each once."""
        return tuple(self._facts.values())

    def fact(self, formula: z3.BoolRef) -> None:
        """``formula`` is said."""
        self._facts[formula.get_id()] = formula

    def fresh(self, prefix: str) -> z3.ArithRef:
        """A new unknown."""
        self._names += 1
        return z3.Int(f"{prefix}?{self._names}")
