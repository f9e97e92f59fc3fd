"""What a block manager is judged by: every state, and every step between two.

A design that is known to be wrong may bring its own judges: one that counts otherwise violates the common statements
at once, which says nothing about the loophole that it is known for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from kvgate.explore.step_invariants import cached_in_vain, kept_out, offered_twice, unhit
from kvreference.answers import Answer
from kvreference.manager import Manager
from kvreference.operations import Operation
from kvreference.snapshot import Violation, check

OfState: TypeAlias = Callable[[Manager], Sequence[Violation]]
"""What is wrong with a state. It may depend on nothing that the canonical form leaves out."""
OfStep: TypeAlias = Callable[[Manager, Operation, Answer, Manager], Sequence[Violation]]
"""What is wrong with a step: the state before it, the operation, the answer, and the state after it."""


def invariants(manager: Manager) -> Sequence[Violation]:
    """The invariants that a state violates."""
    return check(manager.snapshot())


def no_invariants(manager: Manager) -> Sequence[Violation]:
    """Nothing: for a design whose fault the invariants would see before it has done any harm."""
    del manager
    return ()


def copies_unheld(manager: Manager) -> Sequence[Violation]:
    """Copies whose source or destination nobody holds, and nothing else."""
    return [violation for violation in check(manager.snapshot()) if violation.statement == "KV-INV-09"]


@frozen
class Checks:
    """Who judges."""

    of_state: OfState = invariants
    watches_memory: bool = True
    """Whether ghost memory judges too."""
    of_steps: tuple[OfStep, ...] = (kept_out, unhit, cached_in_vain, offered_twice)

    def of_step(
        self, before: Manager, operation: Operation, answer: Answer, after: Manager, lossless: bool
    ) -> Sequence[Violation]:
        """What is wrong with a step; ``lossless`` if nothing cached is ever forgotten by order."""
        checks = (each for each in self.of_steps if lossless or each is not unhit)
        return [violation for each in checks for violation in each(before, operation, answer, after)]


COMMON = Checks()
"""What the reference is judged by, and a design that brings no judges of its own."""
