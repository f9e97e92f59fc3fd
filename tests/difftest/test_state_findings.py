"""Findings of groups that keep states.

Goal: each acts where it says, and nowhere else. Method: short runs on published code in which something like it happens
that is not it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import CaseRun, run_case
from kvgate.levels.manager import MANAGER, Bench
from kvreference.block_pool import NULL
from kvreference.caching import cached_again
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.holdings import goes_last
from kvreference.mamba import StateMode
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Operation, Run, Sample, Schedule, Transferred
from kvreference.settings import Settings
from kvreference.tables import Table

STATES = Group("mamba", 16, states="all")
SETTINGS = Settings(Geometry((Group("full", 16), STATES)), blocks=40, tokens_max=128, chunk_tokens=64, requests_max=2)


def played(settings: Settings, *operations: Operation) -> CaseRun:
    """A run on the vLLM that is installed."""
    return run_case(Bench(load_system("stock").factory), MANAGER.case(settings, operations))


def known(run: CaseRun) -> set[str]:
    """The numbers of the findings that acted."""
    return {each.finding[:3] for each in run.known() if each.finding}


def prompt(number: int, tokens: int, keys: Keys | None = None) -> Arrive:
    """All begin alike."""
    return Arrive(number, (Run(0, tokens),), keys or Keys())


@pytest.mark.parametrize("keys", [Keys(salt="one"), Keys(lora="one"), Keys(), Keys(salt="another")])
def test_036_next_to_003(keys: Keys) -> None:
    """A salt that is named like an adapter hits the adapter's states, and reads what attention lacks."""
    drafting = Geometry((Group("full", 16, lookahead=True), Group("mamba", 16, states="all", draft_states=4)))
    one = (prompt(0, 16, Keys(lora="one")), Admit(0, 16), Dispatch())
    run = played(evolve(SETTINGS, geometry=drafting), *one, prompt(1, 17, keys), Admit(1, 1), Dispatch())
    assert not run.found()
    hits = "one" in (keys.salt, keys.lora)
    assert ("036" in known(run), "003" in known(run)) == (hits, keys.salt == "one")


@pytest.mark.parametrize(("loaded", "acts"), [(32, True), (16, True), (8, False)])
def test_a_load_that_caches_no_state_is_not_finding_051(loaded: int, acts: bool) -> None:
    """It ends within the first block."""
    run = played(SETTINGS, prompt(0, 33), Admit(0, 64, loaded, loads=True), Dispatch(), Transferred(0), Abort(0))
    assert not run.found()
    assert acts is ("051" in known(run))


def test_051_is_about_loads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that a step computed serves in the next one; on a vLLM that forgets to end a step it does not."""
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager

    operations = (prompt(0, 33), Admit(0, 64), Dispatch(), prompt(1, 40), Admit(1, 64), Dispatch())
    assert not played(SETTINGS, *operations).found()
    monkeypatch.setattr(MambaManager, "new_step_starts", lambda _: None)
    assert [None] == [each.finding for each in played(SETTINGS, *operations).found()]


def test_where_states_are_kept_the_list_of_new_blocks_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: finding 001 does not excuse a list that is not. Method: requests that take more blocks than there are."""
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

    settings = evolve(SETTINGS, blocks=12)
    turns: list[Operation] = []
    for number in range(5):
        turns += [Arrive(number, (Run(1000 * number, 33),)), Admit(number, 64), Dispatch(), Sample(number, 0, 7, 0)]
        turns += [Schedule(number, 64), Dispatch(), Abort(number)]
    assert not played(settings, *turns).found()
    monkeypatch.setattr(SingleTypeKVCacheManager, "take_new_block_ids", lambda _: [])
    assert {None} == {each.finding for each in played(settings, *turns).found()}


@pytest.mark.parametrize(
    ("states", "blocks", "last"),
    [
        (StateMode.ALIGN, [5, NULL, 3, NULL, 2], [3, 2]),
        (StateMode.ALIGN, [5, 4], []),
        (StateMode.ALIGN, [5, NULL, NULL], []),
        (StateMode.ALL, [5, NULL, 3], []),
    ],
)
def test_what_052_puts_last(states: StateMode, blocks: list[int], last: list[int]) -> None:
    """The states after the first null block, of what is dead from its end on."""
    from kvgate.findings.f052_older_state_goes_last import FINDING

    (delta,) = FINDING.acts(SETTINGS, "0.23.0").deltas
    group: Any = evolve(STATES, states=states)
    assert last == [*delta.answer(goes_last, group, blocks)]


@pytest.mark.parametrize(
    ("tokens", "prompt_tokens", "registered", "states", "is_cached", "again"),
    [
        (33, 33, 2, StateMode.ALIGN, False, (1,)),
        (47, 33, 2, StateMode.ALIGN, False, (1,)),
        (48, 33, 2, StateMode.ALIGN, False, ()),
        (31, 33, 1, StateMode.ALIGN, False, ()),
        (33, 49, 2, StateMode.ALIGN, False, ()),
        (33, 32, 2, StateMode.ALIGN, False, ()),
        (33, 33, 1, StateMode.ALIGN, False, ()),
        (33, 33, 2, StateMode.ALL, False, ()),
        (33, 33, 2, StateMode.ALIGN, True, ()),
    ],
)
def test_what_062_caches_again(
    tokens: int, prompt_tokens: int, registered: int, states: StateMode, is_cached: bool, again: tuple[int, ...]
) -> None:
    """The state at the last boundary of the prompt alone, if no later one is reached, it was looked at, and is lost."""
    from kvgate.findings.f065_evicted_state_cached_again import FINDING

    (delta,) = FINDING.acts(SETTINGS, "0.33.0").deltas
    group: Any = evolve(STATES, states=states)
    request: Any = SimpleNamespace(prompt_tokens=prompt_tokens)
    table = Table([NULL, 5, 6], registered, 0)
    arguments = SETTINGS.geometry, group, request, table, tokens, lambda _block: is_cached
    assert again == delta.answer(cached_again, *arguments)
    assert () == cached_again(*arguments)
