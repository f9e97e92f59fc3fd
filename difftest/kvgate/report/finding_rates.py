"""Counts in how many cases each finding acts on the installed vLLM, or another system, and stores it.

    python -m kvgate.report.finding_rates [CASES [SYSTEM]]

``CASES`` of every model are run at each level, the presets in turn, with a seed that no profile uses. A finding that
acts much more or less often in a later ``kvgate check`` is a divergence of it: see ``kvgate.findings.rates``. Models in
which something new is found are left out: their cases end early.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from attrs import evolve

from kvgate.adapters.registry import Loaded, load_system
from kvgate.campaigns.case_workers import side_by_side
from kvgate.findings.rates import Counted, Rates, write
from kvgate.gate.campaign import Campaign
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.gate.story import tell
from kvgate.levels.registry import prepare

SEED = 1_000_003


def count(system: Loaded, choice: LevelChoice, cases: int) -> Iterator[Counted]:
    """What one level shows, model by model."""
    (prepared,) = prepare(choice, system, models_named(system.models), "deep", seed=SEED)
    for model in dict.fromkeys(lane.model for lane in prepared.plan.lanes):
        lanes = tuple(Lane(model, preset) for preset in PRESETS)
        plan = evolve(
            prepared.plan,
            lanes=lanes,
            cases=cases,
            operations=10**9,
            most=lambda _model, _finding, _cases: None,
            certain=lambda _cases: {},
            least=lambda _model, _cases: {},
        )
        with side_by_side(prepared.trials, plan, os.cpu_count() or 1) as trials:
            campaign = Campaign(trials, plan)
            outcome = campaign.run()
        if outcome.found:
            (found, *_), where = outcome.found, f"{model.name} at level {prepared.level.name}"
            said = tell(found, system=system.name, version=system.version)
            print(f"{where} is left out; run kvgate check for something new:\n{said}", file=sys.stderr, flush=True)
            continue
        acted = {finding: number for (_, finding), number in sorted(campaign.acted.items())}
        yield Counted(model.name, prepared.level.name, cases, acted)


def main() -> None:
    """Count and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=int, nargs="?", default=200)
    parser.add_argument("system", nargs="?", default="stock")
    options = parser.parse_args()
    cases, system = options.cases, load_system(options.system)
    models: list[Counted] = []
    for choice in (LevelChoice.BLOCKS, LevelChoice.SCHEDULER, LevelChoice.PAIR):
        for each in count(system, choice, cases):
            models.append(each)
            print(each.model, each.level, each.cases, dict(each.acted), flush=True)
    write(Rates(system.name, system.version, tuple(models)))


if __name__ == "__main__":
    main()
