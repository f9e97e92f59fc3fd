"""Counts in how many cases each finding acts on the installed vLLM, and stores it for ``kvgate check``.

    python -m kvgate.report.finding_rates [CASES]

``CASES`` of every model and preset are run on the block manager, with a seed that no profile uses. A finding that acts
much more often in a later run is a divergence of that run: see ``kvgate.findings.rates``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from operator import itemgetter

from attrs import evolve

from kvgate.adapters.registry import Loaded, load_system
from kvgate.campaigns.case_workers import side_by_side
from kvgate.findings.rates import Lane, Rates, write
from kvgate.gate.campaign import Campaign
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.gate.story import tell
from kvgate.levels.registry import prepare

SEED = 1_000_003


def count(system: Loaded, cases: int) -> Iterator[Lane]:
    """What the block manager shows, lane by lane."""
    (prepared,) = prepare(LevelChoice.BLOCKS, system, models_named(system.models), "deep", seed=SEED)
    for lane in prepared.plan.lanes:
        plan = evolve(prepared.plan, lanes=(lane,), cases=cases, most=lambda _lane, _finding, _cases: None)
        with side_by_side(prepared.trials, plan, os.cpu_count() or 1) as trials:
            campaign = Campaign(trials, plan)
            outcome = campaign.run()
        for found in outcome.found:
            sys.exit(f"something new, run kvgate check:\n{tell(found, system=system.name, version=system.version)}")
        acted = {finding: campaign.acted[lane, finding] for _, finding in sorted(campaign.acted, key=itemgetter(1))}
        yield Lane(lane.model.name, prepared.level.label(lane.preset), outcome.tallies[0].cases, acted)


def main() -> None:
    """Count and store."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    system = load_system("stock")
    lanes: list[Lane] = []
    for lane in count(system, cases):
        lanes.append(lane)
        print(lane.model, lane.preset, lane.cases, dict(lane.acted), flush=True)
    write(Rates(system.name, system.version, tuple(lanes)))


if __name__ == "__main__":
    main()
