"""States with the same key have the same future.

Goal: no key of a world that is explored merges what differs, and if one did, this would be seen. Method: every tiny
model, and the same models with forms that leave something out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
from attrs import evolve

from kvgate.explore import canonical
from kvgate.explore.bisimulation import unlike
from kvgate.explore.canonical import Canonical
from kvgate.explore.tiny_models import MODELS
from kvreference.manager import Manager

from .stage import Drawn


@pytest.mark.few(4)
@pytest.mark.parametrize("name", MODELS)
def test_no_tiny_model_merges_what_differs(name: str) -> None:
    """Not near the initial state, where most kinds of states are."""
    assert unlike(MODELS[name].world(), states_max=200, pairs_max=100) is None


FORGETFUL = Drawn({"a": "bcB", "b": "D", "B": "", "c": "", "D": ""})
"""`b` can go on, and `B`, which is taken for the same, cannot: the moves are those of the small letter."""


class _SeesTheCase(Drawn):
    def moves(self, state: str) -> str:
        return self.edges.get(state, "")


def test_a_state_that_can_do_less_is_distinguished() -> None:
    """By what only one of the two can do; where the names alone differ, nothing is."""
    assert unlike(FORGETFUL, states_max=10, pairs_max=10) is None
    found = unlike(_SeesTheCase(FORGETFUL.edges), states_max=10, pairs_max=10)
    assert found is not None
    assert ("b", "B") == (found.first, found.second)
    assert (Counter({(str, str, True, (), "d"): 1}), Counter()) == (found.only_first, found.only_second)


@pytest.mark.parametrize(
    "world",
    [
        Drawn(FORGETFUL.edges, idle=frozenset({"bd"})),
        Drawn(FORGETFUL.edges, wrong=frozenset({"bd"})),
        Drawn(FORGETFUL.edges, wrong=frozenset({"b"})),
    ],
)
def test_what_a_move_comes_to_is_compared_too(world: Drawn) -> None:
    """Progress and violations: here the same for both, there for one of them alone."""

    class OnlyTheSmall(Drawn):
        def step(self, state: str, move: str) -> Any:
            outcome = super().step(state, move)
            return evolve(outcome, progress=True, violations=()) if state == "B" else outcome

        def violations_in(self, state: str) -> Any:
            return [] if state == "B" else super().violations_in(state)

    assert unlike(world, states_max=10, pairs_max=10) is None
    assert unlike(OnlyTheSmall(world.edges, world.idle, world.wrong), states_max=10, pairs_max=10) is not None


def without(column: int) -> Callable[[Any], Any]:
    """A row of a form without one of its columns."""
    return lambda row: (*row[:column], None, *row[column + 1 :])


def _request(forget: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Canonical._request
    monkeypatch.setattr(Canonical, "_request", lambda self, request, walk: forget(whole(self, request, walk)))


def _blocks(forget: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = canonical._blocks
    monkeypatch.setattr(canonical, "_blocks", lambda *state: map(forget, whole(*state)))


def forget_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of a request."""
    _request(without(0), monkeypatch)


def forget_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many drafts were proposed."""
    _request(without(1), monkeypatch)


def forget_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of computed tokens, which the content of the slots shows as well."""
    _request(without(3), monkeypatch)
    _blocks(without(5), monkeypatch)


def forget_which_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of several blocks with the same content serves first."""
    _blocks(without(3), monkeypatch)


def forget_free_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which free blocks are allocated."""

    def waiting(manager: Manager, walk: Any) -> Iterator[Hashable]:
        walk.along(sorted(manager.pool.free))
        yield None

    monkeypatch.setattr(canonical, "_waiting", waiting)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("forget", "model"),
    [
        (forget_tokens, "tiny-full"),
        (forget_drafts, "tiny-eagle"),
        (forget_computed, "tiny-full"),
        (forget_which_is_first, "tiny-swa"),
        (forget_free_order, "tiny-swa"),
    ],
)
def test_a_form_that_leaves_something_out_is_caught(
    forget: Callable[[pytest.MonkeyPatch], None], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If any part that decides the future is left out."""
    forget(monkeypatch)
    assert unlike(MODELS[model].world(), states_max=400, pairs_max=400) is not None
