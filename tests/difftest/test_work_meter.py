"""The work of the real vLLM, counted.

Goal: a decode step costs the same at any length of the context, in vLLM's block manager, with the plug-in, and under
vLLM's own scheduler. If it did not, this would be seen. Method: the same steps after prompts of several lengths, with
vLLM as it is and with mutants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Operation, Serve, Stage
from kvgate.monitors.work import Work, counter_name
from kvgate_mutants.mutants import work as mutants
from kvgate_mutants.mutants.mutant import Mutant
from kvreference.operations import Admit, Arrive, Run, Sample, Schedule
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

CONTEXTS_TOKENS = (512, 2048, 4096)
STEPS = 64
CASES = [
    ("stock", "gemma-hybrid+eagle"),
    ("stock", "mixed-blocks"),
    ("retention", "gpt-oss-hybrid+retention=64+scratch"),
    ("retention", "compressed+partial"),
]


def settings_of(model: str) -> Settings:
    """One request at a time, with room for the longest of them twice over."""
    chosen = load(model)
    tokens_max = CONTEXTS_TOKENS[-1] + 2 * STEPS
    blocks = sum(group.blocks_occupied(tokens_max) for group in chosen.geometry.groups)
    settings = Settings(chosen.geometry, blocks=2 * blocks, tokens_max=tokens_max, chunk_tokens=tokens_max)
    return chosen.features.applied_to(settings)


def counted(system_name: str, model: str) -> list[Work]:
    """Per context, all that its decode steps took."""
    settings = settings_of(model)
    found = []
    for context in CONTEXTS_TOKENS:
        system: Any = load_system(system_name).factory(settings)
        meter = system.count_work()
        # The first step frees the blocks of the prompt that are out of the windows.
        for operation in (Arrive(0, (Run(0, context),)), Admit(0, context), Sample(0, 0, 0, 0), Schedule(0, 1)):
            system.apply(operation)
        meter.take()
        for index in range(STEPS):
            system.apply(Sample(0, 0, index, 0))
            system.apply(Schedule(0, 1))
        found.append(meter.take())
    return found


def costs(works: Sequence[Work]) -> list[dict[str, int]]:
    """The counters, without what was offered."""
    return [{counter_name(place, len(each.tables)): n for place, n in enumerate(each.counts())} for each in works]


@pytest.mark.parametrize(("system_name", "model"), CASES)
def test_decoding_takes_the_same_at_any_context(system_name: str, model: str) -> None:
    """Goal: no counter depends on the length. Method: 64 steps after prompts of 512 to 4096 tokens, compared."""
    first, *others = costs(counted(system_name, model))
    assert first["hashes"] > 0
    assert sum(first.values()) > STEPS
    assert [first] * len(others) == others


@pytest.mark.parametrize(
    ("mutant", "counter"),
    [
        (mutants.all_blocks_hashed_again, "hashes"),
        (mutants.held_blocks_counted_one_by_one, "table entries in group 1"),
        (mutants.free_blocks_counted_one_by_one, "links of the free queue"),
    ],
)
def test_what_grows_is_counted(mutant: Mutant, counter: str) -> None:
    """Goal: each counter can grow. Method: the same with a mutant; the counter is proportional to what is gone over."""
    with mutant.applied():
        found = [each[counter] for each in costs(counted("stock", "gpt-oss-hybrid"))]
    sound = costs(counted("stock", "gpt-oss-hybrid"))[0][counter]
    assert min(found) > 4 * max(1, sound)
    assert len(CONTEXTS_TOKENS) == len(set(found))


def decoded(steps: int = 40) -> str | None:
    """Which detector finds what in a run of vLLM's scheduler: a request with a short prompt, then one with
    a long one.
    """
    engine = Engine(settings_of("full"), Stage(running_max=1))
    for number, prompt in enumerate((40, 400)):
        submit = Serve(Arrive(number, (Run(1000 * number, prompt),)), answers_max=steps)
        operations: list[Operation] = [submit, *(Step((Reply(0, index, 0),)) for index in range(steps))]
        for operation in operations:
            found = engine.perform(operation)
            if found is not None:
                return f"{found.detector} {found.difference.statement}"
    return None


def test_the_scheduler_s_steps_are_counted() -> None:
    """Goal: the same monitor checks under vLLM's own scheduler. Method: as it is, and with two mutants."""
    found = [decoded()]
    for mutant in (mutants.held_blocks_counted_one_by_one, mutants.all_blocks_offered_again):
        with mutant.applied():
            found.append(decoded())
    assert [None, "work KV-WORK-02", "work KV-WORK-01"] == found
