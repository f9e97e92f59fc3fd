"""``kvgate conform``.

Goal: the exit code says whether the reference refines the proved model, on all mechanisms and on every edge of tiny
models. A transition that never happened is not reported as tested. Method: the command in this process, with the model
and the reference as they are, and with one of them changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

from kvgate.explore.mechanisms import MECHANISMS, Mechanism
from kvgate.explore.refinement_run import explore
from kvgate.explore.scheduler_world import Shop, TinyScheduler
from kvgate.explore.search import Search
from kvgate.explore.tiny_models import MODELS, SHALLOW
from kvgate.explore.world import Explorable
from kvgate.report.document import from_json
from kvreference.attention import Kind
from kvreference.block_pool import BlockPool
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Submit
from kvreference.settings import Settings
from kvspec.pool.state import Operands, State
from kvspec.pool.transitions import TRANSITIONS, Drop, Hold

from .stage import Ended, rows_of

Kvgate = Callable[..., Ended]

EVERY = {transition.__name__.lower() for transition in TRANSITIONS}
SMALL = {
    "pinned tier": Mechanism("pinned tier", ("gemma-hybrid+pinned=2",), ("tiny-loopholes",), ()),
    "partial hits": Mechanism("partial hits", ("compressed+partial",), (), ()),
    "scheduler": Mechanism("scheduler", ("full",), ("smallest",), ()),
}
SHOP = Shop(
    Settings(Geometry((Group(Kind.FULL, 1),)), blocks=4, tokens_max=3, requests_max=2, tells_events=False),
    Limits(budget_tokens=2, running_max=2),
    (Submit(Arrive(0, (Run(0, 1),)), 1), Submit(Arrive(0, (Run(0, 2),)), 1)),
)
SMALLEST = TinyScheduler("smallest", "two requests", SHOP, SHOP)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three mechanisms, and what is explored of them in a few seconds."""
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", SMALL)
    monkeypatch.setattr("kvgate.explore.tiny_models.MODELS", {**MODELS, "smallest": SMALLEST})


@pytest.mark.ci
def test_all_mechanisms_conform(kvgate: Kvgate) -> None:
    """Some three thousand operations over all mechanisms; every change is a transition of the model."""
    ended = kvgate("conform", "--operations", "200", "--format", "json")
    rows = rows_of(ended.out)
    assert list(MECHANISMS) == [row["mechanism"] for row in rows]
    assert [[]] * len(MECHANISMS) == [row["wrong"] for row in rows]
    assert sum(row["operations"] for row in rows) >= 2_200
    never = {story.headline.removeprefix("NEVER SEEN: ") for story in from_json(ended.out, "out").found}
    assert {row["transition"] for row in rows_of(ended.out, "Transitions")} == EVERY - never
    assert (1 if never else 0) == ended.code


@pytest.mark.ci
@pytest.mark.usefixtures("small")
def test_every_edge_of_tiny_models_conforms(kvgate: Kvgate) -> None:
    """A block manager and a scheduler; models that are not named are not driven."""
    ended = kvgate("conform", "pinned tier", "scheduler", "--operations", "50", "--explore", "--format", "json")
    assert 0 == ended.code
    assert [("pinned tier", []), ("scheduler", [])] == [(row["mechanism"], row["wrong"]) for row in rows_of(ended.out)]
    assert [("tiny-loopholes", True, "no drift"), ("smallest", True, "no drift")] == [
        (row["model"], row["exhaustive"], row["verdict"]) for row in rows_of(ended.out, "Explored")
    ]
    assert "demote" in {row["transition"] for row in rows_of(ended.out, "Transitions")}


@pytest.mark.ci
@pytest.mark.parametrize("tiny", [MODELS["tiny-loopholes"], SMALLEST])
def test_what_is_followed_is_all_that_there_is(tiny: Explorable) -> None:
    """As many states and edges as without a follower."""
    plain, followed = Search(tiny.world(), SHALLOW).run(), explore(tiny, SHALLOW, Counter())
    assert (None, None) == (plain.found, followed.found)
    assert (plain.states, plain.edges, plain.depth) == (followed.states, followed.edges, followed.depth)


@pytest.mark.usefixtures("small")
def test_the_same_seed_drives_the_same(kvgate: Kvgate) -> None:
    """And another one something else."""
    arguments = ("conform", "partial hits", "--operations", "300", "--format", "json")
    runs = [rows_of(kvgate(*arguments, "--seed", seed).out, "Transitions") for seed in ("0", "0", "1")]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.usefixtures("small")
def test_a_changed_model_is_exit_code_1(kvgate: Kvgate) -> None:
    """Driven and explored: the first drift is reported with what was expected."""

    def nothing(state: State, _at: Operands) -> State:
        return state

    with patch.object(Drop, "effect", staticmethod(nothing)):
        ended = kvgate("conform", "pinned tier", "--operations", "50", "--explore")
    assert 1 == ended.code
    driven, explored = (line for line in ended.out.splitlines() if line.startswith("["))
    assert "pinned tier: gemma-hybrid+pinned=2, " in driven
    assert "expected" in driven
    assert "KV-SYS-01: DriftError: " in explored


@pytest.mark.usefixtures("small")
def test_a_changed_reference_is_exit_code_1(kvgate: Kvgate) -> None:
    """A block that is hit stays in the free queue."""
    with patch("kvreference.pinned_tier.PinnedPool._unqueue", lambda _self, _block: None):
        ended = kvgate("conform", "pinned tier", "--operations", "50", "--explore")
    assert 1 == ended.code
    driven, explored = (line for line in ended.out.splitlines() if line.startswith("["))
    assert "where at" in driven
    assert "where at" in explored


@pytest.mark.usefixtures("small")
def test_an_invariant_that_does_not_hold_is_exit_code_1(kvgate: Kvgate) -> None:
    """Even where the model and the reference do the same: both leave a hit block where it waits."""

    def stays(state: State, at: Operands) -> State:
        after = unchanged(state, at)
        return evolve(after, where=state.where)

    unchanged = Hold.effect
    with (
        patch.object(Hold, "effect", staticmethod(stays)),
        patch.object(BlockPool, "_unqueue", lambda _self, _block: None),
    ):
        ended = kvgate("conform", "scheduler", "--operations", "2000")
    assert 1 == ended.code
    assert "KV-INV-02 (held_if_referenced)" in ended.out


@pytest.mark.usefixtures("small")
def test_what_never_happened_is_reported(kvgate: Kvgate) -> None:
    """Over all mechanisms it fails: a transition that never happened was not tested."""
    ended = kvgate("conform", "--operations", "100")
    assert 1 == ended.code
    assert "NEVER SEEN: move\n" in ended.out


@pytest.mark.usefixtures("small")
def test_an_early_stop_is_exit_code_4(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so and does not call the run exhaustive."""
    monkeypatch.setattr("kvgate.cli.conform.EXPLORE_SECONDS", 0.0)
    ended = kvgate("conform", "pinned tier", "--operations", "50", "--explore")
    assert 4 == ended.code
    assert ended.out.splitlines()[0].endswith("; not exhaustive: tiny-loopholes")
    (row,) = (line.split() for line in ended.out.splitlines() if line.startswith(" tiny-loopholes"))
    assert ["no", "no", "drift"] == row[-3:]


@pytest.mark.usefixtures("small")
def test_an_interrupt_is_exit_code_130(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while driving and while exploring; the report has what is done."""
    visited = Search._visit

    def interrupted(self: Search[object, object], *arguments: Any) -> object:
        if self.edges > 100:
            raise KeyboardInterrupt
        return visited(self, *arguments)

    monkeypatch.setattr(Search, "_visit", interrupted)
    ended = kvgate("conform", "--operations", "50", "--explore")
    assert 130 == ended.code
    assert "; not exhaustive: tiny-loopholes" in ended.out
    assert "seed 0, interrupted" in ended.out
    assert "scheduler" not in ended.out

    def at_once(*_arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvgate.explore.refinement_run.drive", at_once)
    assert 130 == kvgate("conform").code


def test_an_unknown_mechanism_is_exit_code_2(kvgate: Kvgate) -> None:
    """The message lists the known ones."""
    ended = kvgate("conform", "nonsense")
    assert 2 == ended.code
    assert "unknown mechanism 'nonsense': give one of sharing, " in ended.message


@pytest.mark.usefixtures("small")
def test_a_mechanism_that_is_named_twice_is_driven_once(kvgate: Kvgate) -> None:
    """And the report says which format it has."""
    ended = kvgate("conform", "scheduler", "scheduler", "--operations", "50", "--format", "json")
    assert 0 == ended.code
    assert ["scheduler"] == [row["mechanism"] for row in rows_of(ended.out)]
