"""What can happen to an engine with a second tier, and what it is configured with."""

from __future__ import annotations

from typing import TypeAlias

from attrs import evolve, field, frozen
from attrs.validators import ge, in_, instance_of, max_len

from kvgate.kernel.text import counted
from kvgate.levels.scheduler.operations import ResetCache, Serve, Stage, describe_engine, describe_stage
from kvreference.operations import Abort
from kvreference.scheduler.operations import Step
from kvreference.settings import Settings

_count = [instance_of(int), ge(1)]
_number = [instance_of(int), ge(0)]
TIERING = "tiering"
CONNECTORS = ("offloading", "simple", "multi", TIERING, "nixl")
"""The connectors of vLLM that are driven: ``OffloadingConnector``, ``SimpleCPUOffloadConnector``, both in a
``MultiConnector``, the first with a tier of files below the host, and ``NixlConnector`` and the first in a
``MultiConnector``."""
OWN = "own"
"""A user's own connector, which is named where cases are run."""
NAME_CHARACTERS_MAX = 200
CONFIG_CHARACTERS_MAX = 4000
POLICIES = ("lru", "arc")
"""How the tier chooses what it evicts."""


@frozen
class TierStage:
    """What an engine with a second tier is configured with, apart from its block manager."""

    chunks: int = field(default=8, validator=_count)
    """How many chunks the tier holds."""
    blocks_per_chunk: int = field(default=1, validator=_count)
    """How many blocks of the device a chunk has."""
    policy: str = field(default="lru", validator=in_(POLICIES))
    stores_answers: bool = False
    """Whether answers are stored as well as prompts."""
    sync_load_tokens: int = field(default=0, validator=_number)
    """How many tokens a step may load before it computes, where a release can; the others load while they wait."""
    match_tokens: int = field(default=0, validator=_number)
    """Next to states: at every multiple of how many tokens a hit may end inside a block; at none if it is 0."""
    running_max: int = field(default=8, validator=_count)
    """How many requests run at once."""
    connector: str = field(default="offloading", validator=in_((*CONNECTORS, OWN)))
    is_lazy: bool = False
    """Whether ``SimpleCPUOffloadConnector`` stores blocks when they are next to be evicted, and not when computed."""
    simple_first: bool = False
    """Whether a ``MultiConnector`` asks ``SimpleCPUOffloadConnector`` first."""
    asynchronous: bool = False
    """Whether steps are scheduled before the output of the step before is known."""
    failed_loads_end: bool = False
    """Whether a load of a user's own connector that fails ends its request; if not, it is computed again."""
    own: str = field(default="", validator=[instance_of(str), max_len(NAME_CHARACTERS_MAX)])
    """Which connector of the user's own, as MODULE:CLASS."""
    own_config: str = field(default="", validator=[instance_of(str), max_len(CONFIG_CHARACTERS_MAX)])
    """How that is configured, as JSON."""

    @property
    def scheduler(self) -> Stage:
        """What the scheduler is configured with."""
        return Stage(self.running_max, self.asynchronous)

    def held(self, settings: Settings) -> Settings:
        """The settings by which to count what a request holds: the window before steps in flight stays with it."""
        steps = self.scheduler.in_flight_max if self.asynchronous else 1
        return evolve(settings, chunk_tokens=steps * settings.chunk_tokens)

    def matched(self, settings: Settings) -> Settings:
        """The settings with hits that may end inside blocks, if the stage has them."""
        if not self.match_tokens:
            return settings
        groups = tuple(
            evolve(each, unit_tokens=self.match_tokens) if each.keeps_all else each for each in settings.geometry.groups
        )
        return evolve(settings, geometry=evolve(settings.geometry, groups=groups))


@frozen
class EndJobs:
    """Transfers end that are under way, of one direction."""

    loads: bool = False
    """Whether they bring blocks to the device; if not, they take them to the tier."""
    jobs: int = field(default=1, validator=_count)
    """How many of them end."""
    skips: int = field(default=0, validator=_number)
    """How many that began before them remain under way, modulo the number of jobs under way."""


@frozen
class LoseJob:
    """A transfer that is under way never ends."""

    loads: bool = False
    """Whether it brings blocks to the device; if not, it takes them to the tier."""
    skips: int = field(default=0, validator=_number)
    """How many began before it, modulo the number of jobs under way."""


@frozen
class EndFiles:
    """The tier of files answers what it was asked, and transfers of one direction end, in the order in which they
    began."""

    reads: bool = False
    """Whether they bring files to the host; if not, they write what the host has to files."""
    jobs: int = field(default=1, validator=_number)
    """How many of them end."""
    fail: bool = False
    """Whether they fail: the last file that is read was cut short, or the disk has no room."""


@frozen
class Restart:
    """The engine ends with all its requests and jobs, and is built anew. The files stay."""


@frozen
class OtherEngine:
    """What follows is for the other of two engines, which have one folder of files."""


Operation: TypeAlias = Serve | Step | EndJobs | LoseJob | Abort | ResetCache | EndFiles | Restart | OtherEngine
OPERATIONS: tuple[type, ...] = (Serve, Step, EndJobs, LoseJob, Abort, ResetCache, EndFiles, Restart, OtherEngine)
"""Every kind of operation."""


def describe_tiers(operation: Operation) -> str:
    """An operation, on one line."""
    if isinstance(operation, EndJobs):
        kind = ("load", "loads") if operation.loads else ("store", "stores")
        after = f", but for {counted(operation.skips, *kind)} before them," if operation.skips else ""
        return f"{counted(operation.jobs, *kind)} that began first{after} end"
    if isinstance(operation, LoseJob):
        kind = ("load", "loads") if operation.loads else ("store", "stores")
        return f"The {kind[0]} under way that began after {counted(operation.skips, *kind)} never ends"
    if isinstance(operation, EndFiles):
        how = "fail" if operation.fail else "end"
        kind = ("read", "reads") if operation.reads else ("write", "writes")
        ended = f", and {counted(operation.jobs, *kind)} of files that began first {how}" if operation.jobs else ""
        return f"The tier of files answers look-ups{ended}"
    if isinstance(operation, Restart):
        return "The engine is built anew over the same files"
    if isinstance(operation, OtherEngine):
        return "From here on it is the other engine's turn"
    return describe_engine(operation)


def describe_tier_stage(stage: TierStage) -> str:
    """What an engine with a second tier is configured with, on one line."""
    parts = [
        describe_stage(stage.scheduler),
        f"the host has room for {counted(stage.chunks, 'chunk')} of {counted(stage.blocks_per_chunk, 'block')}, "
        f"evicted by {stage.policy.upper()}",
    ]
    if stage.connector != "offloading":
        name = "offloading with a tier of files" if stage.connector == TIERING else stage.own or stage.connector
        parts.append(f"the connector is {name}" + ", SimpleCPUOffloadConnector first" * stage.simple_first)
    if stage.is_lazy:
        parts.append("what is next to be evicted is stored")
    if stage.stores_answers:
        parts.append("answers are stored as well")
    if stage.match_tokens:
        parts.append(f"a hit may end at every {counted(stage.match_tokens, 'token')}")
    if stage.failed_loads_end:
        parts.append("a load that fails ends its request")
    if stage.sync_load_tokens:
        parts.append(f"a step loads up to {counted(stage.sync_load_tokens, 'token')} before it computes")
    return "; ".join(parts)
