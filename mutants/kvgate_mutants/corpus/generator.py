"""Would the gate have found a defect by itself? Cases drawn from seeds, on the geometry of a trial, until one shows it.

A trial's scenario is written with knowledge of the defect. The cases here are not: they are those of any campaign, for
a model that has the trial's groups and switches. What the operations of the block manager do not reach is left out:
calls past it, and whole schedulers, of which the drawn cases avoid what vLLM 0.20.2 is known not to serve.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings import explain
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import Model
from kvgate.kernel.variants import Features
from kvgate.levels.manager import Bench, draw_case
from kvgate_mutants.corpus.bug import Trial
from kvgate_mutants.corpus.scenario import Blocks, Direct
from kvreference.geometry import Geometry
from kvreference.operations import Admit

DRAFTS = 4
"""For how many drafts in flight there is a state, as in the models of the gate."""


@frozen
class Drawn:
    """How soon drawn cases showed a defect."""

    operations: int
    """Over all cases."""
    seconds: float


def model_of(trial: Trial) -> Model | None:
    """The model that has the groups and the switches of a trial; None where drawn cases do not lead."""
    scenario = trial.scenario
    if not isinstance(scenario, Blocks) or any(isinstance(each, Direct) for each in scenario.operations):
        return None
    settings = scenario.settings
    features = Features(
        retention_interval_tokens=settings.retention_interval_tokens,
        scratch_first=settings.scratch_first,
        pin_drop_blocks_min=settings.pin_drop_blocks_min,
        transfers=any(isinstance(each, Admit) and each.external_tokens > 0 for each in scenario.operations),
    )
    # Drafts are drawn, and want a state each.
    groups = (evolve(group, draft_states=DRAFTS) if group.keeps_states else group for group in settings.geometry.groups)
    return Model("corpus", Geometry(tuple(groups)), "the groups of a scenario", features)


def _detectors(trial: Trial) -> tuple[str, ...]:
    assert isinstance(trial.scenario, Blocks), "only those are drawn"
    return trial.scenario.detectors


def draw_until_found(trial: Trial, loaded: Loaded, finding: str, seconds: float) -> Drawn | None:
    """Run drawn cases until one violates what ``trial`` expects; None if none does in time.

    What a finding explains counts only if it is ``finding``, the one that the trial itself showed.
    """
    model = model_of(trial)
    assert model is not None, "there is something to draw for"
    lanes = {Lane(model, preset): Generator(PRESETS[preset], model.geometry, model.features) for preset in PRESETS}
    bench = Bench(loaded.factory, _detectors(trial))
    started, operations = time.monotonic(), 0
    for index in count():
        for lane, generator in lanes.items():
            case = draw_case(generator, lane, f"corpus/{index}", 0)
            lockstep, divergences = _run(bench, case, started + seconds, trial.scenario.settings.tells_events)
            operations += len(lockstep.performed)
            seen = [(each, explain(each, lockstep) or "") for each in divergences]
            seen += [(acted.divergence(acted.step), acted.finding) for acted in lockstep.known.violations()]
            if any(trial.expects(each.difference) and name == finding for each, name in seen):
                return Drawn(operations, time.monotonic() - started)
            if time.monotonic() > started + seconds:
                return None
    return None


def _run(bench: Bench, case: Case, until: float, tells_events: bool) -> tuple[Lockstep, Sequence[Divergence]]:
    """Run a case, or as much of it as there is time for: one of long blocks can take a minute.

    It emits events only if the scenario does: those of 0.19.1 name no group.
    """
    lockstep = bench.set_up(evolve(case.settings, tells_events=case.settings.tells_events and tells_events))
    for operation in case.operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return lockstep, [divergence]
        if time.monotonic() > until:
            return lockstep, []
    return lockstep, lockstep.close()
