"""State-space groups through the manager: which states are held, moved, released and cached.

States of 16 tokens; two drafts where there are any.
"""

from __future__ import annotations

import pytest

from kvreference.answers import Granted, Hit, Refused
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import (
    Admit,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Sample,
    Schedule,
    Transferred,
)

from .stage import BUDGET, FULL, arrive, cached, compute_prompt, enter, free, manager_of, perform, serve, table

RUNNING = Group("mamba", 1024, states="none", draft_states=2)
ALL = Group("mamba", 16, states="all")
ALL_DRAFTING = Group("mamba", 16, states="all", draft_states=2)
ALIGNED = Group("mamba", 16, states="align")
ALIGNED_DRAFTING = Group("mamba", 16, states="align", draft_states=2)


def schedule(manager: Manager, number: int, budget: int = BUDGET) -> object:
    """One more step of a request, which goes to the worker."""
    answer = perform(manager, Schedule(number, budget))
    perform(manager, Dispatch())
    return answer


def decode(manager: Manager, number: int, *accepted: int) -> list[tuple[int, ...]]:
    """One step after the other, each with two drafts, of which so many are accepted; the new blocks of each."""
    given = []
    for count in accepted:
        answer = perform(manager, Sample(number, count, 500, 2), Schedule(number, BUDGET))
        assert isinstance(answer, Granted)
        given.append(answer.blocks[0])
        perform(manager, Dispatch())
    return given


def test_the_running_state_stays_in_place() -> None:
    """Goal: without caching a request holds one state, and one for each draft, from beginning to end. Method: 100
    tokens and three decode steps.
    """
    manager = manager_of(RUNNING, caches=False, drafts_max=2)
    assert Granted(0, ((1, 2, 3),)) == serve(manager, 0, 100)
    assert [(), (), ()] == decode(manager, 0, 0, 1, 2)
    perform(manager, Sample(0, 0, 500, 0), ReleaseSkipped(0))
    assert [1, 2, 3] == table(manager, 0)


def test_every_state_is_kept() -> None:
    """Goal: mode all: a block for every 16 tokens, each the state after its last one, and cached when full. Blocks
    before the last of them are released like any block that is passed. Method: 40 tokens.
    """
    manager = manager_of(ALL)
    assert Granted(0, ((1, 2, 3),)) == serve(manager, 0, 40)
    assert [1, 2] == cached(manager)
    perform(manager, ReleaseSkipped(0))
    assert [0, 0, 3] == table(manager, 0)


@pytest.mark.parametrize(
    ("group", "tokens", "expected"),
    [
        (ALL, 32, [0, 2]),
        (ALL, 33, [0, 0, 3]),
        (ALL_DRAFTING, 34, [0, 2, 3, 4, 5]),
        (ALL_DRAFTING, 35, [0, 0, 3, 4, 5]),
    ],
)
def test_every_draft_has_a_state(group: Group, tokens: int, expected: list[int]) -> None:
    """Goal: a state cannot be taken back by a token: with two drafts a request has two blocks more, and what may be
    released lags by two tokens. Method: the skipped are released; without drafts, all but the last token's block.
    """
    manager = manager_of(group, drafts_max=group.draft_states)
    serve(manager, 0, tokens)
    perform(manager, ReleaseSkipped(0))
    assert expected == table(manager, 0)


def test_a_hit_needs_one_state() -> None:
    """Goal: the state after the hit's last token stands for all before it. Method: 40 tokens; the first state is
    evicted: 32 tokens hit, by the second. With that one gone too, none.
    """
    manager = manager_of(ALL)
    serve(manager, 0, 40)
    perform(manager, Evict(1), arrive(1, 40))
    assert Hit(32, ((0, 2),)) == perform(manager, LookUp(1))
    perform(manager, Evict(2))
    assert Hit(0, ((),)) == perform(manager, LookUp(1))


def test_the_running_state_moves() -> None:
    """Goal: mode align: the running state is in the block of the last token computed, the drafts' after it. Where it
    has passed is null, and what it came from is released a step later.

    Method: 100 tokens in chunks of 64, 32 and 4. The running state is in 1, with 2 and 3 after it for drafts. At 96 it
    is in 3, and 2 moves after it; at 100 it is in 2, and 1 is released.
    """
    manager = manager_of(ALIGNED_DRAFTING, blocks=16, chunk_tokens=64, drafts_max=2)
    assert Granted(0, ((0, 0, 0, 1, 2, 3),)) == serve(manager, 0, 100)
    assert Granted(0, ((2, 4),)) == schedule(manager, 0)
    assert [0, 0, 0, 1, 0, 3, 2, 4] == table(manager, 0)
    assert [1, 3] == cached(manager)
    assert Granted(0, ((5,),)) == schedule(manager, 0)
    assert [0, 0, 0, 0, 0, 3, 2, 4, 5] == table(manager, 0)
    assert [*range(6, 16), 1] == free(manager)
    assert Hit(96, ((0, 0, 0, 0, 0, 3),)) == perform(manager, arrive(1, 97), LookUp(1))


def test_without_drafts_there_is_one_state_and_the_one_before() -> None:
    """Goal: two states at once, never more. Method: 100 tokens in chunks of 32, 32, 32 and 4, then decoding until the
    running state leaves its block.
    """
    manager = manager_of(ALIGNED, chunk_tokens=32)
    assert Granted(0, ((0, 1),)) == serve(manager, 0, 100)
    tables = []
    for _ in range(3):
        schedule(manager, 0)
        tables.append(table(manager, 0))
    assert [0, 1, 0, 2] == tables[0]
    assert [0, 0, 0, 2, 0, 3] == tables[1]
    assert [0, 0, 0, 0, 0, 3, 4] == tables[2]
    assert 100 == manager.population[0].tokens_computed
    for _ in range(13):
        perform(manager, Sample(0, 0, 500, 0))
        schedule(manager, 0)
    assert [0] * 6 + [4, 5] == table(manager, 0)
    assert [1, 2, 3, 4] == cached(manager)


def test_chunks_end_where_blocks_end() -> None:
    """Goal: only a state at a block's end can be cached, so a prompt's chunks end there; a chunk that reaches none
    stays within its block. Method: 100 tokens with budgets of 40, 10, 30, 99: 32, 10, 6, and then 48 of the 52 left.
    """
    manager = manager_of(ALIGNED, FULL)
    perform(manager, arrive(0, 100), Admit(0, 40), Dispatch())
    computed = [manager.population[0].tokens_computed]
    for budget in (10, 30, 99, 99):
        schedule(manager, 0, budget)
        computed.append(manager.population[0].tokens_computed)
    assert [32, 42, 48, 96, 100] == computed


def test_no_chunk_is_of_no_token() -> None:
    """Goal: a small budget is slow, but makes progress. Method: states of 100 tokens, 160 of 1000 computed: a budget of
    5, 10 or 99 computes 5, 10 and 40. (vLLM issue 40707: none, permanently.)
    """
    for budget, expected in [(5, 165), (10, 170), (99, 200)]:
        manager = manager_of(Group("full", 100), Group("mamba", 100, states="align"))
        perform(manager, arrive(0, 1000), Admit(0, 160), Dispatch())
        assert 100 == manager.population[0].tokens_computed
        schedule(manager, 0, 60)
        assert isinstance(schedule(manager, 0, budget), Granted)
        assert expected == manager.population[0].tokens_computed


def test_a_hit_is_where_the_state_comes_from() -> None:
    """Goal: the first step after a hit reads the hit's state and writes its own; the hit is freed a step later.

    Method: 48 of 100 tokens are a hit, the state in 2. A chunk of 32 ends at 80, with the running state in 5; the next
    ends at 96, with 6.
    """
    manager = manager_of(ALIGNED_DRAFTING, chunk_tokens=32, drafts_max=2)
    serve(manager, 0, 48)
    schedule(manager, 0)
    assert [0, 1, 2, 3, 4] == table(manager, 0)
    perform(manager, Finish(0), arrive(1, 100))
    assert Hit(48, ((0, 0, 2),)) == perform(manager, LookUp(1))
    perform(manager, Admit(1, BUDGET), Dispatch())
    assert [0, 0, 2, 0, 5, 6, 7] == table(manager, 1)
    schedule(manager, 1)
    assert [0, 0, 0, 0, 5, 6, 7, 8] == table(manager, 1)
    assert 2 == free(manager)[-1]


@pytest.mark.parametrize(("group", "hit"), [(ALL, 16), (ALIGNED, 0)])
def test_what_a_chunk_passes_is_not_kept(group: Group, hit: int) -> None:
    """Goal: aligned states are kept where a chunk ends, and nowhere else. Method: 32 tokens in one chunk; a replay
    could hit 16, as its last token is computed, and finds it if every state is kept. One token more hits 32.
    """
    manager = manager_of(group)
    serve(manager, 0, 32)
    for number, (tokens, expected) in enumerate([(32, hit), (33, 32)], start=1):
        answer = perform(manager, arrive(number, tokens), LookUp(number))
        assert isinstance(answer, Hit)
        assert expected == answer.tokens


@pytest.mark.parametrize("group", [ALL, ALIGNED])
def test_a_state_waits_for_the_step_that_computes_it(group: Group) -> None:
    """Goal: a state is read before the step writes it, so this step's serve no request. Method: the same prompt again,
    in the same step; next to it a full group, whose blocks could be shared.
    """
    manager = manager_of(FULL, group)
    enter(manager, 0, 32)
    perform(manager, arrive(1, 33))
    assert Refused(32, gate=True) == perform(manager, Admit(1, BUDGET))
    perform(manager, Dispatch())
    assert isinstance(perform(manager, Admit(1, BUDGET)), Granted)


def test_a_state_that_was_loaded_waits_for_nothing() -> None:
    """Goal: another node has computed it. Method: a request loads a state, and one with the same prompt comes."""
    manager = manager_of(FULL, ALL)
    perform(manager, arrive(0, 33))
    perform(manager, Admit(0, BUDGET, 32, loads=True), Dispatch(), Transferred(0))
    perform(manager, arrive(1, 33))
    answer = perform(manager, Admit(1, BUDGET))
    assert isinstance(answer, Granted)
    assert 32 == answer.hit_tokens


@pytest.mark.parametrize("group", [ALL, ALIGNED, ALIGNED_DRAFTING])
def test_a_load_leaves_a_token(group: Group) -> None:
    """Goal: a state that is there cannot be taken back by a token, so the last one is not loaded. Method: all of 40
    tokens are offered: 39 are loaded, the state after them in block 2 of the table; the last is computed in place.
    """
    manager = manager_of(group)
    perform(manager, arrive(0, 40))
    answer = perform(manager, Admit(0, BUDGET, 99, loads=True))
    assert isinstance(answer, Granted)
    assert 39 == answer.external_tokens
    perform(manager, Dispatch(), Transferred(0))
    loaded = table(manager, 0)
    assert 0 not in loaded[2:]
    assert Granted(0, ((),)) == perform(manager, Admit(0, BUDGET))
    assert loaded == table(manager, 0)


def test_after_a_load_the_drafts_move_along() -> None:
    """Goal: a request that has loaded holds states as any other. Method: 32 of 100 tokens are loaded: the state after
    them in 1, the drafts' in 2 and 3. A chunk of 32 ends at 64: 3 is the running state, and 2 moves after it.
    """
    manager = manager_of(ALIGNED_DRAFTING, chunk_tokens=32, drafts_max=2)
    perform(manager, arrive(0, 100), Admit(0, BUDGET, 32, loads=True))
    assert [0, 1, 2, 3] == table(manager, 0)
    perform(manager, Dispatch(), Transferred(0))
    assert [1] == cached(manager)
    perform(manager, Admit(0, BUDGET))
    assert [0, 1, 0, 3, 2, 4] == table(manager, 0)


@pytest.mark.parametrize("end", [Finish(0), Preempt(0)])
def test_the_end(end: Operation) -> None:
    """Goal: held blocks are released, tail first; null blocks have no holder. Method: 100 tokens as above, in chunks of
    64, 32 and 4: the table ends with 3, 2, 4, 5.
    """
    manager = manager_of(ALIGNED_DRAFTING, blocks=8, chunk_tokens=64, drafts_max=2)
    serve(manager, 0, 100)
    schedule(manager, 0)
    schedule(manager, 0)
    assert [6, 7, 1] == free(manager)
    perform(manager, end)
    assert [6, 7, 1, 5, 4, 2, 3] == free(manager)


@pytest.mark.parametrize("prompt", range(1, 25))
def test_a_request_fits_into_its_bound(prompt: int) -> None:
    """Goal: a request that passes the gate of an empty pool gets to its end there. Method: states of 6 and two drafts,
    the shortest block that allows for them; the bound is the pool. Prompts of any length, and thirty tokens sampled,
    with all drafts rejected, one or both accepted.
    """
    group = Group("mamba", 6, states="align", draft_states=2)
    manager = manager_of(group, blocks=1 + group.blocks_held_at_most(6, 1024), chunk_tokens=6, drafts_max=2)
    assert isinstance(serve(manager, 0, prompt), Granted)
    for answer in compute_prompt(manager, 0):
        assert isinstance(answer, Granted)
        perform(manager, Dispatch())
    decode(manager, 0, *(0, 1, 2) * 10)
