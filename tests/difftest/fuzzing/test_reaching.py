"""A campaign that looks for branches keeps what reaches new ones, stores few cases, and replays them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from kvgate.adapters.registry import Loaded, load_system
from kvgate.campaigns.reaching import Reaching, reaching
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Arc, Lane, Trials
from kvgate.gate.generator import PRESETS
from kvgate.kernel.models import MODELS
from kvgate.levels.manager import MANAGER
from kvgate.levels.registry import LEVELS, read

STORED = Path(__file__).parents[3] / "difftest" / "corpus" / "reached"
T = TypeVar("T")
FILES = ("*/kvreference/hit_lookup.py", "*/kvreference/manager.py")
PLAN = Plan(tuple(Lane(MODELS["swa"], preset) for preset in PRESETS), 1500)


def trials(system: Loaded) -> Trials:
    """Those of a block manager."""
    return Trials(MANAGER.bench(system, MANAGER.gate))


@pytest.fixture(scope="module")
def system() -> Loaded:
    """The reference: it is measured in vLLM's place, without which these tests work."""
    return load_system("reference")


@pytest.fixture
def found(system: Loaded) -> Reaching:
    """The traces that a short campaign has kept."""
    found = Reaching(trials(system), files=FILES)
    Campaign(found, PLAN).run()
    return found


def reached(cases: Iterable[frozenset[Arc]]) -> frozenset[Arc]:
    """The branches that cases reach together."""
    return frozenset().union(*cases)


def test_what_reaches_something_new_is_kept(found: Reaching) -> None:
    """Goal: the corpus grows by what is new, and by nothing else. Method: each kept case after those before it."""
    assert found.kept
    before: frozenset[Arc] = frozenset()
    for each in found.kept:
        assert each.arcs - before
        before |= each.arcs


@pytest.mark.ci
def test_few_cases_reach_as_much(found: Reaching) -> None:
    """Goal: a small corpus that lost nothing. Method: run the few cases again, and measure."""
    few = found.few(time.monotonic() + 2)
    assert reached(each.arcs for each in found.kept) == reached(each.arcs for each in few)
    assert len(few) < len(found.kept)
    operations = sum(len(each.case.operations) for each in few)
    assert operations < sum(len(each.case.operations) for each in found.kept)
    again = Reaching(found.trials, files=FILES)
    for each in few:
        again._run(each.case, 0, time.monotonic() + 60)
    assert reached(each.arcs for each in few) == reached(each.arcs for each in again.kept)


def test_kept_cases_are_varied(found: Reaching) -> None:
    """Goal: guided by what was kept. Method: of the cases after the first, some are parts of one that was kept."""
    kept = {operation for each in found.kept[:1] for operation in each.case.operations}
    drawn = set(found.trials.generate(PLAN.lanes[1], "0/7", 0).operations)
    varied = [found._varied(found.trials.generate(PLAN.lanes[1], f"0/{index}", 0), _Always()) for index in range(3)]
    assert kept - drawn
    assert all(set(case.operations) <= kept for case in varied)


class _Always:
    """A source that varies, and takes the first of all."""

    def integer(self, low: int, high: int) -> int:
        return min(high, low + 1)

    def chance(self, percent: int) -> bool:
        return percent < 50

    def one_of(self, options: Sequence[T]) -> T:
        return options[0]


@pytest.mark.ci
def test_the_same_seed_finds_the_same(system: Loaded) -> None:
    """Goal: the campaign follows from its seed. Method: twice."""

    def kept() -> list[object]:
        found = Reaching(trials(system), files=FILES)
        Campaign(found, PLAN).run()
        return [(each.case.operations, each.arcs) for each in found.kept]

    assert kept() == kept()


@pytest.mark.ci
def test_the_corpus_is_stored_and_replayed(system: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a campaign begins with what the last one reached. Method: store, replay, and add a needless trace."""
    monkeypatch.setattr("kvgate.campaigns.reaching.FILES", FILES)
    short = Plan(PLAN.lanes, 1500, shrink_seconds=1)

    def run() -> tuple[Reaching, Outcome]:
        with reaching(trials(system), short, tmp_path, system) as found:
            return found, Campaign(found, short).run()

    first, outcome = run()
    stored = {path: read(path).case for path in tmp_path.glob("*.jsonl")}
    assert stored
    second, again = run()
    assert sum(each.path is not None for each in second.kept) == len(stored)
    assert reached(each.arcs for each in second.kept) >= reached(each.arcs for each in first.kept)
    assert again.tallies[0].operations != outcome.tallies[0].operations
    needless = tmp_path / "needless.jsonl"
    needless.write_bytes(next(iter(stored)).read_bytes())
    run()
    assert len(stored) <= len(list(tmp_path.glob("*.jsonl")))
    texts = [path.read_bytes() for path in tmp_path.glob("*.jsonl")]
    assert len(texts) == len(set(texts)), "of two cases that reach the same one stays"


@pytest.mark.ci
def test_the_stored_corpus_shows_nothing() -> None:
    """Goal: every change runs the traces that reached branches of vLLM. Method: replay each trace on stock."""
    stock = load_system("stock")
    paths = sorted(STORED.glob("*.jsonl"))
    # Worker and connector add operations that do not reach vLLM's block manager and scheduler.
    assert LEVELS.keys() - {"worker", "tiers"} == {read(path).level.name for path in paths}
    for path in paths:
        trace = read(path)
        trial = Trials(trace.level.bench(stock, trace.level.gate)).run(trace.case, 0)
        assert () == trial.found, path.name
        assert trial.operations, path.name
