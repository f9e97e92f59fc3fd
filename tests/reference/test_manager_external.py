"""Tokens from another node: their blocks, loads and their ends, and blocks that another node reads.

Blocks of 16, a window of 64.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.answers import Done, Granted, Happened, Hit, Refused, Statistics
from kvreference.compressed import dsv4_flash_ascend
from kvreference.events import Removed, Stored
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Rewind,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Status

from .stage import BUDGET, FULL, WINDOW, arrive, cached, enter, free, manager_of, pass_through, perform, seen, table


def test_what_is_provided_has_blocks_first() -> None:
    """Goal: first what another node provides, in every group, then the rest. Method: 20 of 40 tokens are provided, two
    blocks in each group; the third of each follows. All is cached, as it is there when the step is over.
    """
    manager = manager_of(FULL, WINDOW)
    perform(manager, arrive(0, 40))
    assert Granted(0, ((1, 2, 5), (3, 4, 6)), 20) == perform(manager, Admit(0, BUDGET, 20))
    assert [1, 2, 3, 4] == cached(manager)
    assert (40, True) == (manager.population[0].tokens_computed, manager.population[0].answers_next)


@pytest.mark.parametrize(
    ("offered", "loads", "taken", "computed"),
    [(39, False, 39, 40), (40, False, 39, 40), (99, False, 39, 40), (39, True, 39, 39), (99, True, 40, 40)],
)
def test_the_last_token_is_computed_here(offered: int, loads: bool, taken: int, computed: int) -> None:
    """Goal: the answer follows from the last token. Method: 40 tokens, as many are offered or more: at once, one is
    left; a load may bring all.
    """
    manager = manager_of(FULL)
    perform(manager, arrive(0, 40))
    assert Granted(0, ((1, 2, 3),), taken, loads) == perform(manager, Admit(0, BUDGET, offered, loads))
    assert computed == manager.population[0].tokens_computed


@pytest.mark.parametrize("loads", [False, True])
def test_it_follows_the_hit(loads: bool) -> None:
    """Goal: tokens of the hit are not fetched. Method: 32 tokens are a hit; 50 are offered after it, and 17, or 18 for
    a load, are missing.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 32)
    perform(manager, Arrive(1, (Run(0, 32), Run(5000, 18))))
    external = 18 if loads else 17
    assert Granted(32, ((3, 4),), external, loads) == perform(manager, Admit(1, BUDGET, 50, loads))
    assert [1, 2, 3, 4] == table(manager, 1)


def test_nothing_to_load() -> None:
    """Goal: a load of nothing is not a load. Method: no token is offered; the request computes."""
    manager = manager_of(FULL)
    perform(manager, arrive(0, 40))
    assert Granted(0, ((1, 2, 3),)) == perform(manager, Admit(0, BUDGET, 0, loads=True))
    assert manager.population[0].answers_next


def test_no_group_takes_what_another_hits() -> None:
    """Goal: the hits of all groups are held before any block is taken for what another node provides.

    Method: 64 tokens are cached in 1..4, and 5..8 of a window of 256. Another request has taken and released all but
    one of the others, so that 5..8 stand before those. Of 144 tokens 64 are a hit, 64 more are provided: the first
    group takes 39, and passes over 5..8, which stand next. (vLLM pull request 44409.)
    """
    manager = manager_of(FULL, Group("sliding_window", 16, 256), blocks=40)
    pass_through(manager, 0, 64)
    pass_through(manager, 1, 240, first=5000)
    assert [39, 4, 3, 2, 1, 8, 7, 6, 5, 23, 22, 21, 20] == free(manager)[:13]
    perform(manager, Arrive(2, (Run(0, 64), Run(9000, 80))))
    given = ((39, 23, 22, 21, 16), (20, 19, 18, 17, 15))
    assert Granted(64, given, 64) == perform(manager, Admit(2, BUDGET, 64))
    assert [1, 2, 3, 4, 39, 23, 22, 21, 16] == table(manager, 2)
    assert [5, 6, 7, 8, 20, 19, 18, 17, 15] == table(manager, 2, group=1)


@pytest.mark.parametrize("groups", [(FULL, Group("full", 32), Group("sliding_window", 16, 16)), "compressed"])
def test_every_full_group_ends_with_the_hit(groups: Any) -> None:
    """Goal: a hit that shrinks to nothing leaves no group with blocks of it. Method: the window's blocks of a prompt
    are evicted. The same prompt again hits nothing, in either full group, and what another node provides has blocks for
    all of its tokens in both. (vLLM-Ascend pull request 14810.)
    """
    given = dsv4_flash_ascend(128).groups if groups == "compressed" else groups
    manager = manager_of(*given, blocks=5000, tokens_max=8192)
    enter(manager, 0, 1000)
    for group, shape in enumerate(manager.geometry.groups):
        if not shape.keeps_all:
            perform(manager, *map(Evict, table(manager, 0, group)))
    perform(manager, Finish(0), arrive(1, 1010))
    nothing = ((),) * len(manager.geometry.groups)
    assert Hit(0, nothing) == perform(manager, LookUp(1))
    perform(manager, Admit(1, 10, 512))
    assert 522 == manager.population[1].tokens_computed
    held = [block for group in range(len(nothing)) for block in table(manager, 1, group) if block]
    assert len(held) == len(set(held)) == 4999 - len(free(manager))
    for group, shape in enumerate(manager.geometry.groups):
        assert shape.blocks_occupied(522) == len(table(manager, 1, group))


def test_nothing_is_loaded_for_what_is_dead() -> None:
    """Goal: no block for tokens that are never read. Method: 160 of 200 tokens are loaded, of which 97 are dead in the
    window: six blocks. The other four are taken; then the rest.
    """
    manager = manager_of(WINDOW)
    perform(manager, arrive(0, 200))
    assert Granted(0, ((1, 2, 3, 4),), 160, loads=True) == perform(manager, Admit(0, BUDGET, 160, loads=True))
    assert [0] * 6 + [1, 2, 3, 4] == table(manager, 0)
    assert Granted(0, ((5, 6, 7),)) == perform(manager, Transferred(0), Admit(0, BUDGET))


def test_a_load_is_cached_when_it_has_arrived() -> None:
    """Goal: no request is served what is not there yet. Method: 40 tokens, 36 loaded; a second request finds nothing
    while they are on their way, and two blocks afterwards; that is when the event comes.
    """
    manager = manager_of(FULL)
    perform(manager, arrive(0, 40), arrive(1, 40), Admit(0, BUDGET, 36, loads=True))
    assert Hit(0, ((),)) == perform(manager, LookUp(1))
    assert Happened(()) == perform(manager, TakeEvents())
    assert Done() == perform(manager, Transferred(0))
    assert Hit(32, ((1, 2),)) == perform(manager, LookUp(1))
    happened = perform(manager, TakeEvents())
    assert isinstance(happened, Happened)
    assert [tuple(range(32))] == [event.tokens for event in happened.events if isinstance(event, Stored)]
    assert 1 == len(happened.events)


def test_it_continues_after_the_load() -> None:
    """Goal: loaded tokens are not looked up, nor computed again. Method: 16 tokens hit, 20 loaded of 40; the rest is
    four tokens in the third block. One look-up was counted.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 16)
    perform(manager, TakeStatistics(), arrive(1, 40), Admit(1, BUDGET, 20, loads=True), Transferred(1))
    assert 36 == manager.population[1].tokens_computed
    assert Granted(0, ((),)) == perform(manager, Admit(1, BUDGET))
    assert manager.population[1].answers_next
    assert Statistics(1, 40, 16) == perform(manager, TakeStatistics())


def test_a_load_of_one_token_is_not_looked_up_again() -> None:
    """Goal: however little was loaded, the request continues after it. Method: one of two tokens; one look-up was
    counted, and no other when it continues.
    """
    manager = manager_of(FULL)
    perform(manager, arrive(0, 2), Admit(0, BUDGET, 1, loads=True), Transferred(0))
    assert Statistics(1, 2, 0) == perform(manager, TakeStatistics())
    assert Granted(0, ((),)) == perform(manager, Admit(0, BUDGET))
    assert (Statistics(), True) == (perform(manager, TakeStatistics()), manager.population[0].answers_next)


@pytest.mark.parametrize(("tokens", "dead"), [(159, 5), (160, 6), (161, 6), (175, 6)])
def test_a_load_of_everything(tokens: int, dead: int) -> None:
    """Goal: the last token is computed again, and finds all that it reads. Method: with 159 tokens it is 158, which
    reads 95..158: block 5, which token 159 would not read, is kept. Block 6 begins with token 96.
    """
    manager = manager_of(WINDOW)
    perform(manager, arrive(0, tokens), Admit(0, BUDGET, 999, loads=True))
    assert [0] * dead == [block for block in table(manager, 0) if block == 0]
    perform(manager, Transferred(0))
    assert tokens - 1 == manager.population[0].tokens_computed
    assert Granted(0, ((),)) == perform(manager, Admit(0, BUDGET))
    assert [0] * dead == [block for block in table(manager, 0) if block == 0]


def test_a_load_of_one_token() -> None:
    """Goal: the shortest prompt continues as well. Method: its only token is loaded, and computed again."""
    manager = manager_of(FULL)
    perform(manager, arrive(0, 1), Admit(0, BUDGET, 1, loads=True), Transferred(0))
    assert Granted(0, ((),)) == perform(manager, Admit(0, BUDGET))
    assert ([1], True) == (table(manager, 0), manager.population[0].answers_next)


def test_a_load_that_fails() -> None:
    """Goal: nothing of it is cached, its blocks are freed, and the request starts anew. Method: 16 tokens hit, 20 fail
    to come; the hit is still one.
    """
    manager = manager_of(FULL, blocks=6)
    pass_through(manager, 0, 16)
    perform(manager, arrive(1, 40), Admit(1, BUDGET, 20, loads=True))
    assert [4, 5] == free(manager)
    perform(manager, Transferred(1, succeeded=False))
    assert ([4, 5, 3, 2, 1], [1], {}) == (free(manager), cached(manager), manager.tables)
    assert Granted(16, ((4, 5),)) == perform(manager, Admit(1, BUDGET))


@pytest.mark.parametrize("succeeded", [True, False])
def test_an_abort_while_it_loads(succeeded: bool) -> None:
    """Goal: blocks that another node writes are not allocated to another request. Method: abort; the blocks stay until
    the transfer is over, and hold nothing then, however it ended.
    """
    manager = manager_of(FULL, blocks=6)
    perform(manager, arrive(0, 40), Admit(0, BUDGET, 36, loads=True))
    before = seen(manager)
    perform(manager, Abort(0))
    assert before == seen(manager)
    assert manager.population.resolve(Abort(0)) is None
    perform(manager, Transferred(0, succeeded))
    assert ([4, 5, 3, 2, 1], []) == (free(manager), cached(manager))
    assert ({}, {}) == (manager.prefixes, manager.population.alive)


def test_an_abort_after_a_load() -> None:
    """Goal: loaded tokens are as good as computed. Method: abort before it continues; two blocks stay cached."""
    manager = manager_of(FULL, blocks=6)
    perform(manager, arrive(0, 40), Admit(0, BUDGET, 36, loads=True), Transferred(0), Abort(0))
    assert ([4, 5, 3, 2, 1], [1, 2], {}) == (free(manager), cached(manager), manager.tables)


def test_a_request_that_sends() -> None:
    """Goal: blocks that another node reads are held, and no more. Method: 200 tokens in 13 blocks of either group; 137
    are dead in the window: the blocks 14..21. The others wait for the transfer, then go tail first.
    """
    manager = manager_of(FULL, WINDOW, blocks=27)
    enter(manager, 0, 200)
    perform(manager, Finish(0, sends=True))
    assert [21, 20, 19, 18, 17, 16, 15, 14] == free(manager)
    assert [0] * 8 + [22, 23, 24, 25, 26] == table(manager, 0, group=1)
    assert manager.population.resolve(Finish(0)) is None
    perform(manager, Transferred(0))
    assert [*range(21, 13, -1), *range(13, 0, -1), *range(26, 21, -1)] == free(manager)
    assert ({}, {}, {}) == (manager.tables, manager.prefixes, manager.population.alive)


def test_what_is_sent_still_serves() -> None:
    """Goal: blocks that are held are cached as ever. Method: a request hits what another is sending; both end."""
    manager = manager_of(FULL, blocks=6)
    enter(manager, 0, 40)
    perform(manager, Finish(0, sends=True))
    assert Granted(32, ((4,),)) == enter(manager, 1, 33)
    perform(manager, Transferred(0, succeeded=False))
    assert [5, 3] == free(manager)
    perform(manager, CommonPrefix(1), Finish(1))
    assert [5, 3, 4, 2, 1] == free(manager)


@pytest.mark.parametrize(("usable", "answer"), [(3, Granted(0, ((3,),))), (2, Refused(0, gate=False))])
def test_after_a_load_comes_look_ahead(usable: int, answer: object) -> None:
    """Goal: a request that has its prompt may draft in its first step. Method: 8 tokens in blocks of 4, all loaded: the
    last is computed, one slot is for it and three for drafts, 11: a third block. The gate does not count that one.
    """
    manager = manager_of(Group("full", 4, lookahead=True), blocks=usable + 1, drafts_max=3)
    perform(manager, arrive(0, 8))
    assert Granted(0, ((1, 2),), 8, loads=True) == perform(manager, Admit(0, BUDGET, 8, loads=True))
    perform(manager, Transferred(0))
    assert answer == perform(manager, Admit(0, BUDGET))


def test_without_a_load_there_is_none() -> None:
    """Goal: the positive control. Method: the same prompt computed, and provided at once: two blocks."""
    for external in (0, 7):
        manager = manager_of(Group("full", 4, lookahead=True), drafts_max=3)
        perform(manager, arrive(0, 8))
        assert Granted(0, ((1, 2),), external) == perform(manager, Admit(0, BUDGET, external))


@pytest.mark.parametrize(("usable", "passes"), [(13, True), (12, False)])
def test_the_gate_asks_for_everything(usable: int, passes: bool) -> None:
    """Goal: a load is admitted only if the rest fits as well. Method: 160 of 200 tokens are loaded; 200 are
    13 blocks.
    """
    manager = manager_of(FULL, blocks=usable + 1)
    perform(manager, arrive(0, 200))
    expected = Granted(0, (tuple(range(1, 11)),), 160, loads=True) if passes else Refused(0, gate=True)
    assert expected == perform(manager, Admit(0, BUDGET, 160, loads=True))


def test_a_load_that_cannot_go_on_keeps_what_it_has() -> None:
    """Goal: a request rejected after its load loses nothing. Method: 32 of 48 tokens are loaded into two of three
    blocks; another takes the third. Rejected; when it is free again the request continues.
    """
    manager = manager_of(FULL, blocks=4)
    perform(manager, arrive(0, 48), Admit(0, BUDGET, 32, loads=True))
    enter(manager, 1, 16, first=5000)
    perform(manager, Transferred(0))
    assert Refused(0, gate=True) == perform(manager, Admit(0, BUDGET))
    assert ([1, 2], 32) == (table(manager, 0), manager.population[0].tokens_computed)
    perform(manager, Finish(1))
    assert Granted(0, ((3,),)) == perform(manager, Admit(0, BUDGET))
    assert Granted(0, ((),)) != perform(manager, Sample(0, 0, 7, 0), Schedule(0, 1))


def test_what_a_rejected_draft_would_have_read_is_sent() -> None:
    """Goal: a request that ends with drafts in flight keeps what its own next token reads. Method: window 64, 112
    tokens, one sampled, 16 drafts computed: 129, of which 113 are its own. Token 113 reads 50..113: block 3 is held.
    """
    manager = manager_of(WINDOW, drafts_max=16)
    enter(manager, 0, 112)
    perform(manager, Sample(0, 0, 500, 16), Schedule(0, BUDGET), Finish(0, sends=True))
    assert [0, 0, 0, 4, 5, 6, 7, 8, 9] == table(manager, 0)


def test_what_a_load_did_not_bring_is_computed_again() -> None:
    """Goal: nothing that follows from it serves a hit before. Method: of 40 provided tokens those from 16 on did not
    arrive within the step: their blocks are held, not cached, and cached again when they are computed again.
    """
    manager = manager_of(FULL)
    perform(manager, arrive(0, 60), Admit(0, BUDGET, 40))
    assert [1, 2, 3] == cached(manager)
    perform(manager, TakeEvents())
    assert Done() == perform(manager, Rewind(0, 16))
    assert ([1], [1, 2, 3, 4]) == (cached(manager), table(manager, 0, 0))
    assert (16, False) == (manager.population[0].tokens_computed, manager.population[0].answers_next)
    happened = perform(manager, TakeEvents())
    assert isinstance(happened, Happened)
    assert [Removed, Removed] == list(map(type, happened.events))
    assert Granted(0, ((),)) == perform(manager, Schedule(0, 20))
    assert [1, 2] == cached(manager)
    assert Granted(0, ((),)) == perform(manager, Schedule(0, BUDGET))
    assert ([1, 2, 3], 60) == (cached(manager), manager.population[0].tokens_computed)


def test_a_load_that_brought_the_beginning_is_cached_up_to_there() -> None:
    """Goal: tokens that arrived count. Method: 40 tokens are loaded, and those from 16 on did not arrive."""
    manager = manager_of(FULL)
    perform(manager, arrive(0, 60), Admit(0, BUDGET, 40, loads=True))
    assert Done() == perform(manager, Rewind(0, 16))
    perform(manager, Transferred(0))
    assert ([1], 16) == (cached(manager), manager.population[0].tokens_computed)
    assert Granted(0, ((4,),)) == perform(manager, Admit(0, BUDGET))


def test_two_requests_compute_again_what_they_share() -> None:
    """Goal: a block is cached, and reported, once. Method: the second of two requests hits both blocks of the first."""
    manager = manager_of(FULL)
    enter(manager, 0, 32)
    enter(manager, 1, 40)
    perform(manager, Rewind(0, 0), Rewind(1, 0), TakeEvents(), Schedule(0, BUDGET))
    stored = perform(manager, TakeEvents())
    perform(manager, Schedule(1, BUDGET))
    assert isinstance(stored, Happened)
    assert ([1, 2], [Stored], Happened(())) == (
        cached(manager),
        list(map(type, stored.events)),
        perform(manager, TakeEvents()),
    )
    assert [1, 2] == table(manager, 1)[:2]


@pytest.mark.parametrize(("valid", "serve"), [(159, [1, 2, 3]), (158, [1, 2, 3]), (16, [])])
def test_what_a_window_released_is_computed_again(valid: int, serve: list[int]) -> None:
    """Goal: a request never reads what its window released for a load that failed. Method: token 160 reads from 97 on,
    so the first block held is that of the tokens from 96 on. Token 159 reads from 96 on, token 158 from 95: then all is
    freed. Blocks full of valid tokens still serve hits.
    """
    manager = manager_of(WINDOW)
    perform(manager, arrive(0, 200), Admit(0, BUDGET, 160))
    assert ([0] * 6, 6) == (table(manager, 0)[:6], manager.tables[0][0].dead)
    assert Done() == perform(manager, Rewind(0, valid))
    request = manager.population[0]
    assert serve == cached(manager)
    if valid == 159:
        assert (Status.RUNNING, valid, 0) == (request.status, request.tokens_computed, request.preemptions)
        assert 7 == len([block for block in table(manager, 0) if block != 0])
        return
    assert (Status.WAITING, 0, 1) == (request.status, request.tokens_computed, request.preemptions)
    assert {} == manager.tables
    perform(manager, Admit(0, BUDGET))
    assert (200, 13) == (request.tokens_computed, len([block for block in table(manager, 0) if block != 0]))


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_load_into_a_window_that_lacks_blocks_counts_nothing(succeeded: bool) -> None:
    """Goal: blocks that another node writes are held until it is done. Method: the same, but the request waits for the
    load, of which the tokens from 80 on do not come: nothing of it counts, and its blocks are freed when it is over.
    """
    manager = manager_of(WINDOW)
    perform(manager, arrive(0, 200), Admit(0, BUDGET, 160, loads=True))
    assert Done() == perform(manager, Rewind(0, 80))
    request = manager.population[0]
    assert (Status.LOADING, 0, 4) == (request.status, request.tokens_computed, len(manager.tables[0][0].live()))
    perform(manager, Transferred(0, succeeded))
    assert (Status.WAITING, {}, []) == (request.status, manager.tables, cached(manager))
    perform(manager, Admit(0, BUDGET))
    assert 200 == request.tokens_computed


def test_drafts_are_taken_back_with_it() -> None:
    """Goal: drafts after it are worth nothing. Method: a request that drafts is taken back to its hit."""
    manager = manager_of(FULL, drafts_max=2)
    perform(manager, arrive(0, 20), Admit(0, BUDGET), Sample(0, 0, 500, 2), Schedule(0, BUDGET), Rewind(0, 16))
    request = manager.population[0]
    assert (16, [], 0) == (request.tokens_computed, request.drafts, request.drafts_in_flight)


def test_a_state_is_not_taken_back() -> None:
    """Goal: nothing is computed again from a state that is gone. Method: such a model has no such operation."""
    manager = manager_of(Group("mamba", 16, states=StateMode.ALL))
    perform(manager, arrive(0, 40), Admit(0, BUDGET, 20))
    assert manager.population.resolve(Rewind(0, 16)) is None
