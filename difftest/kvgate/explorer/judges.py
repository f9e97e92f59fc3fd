"""What a block manager is judged by: every state, and every step between two.

A design that is known to be wrong may bring its own judges: one that counts otherwise violates the common statements
at once, which says nothing about the loophole that it is known for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from kvreference.admission import fits_empty_pool
from kvreference.answers import Answer, Refused
from kvreference.manager import Manager
from kvreference.operations import Admit, Operation
from kvreference.snapshot import Violation, check

OfState: TypeAlias = Callable[[Manager], Sequence[Violation]]
"""What is wrong with a state. It may depend on nothing that the canonical form leaves out."""
OfStep: TypeAlias = Callable[[Manager, Operation, Answer, Manager], Sequence[Violation]]
"""What is wrong with a step: the state before it, the operation, the answer, and the state after it."""


def invariants(manager: Manager) -> Sequence[Violation]:
    """The invariants that a state violates."""
    return check(manager.snapshot())


def kept_out(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A request is refused though nobody holds a block and all of it fits: it can never be admitted."""
    del after
    if not (isinstance(operation, Admit) and isinstance(answer, Refused)) or before.tables:
        return ()
    tokens = len(before.population[operation.request].tokens)
    if not fits_empty_pool(before.settings, tokens):
        return ()
    return (Violation("KV-LIVE-01", f"nobody holds a block, {tokens} tokens fit, and the request is refused"),)


@frozen
class Judges:
    """Who judges, besides ghost memory."""

    of_state: OfState = invariants
    of_step: OfStep = kept_out


COMMON = Judges()
"""What the reference is judged by, and a design that brings no judges of its own."""
