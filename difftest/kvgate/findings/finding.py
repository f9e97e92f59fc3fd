"""What a finding consists of: where it applies, the fault that it injects into the reference, and how it is recognised.

A finding is a difference between a published system and the reference that is understood and written up. Each has a
folder of its own in this package, which defines one ``FINDING``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from kvgate.adapters.stock import Stock
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.monitors.wait_graph import WaitFor
from kvgate.monitors.worker_memory import WorkerMemory
from kvreference.answers import Hit
from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.manager import Manager
from kvreference.population import Population
from kvreference.settings import Settings


class Stage(Protocol):
    """What a scheduler is configured with, besides its block manager."""

    @property
    def asynchronous(self) -> bool:
        """Whether a step is scheduled before the output of the previous one is known."""

    @property
    def by_priority(self) -> bool:
        """Whether requests are served by priority."""

    @property
    def connector(self) -> bool:
        """Whether other nodes load and read blocks."""

    @property
    def failed_loads_end(self) -> bool:
        """Whether a request whose load failed ends with an error."""


class Progress(Protocol):
    """The monitor of progress."""

    @property
    def waiting(self) -> WaitFor | None:
        """The wait-for graph of the step in which no request made progress."""


class OtherNodes(Protocol):
    """The nodes that blocks are loaded from and read by."""

    def under_way(self) -> Sequence[int]:
        """The requests with an unfinished transfer."""


class Engine(Protocol):
    """A scheduler on its block manager, at the point where it diverged."""

    settings: Settings
    lockstep: Lockstep

    @property
    def stage(self) -> Stage:
        """What the scheduler is configured with."""

    @property
    def followed(self) -> Stock:
        """The block manager."""

    @property
    def memory(self) -> WorkerMemory:
        """The slots of the worker."""

    @property
    def progress(self) -> Progress:
        """The monitor of progress."""

    @property
    def nodes(self) -> OtherNodes:
        """The other nodes."""


class OnNode(Protocol):
    """A divergence of a pair, and where it was found."""

    @property
    def told(self) -> Divergence:
        """The divergence as the pair reports it."""

    @property
    def on_node(self) -> Divergence | None:
        """The divergence as one node reports it; None if it is one of both nodes together."""

    @property
    def engine(self) -> Engine:
        """The node."""


class Pair(Protocol):
    """A prefill node and a decode node, at the point where one of them diverged."""

    @property
    def seen(self) -> Sequence[OnNode]:
        """Every divergence."""


class LiveReference(Protocol):
    """The reference as a shadow drives it, call by call."""

    geometry: Geometry
    population: Population
    prefixes: dict[int, list[Prefix]]
    cache: Any

    @property
    def pool(self) -> BlockPool:
        """The block pool."""

    def seen_as(self, kind: type[Any]) -> Any:
        """The same state under the rules of another kind of reference."""


class GateCall(Protocol):
    """A live question whether a waiting request passes the admission gate."""

    @property
    def fits(self) -> bool:
        """What the engine answered."""


class AllocateCall(Protocol):
    """A live allocation."""

    @property
    def is_first(self) -> bool:
        """Whether the request was admitted by it."""

    @property
    def computed(self) -> int:
        """How many tokens were computed before, without the hit."""

    @property
    def external_tokens(self) -> int:
        """How many tokens another node provides."""


class Miscount(Protocol):
    """How far off a live engine's count of free blocks is, by one finding."""

    blocks: int

    def admit(self, geometry: Geometry, call: AllocateCall, hit: Hit) -> None:
        """Note an allocation."""

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
    explains_gate: Callable[[LiveReference, GateCall, Hit], bool] | None = None
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
