"""One shard: a campaign of its own, whose cases follow from the plan and the shard's number alone."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, evolve, field, frozen

from kvgate import trace
from kvgate.campaign import BlockTrials, Campaign, Lane, Plan, Trial, Trials, draw_case, kind_of
from kvgate.draws import Seeded
from kvgate.fuzzing.plan import FuzzPlan
from kvgate.fuzzing.results import TEXT_CHARACTERS_MAX, Record, ShardResult
from kvgate.fuzzing.twice import TWICE, again
from kvgate.generators import PRESETS, Generator
from kvgate.profiles import models_named
from kvgate.runner import GATE, MONITORS, Bench
from kvgate.systems import Loaded, load_system
from kvgate.verdict import Found

KINDS_MAX = 50
"""How many different defects end a shard."""
GOLDEN = 0.618033988749895
"""Multiples of it fall evenly into any number of places."""


@frozen
class Known:
    """What other shards have shown already: it is counted, and neither made smaller nor stored again."""

    kinds: frozenset[tuple[str, ...]] = frozenset()
    findings: frozenset[str] = frozenset()


@define
class Shards:
    """Runs shards of one plan in this process, in which the system is loaded once."""

    plan: FuzzPlan
    system: Loaded = field(init=False)
    detectors: tuple[str, ...] = field(init=False)
    lanes: tuple[Lane, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.system = load_system(self.plan.sut, [Path(path) for path in self.plan.preloads])
        self.detectors = MONITORS if self.plan.monitors_only else GATE
        self.lanes = tuple(Lane(model, preset) for model in models_named(self.plan.models) for preset in PRESETS)

    def run(self, shard: int, known: Known) -> ShardResult:
        """Run one shard to its end."""
        started = time.monotonic()
        trials = TwiceTrials(Bench(self.system.factory, self.detectors), self.plan, known.kinds)
        seed = self.plan.seed_of(shard)
        # A short shard does not come round: each begins elsewhere, so that together they do.
        first = round(shard * len(self.lanes) * GOLDEN) % len(self.lanes)
        limits = Plan(self.lanes[first:] + self.lanes[:first], self.plan.shard_operations, seed=seed, kinds_max=KINDS_MAX)
        outcome = Campaign(trials, limits).run()
        if outcome.ended == "interrupted":
            raise KeyboardInterrupt
        return ShardResult(
            shard,
            self.system.version,
            (*self.detectors, TWICE),
            time.monotonic() - started,
            trials.twice,
            outcome.tallies,
            tuple(self._record(found, known) for found in (*outcome.found, *outcome.declared)),
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
            len(found.case.operations),
            found.times,
            found.finding,
            None if stored else self._trace(found),
        )

    def _trace(self, found: Found) -> str:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "trace.jsonl"
            detectors = self.detectors
            stored = trace.trace_of(found.case, found.divergence, self.system.name, self.system.version, detectors)
            trace.write(stored, path)
            return path.read_text(encoding="utf-8")


class TwiceTrials:
    """The cases of a block manager, some of which are run a second time."""

    def __init__(self, bench: Bench, plan: FuzzPlan, known: Collection[tuple[str, ...]]) -> None:
        self.bench = bench
        self.inner: Trials = BlockTrials(bench)
        self.plan = plan
        self.known = known
        self.twice = 0
        """How many were."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int) -> Trial:
        """Run the case that a seed stands for."""
        trial = self.inner.trial(lane, seed, campaign_seed)
        if not Seeded(f"twice/{seed}/{lane.model.name}/{lane.preset}").chance(self.plan.twice_percent):
            return trial
        self.twice += 1
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, seed, campaign_seed)
        found = again(self.bench, case)
        return trial if found is None else evolve(trial, found=(*trial.found, found))

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case that shows the same; as it is, if others have shown it or it is not the same twice."""
        if kind_of(found.divergence) in self.known or found.divergence.detector == TWICE:
            return found
        return self.inner.smallest(found, min(until, time.monotonic() + self.plan.minimise_seconds))
