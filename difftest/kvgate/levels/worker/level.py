"""The level of a worker: what a scheduler orders, a published model runner prepares, and each slot is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import evolve

from kvgate.adapters.releases import release_named
from kvgate.gate.generator import Generator
from kvgate.gate.level import Case
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Draw
from kvgate.levels.scheduler.level import EngineBench, SchedulerLevel, plain
from kvgate.levels.scheduler.operations import Operation, Serve, Stage
from kvreference.geometry import Geometry
from kvreference.settings import Settings

STEPS = 150
LATER = r"ascend-worker@.*"
LEFT_OUT = (
    ("The memory that the worker makes: it is compared for compressed groups of vLLM-Ascend.", r"stock|native@.*"),
    ("The memory that the worker makes for models without compressed groups.", r"ascend-worker.*"),
    ("Attention metadata: it is compared where vLLM-Ascend builds it.", r"stock|native@.*"),
    ("Copied blocks: they are compared with ascend-worker-retention.", rf"stock|native@.*|ascend-worker|{LATER}"),
    ("Cleared blocks: they are compared with native@0.33.0.", r"stock|native@0\.23\.0|ascend-worker.*"),
    (
        "Compressed slots of a hit that were never written, where finding 013 has acted: ghost memory ignores them. "
        "The comparison of slots does not.",
        r"ascend-worker.*",
    ),
    (
        "The slots of compressed caches that the compiled operator compressor_metadata returns. Each argument that its "
        "published callers pass is compared, and the slots that the arguments name; the callers have small rotary "
        "tables and the ratio of each group's specification.",
        LATER,
    ),
    (
        "What the scheduler and the block manager decide, except what ghost memory and the leak monitor see; "
        "compressor_metadata_out.",
        r"ascend-worker@0\.30\.0rc2",
    ),
)
"""What is not tested of some systems, and a pattern of their names."""


class WorkerLevel(SchedulerLevel):
    """One scheduler and its worker."""

    name = "worker"
    subject = "a scheduler and its worker"
    monitors = (*SchedulerLevel.monitors, "worker")
    gate = ("lockstep", *monitors)
    detectors = gate
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]] = {
        **SchedulerLevel.drawn,
        Serve: lambda generator, case, draw: plain(SchedulerLevel.drawn[Serve](generator, case, draw)),
    }
    not_tested = (
        "What a worker does with its slots, except blocks that are copied or cleared. Ghost memory writes and reads "
        "the slots that the worker computed; what other nodes read and write and what copies do is as granted.",
        "Of the worker: its constructor, its layers, graphs, context parallelism, plans for kernels, drafting.",
        "Steps that are asynchronous, adapters, encoders, pooling, embedded prompts, sessions, and the options that a "
        "scheduler has besides: requests have none.",
    )
    trace_formerly = "kvgate-worker-trace"
    trace_called = "the trace of a worker"

    def operations_of(self, profile: str) -> int:
        return super().operations_of(profile) // 2

    def operations_in(self, generator: Generator) -> int:
        """More than of a scheduler alone: requests are to come back after they were preempted."""
        del generator
        return STEPS

    def leaves_out(self, system: str) -> tuple[str, ...]:
        missing = [sentence for sentence, systems in LEFT_OUT if re.fullmatch(systems, system)]
        return (*self.not_tested, *missing)

    def takes(self, model: Model) -> bool:
        """Attention alone: a table of states has no slots."""
        return not model.geometry.keeps_states

    def bench_named(self, system: str, detectors: tuple[str, ...]) -> EngineBench:
        from kvgate.levels.worker.engine import UNDESCRIBED, WORKERS

        if system not in WORKERS:
            raise UsageError(f"no worker comes with the system {system!r}: --level worker is for {', '.join(WORKERS)}")
        # What later vLLM-Ascends decide is compared at the other levels, with vLLM's specs where nothing is compressed.
        # Here all groups have vLLM-Ascend's specs, for their workers ask for them: the reference does not follow these.
        if re.fullmatch(LATER, system):
            described = release_named(system).checked
            detectors = tuple(each for each in detectors if each != "lockstep" and (described or each in UNDESCRIBED))
        return super().bench_named(system, detectors)

    def world(self, case: Case, subject: str, with_reference: bool) -> Any:
        from kvgate.levels.worker.engine import WorkerEngine

        return WorkerEngine(case.settings, case.stage, subject, with_reference)

    def keeps_nothing(self, geometry: Geometry) -> bool:
        del geometry
        return False

    def with_options(
        self, settings: Settings, stage: Stage, draw: Draw, needs: Collection[str]
    ) -> tuple[Settings, tuple[()], Stage]:
        del draw, needs
        return settings, (), stage

    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        case = super().set_up(generator, draw, needs)
        stage, settings = evolve(case.stage, asynchronous=False, adapters_max=None, encoder_budget=None), case.settings
        if settings.geometry.has_draft_layer and not settings.drafts_max:
            # Its steps were to be asynchronous, for which drafts were left out; and a model with a draft layer drafts.
            settings = evolve(settings, drafts_max=draw.integer(1, generator.bias.drafts_max))
        return evolve(case, settings=settings, stage=stage)


WORKER = WorkerLevel()
