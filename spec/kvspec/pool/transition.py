"""What a transition is."""

from __future__ import annotations

from kvspec.pool.state import Operands, State
from kvspec.symbolic import Condition


class Transition:
    """One thing that can happen to one block; what can happen, and what it does."""

    @staticmethod
    def guard(state: State, at: Operands) -> Condition:
        """Whether it can happen."""
        raise NotImplementedError

    @staticmethod
    def effect(state: State, at: Operands) -> State:
        """The state after it."""
        raise NotImplementedError
