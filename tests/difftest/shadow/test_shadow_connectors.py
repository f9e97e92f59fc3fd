"""A shadow on schedulers with a KV connector, and on each kind of deployment that LIVE.md lists.

Goal: hits, loads and failures of other nodes are followed without a difference, a load that is not followed shows, and
what is not followed is refused in words. Method: the cases of the scheduler level, with a shadow on each scheduler.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.models import load
from kvgate.levels.scheduler.level import SCHEDULER, SchedulerLevel
from kvgate.shadow.order_agnostic_reference import OrderAgnosticReference

from .live import Beneath, watched

pytestmark = pytest.mark.ci

pytest.importorskip("vllm")

PRESETS = ("legal", "hostile", "long", "tiny")
MODELS = ("full", "gemma-hybrid", "gpt-oss-hybrid+mtp", "mixed-blocks")
"""Followed with connectors."""
CASES = 8


@pytest.fixture
def shadows(monkeypatch: pytest.MonkeyPatch) -> list[Beneath]:
    """Of all schedulers that are built in a test, but for those that are refused."""
    found: list[Beneath] = []
    original = SchedulerLevel.world

    def world(self: SchedulerLevel, *arguments: Any) -> Any:
        engine = original(self, *arguments)
        if not engine.stage.options.context_parallel:
            found.append(watched(engine, checkpoint_calls=100))
        return engine

    monkeypatch.setattr(SchedulerLevel, "world", world)
    return found


def run_cases(model: str) -> None:
    """Some cases with a connector: loads at once and later, that fail, and reads."""
    trials = Trials(SCHEDULER.bench_named("stock", SCHEDULER.monitors)).towards(("transfers",))
    for seed in range(CASES):
        trials.trial(Lane(load(model), PRESETS[seed % len(PRESETS)]), str(seed), 0)


@pytest.mark.parametrize("model", MODELS)
def test_a_connector_is_followed(model: str, shadows: list[Beneath]) -> None:
    """No difference, with steps that wait and steps that do not; and something was loaded."""
    run_cases(model)
    assert [] == [finding for each in shadows for finding in each.found]
    assert sum(each.judge.stats.judged for each in shadows) > 300
    assert sum(each.judge.known.times.get("009-load-forgets-its-last-token", 0) for each in shadows) > 5


def test_a_load_that_is_not_followed_shows(shadows: list[Beneath], monkeypatch: pytest.MonkeyPatch) -> None:
    """A shadow that takes no notice of what other nodes provide reports a difference."""
    original: Any = OrderAgnosticReference.allocate

    def allocate(self: OrderAgnosticReference, call: Any, hit: Any) -> Any:
        return original(self, replace_external(call), hit)

    monkeypatch.setattr(OrderAgnosticReference, "allocate", allocate)
    run_cases("full")
    assert [] != [finding for each in shadows for finding in each.found]


def replace_external(call: Any) -> Any:
    """The same call, of which no token comes from another node."""
    from msgspec.structs import replace

    return replace(call, external_tokens=0)
