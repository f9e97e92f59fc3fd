"""Minimising a run of an engine: fewer operations, smaller numbers, a simpler stage, a smaller pool.

As with runs of a block manager, every part of a run is legal, so whatever is not needed can be left out. Beyond that,
the stage and the settings are made smaller: what fails in a pool of four blocks takes fewer steps to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from attrs import evolve, fields

from kvgate.gate.shrink import minimise_with, simpler_operation, smaller
from kvgate.levels.scheduler.case import EngineCase, Stage
from kvgate.levels.scheduler.operations import Operation, Serve, Step, Submit
from kvreference.operations import Arrive
from kvreference.scheduler.operations import Reply
from kvreference.settings import Settings

StillFails = Callable[[EngineCase], bool]
ROUNDS_MAX = 4
T = TypeVar("T", Stage, Settings, Submit, Reply)


def _with(value: T, name: str, changed: Any) -> T:
    """The value with one attribute changed."""
    return evolve(value, **{name: changed})


def shortest(case: EngineCase, still_fails: StillFails, until: float = math.inf) -> EngineCase:
    """A small case for which ``still_fails`` holds, given that it holds for ``case``.

    ``until`` is a time of ``time.monotonic``: what is smallest by then is returned.
    """
    for _ in range(ROUNDS_MAX):
        before = case
        case = _with_fewer_operations(case, still_fails, until)
        case = _with_smaller_settings(case, still_fails, until)
        if case == before:
            break
    return case


def _with_fewer_operations(case: EngineCase, still_fails: StillFails, until: float) -> EngineCase:
    operations = minimise_with(
        case.operations,
        lambda candidate: still_fails(evolve(case, operations=tuple(candidate))),
        simpler_engine_operation,
        until,
    )
    return evolve(case, operations=operations)


def _with_smaller_settings(case: EngineCase, still_fails: StillFails, until: float) -> EngineCase:
    """One by one: each is tried on what the ones before have left."""
    (least,) = minimise_with(
        (case,), lambda candidate: len(candidate) == 1 and still_fails(candidate[0]), _simpler_around, until
    )
    return least


def _simpler_around(case: EngineCase) -> Iterator[EngineCase]:
    for stage in simpler_stages(case.stage):
        yield evolve(case, stage=stage)
    for settings in simpler_settings(case.settings):
        yield evolve(case, settings=settings)


def simpler_stages(stage: Stage) -> Iterator[Stage]:
    """Stages with one thing less than ``stage`` has."""
    for attribute in fields(Stage):
        if attribute.name != "running_max" and getattr(stage, attribute.name) != attribute.default:
            yield _with(stage, attribute.name, attribute.default)
    for number in smaller(stage.running_max, 1):
        yield evolve(stage, running_max=number)


def simpler_settings(settings: Settings) -> Iterator[Settings]:
    """Settings with one number smaller; of the tokens of a step, as many as a request can have."""
    for name, least in (("blocks", 2), ("drafts_max", 0), ("tokens_max", 2), ("requests_max", 1)):
        for number in smaller(getattr(settings, name), least):
            yield from _allowed(settings, name, number)
    if settings.chunk_tokens < settings.tokens_max:
        yield from _allowed(settings, "chunk_tokens", settings.tokens_max)


def _allowed(settings: Settings, name: str, number: int) -> Iterator[Settings]:
    """The settings with one number changed, if there are such settings."""
    try:
        yield _with(settings, name, number)
    except ValueError:
        return


def simpler_engine_operation(operation: Operation) -> Iterator[Operation]:
    """Simpler forms of an operation of an engine, the boldest first."""
    if isinstance(operation, Submit):
        yield from _simpler_submissions(operation)
    elif isinstance(operation, Step):
        if len(operation.replies) > 1:
            yield Step(operation.replies[:1])
            yield Step(operation.replies[1:])
        for index, reply in enumerate(operation.replies):
            for simpler in _simpler_replies(reply):
                yield Step((*operation.replies[:index], simpler, *operation.replies[index + 1 :]))


def _simpler_submissions(submit: Submit) -> Iterator[Submit]:
    if isinstance(submit, Serve):
        for attribute in ("structured", "undecided", "fails_from_block", "priority"):
            default = getattr(fields(Serve), attribute).default
            if getattr(submit, attribute) != default:
                yield _with(submit, attribute, default)
    for attribute in ("loads", "sends"):
        if getattr(submit, attribute):
            yield _with(submit, attribute, False)
    for tokens in smaller(submit.external_tokens, 0):
        yield evolve(submit, external_tokens=tokens)
    for answers in smaller(submit.answers_max, 1):
        yield evolve(submit, answers_max=answers)
    for arrival in simpler_operation(submit.arrival):
        if isinstance(arrival, Arrive):
            yield evolve(submit, arrival=arrival)


def _simpler_replies(reply: Reply) -> Iterator[Reply]:
    if reply.ends:
        yield evolve(reply, ends=False)
    for name in ("accepted", "drafts", "token"):
        for number in smaller(getattr(reply, name), 0):
            yield _with(reply, name, number)
