"""Minimising runs of engines.

Goal: what remains is small in every respect, and still fails. Method: predicates whose smallest case is known.
"""

from __future__ import annotations

import math
import time

import pytest
from attrs import evolve, fields_dict

from kvgate.gate.level import Case
from kvgate.gate.shrink import shrink_case, simpler
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Collect, Operation, Options, PauseEngine, ResetCache, Serve, Stage
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run, Transferred
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=40, tokens_max=300, chunk_tokens=70, drafts_max=3)
STAGE = Stage(5, asynchronous=True, in_flight_max=3, by_priority=True, connector=True, long_prefill_tokens=9)
SERVE = Serve(
    Arrive(3, (Run(0, 40), Run(90, 7)), Keys("salt")),
    12,
    external_tokens=30,
    loads=True,
    sends=True,
    priority=2,
    structured=True,
    undecided=2,
    fails_from_block=1,
)
STEP = Step((Reply(2, 70, 3), Reply(1, 5, 1, ends=True)))
CASE = SCHEDULER.case(
    SETTINGS,
    (Collect(), SERVE, STEP, Abort(3), STEP, Transferred(3), STEP),
    STAGE,
    model="full",
    preset="tiny",
    seed="0/1",
)


def test_what_is_not_needed_goes() -> None:
    """Operations, numbers, the stage and the settings; the names stay."""
    least = shrink_case(CASE, lambda case: any(isinstance(each, Submit) for each in case.operations))
    assert (Serve(Arrive(3, (Run(0, 1),))),) == least.operations
    assert Stage(1) == least.stage
    settings = least.settings
    assert (2, 2, 1, 0) == (settings.blocks, settings.tokens_max, settings.requests_max, settings.drafts_max)
    assert ("full", "tiny", "0/1") == (least.model, least.preset, least.seed)


def test_what_is_needed_stays() -> None:
    """A load that fails, on an asynchronous stage, in a pool of nine blocks, and two steps after it."""

    def fails(case: Case) -> bool:
        served = [each for each in case.operations if isinstance(each, Serve) and each.loads and each.fails_from_block]
        steps = [each for each in case.operations if isinstance(each, Step)]
        return bool(served) and len(steps) > 1 and case.stage.asynchronous and case.settings.blocks >= 9

    least = shrink_case(CASE, fails)
    assert [Serve, Step, Step] == list(map(type, least.operations))
    assert Stage(1, asynchronous=True) == least.stage
    assert 9 == least.settings.blocks
    assert Serve(Arrive(3, (Run(0, 1),)), loads=True, fails_from_block=1) == least.operations[0]


def test_defaults_that_only_help_together_are_found() -> None:
    """Features of the stage and of the requests are removed together: removing one of them alone hides the failure."""

    def fails(case: Case) -> bool:
        served = [each for each in case.operations if isinstance(each, Serve)]
        return bool(served) and {case.stage.by_priority} == {each.priority > 0 for each in served}

    steps = (SERVE, STEP, evolve(SERVE, arrival=evolve(SERVE.arrival, request=4)))
    least = shrink_case(evolve(CASE, operations=steps), lambda case: len(case.operations) == 3 and fails(case))
    assert Stage(1) == least.stage
    assert [0, 0] == [each.priority for each in least.operations if isinstance(each, Serve)]


def test_all_features_of_a_request_or_a_stage_can_go() -> None:
    """All but the request's number, and what its prompt must have."""
    for kind in (Serve, Stage, Options, PauseEngine, ResetCache, Reply):
        assert set(fields_dict(kind)) == set(SCHEDULER.simpler[kind]), kind


def test_settings_that_cannot_be_are_not_tried() -> None:
    """The predicate is only asked about cases that can be built."""
    seen: list[Case] = []

    def fails(case: Case) -> bool:
        seen.append(case)
        return len(case.operations) > 2

    shrink_case(CASE, fails)
    assert all(case.settings.blocks >= 2 and case.settings.tokens_max >= 2 for case in seen)


def test_the_time_is_kept() -> None:
    """The smallest case by then is returned; without time, the case as it is."""
    assert CASE == shrink_case(CASE, lambda _case: True, time.monotonic() - 1)
    assert CASE != shrink_case(CASE, lambda _case: True, math.inf)


@pytest.mark.parametrize("operation", [SERVE, STEP, Submit(SERVE.arrival, 3)])
def test_simpler_forms_end(operation: Operation) -> None:
    """Each differs and is of the same kind; applied again and again, they end."""
    steps = 0
    while forms := list(simpler(operation, SCHEDULER.simpler)):
        assert operation not in forms
        assert {type(operation)} == set(map(type, forms))
        operation = forms[-1]
        steps += 1
        assert steps < 500


def test_others_have_no_simpler_form() -> None:
    """They have nothing in them that could be smaller."""
    assert [] == list(simpler(Abort(3), SCHEDULER.simpler))
    assert [] == list(simpler(evolve(STEP, replies=(Reply(),)), SCHEDULER.simpler))
