"""What a scheduler did in one operation."""

from __future__ import annotations

from attrs import frozen

from kvreference.answers import Answer, Refused
from kvreference.operations import Abort, Admit, Finish, OfRequest, Operation, Sample, Schedule
from kvreference.scheduler.limits import Reason


@frozen
class Observation:
    """One operation of a scheduler, as what it asked of its block manager."""

    performed: tuple[tuple[Operation, Answer], ...] = ()
    """In order. One after the other, those of a whole run are a trace of the block manager."""
    entered: tuple[int, ...] = ()
    """The requests that were given blocks for the first time."""
    reason: Reason | None = None
    """Why a request was rejected."""

    def requests(self, *kinds: type[OfRequest]) -> tuple[int, ...]:
        """The requests to which an operation of one of ``kinds`` was done, and not rejected."""
        return tuple(
            operation.request
            for operation, answer in self.performed
            if isinstance(operation, kinds) and not isinstance(answer, Refused)
        )

    @property
    def advanced(self) -> bool:
        """Whether a request got blocks, to compute in or to load into."""
        return bool(self.requests(Admit, Schedule))

    @property
    def progress(self) -> bool:
        """Whether a token was answered, or a request was admitted for the first time, ended or was rejected."""
        return bool(self.entered or self.reason or self.requests(Sample, Finish, Abort))
