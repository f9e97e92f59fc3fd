"""What a finding consists of: where it applies, the fault that it injects into the reference, and how it is recognised.

A finding is a difference between a published system and the reference that is understood and written up. Each has a
folder of its own in this package, which defines one ``FINDING``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.monitors.slot_memory import WorkerMemory
from kvreference.answers import Hit
from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.manager import Manager
from kvreference.population import Population
from kvreference.settings import Settings


class Engine(Protocol):
    """A scheduler on its block manager, at the point where it diverged; see ``kvgate.levels.scheduler.engine``."""

    settings: Settings
    lockstep: Lockstep
    stage: Any
    """What the scheduler is configured with."""
    followed: Any
    """The block manager, a ``Stock``."""
    memory: WorkerMemory
    progress: Any
    """The monitor of progress, with its wait-for graph ``waiting``."""
    nodes: Any
    """The other nodes."""


class LiveReference(Protocol):
    """The reference as a shadow drives it, call by call; see ``kvgate.shadow.order_agnostic_reference``."""

    geometry: Geometry
    population: Population
    prefixes: dict[int, list[Prefix]]
    cache: Any

    @property
    def pool(self) -> BlockPool:
        """The block pool."""

    def seen_as(self, kind: type[Any]) -> Any:
        """The same state under the rules of another kind of reference."""


class Miscount(Protocol):
    """How far off a live engine's count of free blocks is, by one finding."""

    blocks: int

    def admit(self, geometry: Geometry, call: Any, hit: Hit) -> None:
        """Note an allocation, as the shadow records it."""

    def explains(self, expected: int, got: int) -> bool:
        """Whether the finding explains the count; if so, it is expected from now on."""


Explains: TypeAlias = Callable[[Divergence, Lockstep], bool]
ExplainsEngine: TypeAlias = Callable[[Divergence, Engine], bool]
ExplainsTogether: TypeAlias = Callable[[type[Manager], type[Manager], Divergence, Lockstep], bool]


@frozen(kw_only=True)
class Finding:
    """One finding. A divergence that it explains is reported as known, and every other divergence as new."""

    id: str
    """``NNN-slug``; its folder has the same name as a Python package, ``fNNN_slug``."""
    rank: int
    """Findings are tried in this order, and the first one that explains a divergence names it."""
    releases: tuple[str, ...] | None = None
    """The releases that have it; None: each that the gate runs, as far as the fault shows."""
    where: Callable[[Settings], bool] = lambda _settings: True
    """The settings under which it can show."""

    fault: type[Manager] | None = None
    """The fault, injected into the reference: it overrides one rule and leaves all others as they are."""
    without: type[Manager] = Manager
    """What the reference is compared with: the reference itself, or with a fault that ``fault`` contains."""
    together_with: tuple[str, ...] = ()
    """The findings that can act in the same step. One whose folder is deleted is left out."""
    explains: Explains | None = None
    """The recogniser at the level of the block manager, if replaying with ``fault`` is not enough."""
    explains_together: ExplainsTogether | None = None
    """How it shows in the same step as another finding's fault, if this one has no ``fault``. Arguments: that fault,
    and what the other finding is compared with."""

    explains_engine: ExplainsEngine | None = None
    """The recogniser at the level of the scheduler, and of each node of a pair."""
    explains_unreferenced: ExplainsEngine | None = None
    """The same, if no reference follows the engine and no other finding explains the divergence."""

    explains_hit: Callable[[LiveReference, int, Hit], bool] | None = None
    """The recogniser of a live look-up's answer, for the request of that number."""
    explains_gate: Callable[[LiveReference, Any, Hit], bool] | None = None
    """The recogniser of a live admission gate's answer."""
    miscount: Callable[[], Miscount] | None = None
    """The recogniser of a live count of free blocks."""

    unrecognised: str = ""
    """Why no divergence is recognised as this finding."""

    def applies_to(self, lockstep: Lockstep) -> bool:
        """Whether the system has it, and can show it under its settings."""
        system = lockstep.system
        has_it = self.releases is None or getattr(system, "release", None) in self.releases
        return has_it and self.where(system.population.settings)
