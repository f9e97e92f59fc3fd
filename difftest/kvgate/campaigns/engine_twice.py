"""Runs of a scheduler a second time: what it asks of its block manager, and what it is told, must be the same."""

from __future__ import annotations

from attrs import evolve

from kvgate.campaigns.twice import Recorder, differing
from kvgate.gate.verdict import Found
from kvgate.kernel.case import Case
from kvgate.levels.scheduler.case import EngineCase
from kvgate.levels.scheduler.case_runner import EngineBench


def engine_again(bench: EngineBench, case: EngineCase, campaign_seed: int) -> Found | None:
    """Run a case twice; the first thing asked of the block manager at which the two runs differ."""
    (first, ends), (second, _) = _recorded(bench, case), _recorded(bench, case)
    longer = max(first.operations, second.operations, key=len)
    divergence = differing(first.steps, second.steps, longer)
    if divergence is None:
        return None
    asked = tuple(longer[: divergence.step + 1])
    performed = next((number for number, end in enumerate(ends, start=1) if end > divergence.step), len(ends))
    return Found(
        divergence,
        Case(case.settings, asked, case.model, case.preset, campaign_seed),
        engine=evolve(case, operations=case.operations[:performed]),
    )


def _recorded(bench: EngineBench, case: EngineCase) -> tuple[Recorder, list[int]]:
    """What was seen, and how much after each operation of the case."""
    engine, recorder, ends = bench.set_up(case), Recorder(), []
    engine.lockstep.monitors = [recorder, *engine.lockstep.monitors]
    for operation in case.operations:
        divergence = engine.perform(operation)
        ends.append(len(recorder.steps))
        if divergence is not None:
            break
    return recorder, ends
