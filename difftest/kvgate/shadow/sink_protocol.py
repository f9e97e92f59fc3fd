"""The protocol of what takes the observed records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvgate.shadow.calls import Raw, Stalls


class DifferenceError(AssertionError):
    """The engine did something else than the reference. Raised in the engine in the mode strict, and in no other."""


class Sink(Protocol):
    """Takes records, and never blocks."""

    lost: int
    """Records that were lost since the last reset of this count."""
    is_immediate: bool
    """Whether it wants each record at once, and not with all others of its step."""

    def ready(self) -> bool:
        """Whether records are taken now; if not, a checkpoint is needed once they are again."""
        ...

    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint is wanted before its time, because nothing can be checked until the next one."""
        ...

    def report_stalls(self, stalls: Stalls) -> None:
        """Take what stalls now; called by another thread than the engine's."""
        ...

    def send(self, records: Sequence[Raw]) -> None:
        """Take records."""
        ...


class Passive:
    """Of a sink: it asks for nothing, and does not report what stalls."""

    def wants_checkpoint(self) -> bool:
        """Never."""
        return False

    def report_stalls(self, stalls: Stalls) -> None:
        """Drop them."""
