"""The reference's invariants, checked on a system's own state after every operation."""

from __future__ import annotations

from collections.abc import Iterable

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvreference.snapshot import check


class Invariants:
    """Checks each state by ``kvreference.snapshot.check``."""

    name = "check"

    def observe(self, step: Step) -> Difference | None:
        violations = check(step.snapshot)
        if not violations:
            return None
        first = violations[0]
        return Difference(first.statement, "state", "the statement holds", first.detail)

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing: every state was checked when it came about."""
        del system
        return ()
