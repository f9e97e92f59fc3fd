"""Minimising a run of two nodes: fewer operations, smaller numbers, simpler stages, smaller pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from kvgate.gate.shrink import minimise_with, simpler_operation, smaller
from kvgate.levels.pair.case import PairCase, PairStage
from kvgate.levels.pair.operations import Ask, Operation, StepOn, Transferred
from kvgate.levels.scheduler.shrink import simpler_engine_operation, simpler_settings, simpler_stages
from kvreference.operations import Arrive
from kvreference.scheduler.operations import Step

StillFails = Callable[[PairCase], bool]
ROUNDS_MAX = 4


def shortest(case: PairCase, still_fails: StillFails, until: float = math.inf) -> PairCase:
    """A small case for which ``still_fails`` holds, given that it holds for ``case``.

    ``until`` is a time of ``time.monotonic``: what is smallest by then is returned.
    """
    for _ in range(ROUNDS_MAX):
        before = case

        def fails_with(operations: Sequence[Operation], among: PairCase = case) -> bool:
            return still_fails(evolve(among, operations=tuple(operations)))

        operations = minimise_with(case.operations, fails_with, simpler_pair_operation, until)
        (case,) = minimise_with(
            (evolve(case, operations=operations),),
            lambda candidate: len(candidate) == 1 and still_fails(candidate[0]),
            _simpler_around,
            until,
        )
        if case == before:
            break
    return case


def _simpler_around(case: PairCase) -> Iterator[PairCase]:
    for stage in _simpler_pair_stages(case.stage):
        yield evolve(case, stage=stage)
    for settings in simpler_settings(case.settings):
        yield evolve(case, settings=settings)


def _simpler_pair_stages(stage: PairStage) -> Iterator[PairStage]:
    # Without a connector they would be no nodes.
    for prefill in simpler_stages(stage.prefill):
        if prefill.connector:
            yield evolve(stage, prefill=prefill)
    for decode in simpler_stages(stage.decode):
        if decode.connector:
            yield evolve(stage, decode=decode)
    for blocks in smaller(stage.prefill_blocks, 2):
        yield evolve(stage, prefill_blocks=blocks)


def simpler_pair_operation(operation: Operation) -> Iterator[Operation]:
    """Simpler forms of an operation on two nodes, the boldest first."""
    if isinstance(operation, StepOn):
        for simpler in simpler_engine_operation(Step(operation.replies)):
            if isinstance(simpler, Step):
                yield evolve(operation, replies=simpler.replies)
    elif isinstance(operation, Ask):
        for answers in smaller(operation.answers_max, 1):
            yield evolve(operation, answers_max=answers)
        for arrival in simpler_operation(operation.arrival):
            if isinstance(arrival, Arrive):
                yield evolve(operation, arrival=arrival)
    elif isinstance(operation, Transferred) and not operation.succeeded:
        yield evolve(operation, succeeded=True)
