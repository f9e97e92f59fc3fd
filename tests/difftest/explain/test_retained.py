"""How many prompts a pool retains.

Goal: as many as are promised can be hit afterwards, and hardly more. Method: prompts computed one after the other by
the reference's block manager, in pools from just large enough to roomy, and the first of them looked up.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvgate.explain.best_hit import Prompts, best_hit
from kvgate.explain.retained import blocks_held, blocks_kept, blocks_taken, largest_request, prefixes_retained
from kvgate.kernel.models import load
from kvgate_mutants.corpus.scenario import tokens
from kvreference.admission import fits_empty_pool
from kvreference.answers import Hit
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, LookUp, Schedule
from kvreference.settings import Settings

MODELS = (
    "full",
    "gpt-oss-hybrid",
    "compressed",
    "local",
    "mixed-blocks+eagle",
    "mixed-blocks+eagle+hashed-ahead",
    "mamba-align",
)
POLICIES = [
    (name, policy)
    for name in MODELS
    for policy in ("dense", "masked", "retention", "pinned")
    if policy == "dense" or any(group.is_sparse for group in load(name).geometry.groups)
]
"""Each model with the policies that it can have."""
SLACK = 2
"""How many more may be retained than are promised."""


def settings_of(name: str, policy: str, blocks: int) -> tuple[Settings, int]:
    """The settings, and the length of the prompts."""
    geometry = load(name).geometry
    alignment = geometry.alignment_tokens
    length = 4 * alignment + 9 + geometry.lookahead_tokens
    chosen: dict[str, dict[str, Any]] = {
        "dense": {},
        "masked": {"retention_interval_tokens": alignment},
        "retention": {"retention_interval_tokens": 0, "scratch_first": True},
        "pinned": {"pin_drop_blocks_min": 2},
    }
    drafts = 1 if geometry.lookahead_tokens else 0
    chunk = max(48, alignment)
    return Settings(
        geometry, blocks, tokens_max=length + 10, chunk_tokens=chunk, drafts_max=drafts, **chosen[policy]
    ), length


def computed(settings: Settings, prompts: int, length: int) -> Manager:
    """A manager that has computed so many different prompts."""
    manager = Manager(settings)
    for number in range(prompts):
        manager.apply(Arrive(number, tokens(number * 10**6, length)))
        request = manager.population[number]
        manager.apply(Admit(number, settings.chunk_tokens))
        manager.apply(Dispatch())
        while request.tokens_computed < length:
            manager.apply(Schedule(number, settings.chunk_tokens))
            manager.apply(Dispatch())
        manager.apply(Finish(number))
    return manager


def first_hits(settings: Settings, prompts: int, length: int) -> int:
    """How much of the first can be hit after all of them."""
    manager = computed(settings, prompts, length)
    manager.apply(Arrive(prompts, tokens(0, length)))
    answer = manager.apply(LookUp(prompts))
    assert isinstance(answer, Hit)
    return answer.tokens


@pytest.mark.parametrize(("name", "policy"), POLICIES)
def test_as_many_are_retained_as_promised(name: str, policy: str) -> None:
    """In pools of several sizes."""
    roomy, length = settings_of(name, policy, 10**5)
    best = best_hit(roomy, Prompts.replay(length))
    held = sum(blocks_held(roomy, length))
    promised = []
    for tenths in (10, 17, 27, 45):
        settings = evolve(roomy, blocks=held * tenths // 10 + 1)
        promised.append(prefixes_retained(settings, length))
        # Of none there is nothing to look up.
        assert not promised[-1] or best == first_hits(settings, promised[-1], length), tenths
        assert best > first_hits(settings, promised[-1] + SLACK + 1, length), tenths
    assert sorted(promised) == promised
    assert promised[0] < promised[-1]
    assert 0 == prefixes_retained(evolve(roomy, blocks=held), length)


@pytest.mark.parametrize(("name", "policy"), [case for case in POLICIES if case[1] != "pinned"])
def test_what_is_kept_and_taken_is_counted(name: str, policy: str) -> None:
    """As many blocks are cached as predicted, and as many are taken out of the free queue."""
    settings, length = settings_of(name, policy, 10**5)
    manager = computed(settings, 1, length)
    cached = [0] * len(settings.geometry.groups)
    for group, _ in manager.pool.cached.entries():
        cached[group] += 1
    assert cached == blocks_kept(settings, length)
    # In a roomy pool every block that is taken is a fresh one, and the first that was never taken leads the queue.
    assert next(iter(manager.pool.free)) - 1 == blocks_taken(settings, length) or settings.scratch_first


@pytest.mark.parametrize("name", MODELS)
def test_the_largest_request_is_where_the_gate_closes(name: str) -> None:
    """One token more does not fit the empty pool; every one up to it does."""
    roomy, length = settings_of(name, "dense", 10**5)
    settings = evolve(roomy, blocks=sum(blocks_held(roomy, length // 2)) + 1)
    largest = largest_request(settings)
    assert 0 < largest < settings.tokens_max
    assert fits_empty_pool(settings, largest)
    tighter = evolve(settings, drafts_max=0)
    if not settings.geometry.lookahead_tokens and not settings.geometry.keeps_states:
        assert not fits_empty_pool(tighter, largest_request(tighter) + 1)
    assert largest <= largest_request(tighter)
    assert settings.tokens_max == largest_request(roomy)
