"""The cases that a campaign generates.

Goal: a seed stands for one case, and cases meet everything that can happen, so that a campaign without findings means
something. Method: run the reference alone over cases of every model and preset and count what happens; each count has a
minimum.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import get_args

import pytest
from attrs import evolve

from kvgate.explore.mechanisms import MECHANISMS
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.models import MODELS, Model, load
from kvgate.levels.manager import draw_case
from kvreference.answers import Answer, Copies, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.events import Event
from kvreference.hit_lookup import longest_hit
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Continue,
    Evict,
    Finish,
    OfRequest,
    Operation,
    Pause,
    Preempt,
    Rewind,
    Sample,
    Transferred,
)
from kvreference.population import Status

CASES = {"legal": 16, "hostile": 12, "tiny": 80}
"""How many cases of each preset are counted, for each of the models that vLLM has."""
FEWER = {"legal": 4, "hostile": 7, "tiny": 45}
"""How many for each of the others."""
LARGE = {"dsv4-flash-ascend-32": {"tiny": 4}, "dsv4-flash-ascend-64": {"tiny": 2}, "dsv4-flash-ascend-128": {"tiny": 1}}
"""How many where a prompt of five alignments has tens of thousands of tokens: ``compressed`` is the same in small."""

EVERY_MODEL: dict[str, Model] = {
    each.name: each
    for name in ("full", "swa", "gemma-hybrid", "gpt-oss-hybrid", "two-windows", "mixed-blocks")
    for each in (MODELS[name], MODELS[name].with_lookahead())
}
"""The presets of vLLM 0.20.2, with and without a draft layer."""
DRIVEN = {name for mechanism in MECHANISMS.values() for name in mechanism.models}
OTHERS = {name: load(name) for name in sorted({*MODELS, *DRIVEN} - set(EVERY_MODEL) - set(LARGE))}
"""Every other preset, and the models that mechanisms are driven on."""

IN_EVERY_LANE = {"hit": 30, "hit looked up": 3, "hit of a preempted request": 12, "evicted a cached block": 3}
"""Events that every model must meet with every preset, and how often at least: about half of what was seen."""
OVER_ALL_MODELS = {
    "hit": 600,
    "hit looked up": 80,
    "hit of a preempted request": 200,
    "evicted a cached block": 60,
    "rejected by the gate": 25,
    "rejected by the pool": 30,
    "drafts accepted": 90,
    "drafts rejected": 45,
    "salt": 70,
    "adapter": 70,
    "media": 70,
    "two kinds of keys": 70,
    "not read from the cache": 45,
    "blocks shared": 50,
    "reset": 30,
    "no reset": 45,
    "preempted requests counted": 30,
}
"""Events that every preset must meet on some models, and how often at least."""
IN_EVERY_OTHER_MODEL = {"hit": 12, "hit looked up": 3, "hit of a preempted request": 8, "evicted a cached block": 6}
"""Events that every other model must meet over all presets."""
OF_TRANSFERS = {
    "provided at once": 12,
    "loads": 12,
    "a load that arrived": 5,
    "a load that failed": 1,
    "admitted after a load": 4,
    "sends": 3,
    "read by another node": 2,
    "aborted while it loads": 1,
}
"""Events that a model must meet where other nodes take part."""
OF_COPIES = {"a hit inside a block": 6, "a copy": 6}
"""Events that a model must meet whose hits may end inside blocks."""
SELDOM = {"Cleared": 30, "rejected until the step is dispatched": 15}
"""Events that must happen on some of the other models, if not on each."""
COLLISIONS = {"legal": 0, "hostile": 10, "tiny": 1}
"""How many salts are named like an adapter at least: a well-behaved scheduler sees none."""


def cases(model: str, preset: str, number: int) -> Iterator[Case]:
    lane = Lane(load(model), preset)
    generator = Generator(PRESETS[preset], lane.model.geometry, lane.model.features)
    return (draw_case(generator, lane, f"0/{index}", 0) for index in range(number))


@cache
def counts(model: str, preset: str) -> Counter[str]:
    """The events in the cases of one lane."""
    return counted(cases(model, preset, CASES[preset]))


@cache
def counts_of_other(name: str) -> Counter[str]:
    """The events in the cases of one of the other models, over all presets."""
    return sum((counted(cases(name, preset, number)) for preset, number in FEWER.items()), Counter[str]())


def counted(several: Iterable[Case]) -> Counter[str]:
    """The events in some cases, if the reference runs them alone."""
    found: Counter[str] = Counter()
    for case in several:
        manager = Manager(case.settings)
        for operation in case.operations:
            found["drawn"] += 1
            resolved = manager.population.resolve(operation)
            if resolved is not None:
                before = manager.snapshot().contents if isinstance(resolved, Evict) else ()
                found.update(_before(manager, resolved))
                waits = isinstance(resolved, Admit) and not _is_ready(manager, resolved)
                alone = (
                    not manager.copies and isinstance(resolved, OfRequest) and {resolved.request} >= set(manager.tables)
                )
                answer = manager.apply(resolved)
                found.update(("legal", type(resolved).__name__, type(answer).__name__))
                found.update(_after(answer))
                found["rejected until the step is dispatched"] += waits and isinstance(answer, Refused)
                found["rejected permanently"] += alone and not waits and isinstance(answer, Refused)
                found["evicted a cached block"] += isinstance(resolved, Evict) and before[resolved.block] is not None
                found["hit of a preempted request"] += (
                    isinstance(answer, Granted)
                    and answer.hit_tokens > 0
                    and isinstance(resolved, Admit)
                    and manager.population[resolved.request].preemptions > 0
                )
    return found


def _before(manager: Manager, operation: Operation) -> Iterator[str]:
    if isinstance(operation, Arrive):
        keys = operation.keys
        kinds = {"salt": keys.salt, "adapter": keys.lora, "media": keys.media}
        yield from (kind for kind, value in kinds.items() if value)
        if sum(map(bool, kinds.values())) == 2:
            yield "two kinds of keys"
        if keys.salt is not None and keys.salt.startswith("adapter"):
            yield "salt named like an adapter"
        if not operation.reads_cache:
            yield "not read from the cache"
    elif isinstance(operation, Sample):
        in_flight = manager.population[operation.request].drafts_in_flight
        yield from ["drafts accepted"] * (operation.accepted > 0)
        yield from ["drafts rejected"] * (operation.accepted < in_flight)
    elif isinstance(operation, Transferred):
        loads = manager.population[operation.request].status is Status.LOADING
        ended = "a load that arrived" if operation.succeeded else "a load that failed"
        yield ended if loads else "read by another node"
    elif isinstance(operation, Finish) and operation.sends:
        yield "sends"
    elif isinstance(operation, Abort) and manager.population[operation.request].status is Status.LOADING:
        yield "aborted while it loads"
    elif isinstance(operation, Admit) and manager.population[operation.request].tokens_computed > 0:
        yield "admitted after a load"


def _is_ready(manager: Manager, operation: Admit) -> bool:
    """Whether the hit of a request that asks to be admitted needs nothing that is still to be computed."""
    request, prefixes = manager.population[operation.request], manager.prefixes[operation.request]
    if request.tokens_computed > 0 or not request.reads_cache or not manager.geometry.fences:
        return True
    pool = manager.pool
    hit = longest_hit(manager.geometry, pool.cached, prefixes, len(request.tokens), pool.partial)
    return manager.cache.is_ready(hit, prefixes)


def _after(answer: Answer) -> Iterator[str]:
    match answer:
        case Hit(tokens=tokens, partials=partials) if tokens:
            yield "hit looked up"
            yield from ["a hit inside a block"] * (len(partials) > 0)
        case Granted(hit_tokens=tokens, external_tokens=external, loads=loads):
            yield from ["hit"] * (tokens > 0)
            if external:
                yield "loads" if loads else "provided at once"
        case Copies(copies=copies):
            yield from ["a copy"] * len(copies)
        case Refused(gate=gate):
            yield "rejected by the gate" if gate else "rejected by the pool"
        case Success(succeeded=succeeded):
            yield "reset" if succeeded else "no reset"
        case Shared(blocks=blocks) if any(blocks):
            yield "blocks shared"
        case Happened(events=events):
            yield from (type(event).__name__ for event in events)
        case Statistics(preempted_requests=requests) if requests:
            yield "preempted requests counted"


@pytest.mark.parametrize("model", ["full", "gemma-hybrid", "gpt-oss-hybrid+eagle"])
def test_long_conversations_are_long(model: str) -> None:
    """Tables of more than 64 blocks, and blocks that hold nothing but answers, which the other presets hardly reach."""
    longest = answered = 0
    for case in cases(model, "long", 8):
        manager = Manager(case.settings)
        prompts: dict[int, int] = {}
        for operation in case.operations:
            resolved = manager.population.resolve(operation)
            if resolved is not None:
                manager.apply(resolved)
                if isinstance(resolved, Arrive):
                    prompts[resolved.request] = len(manager.population[resolved.request].tokens)
                elif isinstance(resolved, Sample):
                    answers = len(manager.population[resolved.request].tokens) - prompts[resolved.request]
                    answered = max(answered, answers)
        longest = max(longest, *(len(t.blocks) for tables in manager.tables.values() for t in tables), 0)
    assert longest > 64
    assert answered > 48


def expected_of(model: Model) -> set[str]:
    """Every operation, every answer and every event that this model has."""
    everything = {kind.__name__ for kind in (*get_args(Operation), *get_args(Answer), *get_args(Event))}
    # A block manager is not asked for them: a scheduler corrects its own bookkeeping, and keeps sessions.
    everything -= {"Rewind", "Pause", "Continue"}
    everything -= set() if model.features.transfers else {"Transferred"}
    everything -= set() if model.geometry.fences else {"Dispatch", "Copies"}
    return everything if serves_hits(model) else everything - {"Stored", "Removed"}


def serves_hits(model: Model) -> bool:
    """Whether every group keeps something that a later request could use."""
    return all(group.attention.serves_hits for group in model.geometry.groups)


def missing(found: Counter[str], least: dict[str, int]) -> dict[str, int]:
    return {name: found[name] for name, minimum in least.items() if found[name] < minimum}


@pytest.mark.few(4)
@pytest.mark.parametrize("preset", CASES)
@pytest.mark.parametrize("model", EVERY_MODEL)
def test_every_lane_does_everything(model: str, preset: str) -> None:
    """Every operation, every answer and every event, hits above all; and a large share of the generated operations is
    legal.

    In a pool of comfortable size refusals, and resets that succeed, are seen on some models only.
    """
    found = counts(model, preset)
    seldom = {"Refused", "Cleared"} if preset == "legal" else set()
    assert {} == missing(found, dict.fromkeys(expected_of(EVERY_MODEL[model]) - seldom, 1))
    assert {} == missing(found, IN_EVERY_LANE)
    assert found["legal"] > found["drawn"] * (0.3 if preset == "tiny" else 0.35)
    assert 0 == found["rejected permanently"]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_model_does_everything(name: str) -> None:
    """The same over all presets; and what its mechanisms do: transfers, copies, waits for a dispatch."""
    model, found = OTHERS[name], counts_of_other(name)
    least = dict.fromkeys(expected_of(model) - set(SELDOM), 1)
    least |= IN_EVERY_OTHER_MODEL if serves_hits(model) else {}
    least |= OF_TRANSFERS if model.features.transfers else {}
    least |= OF_COPIES if any(group.copies for group in model.geometry.groups) else {}
    assert {} == missing(found, least)
    assert found["legal"] > found["drawn"] * 0.3
    assert 0 == found["rejected permanently"]


@pytest.mark.ci
def test_what_happens_seldom_happens_on_some_model() -> None:
    """Resets that succeed, and hits that must wait for a dispatch; no condition of the test above leaves all out."""
    assert {} == missing(sum(map(counts_of_other, OTHERS), Counter[str]()), SELDOM)
    assert {name for name, model in OTHERS.items() if model.features.transfers}
    assert {name for name, model in OTHERS.items() if any(group.copies for group in model.geometry.groups)}
    assert {"mamba-none", "mamba-none+eagle"} == {name for name, model in OTHERS.items() if not serves_hits(model)}
    # Only a scheduler takes back the rest of a failed load, and keeps sessions.
    assert set(get_args(Operation)) - {Rewind, Pause, Continue} == {
        kind for kind in get_args(Operation) for model in OTHERS.values() if kind.__name__ in expected_of(model)
    }


@pytest.mark.ci
def test_large_models_hit() -> None:
    """Where a prompt must be thousands of tokens long to be hit at all, some are."""
    found = Counter[str]()
    for name, numbers in LARGE.items():
        for preset, number in numbers.items():
            found += counted(cases(name, preset, number))
    assert {} == missing(found, {"hit": 2, "Stored": 3, "Removed": 1, "Finish": 5, "Preempt": 5})


@pytest.mark.ci
@pytest.mark.parametrize("preset", CASES)
def test_every_preset_meets_every_situation(preset: str) -> None:
    """Over all models: refusals of both kinds, drafts, keys, resets, preempted requests that come back."""
    found = sum((counts(model, preset) for model in EVERY_MODEL), Counter[str]())
    assert {} == missing(found, OVER_ALL_MODELS)
    collisions = found["salt named like an adapter"]
    assert collisions >= COLLISIONS[preset]
    assert (collisions == 0) == (preset == "legal")


def test_the_counts_can_be_too_low() -> None:
    """The control: without preemptions no request comes back, and both are missed."""
    calm = [
        evolve(case, operations=tuple(each for each in case.operations if not isinstance(each, Preempt)))
        for case in cases("full", "hostile", CASES["hostile"])
    ]
    least = {"Preempt": 1, **IN_EVERY_LANE}
    assert {} == missing(counts("full", "hostile"), least)
    assert {"Preempt": 0, "hit of a preempted request": 0} == missing(counted(calm), least)


def test_every_case_is_of_its_lane() -> None:
    """Settings and length as the preset says; operations name requests that can exist."""
    for preset, bias in PRESETS.items():
        case = next(cases("swa+eagle", preset, 1))
        assert ("swa+eagle", preset, 0) == (case.model, case.preset, case.seed)
        assert EVERY_MODEL["swa+eagle"].geometry == case.settings.geometry
        assert bias.operations == len(case.operations)
        requests = {operation.request for operation in case.operations if isinstance(operation, OfRequest)}
        assert requests <= set(range(bias.requests_max))


PROGRAM = """
from kvgate.gate.case_runner import Lane
from kvgate.levels.manager import draw_case
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import MODELS
from hashlib import sha256
for model in MODELS.values():
    # Where states are alone, no layer drafts.
    for suffixes in ("pinned=1" if model.name == "mamba-alone" else "eagle", "transfers+pinned"):
        for preset in PRESETS:
            lane = Lane(model.varied(suffixes), preset)
            case = draw_case(Generator(PRESETS[preset], lane.model.geometry, lane.model.features), lane, "5/3", 5)
            print(sha256(repr(case).encode()).hexdigest())
"""


@pytest.mark.ci
def test_a_seed_stands_for_one_case(capsys: pytest.CaptureFixture[str]) -> None:
    """Twice here, and in a process that hashes strings to something else; every lane has cases of its own."""
    outputs = []
    for _ in range(2):
        exec(compile(PROGRAM, "program", "exec"), {})
        outputs.append(capsys.readouterr().out)
    for hash_seed in ("1", "2"):
        finished = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        outputs.append(finished.stdout)
    assert 1 == len(set(outputs))
    assert 2 * len(MODELS) * len(PRESETS) == len(set(outputs[0].split()))


def test_another_seed_stands_for_another_case() -> None:
    """So does another index: a campaign does not run one case again and again."""
    lane = Lane(MODELS["full"], "tiny")
    generator = Generator(PRESETS["tiny"], lane.model.geometry)
    found = {draw_case(generator, lane, seed, 0) for seed in ("0/0", "0/1", "1/0", "1/1")}
    assert 4 == len(found)
