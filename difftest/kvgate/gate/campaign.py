"""A campaign: many seeded cases over models and generator presets, and what they found.

Case by case the lanes take turns, so that a campaign that is cut short has seen a bit of everything. Each case's seed
follows from the campaign's seed, its lane and its index: any case can be drawn again without the others.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Protocol, TypeAlias

from attrs import evolve, frozen

from kvgate.findings.rates import AtLeast
from kvgate.gate.case_runner import Arc, Lane, Trial, kind_of
from kvgate.gate.verdict import Also, Found, Tally, TooSeldom, Verdict, digest_of
from kvgate.kernel.difference import Difference

STEP_LANES = 5
"""How far apart lanes are that follow each other in a campaign, at least."""
SHRINK_SECONDS_AT_ONCE = 5.0
"""How long a case is shrunk before the campaign continues; if it can still shrink, that is done at the end."""
LOOKED_INTO_MAX = 12
"""How many divergences with one cause are looked into, at most, for one that shows worse."""
KINDS_MAX = 5
"""How many different defects a campaign collects before it ends."""
OF_ONE_CAUSE = 4
"""How many kinds of divergences it collects for each of them, at most."""


@frozen
class Plan:
    """What a campaign runs, and when it stops."""

    lanes: tuple[Lane, ...]
    operations: int
    """How many operations at least, over all lanes."""
    cases: int | None = None
    """How many cases at most; None for any number."""
    seed: int = 0
    seconds: float | None = None
    """The time budget; None for none."""
    kinds_max: int = KINDS_MAX
    shrinks: bool = True
    shrink_seconds: float | None = None
    """How long cases are made smaller, all together; None for as long as it takes, within the time budget."""

    profile: str = "quick"
    """The profile that says how much is run, for those who run it again."""
    level: str = "blocks"
    """The level at which it is run."""

    most: Callable[[str, str, int], int | None] = lambda _model, _finding, _cases: None
    """In how many of so many cases of a model a finding may act; None where that was not counted."""
    certain: Callable[[Mapping[str, int]], Mapping[str, float]] = lambda _cases: {}
    """The findings that must act in a run with so many cases of each model, each with the expected number of cases."""
    least: Callable[[str, int], Mapping[str, AtLeast]] = lambda _model, _cases: {}
    """In how many of so many cases of a model findings must act."""

    def turn(self, number: int) -> tuple[Lane, str]:
        """The lane and the seed of a case, by its number.

        Lanes that follow each other have one model, so a short campaign would not come to the last models. So the lanes
        take turns in steps that are longer than the presets of a model, and come to every lane.
        """
        index, place = divmod(number, len(self.lanes))
        step = next(step for step in count(STEP_LANES) if math.gcd(step, len(self.lanes)) == 1)
        return self.lanes[place * step % len(self.lanes)], f"{self.seed}/{index}"


class TrialSource(Protocol):
    """Generates cases, runs them, and makes them smaller: ``Trials``, or what stands in front of them."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the case that a seed stands for: what of it is begun by ``until``, a time of ``time.monotonic``."""
        ...

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case found by ``until`` that shows the same defect."""
        ...


Kind: TypeAlias = tuple[str, ...]
"""What ``kind_of`` makes of a divergence."""
Cause: TypeAlias = str | Kind
"""The function that did it; a kind of divergence, if no function is known."""
Diagnosed: TypeAlias = Callable[[Found, float], Found]
"""Says what a divergence means, as far as can be seen by then."""


@frozen
class Outcome:
    """What a campaign ran and found."""

    tallies: tuple[Tally, ...]
    found: tuple[Found, ...]
    declared: tuple[Found, ...]
    ended: str
    seconds: float
    too_seldom: tuple[TooSeldom, ...] = ()
    ran: frozenset[Arc] = frozenset()
    """What ran of a patch, if that is measured."""

    def of(self, begun: Verdict) -> Verdict:
        """The verdict of a run that was begun as this one says."""
        return evolve(
            begun,
            tallies=self.tallies,
            found=self.found,
            declared=self.declared,
            too_seldom=self.too_seldom,
            seconds=self.seconds,
            ended=self.ended,
        )


@frozen
class Progress:
    """How far a campaign is."""

    operations: int
    cases: int
    found: int


class Campaign:
    """Runs a plan."""

    def __init__(self, trials: TrialSource, plan: Plan, diagnosed: Diagnosed | None = None) -> None:
        self.trials = trials
        self.plan = plan
        self._diagnosed = diagnosed
        self._tallies = {lane: Tally(lane.model.name, lane.preset, 0, 0) for lane in plan.lanes}
        self._found: dict[Cause, Found] = {}
        """By cause, what shows it worst."""
        self._causes: dict[Kind, Cause] = {}
        """The cause of each kind of divergence, as it was found last."""
        self._seen: Counter[tuple[Cause, Kind]] = Counter()
        """How often each kind was seen with each cause."""
        self._looked_into: Counter[Cause] = Counter()
        """How many divergences with a cause were looked into."""
        self._declared: dict[str, Found] = {}
        self.acted: Counter[tuple[str, str]] = Counter()
        """In how many cases of a model a finding acted."""
        self._first_acted: dict[tuple[str, str], Found] = {}
        """The first of these cases."""
        self._ran: set[Arc] = set()
        self._started = time.monotonic()
        self._until = math.inf
        self._shrink_seconds = math.inf if plan.shrink_seconds is None else plan.shrink_seconds

    def run(
        self,
        report: Callable[[Progress], None] = lambda _progress: None,
        first: Callable[[Found], None] = lambda _found: None,
    ) -> Outcome:
        """Run until the plan is fulfilled, the time is up, enough is found, or the user interrupts.

        ``first`` gets what is found first, as soon as its case is small.

        Raises:
            GateFaultError: the gate failed; ``outcome`` has what was done until then.
        """
        self._started = time.monotonic()
        self._until = self._started + (math.inf if self.plan.seconds is None else self.plan.seconds)
        ended = "completed"
        operations = cases = 0
        is_reported = False
        try:
            for lane, seed in map(self.plan.turn, count() if self.plan.lanes else ()):
                performed = self._check(lane, self.trials.trial(lane, seed, self.plan.seed, self._until))
                operations += performed
                cases += 1
                report(Progress(operations, cases, len(self._found)))
                if self._found and not is_reported:
                    is_reported = True
                    first(next(iter(self._found.values())))
                if len(self._found) >= self.plan.kinds_max or len(self._seen) >= OF_ONE_CAUSE * self.plan.kinds_max:
                    ended = "enough found"
                    break
                if operations >= self.plan.operations or cases == self.plan.cases:
                    break
                if time.monotonic() > self._until:
                    ended = "time budget"
                    break
            self._shrink_further()
        except KeyboardInterrupt:
            ended = "interrupted"
        return self.outcome(ended)

    def outcome(self, ended: str) -> Outcome:
        """What was run and found so far."""
        return Outcome(
            tuple(self._tallies.values()),
            (*self._stories(), *self._too_often()),
            tuple(self._declared.values()),
            ended,
            time.monotonic() - self._started,
            tuple(self._too_seldom()),
            frozenset(self._ran),
        )

    def _cases(self) -> Counter[str]:
        """How many cases of each model were run."""
        cases = Counter[str]()
        for tally in self._tallies.values():
            cases[tally.model] += tally.cases
        return cases

    def _too_seldom(self) -> Iterator[TooSeldom]:
        """The findings that must act in so many cases, and did not; or in fewer cases of a model than they must.

        Where something else was found its case ended early, so what did not act in it says nothing.
        """
        if self._found:
            return
        acted, cases, level = {finding for _, finding in self.acted}, self._cases(), self.plan.level
        for finding, expected in self.plan.certain(cases).items():
            if finding not in acted:
                yield TooSeldom(finding, expected, cases.total(), level)
        for model, run in cases.items():
            for finding, least in self.plan.least(model, run).items():
                times = self.acted[model, finding]
                if finding in acted and times < least.cases:
                    yield TooSeldom(finding, least.expected, run, level, times, model)

    def _too_often(self) -> Iterator[Found]:
        """The findings that acted in more cases of a model than they may, each with a case in which it acted."""
        for (model, finding), cases in self.acted.items():
            run = self._cases()[model]
            most = self.plan.most(model, finding, run)
            if most is None or cases <= most:
                continue
            first = self._first_acted[model, finding]
            where = f"of {run} cases of {model}"
            difference = Difference(
                first.divergence.difference.statement,
                f"how often finding {finding} acts",
                f"in at most {most} {where}",
                f"in {cases}",
            )
            level = first.replayable.level.name
            again = (
                f"kvgate check --level {level} --model {model} --profile {self.plan.profile} --seed {self.plan.seed}"
            )
            divergence = evolve(first.divergence, difference=difference)
            yield evolve(first, divergence=divergence, finding=None, times=cases, again=again)

    def _check(self, lane: Lane, trial: Trial) -> int:
        """Count what came of one case; returns how many operations it performed."""
        self._ran |= trial.ran
        tally = self._tallies[lane]
        operations = tally.operations + trial.operations
        self._tallies[lane] = evolve(
            tally,
            cases=tally.cases + 1,
            operations=operations,
            cut=tally.cut + trial.cut,
            alone=tally.alone + trial.alone,
            digest=digest_of((tally.digest, trial.digest)),
        )
        self.acted.update({(lane.model.name, known.finding) for known in trial.known if known.finding is not None})
        for known in trial.known:
            assert known.finding is not None, "it is one of a finding"
            self._first_acted.setdefault((lane.model.name, known.finding), known)
            seen = self._declared.get(known.finding) or evolve(known, times=0)
            self._declared[known.finding] = evolve(seen, times=seen.times + known.times)
        for found in trial.found:
            self._take(found)
        return trial.operations

    def _take(self, found: Found) -> None:
        """Count a divergence; keep it if nothing with its cause was seen, or nothing as bad."""
        kind = kind_of(found.divergence)
        before = self._causes.get(kind)
        if before is not None and not self._may_be_worse(before):
            self._seen[before, kind] += 1
            return
        if self._diagnosed is not None:
            found = self._diagnosed(found, self._until)
        known = None if found.diagnosis is None else found.diagnosis.cause
        cause = self._causes[kind] = known or kind
        self._looked_into[cause] += 1
        self._seen[cause, kind] += 1
        if cause not in self._found or found.anomaly.rank < self._found[cause].anomaly.rank:
            # Counted and kept before it is shrunk: if that is interrupted, the case as it was is there.
            self._found[cause] = found
            if self.plan.shrinks:
                self._found[cause] = self._smallest(found, SHRINK_SECONDS_AT_ONCE)

    def _may_be_worse(self, cause: Cause) -> bool:
        """Whether to look into another divergence with a cause: it may show what is worse than those before."""
        looks = self._diagnosed is not None and self._looked_into[cause] < LOOKED_INTO_MAX
        return looks and self._found[cause].anomaly.rank > 0

    def _stories(self) -> list[Found]:
        """What was found, the worst first, each with what else has its cause."""
        stories = []
        for cause, found in self._found.items():
            own = kind_of(found.divergence)
            also = tuple(
                Also(statement, detector, subject, times)
                for (its, (detector, statement, subject)), times in self._seen.items()
                if its == cause and (detector, statement, subject) != own
            )
            stories.append(evolve(found, times=self._seen[cause, own], also=also))
        return sorted(stories, key=lambda each: each.anomaly.rank)

    def _shrink_further(self) -> None:
        """Cases that were not as small as they get: there is time for them now."""
        for cause, found in self._found.items():
            if found.out_of_time:
                self._found[cause] = self._smallest(found, math.inf)

    def _smallest(self, found: Found, seconds: float) -> Found:
        """The smallest case in half of the time that is left for it: other defects take time as well."""
        started = time.monotonic()
        until = min(self._until, started + min(seconds, self._shrink_seconds / 2))
        least = self.trials.smallest(found, until)
        if self._diagnosed is not None and least.replayable != found.replayable:
            # What follows from a smaller case may be less: the diagnosis of the larger one still holds.
            again = self._diagnosed(least, min(self._until, time.monotonic() + seconds))
            least = again if again.anomaly.rank <= found.anomaly.rank else least
        ended = time.monotonic()
        self._shrink_seconds -= ended - started
        return evolve(least, out_of_time=ended >= until)
