"""How often findings may act.

Goal: a finding that acts far more often than it was counted to is a divergence, and one that acts as often as before is
none. Method: a system that has the findings of its release, with ceilings above and below what they do.
"""

from __future__ import annotations

from kvgate.findings.rates import Counted, Rates, counted
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.models import GATED, load
from kvgate.levels.manager import MANAGER, Bench
from kvgate.levels.scheduler.level import SCHEDULER

from .having import having

LANE = Lane(load("gemma-hybrid"), "hostile")
CASES = 12


def outcome(most: int | None) -> Outcome:
    plan = Plan((LANE,), 10**6, cases=CASES, most=lambda _model, _finding, _cases: most)
    return Campaign(Trials(Bench(having(), ("lockstep",))), plan).run()


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
    """What was never seen may be seen now and then; what is seen in every case is too much; others have no bound."""
    rates = Rates("stock", "1", (Counted("full", "blocks", 400, {"001-x": 4}),))
    assert 3 < (rates.most("full", "blocks", "002-y", 10) or 0) < 10
    assert 4 < (rates.most("full", "blocks", "001-x", 400) or 0) < 60
    assert rates.most("full", "pair", "001-x", 10) is None


def test_what_is_stored_binds() -> None:
    """Every model of the gate, at both levels; a finding that was not seen there may not act in every third case."""
    stored = {(each.model, each.level): each for each in counted().models}
    for name in GATED:
        for model in (name, load(name).with_lookahead().name):
            for level in (MANAGER, SCHEDULER):
                assert (model, level.name) in stored
                assert (counted().most(model, level.name, "none", 60) or 60) < 20
