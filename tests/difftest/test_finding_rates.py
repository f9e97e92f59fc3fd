"""How often findings may act, and must.

Goal: a finding that acts far more often, or far less often, than its count is a divergence, and one that acts as often
as before is not. Method: a system that has the findings of its release, with bounds above and below what they do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.findings import rates
from kvgate.findings.rates import AtLeast, Counted, Rates, counted
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Lane, Trial, Trials
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import models_named
from kvgate.gate.verdict import TooSeldom, Verdict
from kvgate.kernel.models import GATED, load
from kvgate.kernel.output import DIVERGENCE
from kvgate.levels.manager import MANAGER, Bench
from kvgate.levels.registry import prepare, together
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.report.campaign import report_of
from kvgate.report.document import from_json, to_json
from kvgate.report.junit import junit_report

from .having import having

LANE = Lane(load("gemma-hybrid"), "hostile")
CASES = 12
STOCK = next(each for each in counted() if each.system == "stock")


def outcome(most: int | None) -> Outcome:
    plan = Plan((LANE,), 10**6, cases=CASES, most=lambda _model, _finding, _cases: most)
    return Campaign(Trials(Bench(having(), ("lockstep",))), plan).run()


@pytest.mark.ci
def test_a_finding_that_acts_too_often_is_a_divergence() -> None:
    """With the lane, how many cases there may be, and how to see it again."""
    known = outcome(None).declared
    assert known
    found = outcome(0).found
    assert {each.finding for each in known} == {each.divergence.difference.subject.split()[3] for each in found}
    first = found[0]
    assert first.finding is None
    assert f"in at most 0 of {CASES} cases of gemma-hybrid" == first.divergence.difference.expected
    assert f"in {first.times}" == first.divergence.difference.got
    assert "kvgate check --level blocks --model gemma-hybrid --profile quick --seed 0" == first.again


def test_as_often_as_it_may_is_none() -> None:
    """Every case may show it."""
    assert () == outcome(CASES).found


def test_few_cases_say_little() -> None:
    """A finding that was never seen may be seen now and then; one in every case is too much; others have no bound."""
    rates = Rates("stock", "1", (Counted("full", "blocks", 400, {"001-x": 4}),))
    assert 3 < (rates.most("full", "blocks", "002-y", 10) or 0) < 10
    assert 4 < (rates.most("full", "blocks", "001-x", 400) or 0) < 60
    assert rates.most("full", "pair", "001-x", 10) is None


def test_what_is_stored_binds() -> None:
    """Every model of the gate, at both levels; a finding that was not seen there may not act in every third case."""
    stored = {(each.model, each.level): each for each in STOCK.models}
    for name in GATED:
        for model in (name, load(name).with_lookahead().name):
            for level in (MANAGER, SCHEDULER):
                assert (model, level.name) in stored
                assert (STOCK.most(model, level.name, "none", 60) or 60) < 20


def test_the_releases_whose_scheduler_is_driven_were_counted() -> None:
    """The installed vLLM, an older release and the newest."""
    systems = {each.system: {of_model.level for of_model in each.models} for each in counted()}
    levels = {"blocks", "scheduler", "pair"}
    assert {"stock": levels, "native@0.23.0": levels, "native@0.33.0": levels} == systems


# A finding that acts too seldom, or never

GATE = "002-gate-subtracts-skipped-blocks"
NEVER = TooSeldom(GATE, 41.4, 259, "blocks")


class Undeclared(Trials):
    """Cases in which all that findings explain is new."""

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        trial = super().trial(lane, seed, campaign_seed, until)
        return evolve(trial, found=tuple(evolve(each, finding=None) for each in trial.known), known=())


def acting() -> str:
    """A finding that acts in a few cases."""
    finding = outcome(None).declared[0].finding
    assert finding is not None
    return finding


def least(model: str, cases: int) -> dict[str, AtLeast]:
    """A finding that acts in a few cases must act in every one of them."""
    return {acting(): AtLeast(cases, cases / 2)} if model == LANE.model.name else {}


@pytest.mark.ci
def test_a_finding_that_acts_too_seldom_is_a_divergence() -> None:
    """With the model, how often it was expected there, and how often it did act."""
    plan = Plan((LANE,), 10**6, cases=CASES, shrinks=False, least=least)
    run = Campaign(Trials(Bench(having(), ("lockstep",))), plan).run()
    (seldom,) = run.too_seldom
    assert 0 < seldom.acted < CASES
    assert TooSeldom(acting(), CASES / 2, CASES, "blocks", seldom.acted, LANE.model.name) == seldom
    report = report_of(Verdict("stock", "0.20.2", "quick", 0, ("lockstep",), too_seldom=(seldom,)))
    assert report.exit_code == DIVERGENCE
    assert f"acts in about 6 of {CASES} cases of gemma-hybrid, as it did" in report.found[0].text
    assert f"got: it acted in {seldom.acted} of them" in report.found[0].text


def test_how_often_it_must_act_follows_from_the_counts() -> None:
    """The least number of which a count below has a probability of a millionth at most, for the distribution of it."""
    stored = Rates("stock", "1", (Counted("full", "blocks", 60, {"001-x": 45, "002-y": 1, "003-z": 0}),))
    assert {} == stored.least("full", "blocks", 3)
    assert {} == stored.least("full", "pair", 60) == stored.least("swa", "blocks", 60)
    must = stored.least("full", "blocks", 60)
    assert {"001-x": 45.0} == {finding: each.expected for finding, each in must.items()}
    draw = random.Random(0)
    shares = [draw.betavariate(45, 16) for _ in range(20_000)]

    def below(count: int) -> float:
        """The probability of fewer."""
        tails = (sum(math.comb(60, n) * share**n * (1 - share) ** (60 - n) for n in range(count)) for share in shares)
        return sum(tails) / len(shares)

    assert below(must["001-x"].cases) <= 3e-6
    assert below(must["001-x"].cases + 3) > 1e-6


def silent(*must: str, trials: type[Trials] = Trials) -> Outcome:
    """A run in which these findings must act."""

    def certain(cases: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(must, sum(cases.values()) / 2)

    plan = Plan((LANE,), 10**6, cases=CASES, shrinks=False, certain=certain)
    return Campaign(trials(Bench(having(), ("lockstep",))), plan).run()


@pytest.mark.ci
def test_a_finding_that_never_acts_is_a_divergence() -> None:
    """Another finding that does act is not."""
    run = silent("000-acts-nowhere", acting())
    assert () == run.found
    assert (TooSeldom("000-acts-nowhere", CASES / 2, CASES, "blocks"),) == run.too_seldom


def test_a_case_that_ended_early_does_not_count() -> None:
    """A finding may have acted later in it."""
    run = silent("000-acts-nowhere", trials=Undeclared)
    assert run.found
    assert () == run.too_seldom


def test_few_cases_prove_nothing() -> None:
    """A finding that acts in half of the cases must act in many; one that acts in one of 60, in very many; one that
    never did, never.
    """
    stored = Rates("stock", "1", (Counted("full", "blocks", 60, {"001-x": 30, "002-y": 1, "003-z": 0}),))
    assert {} == stored.certain("blocks", {"full": 10})
    assert {"001-x": 15.0} == stored.certain("blocks", {"full": 30})
    assert {"001-x"} == set(stored.certain("blocks", {"full": 60_000}))
    assert {} == stored.certain("pair", {"full": 30}) == stored.certain("blocks", {"swa": 30})


def test_many_models_prove_more() -> None:
    """Cases of several models count together; so rare as the stored counts may be by chance, they are not certain."""
    models = [f"model-{number}" for number in range(20)]
    stored = Rates("stock", "1", tuple(Counted(each, "blocks", 60, {"001-x": 6}) for each in models))
    assert {} == stored.certain("blocks", {models[0]: 100})
    assert {"001-x": 20.0} == stored.certain("blocks", dict.fromkeys(models, 10))


def test_it_is_asked_of_the_system_that_was_counted() -> None:
    """The default run has findings that must act; without the reference none can; of another release it is unknown."""
    (prepared,) = prepare(LevelChoice.BLOCKS, load_system("stock"), [LANE.model], "quick")
    assert GATE in prepared.plan.certain({LANE.model.name: 250})
    (alone,) = prepare(LevelChoice.BLOCKS, load_system("stock"), [LANE.model], "quick", monitors_only=True)
    assert {} == alone.plan.certain({LANE.model.name: 250})
    with patch.object(rates, "counted", lambda: (evolve(STOCK, version="0"),)):
        (other,) = prepare(LevelChoice.BLOCKS, load_system("stock"), [LANE.model], "quick")
    assert {} == other.plan.certain({LANE.model.name: 250})
    assert GATE in prepared.plan.least(LANE.model.name, 250)
    assert {} == alone.plan.least(LANE.model.name, 250) == other.plan.least(LANE.model.name, 250)
    (mixed,) = prepare(LevelChoice.SCHEDULER, load_system("stock"), models_named([]), "precommit")
    assert {} == mixed.plan.least(LANE.model.name, 250), "not with all presets"
    run = together([prepared], [evolve(silent(), too_seldom=(NEVER,))])
    assert (NEVER,) == run.too_seldom


def test_it_is_reported_without_a_case() -> None:
    """As a divergence: exit 1, a story with how to go on, and a failed test case of its own."""
    report = report_of(Verdict("stock", "0.20.2", "quick", 0, ("lockstep",), too_seldom=(NEVER,)))
    assert report.exit_code == DIVERGENCE
    assert report.outcome.startswith("1 divergence in ")
    (story,) = report.found
    assert (story.statement, story.reproducer) == ("KV-OP-03", None)
    assert f"finding {GATE} acts in about 41 of 259 cases" in story.text
    assert story.again is not None
    assert story.again.endswith("f002_gate_subtracts_skipped_blocks/trace.jsonl")
    assert report == from_json(to_json(report), "report")
    suites = ElementTree.fromstring(junit_report(report).encode())
    (case,) = [each for each in suites.iter("testcase") if each.find("failure") is not None]
    assert case.get("name") == f"blocks: {GATE}"
