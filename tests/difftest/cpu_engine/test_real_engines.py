"""Real engines on this machine's CPU.

Goal: their answers distinguish prompts, are the same with the cache, and differ if a foreign block is served. Method:
tiny hybrid models with random weights, each engine in a child of one process that imports vLLM once.
"""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from kvgate.adapters.cpu_engine.engines import Engines
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS, VOCABULARY
from kvgate.adapters.cpu_engine.job import Ask, Job
from kvgate.equality.feature import FEATURE, FEATURES, with_feature
from kvgate.equality.table import FAULTS, State, compare, fill, plain_job

pytestmark = pytest.mark.deep

PROMPT_TOKENS = 300
PLACES = (0, 1, 5, 37, 150)
"""Places in a prompt, of which all but the last are many windows before its end."""


def spread_job(model: str) -> Job:
    """A prompt, and others with one early token changed."""
    chance = random.Random(5)
    prompt = tuple(chance.randrange(4, VOCABULARY) for _ in range(PROMPT_TOKENS))
    changed = [Ask((*prompt[:place], 4 + (prompt[place] - 3) % 500, *prompt[place + 1 :])) for place in PLACES]
    return Job("spread", model, ((Ask(prompt), *changed),), 16, {"enable_prefix_caching": False})


@pytest.mark.parametrize("model", HYBRIDS)
def test_an_early_token_changes_the_answer(started: Engines, model: str) -> None:
    """Otherwise equal answers would say nothing of what was read from the cache; and the groups are as expected."""
    outcome = started.run(spread_job(model))
    assert None is outcome.error
    first, *others = [answer.tokens for answer in outcome.answers]
    assert [] == [place for place, tokens in zip(PLACES, others, strict=True) if tokens == first]
    assert HYBRIDS[model].block_sizes_tokens == tuple(size for _, size in outcome.groups)
    assert {"SlidingWindowSpec", "FullAttentionSpec"} == {kind for kind, _ in outcome.groups}


def test_partial_hits_change_nothing_and_a_foreign_block_does(started: Engines) -> None:
    """One model, one row of the table, and one fault."""
    plain = plain_job("gemma-4")
    expected = started.run(plain)
    partial = with_feature(FEATURE["partial"], plain, (0, 0))
    cell = compare("gemma-4", "partial", expected, started.run(partial))
    assert State.EQUAL is cell.state, cell.why
    assert cell.result is not None
    assert any(answer.cached_tokens % 64 for answer in cell.result.answers)
    broken = with_feature(FEATURE["hits"], plain, (0, 0))
    broken = evolve(broken, name=FAULTS[0], mutants=FAULTS[:1])
    assert State.DIFFERS is compare("gemma-4", FAULTS[0], expected, started.run(broken)).state


def test_an_engine_that_does_not_start_is_reported(started: Engines) -> None:
    """Goal: a failure is not an answer, and the next engine starts. Method: a pool that holds no request."""
    job = evolve(spread_job("gemma-3"), options={"num_gpu_blocks_override": 2, "max_model_len": 512})
    outcome = started.run(job)
    assert "ValueError" in str(outcome.error)
    assert State.FAILED is compare("gemma-3", "hits", outcome, outcome).state


@pytest.mark.deep
def test_the_whole_table(started: Engines) -> None:
    """Every model with every feature, and every fault."""
    cells = list(fill(started, tuple(HYBRIDS), FEATURES))
    assert len(HYBRIDS) * (len(FEATURES) + len(FAULTS)) == len(cells)
    assert [] == [(cell.model, cell.feature, cell.state, cell.why) for cell in cells if not cell.is_as_it_should_be]
