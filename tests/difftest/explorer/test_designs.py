"""Tiny models and designs that do not work.

Goal: every tiny model is in order as far as a test can see, and every design is refuted by the statement that it is
expected to violate. Method: explore; ``kvgate explore --all`` explores models that take longer.
"""

from __future__ import annotations

import pytest

from kvgate.explore import designs, tiny_models
from kvgate.explore.designs import DESIGNS
from kvgate.explore.exploration import Limits
from kvgate.explore.tiny_models import MODELS
from kvgate.kernel.errors import UsageError
from kvreference.statements import STATEMENTS

from .stage import AMPLE, explore

FIRST_STATES = Limits(states_max=200, seconds_max=60)


@pytest.mark.few(6)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_wrong_near_the_initial_state_of_a_tiny_model(name: str, deep: bool) -> None:
    """In either scope; neither is so small that this were all of it."""
    seen = explore(MODELS[name].world(deep), FIRST_STATES)
    assert (None, "stopped at 500 states") == (
        seen.found,
        seen.stopped and seen.stopped.replace(str(seen.states), "500"),
    )


@pytest.mark.ci
def test_the_smallest_tiny_model_is_in_order() -> None:
    """All of it. Its size is what it was when this was written: a change of it is to be understood."""
    seen = explore(MODELS["tiny-full"].world(), AMPLE)
    assert (True, 2889, 22284, 19, 0) == (seen.exhaustive, seen.states, seen.edges, seen.depth, seen.idle_steps_max)


@pytest.mark.parametrize("name", MODELS)
def test_a_deep_scope_is_not_the_shallow_one(name: str) -> None:
    """And both say their bounds."""
    shallow, deep = MODELS[name].world().bounds, MODELS[name].world(deep=True).bounds
    assert list(shallow) == list(deep)
    assert shallow != deep


@pytest.mark.few(2)
@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_is_refuted(name: str) -> None:
    """In the model that shows it, by the statement that it violates; the reference in the same scope is the control."""
    design = DESIGNS[name]
    assert design.statement in STATEMENTS
    seen = explore(MODELS[design.model].world(design=design), AMPLE)
    assert seen.found is not None
    assert design.statement == seen.found.violations[0].statement
    control = explore(MODELS[design.model].world(), Limits(seen.states, AMPLE.seconds_max))
    assert control.found is None


def test_names_are_looked_up() -> None:
    """An unknown name is reported with the known ones."""
    with pytest.raises(UsageError, match="unknown tiny model 'tiny': give one of tiny-full, "):
        tiny_models.load("tiny")
    with pytest.raises(UsageError, match="unknown design 'sound': give one of released-early"):
        designs.load("sound")
