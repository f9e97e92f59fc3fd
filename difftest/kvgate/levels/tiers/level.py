"""The level of two tiers: a scheduler with a KV connector of vLLM's own, which keeps blocks on the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, fields_dict

from kvgate.findings import explain_tiers
from kvgate.gate.generator import Generator
from kvgate.gate.level import Case
from kvgate.gate.shrink import DEFAULT, INSIDE, Rules
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Draw
from kvgate.kernel.text import printable
from kvgate.levels.scheduler.level import (
    LIMITS,
    PLACES_MAX,
    SIMPLER,
    DrivenLevel,
    EngineBench,
    draw_replies,
    fits_alone,
    plain_arrival,
    with_whole_chunks,
    without_draft_states,
)
from kvgate.levels.scheduler.operations import ResetCache, Serve
from kvgate.levels.tiers.operations import (
    CONNECTORS,
    NAME_CHARACTERS_MAX,
    OPERATIONS,
    OWN,
    POLICIES,
    TIERING,
    EndFiles,
    EndJobs,
    LoseJob,
    Operation,
    OtherEngine,
    Restart,
    TierStage,
    describe_tier_stage,
    describe_tiers,
)
from kvreference.attention import Kind
from kvreference.geometry import Geometry
from kvreference.mamba import StateMode
from kvreference.operations import Abort
from kvreference.scheduler.operations import Step
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

STEPS = 160
ANSWERS_MAX = 40
MONITORS = ("tiers", "leak", "progress")
"""What slots of both tiers hold and who uses them; what remains; and whether requests make progress."""
SYSTEMS = tuple(f"native@{each}" for each in ("0.21.0", "0.22.1", "0.23.0", "0.27.1", "0.30.0", "0.33.0"))
"""The systems whose connectors are driven."""
OWN_SYSTEMS = ("native@0.23.0", "native@0.30.0", "native@0.33.0")
"""Those with which connectors of one's own are driven."""
NIXL_SYSTEMS = ("native@0.30.0", "native@0.33.0", "native@0.26.0")
"""Those of which ``NixlConnector`` is driven; on the last, stored cases."""
STORED_SYSTEMS = ("native@0.26.0",)
"""Others, on which stored cases run."""
ASCEND_SYSTEMS = ("ascend@0.23.0",)
"""Those of vLLM-Ascend, of which ``AscendStoreConnector`` is driven."""
TIERING_SYSTEMS = ("native@0.23.0", "native@0.30.0", "native@0.33.0")
"""Those of which the tier of files is driven."""
STATE_SYSTEMS = ("native@0.33.0",)
"""Those on which models with states are run without being asked for."""
KINDS = (Kind.FULL, Kind.SLIDING_WINDOW, Kind.MAMBA)
CONNECTOR = "connector="
"""Before the name of a connector, among what a case needs."""
SYNC_LOADS = ("native@0.30.0", "native@0.33.0")
MATCHES = ("native@0.27.1", "native@0.30.0", "native@0.33.0")
"""Where hits may end inside blocks of states."""
OF_FILES: Mapping[type, int] = {EndFiles: 88, Restart: 8, OtherEngine: 16}
"""What there is with a tier of files only, and how often it is drawn."""

SIMPLER_TIERS: Rules = {
    **SIMPLER,
    EndJobs: {"jobs": 1, "loads": DEFAULT, "skips": DEFAULT},
    LoseJob: {"loads": DEFAULT, "skips": DEFAULT},
    EndFiles: {"jobs": 0, "reads": DEFAULT, "fail": DEFAULT},
    TierStage: dict.fromkeys((each for each in fields_dict(TierStage) if not each.startswith("own")), DEFAULT)
    | {"chunks": 1, "running_max": 1},
    Step: {"replies": INSIDE},
}


def by_default(models: list[Model], system: str, connector: str | None) -> list[Model]:
    """Those that are run if none is named: states where all that they show is declared."""
    if system in STATE_SYSTEMS and connector in (None, "offloading", "simple"):
        return models
    return [model for model in models if not model.geometry.keeps_states]


def with_connector(prepared: Any, connector: str, config: Mapping[str, Any] | None = None) -> Any:
    """A campaign with another connector, on those of its models that the connector takes.

    Raises:
        UsageError: the connector is unknown.
    """
    if connector not in CONNECTORS:
        from kvgate.levels.tiers.adapter.own import HOSTED, choose

        if ":" not in connector and connector not in HOSTED:
            names = ", ".join((*CONNECTORS, *HOSTED))
            raise UsageError(f"--connector {connector}: there are {names}, and MODULE:CLASS")
        choose(connector, config)
        connector = OWN
    lanes = tuple(lane for lane in prepared.plan.lanes if _takes(connector, lane.model.geometry))
    # If it takes none of them, the first case says why.
    plan = evolve(prepared.plan, lanes=lanes or prepared.plan.lanes)
    return evolve(prepared, plan=plan, trials=evolve(prepared.trials, needs=(CONNECTOR + connector,)))


def _is_plain(geometry: Geometry) -> bool:
    sizes = {group.block_size_tokens for group in geometry.groups}
    plain = all(group.kind in KINDS and group.compress_ratio == 1 for group in geometry.groups)
    plain = plain and all(group.states in (None, StateMode.ALIGN) for group in geometry.groups)
    return plain and len(sizes) == 1 and not geometry.hashed_ahead_tokens


def refusal(connector: str, geometry: Geometry) -> str:
    """Why a connector takes no such model."""
    name = connector
    if connector == OWN:
        from kvgate.levels.tiers.adapter.own import Chosen

        name = Chosen.name
    if connector in (OWN, "nixl") and geometry.keeps_states:
        return f"--connector {name} takes models without states"
    if connector == OWN:
        return f"--connector {name} takes models with one group, for it lacks SupportsHMA"
    return f"--connector {name} takes models with a group of full attention"


def _takes(connector: str, geometry: Geometry) -> bool:
    """Whether a connector takes a model: ``SimpleCPUOffloadConnector`` asserts a group of full attention."""
    if connector == OWN:
        from kvgate.levels.tiers.adapter.own import Chosen

        return not geometry.keeps_states and (not Chosen.one_group or len(geometry.groups) == 1)
    if connector == "nixl":
        return not geometry.keeps_states
    return connector not in ("simple", "multi") or any(group.kind is Kind.FULL for group in geometry.groups)


def _state_groups(geometry: Geometry) -> int:
    return sum(group.keeps_states for group in geometry.groups)


def _matches(geometry: Geometry) -> bool:
    """Whether hits may end inside blocks: next to states, where each group has one table for all hits."""
    plain = all(group.keeps_all or group.keeps_states for group in geometry.groups) and not geometry.has_draft_layer
    return plain and geometry.keeps_states and len(geometry.groups) > 1


def _dividing(settings: Settings, blocks_per_chunk: int) -> int:
    """So many blocks, or fewer, of which the retention interval is a multiple: the connector rejects all others."""
    interval, size = settings.retention_interval_tokens or 0, settings.geometry.groups[0].block_size_tokens
    return next(blocks for blocks in range(blocks_per_chunk, 0, -1) if interval % (blocks * size) == 0)


def _driven_as(connector: str) -> str:
    """How a connector is called in a case: one of another product is one's own."""
    from kvgate.levels.tiers.adapter.own import HOSTED, choose_hosted

    if connector not in HOSTED:
        return connector
    choose_hosted(connector)
    return OWN


def _of_own(stage: TierStage) -> TierStage:
    from kvgate.levels.tiers.adapter.own import Chosen

    return evolve(stage, own=Chosen.name, own_config=Chosen.document())


def see_connector(file: Path, stage: Any, connector: str | None) -> None:
    """Reject a stored case whose connector is not named: a trace is not trusted to name code.

    Raises:
        UsageError: the case has a user's own connector, which is not named; or it has none, and one is.
    """
    has_own = getattr(stage, "connector", "") == OWN
    if connector is not None and not has_own:
        raise UsageError(f"{file}: not a case of a connector of your own: it takes no --connector")
    if has_own and connector is None:
        name = printable(stage.own or "MODULE:CLASS", NAME_CHARACTERS_MAX)
        raise UsageError(f"{file}: written for the connector {name}; to run that code, say so with --connector {name}")


def take_connector(stage: Any, connector: str | None) -> None:
    """Let a stored case run with this connector of the user's own, configured as it was.

    Raises:
        UsageError: it cannot be used.
    """
    if connector is not None:
        from kvgate.levels.tiers.adapter.own import choose, configured

        choose(connector, configured(stage.own_config))


def _engine(world: Any, case: Case) -> Any:
    """The engine whose turn it is."""
    return world.current if case.stage.connector == TIERING else world


def _preempting(case: Case) -> int:
    """Of a hundred resets, how many preempt: with ``SimpleCPUOffloadConnector`` few, for most of them raise (090)."""
    return 4 if case.stage.connector in ("simple", "multi") else 50


class TierLevel(DrivenLevel):
    """A scheduler with a second tier."""

    name = "tiers"
    subject = "a scheduler with a second tier"
    monitors = gate = detectors = MONITORS
    alphabet = OPERATIONS
    arrival = Serve
    needed = frozenset((Serve, Step, EndJobs))
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]] = {
        Serve: lambda generator, case, draw: Serve(
            plain_arrival(generator.arrival(draw)),
            draw.integer(1, generator.often("answers", ANSWERS_MAX, is_optional=False)),
            loads=case.stage.connector == "nixl" and draw.chance(50),
        ),
        Step: lambda generator, _case, draw: Step(draw_replies(generator, draw)),
        EndJobs: lambda _generator, _case, draw: EndJobs(
            draw.chance(50), draw.integer(1, 3), draw.integer(1, 3) if draw.chance(30) else 0
        ),
        LoseJob: lambda _generator, _case, draw: LoseJob(draw.chance(75), draw.integer(0, 2)),
        Abort: lambda generator, _case, draw: Abort(generator.request(draw)),
        ResetCache: lambda _generator, case, draw: ResetCache(draw.chance(_preempting(case)), draw.chance(50)),
        EndFiles: lambda _generator, _case, draw: EndFiles(draw.chance(50), draw.integer(0, 3), draw.chance(8)),
        Restart: lambda _generator, _case, _draw: Restart(),
        OtherEngine: lambda _generator, _case, _draw: OtherEngine(),
    }
    stage_type = TierStage
    simpler: Rules = SIMPLER_TIERS
    limits: Mapping[type, Mapping[str, int]] = {
        **LIMITS,
        EndJobs: {"jobs": PLACES_MAX, "skips": PLACES_MAX},
        LoseJob: {"skips": PLACES_MAX},
        EndFiles: {"jobs": PLACES_MAX},
        TierStage: dict.fromkeys(("chunks", "blocks_per_chunk", "running_max", "sync_load_tokens"), PLACES_MAX),
    }
    not_tested: tuple[str, ...] = (
        "The copy of the bytes: the workers of vLLM's connectors copy on CUDA and XPU devices alone, so a model of it "
        "copies what slots hold.",
        "Transfers that fail: OffloadingConnector asserts that none does, SimpleCPUOffloadConnector reports none. "
        "With a connector of your own they are checked, and so are reads and writes of files with --connector tiering.",
        "The worker's half of NixlConnector, and the node that it reads from: models of them bring whole prompts, and "
        "no read fails.",
        "With --connector lmcache its copies and the server of its halves: models of them. With ascend-store the store "
        "and the device's events: models of them; what it stores late from a block of the same group can show as new.",
        "What a connector remembers while a job never ends: the blocks alone are checked then, and all of it once the "
        "job has ended after all else. Jobs that never end with other connectors than offloading and nixl.",
        "Other connectors of vLLM and of vLLM-Ascend; LMCache in a process of its own; several workers, KV events of "
        "the tier.",
        "Tiers below the host but that of files, which --connector tiering has: its compiled reads and writes, its "
        "threads, backpressure, a write that a restart cuts short, files of another model or configuration.",
        "Models with attention chunks, compressed groups, states at every block, or blocks of several sizes.",
        "Models with states on releases before 0.33.0 show more than is declared.",
        "The copy of a state by the worker: a step writes the state where the next one reads it.",
        "What the block manager decides: no reference follows (--level scheduler).",
        "Adapters, items, priorities, grammars, sessions and the options that a scheduler has besides.",
    )
    trace_formerly = "kvgate-tiers-trace"
    trace_called = "the trace of two tiers"
    unsupported = "the scheduler or its connector does not support the settings it was given"

    def leaves_out(self, system: str) -> tuple[str, ...]:
        del system
        return self.not_tested

    def takes(self, model: Model) -> bool:
        """Full attention, windows and states at block ends, in blocks of one size."""
        return _is_plain(model.geometry)

    def bench_named(self, system: str, detectors: tuple[str, ...]) -> EngineBench:
        if system not in SYSTEMS + STORED_SYSTEMS + ASCEND_SYSTEMS:
            names = ", ".join(SYSTEMS + ASCEND_SYSTEMS)
            raise UsageError(f"--level tiers runs with the connectors of {names}, not of {system!r}")
        # The gate lets files be cut short, and disks be full, which vLLM logs as errors.
        for name in ("vllm.v1.kv_offload.tiering.fs.thread_pool", "vllm.v1.kv_offload.tiering.fs.io"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return super().bench_named(system, detectors)

    def world(self, case: Case, subject: str, with_reference: bool) -> Any:
        if not _is_plain(case.settings.geometry):
            raise UsageError(
                "--level tiers takes models of full attention, windows and states at block ends, in blocks of one size"
            )
        if not _takes(case.stage.connector, case.settings.geometry):
            raise UsageError(refusal(case.stage.connector, case.settings.geometry))
        if subject in ASCEND_SYSTEMS and case.stage.connector != OWN:
            raise UsageError(f"--level tiers runs with {subject} and --connector ascend-store or one of your own")
        if case.stage.connector == OWN and subject not in OWN_SYSTEMS + ASCEND_SYSTEMS:
            raise UsageError(f"--level tiers runs connectors of your own with {', '.join(OWN_SYSTEMS)}, not {subject}")
        if case.stage.connector == TIERING and subject not in TIERING_SYSTEMS + STORED_SYSTEMS:
            raise UsageError(f"--connector tiering runs with {', '.join(TIERING_SYSTEMS)}, not with {subject}")
        if case.stage.connector == "nixl" and subject not in NIXL_SYSTEMS:
            raise UsageError(f"--connector nixl runs with {', '.join(NIXL_SYSTEMS[:2])}, not with {subject}")
        from kvgate.levels.tiers.engine import TierEngine
        from kvgate.levels.tiers.engines import Engines

        del with_reference
        if case.stage.connector == TIERING:
            return Engines(case.settings, case.stage, subject)
        return TierEngine(case.settings, case.stage, subject)

    def parts(self, world: Any, case: Case) -> Sequence[Any]:
        return (_engine(world, case),)

    def explain(self, divergence: Divergence, world: Any) -> str | None:
        return explain_tiers(divergence, getattr(world, "current", world))

    # Cases

    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        """A case without operations; ``needs`` may name its connector."""
        settings = generator.settings(draw)
        asynchronous = draw.chance(40)
        if settings.geometry.has_draft_layer:
            settings = evolve(settings, drafts_max=max(1, settings.drafts_max))
        settings = without_draft_states(with_whole_chunks(settings), draw)
        # Several requests that share a pool in which one fits, so that what is evicted comes back from the host.
        settings = evolve(settings, chunk_tokens=max(settings.chunk_tokens, settings.drafts_max + 1))
        least = blocks_to_run(TierStage(asynchronous=asynchronous).held(settings), settings.tokens_max - 1)
        settings = evolve(
            settings,
            caches=True,
            requests_max=max(2, settings.requests_max),
            blocks=1 + least * draw.integer(100, 250) // 100,
            full_sequence_must_fit=False,
        )
        larger = generator.often("larger chunks", 30)
        stage = TierStage(
            chunks=draw.integer(1, 1 + 3 * least),
            blocks_per_chunk=_dividing(settings, draw.integer(2, 3)) if draw.chance(larger) else 1,
            policy=draw.one_of(POLICIES),
            stores_answers=draw.chance(60),
            sync_load_tokens=generator.budget(draw) if draw.chance(generator.often("loads within steps", 20)) else 0,
            running_max=min(draw.integer(1, settings.requests_max), settings.chunk_tokens),
            asynchronous=asynchronous,
        )
        named = [_driven_as(each.removeprefix(CONNECTOR)) for each in needs if each.startswith(CONNECTOR)]
        if named:
            # Of its own: other cases stay as they are.
            is_lazy = named[0] not in ("offloading", TIERING) and draw.chance(30)
            stage = evolve(stage, connector=named[0], is_lazy=is_lazy)
        if stage.connector == TIERING:
            # So few that what is evicted comes back from files.
            stage = evolve(stage, chunks=draw.integer(1, 1 + least))
        if stage.connector in ("simple", OWN):
            stage = evolve(stage, blocks_per_chunk=1, policy="lru", stores_answers=True, sync_load_tokens=0)
            if stage.connector == OWN:
                stage = _of_own(evolve(stage, failed_loads_end=draw.chance(50)))
        elif stage.connector == "nixl":
            stage = evolve(stage, is_lazy=False)
        elif stage.connector == "multi":
            # Both have chunks of one block.
            stage = evolve(stage, blocks_per_chunk=1, simple_first=draw.chance(50))
        if _matches(settings.geometry) and draw.chance(generator.often("hits inside blocks", 40)):
            stage = evolve(stage, match_tokens=settings.geometry.grain_tokens // 2)
            settings = evolve(settings, blocks=settings.blocks + len(settings.geometry.groups))
        return self.case(settings, (), stage)

    def weights(self, generator: Generator) -> Mapping[type, int]:
        del generator
        return {Serve: 72, Step: 220, EndJobs: 88, Abort: 12, ResetCache: 8, LoseJob: 4, **OF_FILES}

    def is_possible(self, kind: type, case: Case) -> bool:
        """Whether a case may have it. ``SimpleCPUOffloadConnector`` reports copies in order, so none is lost."""
        if kind is LoseJob:
            return case.stage.connector in ("offloading", "nixl")
        return kind not in OF_FILES or case.stage.connector == TIERING

    def operations_in(self, generator: Generator) -> int:
        del generator
        return STEPS

    def that_fits(self, case: Case) -> Case:
        settings = case.stage.held(case.stage.matched(case.settings))
        if case.stage.match_tokens:
            # A state inside a block is copied as well before its request continues.
            settings = evolve(settings, blocks=max(2, settings.blocks - _state_groups(settings.geometry)))
        fits = [each for each in case.operations if not isinstance(each, Serve) or fits_alone(settings, each)]
        return evolve(case, operations=tuple(fits))

    def allowed(self, bench: Any, case: Case) -> Case:
        """The case without loads within steps, and hits inside blocks, on a release that has none."""
        if bench.subject not in SYNC_LOADS:
            case = evolve(case, stage=evolve(case.stage, sync_load_tokens=0))
        if bench.subject not in MATCHES:
            case = evolve(case, stage=evolve(case.stage, match_tokens=0))
        return self.that_fits(case)

    # In words, and from outside

    describe = staticmethod(describe_tiers)
    describe_stage = staticmethod(describe_tier_stage)

    def options_of(self, stage: TierStage) -> tuple[str, ...]:
        return ("--connector", stage.own) if stage.connector == OWN else ()

    def prompt_tokens(self, operation: Operation) -> int:
        return operation.prompt_tokens if isinstance(operation, Serve) else 0

    def blocks_of(self, settings: Settings, stage: TierStage) -> int:
        return settings.blocks + stage.chunks


TIERS = TierLevel()
