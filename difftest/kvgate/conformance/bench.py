"""The bench of a third party's system: only what it has is asked of it, in its own order if it has one."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, field, frozen

from kvgate.conformance.capabilities import Capabilities
from kvgate.conformance.replica import FollowingManager, GoesFirst
from kvgate.conformance.unordered import UnorderedComparison
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.monitor import Monitor
from kvgate.kernel.protocol import System
from kvgate.levels.manager import Bench
from kvreference.manager import Manager
from kvreference.operations import Operation
from kvreference.settings import Settings

FOLLOWING = "following"
"""The detector that compares a system of any order with the reference that follows it."""


class Asked(Lockstep):
    """A lockstep in which only what the system has is performed."""

    def __init__(
        self, system: System, reference: Manager | None, monitors: Sequence[Monitor], capabilities: Capabilities
    ) -> None:
        super().__init__(system, reference, monitors)
        self.capabilities = capabilities

    def perform(self, operation: Operation) -> Divergence | None:
        if not self.capabilities.allows(operation):
            return None
        return super().perform(operation)


class Following(Asked):
    """A lockstep in which the system goes first, and the reference follows its choice of blocks."""

    def __init__(
        self, system: System, settings: Settings, monitors: Sequence[Monitor], capabilities: Capabilities
    ) -> None:
        first = GoesFirst(system)
        super().__init__(first, FollowingManager(settings, first), monitors, capabilities)
        self.comparison = UnorderedComparison(self.comparison.retains)

    def perform(self, operation: Operation) -> Divergence | None:
        divergence = super().perform(operation)
        if divergence is None or divergence.detector != "lockstep":
            return divergence
        return evolve(divergence, detector=FOLLOWING)


@frozen
class ConformanceBench(Bench):
    """Builds what checks a third party's system."""

    capabilities: Capabilities = field(factory=Capabilities)

    def set_up(self, settings: Settings) -> Lockstep:
        """A fresh system with fresh checkers; the settings lose what the system does not have.

        Raises:
            UsageError: the system does not support the settings, or they speak of an order that it does not promise.
            SystemUnavailableError: it cannot be built.
        """
        fitted = self.capabilities.fitted(settings)
        if self.capabilities.order == "any":
            _refuse_order(fitted)
        lockstep = super().set_up(fitted)
        if self.capabilities.order == "any":
            return Following(lockstep.system, fitted, lockstep.monitors, self.capabilities)
        return Asked(lockstep.system, lockstep.reference, lockstep.monitors, self.capabilities)


def _refuse_order(settings: Settings) -> None:
    """Some mechanisms are about order, or name blocks that stand in no table."""
    speaks = {
        "scratch first": settings.scratch_first,
        "a pinned tier": settings.pin_drop_blocks_min is not None,
        "hits that end inside blocks": any(group.copies for group in settings.geometry.groups),
    }
    for what, is_on in speaks.items():
        if is_on:
            raise UsageError(f"{what}: compared for systems that promise vLLM's order alone (order='vllm')")
