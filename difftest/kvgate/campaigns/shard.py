"""One shard: a campaign of its own, whose cases follow from the plan and the shard's number alone."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from pathlib import Path

from attrs import define, evolve, field, frozen

from kvgate.adapters.registry import Loaded, load_system
from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import TEXT_CHARACTERS_MAX, Record, ShardResult
from kvgate.campaigns.twice import TWICE, again
from kvgate.gate import trace_codec
from kvgate.gate.campaign import Campaign, Plan
from kvgate.gate.case_runner import Lane, Trial, Trials, kind_of
from kvgate.gate.level import Case, LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.random_source import Seeded
from kvgate.levels.registry import Preparation, checkers_of, prepare, together

KINDS_MAX = 50
"""How many different defects end a shard."""
GOLDEN = 0.618033988749895
"""Multiples of it fall evenly into any number of places."""


@frozen
class Known:
    """What enough other shards have shown: it is counted, and neither made smaller nor stored again."""

    kinds: frozenset[tuple[str, ...]] = frozenset()
    findings: frozenset[str] = frozenset()


@define
class Shards:
    """Runs shards of one plan in this process, in which the system is loaded once."""

    plan: FuzzPlan
    system: Loaded = field(init=False)
    campaigns: tuple[Preparation, ...] = field(init=False)
    """One for each level."""

    def __attrs_post_init__(self) -> None:
        self.system = load_system(self.plan.sut, [Path(path) for path in self.plan.preloads])
        models = models_named(self.plan.models or self.system.models)
        level, monitors_only = LevelChoice(self.plan.level), self.plan.monitors_only
        self.campaigns = prepare(level, self.system, models, "quick", monitors_only=monitors_only)

    def run(self, shard: int, known: Known) -> ShardResult:
        """Run one shard to its end."""
        started = time.monotonic()
        outcomes, twice = [], 0
        for each in self.campaigns:
            trials = TwiceTrials(each.trials, self.plan, known.kinds)
            outcomes.append(Campaign(trials, self._limits(each, shard)).run())
            twice += trials.twice
        outcome = together(self.campaigns, outcomes)
        return ShardResult(
            shard,
            self.system.version,
            (*checkers_of(self.campaigns), TWICE),
            time.monotonic() - started,
            twice,
            outcome.tallies,
            tuple(self._record(found, known) for found in (*outcome.found, *outcome.declared)),
        )

    def _limits(self, campaign: Preparation, shard: int) -> Plan:
        # A short shard does not come round: each begins elsewhere, so that together they do.
        lanes = campaign.plan.lanes
        first = round(shard * len(lanes) * GOLDEN) % len(lanes)
        return Plan(
            lanes[first:] + lanes[:first],
            -(-self.plan.shard_operations // len(self.campaigns)),
            seed=self.plan.seed_of(shard),
            kinds_max=KINDS_MAX,
        )

    def _record(self, found: Found, known: Known) -> Record:
        divergence, difference = found.divergence, found.divergence.difference
        kind = kind_of(divergence)
        stored = kind in known.kinds if found.finding is None else found.finding in known.findings
        return Record(
            divergence.detector,
            difference.statement,
            difference.subject,
            kind,
            difference.expected[:TEXT_CHARACTERS_MAX],
            difference.got[:TEXT_CHARACTERS_MAX],
            divergence.step,
            divergence.operation is None,
            len(found.replayable.operations),
            found.times,
            found.finding,
            None if stored else self._text_of(found.replayable, divergence),
            None if stored or found.driver is None else self._text_of(found.case, divergence),
        )

    def _text_of(self, case: Case, divergence: Divergence) -> str:
        """The trace of a case, and of what it shows."""
        detectors = tuple(dict.fromkeys(name for each in self.campaigns for name in each.trials.bench.checkers))
        return trace_codec.render(
            trace_codec.trace_of(case, divergence, self.system.name, self.system.version, detectors)
        )


class TwiceTrials:
    """Cases of either level, some of which are run a second time."""

    def __init__(self, inner: Trials, plan: FuzzPlan, known: Collection[tuple[str, ...]]) -> None:
        self.inner = inner
        self.plan = plan
        self.known = known
        self.twice = 0
        """How many were."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for, no longer than ``until``; a second time, it runs to its end."""
        trial = self.inner.trial(lane, seed, campaign_seed, until)
        if not Seeded(f"twice/{seed}/{lane.model.name}/{lane.preset}").chance(self.plan.twice_percent):
            return trial
        self.twice += 1
        found = again(self.inner.bench, self.inner.generate(lane, seed, campaign_seed), campaign_seed)
        return trial if found is None else evolve(trial, found=(*trial.found, found))

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case that shows the same; as it is, if others have shown it or it is not the same twice."""
        if kind_of(found.divergence) in self.known or found.divergence.detector == TWICE:
            return found
        return self.inner.smallest(found, min(until, time.monotonic() + self.plan.minimise_seconds))
