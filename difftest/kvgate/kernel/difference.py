"""A disagreement, as data: which guarantee, at which step, what was expected, what was seen."""

from __future__ import annotations

from attrs import frozen

from kvreference.operations import Operation
from kvreference.statements import STATEMENTS


@frozen
class Difference:
    """What two states or two answers do not share."""

    statement: str
    """The id of the violated guarantee."""
    subject: str
    """What differs: an answer, the free queue, a request's table, …"""
    expected: str
    got: str


@frozen
class Divergence:
    """A difference at a step of a run."""

    step: int
    """The index of the operation, from 0."""
    operation: Operation | None
    """The operation as it was resolved; None for what was found at the end."""
    detector: str
    """Who found it: lockstep, check, ghost, leak or work."""
    difference: Difference

    @property
    def sentence(self) -> str:
        """The guarantee in its own words."""
        return STATEMENTS[self.difference.statement]

    @property
    def kind(self) -> tuple[str, str, str]:
        """What makes two divergences the same defect: detector, statement and subject."""
        return self.detector, self.difference.statement, self.difference.subject
