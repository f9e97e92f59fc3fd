"""A campaign that looks for branches: cases that reach new ones are kept, varied, and stored for the next campaign.

Half of the cases are drawn as in any campaign, the other half are kept ones of the same model with stretches of their
operations left out, repeated or moved, or with a smaller pool. A folder holds, as traces, few cases that together reach
all that a case of their level has reached; a campaign replays them first. So what a campaign runs follows from its seed
and from the folder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from attrs import evolve, frozen

from kvgate.adapters.registry import Loaded
from kvgate.campaigns.branches import FILES, Branches
from kvgate.gate import trace_codec
from kvgate.gate.campaign import Plan
from kvgate.gate.case_runner import Arc, Lane, Trial, Trials
from kvgate.gate.level import Case
from kvgate.gate.shrink import shrink_case
from kvgate.gate.trace_codec import level_of, trace_of
from kvgate.gate.verdict import Found
from kvgate.kernel.errors import UsageError
from kvgate.kernel.random_source import Draw, Seeded

CHANGES_MAX = 3
"""How many stretches of a kept case are changed at most."""
SHRINK_SECONDS = 60.0
"""How long new cases are made smaller, all together, if the plan does not say."""


@frozen(eq=False)
class Kept:
    """A case that reached something first."""

    case: Case
    arcs: frozenset[Arc]
    """All that it reached."""
    path: Path | None = None
    """Its trace; None while it is not stored."""


class Reaching:
    """The trials of a campaign, each measured; a ``TrialSource``."""

    def __init__(
        self, trials: Trials, stored: Iterable[tuple[Path, Case]] = (), files: Sequence[str] | None = None
    ) -> None:
        self.trials = trials
        self.kept: list[Kept] = []
        self._branches = Branches(files or FILES)
        self._stored = list(stored)
        self._reached: set[Arc] = set()
        self.is_whole = True
        """Whether every stored case that was run came to its end: what one reached that did not is not all."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """Run the next case of a lane, and before its first one those of its model and preset that are stored."""
        done = []
        for path, case in [*self._stored]:
            if (case.model, case.preset) == (lane.model.name, lane.preset):
                self._stored.remove((path, case))
                done.append(self._run(case, campaign_seed, until, path))
        case = self.trials.generate(lane, seed, campaign_seed)
        done.append(
            self._run(self._varied(case, Seeded(f"{seed}/{case.model}/{case.name}/varied")), campaign_seed, until)
        )
        return Trial(
            sum(trial.operations for trial in done),
            tuple(found for trial in done for found in trial.found),
            tuple(found for trial in done for found in trial.known),
            sum(trial.alone for trial in done),
            any(trial.cut for trial in done),
            " ".join(trial.digest for trial in done),
        )

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case that shows the same defect: what is reached by the way is not kept."""
        return self.trials.smallest(found, until)

    def _run(self, case: Case, campaign_seed: int, until: float, path: Path | None = None) -> Trial:
        with self._branches.measured():
            trial = self.trials.run(case, campaign_seed, until)
        arcs = self._branches.take()
        if path is not None and (trial.found or trial.cut or time.monotonic() > until):
            self.is_whole = False
        if path is not None or (not trial.found and not arcs <= self._reached):
            self.kept.append(Kept(case, arcs, path))
            self._reached |= arcs
        return trial

    def _varied(self, case: Case, draw: Draw) -> Case:
        """The case, or a variation of a kept one of its model."""
        bases = [each.case for each in self.kept if each.case.model == case.model]
        if not bases or draw.chance(50):
            return case
        base = draw.one_of(bases)
        operations = list(base.operations)
        for _ in range(draw.integer(1, CHANGES_MAX)):
            start = draw.integer(0, len(operations))
            stretch = operations[start : start + draw.integer(1, 1 + len(operations) // 4)]
            is_removed, is_put = draw.one_of(((True, False), (False, True), (True, True)))
            if is_removed:
                del operations[start : start + len(stretch)]
            if is_put and len(operations) <= 2 * len(case.operations):
                place = draw.integer(0, len(operations))
                operations[place:place] = stretch
        varied = evolve(base, operations=tuple(operations), preset=case.preset, seed=case.seed)
        if draw.chance(30):
            blocks = draw.integer(2, base.settings.blocks)
            with suppress(ValueError):
                varied = evolve(varied, settings=evolve(base.settings, blocks=blocks))
        return self.trials.bench.level.allowed(self.trials.bench, varied)

    def few(self, until: float) -> list[Kept]:
        """Few kept cases that reach all that was reached, the stored ones first; new ones as small as by ``until``."""
        chosen: list[tuple[Kept, frozenset[Arc]]] = []
        reached: frozenset[Arc] = frozenset()
        for among in ([each for each in self.kept if each.path], [each for each in self.kept if not each.path]):
            while among:
                best = max(among, key=lambda each: len(each.arcs - reached))
                needed = best.arcs - reached
                if not needed:
                    break
                chosen.append((best, needed))
                among.remove(best)
                reached |= best.arcs
        new = [each for each in chosen if not each[0].path]
        few = [each for each, _ in chosen if each.path]
        for left, (each, needed) in zip(range(len(new), 0, -1), new, strict=True):
            now = time.monotonic()
            few.append(self._smaller(each, needed, now + max(0.0, until - now) / left))
        return few

    def _smaller(self, kept: Kept, needed: frozenset[Arc], until: float) -> Kept:
        """A smaller case that reaches what is needed of this one, and shows nothing new."""
        bench, least = self.trials.bench, kept

        def reaches(case: Case) -> bool:
            nonlocal least
            if case.level.allowed(bench, case) != case:
                return False
            try:
                with self._branches.measured():
                    trial = self.trials.run(case, 0)
            except UsageError:
                return False
            finally:
                arcs = self._branches.take()
            if trial.found or not needed <= arcs:
                return False
            least = Kept(case, arcs)
            return True

        return least if shrink_case(kept.case, reaches, until) == least.case else kept


@contextmanager
def reaching(trials: Trials, plan: Plan, folder: Path, system: Loaded) -> Iterator[Reaching]:
    """The measured trials of a campaign; then its folder has what was kept.

    Raises:
        UsageError: the folder has a trace that cannot be read, or cannot be written to.
    """
    level = trials.bench.level
    paths = [path for path in sorted(folder.glob("*.jsonl")) if level_of(path, [level])]
    found = Reaching(trials, [(path, trace_codec.read(path, level).case) for path in paths])
    yield found
    seconds = SHRINK_SECONDS if plan.shrink_seconds is None else plan.shrink_seconds
    few = found.few(time.monotonic() + seconds)
    stays = {each.path for each in few}
    for each in found.kept:
        if found.is_whole and each.path is not None and each.path not in stays:
            each.path.unlink()
    for each in few:
        if each.path is None:
            trace = trace_of(each.case, None, system.name, system.version, trials.bench.checkers)
            name = blake2b(trace_codec.render(trace).encode(), digest_size=4).hexdigest()
            trace_codec.write(trace, folder / f"{level.name}-{name}.jsonl")
