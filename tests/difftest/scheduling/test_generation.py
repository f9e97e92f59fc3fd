"""The events that the default run of the scheduler level reaches.

Goal: features meet, and often: a fault of preemption and drafts together shows only in a case that has both.
Method: run the cases of three seeds, and count in how many operations each of it happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Trials
from kvgate.gate.level import Case
from kvgate.gate.profiles import models_named, plan
from kvgate.kernel.models import load
from kvgate.levels.scheduler.level import SCHEDULER, EngineBench
from kvgate.levels.scheduler.operations import OPTIONS, ResetCache, ResetEncoder
from kvreference.operations import Admit, Continue, Finish, Preempt, Rewind, Schedule, Transferred
from kvreference.operations import Operation as OfBlocks
from kvreference.scheduler.operations import Step

OPERATIONS = 20_000
"""Of each seed."""
SEEDS = range(3)
FLOORS = {
    "cases that preempt": 93,
    "preempts": 531,
    "preempts a served one": 18,
    "preempts with drafts": 91,
    "preempts with adapters": 202,
    "preempts with priorities": 121,
    "preempts with transfers": 65,
    "preempts with grammars": 289,
    "preempts with asynchronous steps": 84,
    "preempts with sessions": 38,
    "drafts": 1781,
    "items": 190,
    "loads": 672,
    "loads after a preemption": 36,
    "failed loads": 20,
    "parts of sessions": 68,
    "parts with items": 8,
    "pauses": 527,
    "resets of something": 202,
    "resets that preempt": 27,
    "resets of items": 89,
    "whole items": 41,
    "experts returned": 12,
    "items with an encoder connector": 28,
    "late drafts that a grammar rejects": 39,
}
"""In how many operations of all seeds together each must happen at least: three standard deviations between seeds less
than happens, or a third of it where that is more.

One seed varies by a tenth in its preemptions, so a floor that a change of a few cases does not reach would say little.
"""
OPTION_FLOORS = {
    "without_statistics": 60,
    "without_ends": 30,
    "measures_residency": 20,
    "second_runner": 30,
    "pipeline": 30,
    "context_parallel": 14,
    "one_group_connector": 10,
    "returns_experts": 14,
    "measures_arithmetic": 30,
    "encoder_connector": 55,
    "whole_prompts": 20,
    "whole_items": 30,
    "no group": 5,
}
"""Of 600 cases, how many must have each option at least; or no group of layers that keep something."""

pytestmark = pytest.mark.ci


def happened_in(case: Case, engine: Any) -> Iterator[str]:
    """Perform the operations of a case: what happened in each, once for each operation."""
    outputs: list[Any] = []
    preempted: set[int] = set()
    schedule = engine.scheduler.schedule

    def remembered() -> Any:
        outputs.append(schedule())
        return outputs[-1]

    engine.scheduler.schedule = remembered
    for operation in case.operations:
        performed = engine.lockstep.performed
        begun, items = len(performed), len(engine.encoder.kept.users)
        blocks = len(engine.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block)
        outputs.clear()
        if engine.perform(operation) is not None:
            return
        done = performed[begun:]
        yield from of_blocks(done)
        preempted |= {each.request for each in done if isinstance(each, Preempt)}
        if any(isinstance(each, Admit) and each.loads and each.request in preempted for each in done):
            yield "loads after a preemption"
        if any(sent.rejected for sent in engine.in_flight):
            yield "late drafts that a grammar rejects"
        if engine.paused:
            yield "pauses"
        if case.stage.options.whole_items and engine.encoder.whole:
            yield "whole items"
        if engine.experts and any(isinstance(each, Finish) for each in done):
            yield "experts returned"
        if isinstance(operation, Step) and case.stage.options.encoder_connector and outputs[0].scheduled_encoder_inputs:
            yield "items with an encoder connector"
        if isinstance(operation, Step):
            yield "steps"
            yield from of_step(case, engine, outputs[0], done)
        elif isinstance(operation, ResetCache) and blocks:
            yield "resets of something"
            if any(isinstance(each, Preempt) for each in done):
                yield "resets that preempt"
        elif isinstance(operation, ResetEncoder) and items:
            yield "resets of items"


def of_blocks(done: Sequence[OfBlocks]) -> set[str]:
    """The calls of the block manager in one operation."""
    names = {
        "loads": any(isinstance(each, Admit) and each.loads for each in done),
        "failed loads": any(isinstance(each, Rewind) for each in done)
        or any(isinstance(each, Transferred) and not each.succeeded for each in done),
        "parts of sessions": any(isinstance(each, Continue) for each in done),
        "parts with items": any(isinstance(each, Continue) and each.media for each in done),
    }
    return {name for name, happened in names.items() if happened}


def of_step(case: Case, engine: Any, output: Any, done: Sequence[OfBlocks]) -> set[str]:
    """The events of a step; and with which others, if it had a preemption."""
    victims = {index: each.request for index, each in enumerate(done) if isinstance(each, Preempt)}
    stage, population = case.stage, engine.followed.population.alive
    features = {
        "drafts": bool(output.scheduled_spec_decode_tokens),
        "items": bool(output.scheduled_encoder_inputs),
        "priorities": stage.by_priority,
        "asynchronous steps": stage.asynchronous,
        "adapters": any(request.keys.lora is not None for request in population.values()),
        "transfers": bool(engine.nodes.under_way()),
        "sessions": any(each in population for each in engine.sessions.open),
        "grammars": any(each in population for each in engine.structured),
    }
    names = {name for name in ("drafts", "items") if features[name]}
    if victims:
        names |= {"preempts", *(f"preempts with {name}" for name, on in features.items() if on)}
        late = any(was_served(number, done[:index]) for index, number in victims.items())
        names |= {"preempts a served one"} if late else set()
    return names


def was_served(number: int, done: Sequence[OfBlocks]) -> bool:
    """Whether a request was served in a step before it was preempted for another one."""
    asked = [each.request for each in done if isinstance(each, Schedule)]
    return number in asked and asked[-1] != number


def counted(seed: int, operations: int = OPERATIONS) -> Counter[str]:
    """The events in the cases of a seed, until the block managers were called so many times."""
    trials = Trials(SCHEDULER.bench_named(load_system("stock").name, ()))
    turns, counts, performed = plan("quick", models_named(()), seed=seed), Counter[str](), 0
    for number in count():
        lane, seed_of_case = turns.turn(number)
        case = trials.generate(lane, seed_of_case, seed)
        engine: Any = trials.bench.build(case)
        found = Counter(happened_in(case, engine))
        counts += found
        counts["cases"] += 1
        counts["cases that preempt"] += found["preempts"] > 0
        performed += len(engine.lockstep.performed)
        if performed >= operations:
            break
    return counts


def test_features_meet() -> None:
    """Each in so many operations at least."""
    counts = sum(map(counted, SEEDS), Counter[str]())
    assert {} == {name: counts[name] for name, least in FLOORS.items() if counts[name] < least}


def test_each_option_is_drawn() -> None:
    """Often enough, and models without a KV cache."""
    trials = Trials(SCHEDULER.bench_named(load_system("stock").name, ()))
    turns, counts = plan("quick", models_named(()), seed=0), Counter[str]()
    for number in range(600):
        case = trials.generate(*turns.turn(number), 0)
        counts.update(name for name in OPTIONS if getattr(case.stage.options, name))
        counts["no group"] += not case.settings.geometry.groups
    assert set(OPTIONS) < set(OPTION_FLOORS)
    assert {} == {name: counts[name] for name, least in OPTION_FLOORS.items() if counts[name] < least}


def test_a_model_without_a_cache_suits_a_later_release() -> None:
    """It has scratch first, as that release always has; no request is served; and its scheduler fits its pool."""
    cases = [SCHEDULER.draw(load("full+scratch"), "tiny", str(number)) for number in range(100)]
    without = [case for case in cases if not case.settings.geometry.groups]
    assert without
    for case in without:
        allowed = SCHEDULER.allowed(EngineBench(SCHEDULER, "native@0.33.0", ()), case)
        assert (True, ()) == (allowed.settings.scratch_first, allowed.operations)
        assert allowed.settings.blocks > 1


def test_a_release_without_a_gate_is_not_asked_for_one() -> None:
    """Nor is its reference: vLLM-Ascend 0.20.2rc1's scheduler that recomputes asks for the first chunk alone."""
    cases = [SCHEDULER.draw(load("compressed+whole-slots"), "tiny", str(number)) for number in range(40)]
    gated = [case for case in cases if case.settings.full_sequence_must_fit]
    assert gated
    for case in gated:
        for system, asks in (("ascend-recompute", False), ("stock", True)):
            allowed = SCHEDULER.allowed(EngineBench(SCHEDULER, system, ()), case)
            assert asks == allowed.settings.full_sequence_must_fit


def test_a_step_of_a_later_release_has_room_for_all_drafts() -> None:
    """Its configuration rejects a step that has not; a step of the installed release may be as short as it is drawn."""
    cases = [SCHEDULER.draw(load("full+eagle+scratch"), "tiny", str(number)) for number in range(100)]
    short = [evolve(case, settings=evolve(case.settings, chunk_tokens=1)) for case in cases if case.settings.drafts_max]
    assert short
    for case in short:
        later = SCHEDULER.allowed(EngineBench(SCHEDULER, "native@0.33.0", ()), case).settings
        assert later.chunk_tokens == later.drafts_max + 1
        installed = SCHEDULER.allowed(EngineBench(SCHEDULER, "stock", ()), case).settings
        assert installed.chunk_tokens == case.settings.chunk_tokens
