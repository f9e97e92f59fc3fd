"""One shard: a campaign of its own, whose cases follow from the plan and the shard's number alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, evolve, field, frozen

from kvgate.adapters.registry import Loaded, load_system
from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import TEXT_CHARACTERS_MAX, Record, ShardResult
from kvgate.campaigns.twice import TWICE, again
from kvgate.gate import trace_codec
from kvgate.gate.campaign import BlockTrials, Campaign, Lane, Plan, Trial, Trials, draw_case, kind_of
from kvgate.gate.case_runner import DETECTORS
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Level
from kvgate.gate.profiles import models_named
from kvgate.gate.verdict import Found
from kvgate.kernel.random_source import Seeded
from kvgate.levels.registry import Preparation, prepare, together
from kvgate.levels.scheduler.case import EngineCase

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
        level, monitors_only = Level(self.plan.level), self.plan.monitors_only
        self.campaigns = prepare(level, self.system, models, "quick", monitors_only=monitors_only)

    def run(self, shard: int, known: Known) -> ShardResult:
        """Run one shard to its end."""
        started = time.monotonic()
        outcomes, twice = [], 0
        for each in self.campaigns:
            trials = TwiceTrials(each.trials, self.plan, known.kinds)
            outcomes.append(Campaign(trials, self._limits(each, shard)).run())
            twice += trials.twice
        outcome, judges = together(self.campaigns, outcomes)
        return ShardResult(
            shard,
            self.system.version,
            (*judges, TWICE),
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
            len(found.case.operations if found.engine is None else found.engine.operations),
            found.times,
            found.finding,
            None if stored else self._trace(found),
            None if stored or found.engine is None else self._asked(found),
        )

    def _trace(self, found: Found) -> str:
        """What replays what was found."""
        if found.engine is None:
            return self._asked(found)
        from kvgate.levels.scheduler.detectors import GATE
        from kvgate.levels.scheduler.trace_codec import engine_trace_of, write_engine

        assert isinstance(found.engine, EngineCase), "two nodes are run by no shard"
        judges, system = self._judges(GATE), self.system
        stored = engine_trace_of(found.engine, found.divergence, system.name, system.version, judges)
        return _written(lambda path: write_engine(stored, path))

    def _asked(self, found: Found) -> str:
        """What was asked of the block manager."""
        judges, system = self._judges(DETECTORS), self.system
        stored = trace_codec.trace_of(found.case, found.divergence, system.name, system.version, judges)
        return _written(lambda path: trace_codec.write(stored, path))

    def _judges(self, among: Collection[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self.campaigns for name in each.judges if name in among))


def _written(write: Callable[[Path], None]) -> str:
    """What ``write`` writes to a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        write(path)
        return path.read_text(encoding="utf-8")


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
        found = self._again(lane, seed, campaign_seed)
        return trial if found is None else evolve(trial, found=(*trial.found, found))

    def _again(self, lane: Lane, seed: str, campaign_seed: int) -> Found | None:
        if isinstance(self.inner, BlockTrials):
            generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
            return again(self.inner.bench, draw_case(generator, lane, seed, campaign_seed))
        from kvgate.campaigns.engine_twice import engine_again
        from kvgate.levels.scheduler.case_runner import EngineTrials
        from kvgate.levels.scheduler.generator import draw_engine_case

        assert isinstance(self.inner, EngineTrials), "there are two levels"
        return engine_again(self.inner.bench, draw_engine_case(lane.model, lane.preset, seed), campaign_seed)

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case that shows the same; as it is, if others have shown it or it is not the same twice."""
        if kind_of(found.divergence) in self.known or found.divergence.detector == TWICE:
            return found
        return self.inner.smallest(found, min(until, time.monotonic() + self.plan.minimise_seconds))
