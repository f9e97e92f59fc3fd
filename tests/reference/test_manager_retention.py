"""Retention: what is cached of a sliding window, when, which events report it, and what a replay finds.

Full blocks of 64, so that hits end at multiples of 64; a window of 32 in blocks of 16, two blocks before each of them.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvreference.answers import BlockTable, Granted, Happened, Hit
from kvreference.events import Removed, Stored
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import (
    Admit,
    Arrive,
    Evict,
    Finish,
    LookUp,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
)

from .stage import BUDGET, SHORT, UNIT, arrive, cached, enter, free, manager_of, pass_through, perform, table

LONG = Group("full", 64)


def windows_cached(manager: Manager, number: int) -> list[int]:
    """The positions in the window's table of a request whose blocks are cached."""
    known = cached(manager)
    return [position for position, block in enumerate(table(manager, number, group=1)) if block in known]


def hit_of(manager: Manager, number: int, *runs: Run) -> int:
    """The hit of a newcomer with a prompt of ``runs``, which then leaves."""
    answer = perform(manager, Arrive(number, runs), LookUp(number))
    assert isinstance(answer, Hit)
    return answer.tokens


@pytest.mark.parametrize(
    ("interval_tokens", "positions"),
    [
        (None, list(range(12))),
        (64, [2, 3, 6, 7, 10, 11]),
        (128, [6, 7, 10, 11]),
        (192, [10, 11]),
        (0, [10, 11]),
    ],
)
def test_what_is_cached_of_a_prompt(interval_tokens: int | None, positions: list[int]) -> None:
    """Goal: only the tails of admitted boundaries are cached, with any interval the latest that a replay hits.

    Method: 200 tokens. Boundaries are 64, 128, 192, and 192 is the replay's. Full attention is always cached.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=interval_tokens)
    enter(manager, 0, 200)
    assert positions == windows_cached(manager, 0)
    assert [1, 2, 3] == [block for block in cached(manager) if block in table(manager, 0)]
    assert 192 == hit_of(manager, 1, Run(0, 200))


@pytest.mark.parametrize(("tokens_min", "hit"), [(0, 80), (96, 0)])
def test_a_replay_boundary_that_is_not_worth_a_copy(tokens_min: int, hit: int) -> None:
    """Goal: KV-OP-16 excludes a replay boundary inside a block that is below the minimum. Method: a replay of 90 tokens
    could hit 80, inside a block of 64. It may not, and of the window the tail before 64 was not kept.
    """
    manager = manager_of(UNIT, SHORT, retention_interval_tokens=0, partial_hit_tokens_min=tokens_min)
    enter(manager, 0, 90)
    assert hit == hit_of(manager, 1, Run(0, 90))


@pytest.mark.parametrize(("external_tokens", "hit"), [(0, 64), (99, 0)])
def test_a_prompt_that_another_node_provides_is_not_computed(external_tokens: int, hit: int) -> None:
    """Goal: KV-OP-16 is about computed prompts. Method: no token after 99 reads what a hit at 64 reads of a window."""
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0)
    perform(manager, Arrive(0, (Run(0, 100),)), Admit(0, BUDGET, external_tokens))
    assert hit == hit_of(manager, 1, Run(0, 100))


SYSTEM = Run(0, 150)
"""A beginning that many prompts share: 128 of its 150 tokens are whole blocks of full attention."""


def asks(manager: Manager, number: int, *runs: Run) -> int:
    """Serve a request with a prompt of ``runs``, and let it end: its hit."""
    answer = perform(manager, Arrive(number, runs), Admit(number, BUDGET))
    assert isinstance(answer, Granted)
    perform(manager, Finish(number))
    return answer.hit_tokens


@pytest.mark.parametrize(
    ("keeps_junctions", "lookahead", "hits"),
    [(False, False, [0, 0, 0, 0]), (True, False, [0, 0, 128, 128]), (True, True, [0, 0, 64, 64])],
)
def test_a_shared_beginning(keeps_junctions: bool, lookahead: bool, hits: list[int]) -> None:
    """Goal: a shared beginning is hit from the third prompt on, with an interval of 0 too (KV-OP-27).

    Method: 150 tokens that all share, and 60 of each one's own. The second finds 128 of them in full attention and no
    window before 128. With a draft layer, the block after 64 is the last that all share.
    """
    groups = (evolve(LONG, lookahead=lookahead), evolve(SHORT, lookahead=lookahead))
    manager = manager_of(*groups, retention_interval_tokens=0, keeps_junctions=keeps_junctions)
    assert hits == [asks(manager, number, SYSTEM, Run(1000 * (number + 1), 60)) for number in range(4)]


def test_a_junction_is_kept_as_a_tail_alone() -> None:
    """Goal: no more than a hit at the junction reads is kept for it. Method: the second of two prompts that share 150.

    The junction is 128, the replay boundary of 210 tokens is 192: two blocks of the window before each.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0, keeps_junctions=True)
    asks(manager, 0, SYSTEM, Run(1000, 60))
    perform(manager, Arrive(1, (SYSTEM, Run(2000, 60))), Admit(1, BUDGET))
    assert [6, 7, 10, 11] == windows_cached(manager, 1)


def test_a_junction_belongs_to_the_last_look_up() -> None:
    """Goal: a request that is looked up again parts where it parts by then. Method: the first look-up of a prompt finds
    128 tokens in full attention; then the cache is reset, and the request is admitted.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0, keeps_junctions=True)
    asks(manager, 0, SYSTEM, Run(1000, 60))
    perform(manager, Arrive(1, (SYSTEM, Run(2000, 60))), LookUp(1))
    assert 128 == manager.population[1].junction_tokens
    perform(manager, Reset(), Admit(1, BUDGET))
    assert [10, 11] == windows_cached(manager, 1)


def test_a_preempted_request_keeps_where_it_was() -> None:
    """Goal: a request that is preempted twice recomputes its answer once. Method: 200 tokens and 70 of an answer.

    Full attention has 256 of them at the first return, and the replay boundary of the prompt is 192: so 256 is the
    junction, and the second return hits it.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0, keeps_junctions=True)
    enter(manager, 0, 200)
    for token in range(70):
        perform(manager, Sample(0, accepted=0, token=5000 + token, drafts=0), Schedule(0, BUDGET))
    hits = []
    for _ in range(2):
        perform(manager, Preempt(0))
        answer = perform(manager, Admit(0, BUDGET))
        assert isinstance(answer, Granted)
        hits.append(answer.hit_tokens)
    assert [192, 256] == hits


@pytest.mark.parametrize(("reads_cache", "interval_tokens"), [(False, 0), (True, None)])
def test_requests_without_a_junction(reads_cache: bool, interval_tokens: int | None) -> None:
    """Goal: a request that may not read the cache parts from nothing, and dense caching leaves nothing out.

    Method: a prompt that shares 150 tokens with one before it.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=interval_tokens, keeps_junctions=True)
    asks(manager, 0, SYSTEM, Run(1000, 60))
    perform(manager, Arrive(1, (SYSTEM, Run(2000, 60)), reads_cache=reads_cache), Admit(1, BUDGET))
    assert 0 == manager.population[1].junction_tokens


def test_without_full_attention_nothing_is_known() -> None:
    """Goal: if every group is a window, nothing shows that prompts share a beginning, and no junction is kept.

    Method: four prompts that share 150 tokens, over a window alone. None hits anything.
    """
    manager = manager_of(SHORT, retention_interval_tokens=0, keeps_junctions=True)
    assert [0, 0, 0, 0] == [asks(manager, number, SYSTEM, Run(1000 * (number + 1), 60)) for number in range(4)]


@pytest.mark.parametrize(("prompt", "replay"), [(192, 128), (193, 192), (64, 0), (65, 64)])
def test_the_replay_leaves_a_token(prompt: int, replay: int) -> None:
    """Goal: the replay's boundary lies before the prompt's last token. Method: prompts that end at one, and one later.

    Nothing else is admitted; a replay hits just there.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0)
    pass_through(manager, 0, prompt)
    assert replay == hit_of(manager, 1, Run(0, prompt))
    expected = [replay // 16 - 2, replay // 16 - 1] if replay else []
    perform(manager, arrive(2, prompt, reads_cache=False), Admit(2, BUDGET))
    assert expected == windows_cached(manager, 2)


def test_a_tail_is_cached_when_its_boundary_is_reached() -> None:
    """Goal: not before a hit could read it, and not later. Method: masked; 63 tokens, then one by one."""
    manager = manager_of(LONG, SHORT, retention_interval_tokens=64)
    perform(manager, arrive(0, 200), Admit(0, 63))
    assert [] == cached(manager)
    perform(manager, Schedule(0, 1))
    assert ([1, 4, 5], [2, 3]) == (cached(manager), windows_cached(manager, 0))
    perform(manager, Schedule(0, 63))
    assert [1, 4, 5] == cached(manager)


@pytest.mark.parametrize(("interval_tokens", "expected"), [(64, [1, 2, 5, 6, 9, 10]), (0, [1, 2, 5, 6])])
def test_answers_reach_boundaries_too(interval_tokens: int, expected: list[int]) -> None:
    """Goal: the interval continues after the prompt, the replay does not. Method: 120 tokens and 9 sampled. The
    window's blocks are 3..10: 5 and 6 are the tail of 64, the replay's boundary; 9 and 10 that of 128.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=interval_tokens)
    enter(manager, 0, 120)
    for token in range(9):
        perform(manager, Sample(0, 0, 500 + token, 0), Schedule(0, 1))
    assert expected == cached(manager)


def test_the_replay_is_that_of_the_prompt() -> None:
    """Goal: sampled tokens do not move the replay's boundary, not even when the request is computed again.

    Method: 65 tokens and 70 sampled, preempted and admitted anew: 64 is cached, 128 is not.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=0)
    enter(manager, 0, 65, reads_cache=False)
    for token in range(70):
        perform(manager, Sample(0, 0, 500 + token, 0), Schedule(0, 1))
    perform(manager, Preempt(0), Admit(0, BUDGET))
    assert 135 == manager.population[0].tokens_computed
    assert [2, 3] == windows_cached(manager, 0)


def test_the_tail_that_a_look_ahead_needs() -> None:
    """Goal: the written blocks are those that are read: with a draft layer one block more. Method: 200 tokens; the
    tails of 64 and 128 are the blocks 2, 3, 4 and 6, 7, 8. Of 192 two blocks are full, and 12, after it, is not. So a
    replay hits 128.
    """
    drafting = Group("sliding_window", 16, 32, lookahead=True)
    manager = manager_of(LONG, drafting, retention_interval_tokens=64)
    enter(manager, 0, 200)
    assert [2, 3, 4, 6, 7, 8, 10, 11] == windows_cached(manager, 0)
    assert 128 == hit_of(manager, 1, Run(0, 200))


def test_the_block_after_a_boundary_waits_for_itself() -> None:
    """Goal: a tail is cached when its boundary is reached, the look-ahead after it when it is full. Method: 79 tokens,
    and one more. Of the window's blocks 3..7, 5 and 6 are the tail of 64, and 7 is full with token 79.
    """
    manager = manager_of(LONG, Group("sliding_window", 16, 32, lookahead=True), retention_interval_tokens=64)
    perform(manager, arrive(0, 200), Admit(0, 79))
    assert [1, 5, 6] == cached(manager)
    perform(manager, Schedule(0, 1))
    assert [1, 5, 6, 7] == cached(manager)


@pytest.mark.parametrize(("interval_tokens", "hit"), [(None, 64), (64, 64), (128, 0), (0, 0)])
def test_what_a_branch_finds(interval_tokens: int | None, hit: int) -> None:
    """Goal: a request that shares less than the whole prompt finds the admitted boundaries. Method: 200 tokens are
    computed, and a prompt agrees in 100: 64 could be read, if it was kept.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=interval_tokens)
    pass_through(manager, 0, 200)
    assert hit == hit_of(manager, 1, Run(0, 100), Run(5000, 100))


@pytest.mark.parametrize(("interval_tokens", "hit"), [(None, 8), (4, 4)])
def test_accepted_drafts_may_outrun_a_tail(interval_tokens: int | None, hit: int) -> None:
    """Goal: a block that is freed before its boundary is reached is never cached. Method: a window of 5 in blocks of 2,
    alignment 4. 6 tokens, one sampled; of four drafts three are accepted: 10 are computed, 6 of them dead.

    The tail of 8 is the blocks 2 and 3. Dense caching had block 2 once it was full; with retention it waited for 8, and
    the window has passed it when 8 is reached.
    """
    manager = manager_of(
        *(Group("full", 4), Group("sliding_window", 2, 5)), drafts_max=4, retention_interval_tokens=interval_tokens
    )
    enter(manager, 0, 6)
    perform(manager, Sample(0, 0, 500, 4), Schedule(0, BUDGET), Sample(0, 3, 600, 0), Schedule(0, BUDGET))
    assert [0, 0, 0] == table(manager, 0, group=1)[:3]
    assert hit == hit_of(manager, 1, Run(0, 6), Run(500, 4), Run(600, 3))


def test_each_run_of_adjacent_blocks_is_reported() -> None:
    """Goal: an event names exactly its blocks' tokens and the content before them. Method: 130 tokens, masked: two full
    blocks; of the window the blocks 2 and 3, then 6 and 7, each after one that is not cached.
    """
    manager = manager_of(LONG, SHORT, retention_interval_tokens=64)
    enter(manager, 0, 130)
    full = tuple(manager.content(0, 0, position) for position in range(2))
    window = [manager.content(0, 1, position) for position in range(8)]
    events = (
        Stored(0, full, None, tuple(range(128)), 64, None, ((), ())),
        Stored(1, (window[2], window[3]), window[1], tuple(range(32, 64)), 16, None, ((), ())),
        Stored(1, (window[6], window[7]), window[5], tuple(range(96, 128)), 16, None, ((), ())),
    )
    assert Happened(events) == perform(manager, TakeEvents())
    perform(manager, Evict(3))
    assert Happened(()) == perform(manager, TakeEvents())
    perform(manager, Evict(6))
    assert Happened((Removed(window[2]),)) == perform(manager, TakeEvents())


@pytest.mark.parametrize(
    ("scratch_first", "second", "third", "queue"),
    [
        (False, ((6,), (7, 8, 9, 10)), ((11,), (3, 2, 8, 7)), [5, 4]),
        (True, ((3,), (2, 6, 7, 8)), ((6,), (2, 9, 10, 11)), [5, 4]),
    ],
)
def test_the_order_in_which_a_window_lets_go(
    scratch_first: bool, second: BlockTable, third: BlockTable, queue: list[int]
) -> None:
    """Goal: with scratch first, what no hit could read is used again at once, and what is cached stays.

    Method: 11 usable blocks, chunks of 64. Block 1 is full attention's, 2..5 the window's, 4 and 5 cached. At 64, 33
    tokens are dead: 2 and 3. At 128, 97: of the next six, 5 and 4 are cached, and the two after them are not.
    """
    manager = manager_of(
        *(LONG, SHORT), blocks=12, chunk_tokens=64, retention_interval_tokens=64, scratch_first=scratch_first
    )
    assert Granted(0, ((1,), (2, 3, 4, 5))) == enter(manager, 0, 200)
    assert Granted(0, second) == perform(manager, Schedule(0, BUDGET))
    assert Granted(0, third) == perform(manager, Schedule(0, BUDGET))
    assert queue == free(manager)


@pytest.mark.parametrize(
    ("scratch_first", "expected"),
    [(False, [9, 10, 11, 2, 1, 8, 7, 6, 5, 4, 3]), (True, [8, 7, 4, 3, 2, 9, 10, 11, 1, 6, 5])],
)
def test_the_order_of_an_end(scratch_first: bool, expected: list[int]) -> None:
    """Goal: each group releases from its tail; scratch of either goes to the front, the rest to the back.

    Method: 90 tokens: full attention has 1, cached, and 2; the window 3..8, of which 5 and 6 are cached.
    """
    manager = manager_of(LONG, SHORT, blocks=12, retention_interval_tokens=64, scratch_first=scratch_first)
    pass_through(manager, 0, 90)
    assert expected == free(manager)


@pytest.mark.parametrize(
    ("scratch_first", "before", "after"),
    [
        (False, [6, 7, 1, 5, 4, 3, 2], [6, 7, 1, 5, 4, 3, 2]),
        (True, [5, 1, 6, 7, 4, 3, 2], [3, 5, 1, 6, 7, 4, 2]),
    ],
)
def test_the_order_of_an_eviction(scratch_first: bool, before: list[int], after: list[int]) -> None:
    """Goal: a block evicted by its id turns scratch, and waits where scratch does. Method: 50 tokens, dense: 1 and 5
    are not full; 3 is evicted once the request has ended.
    """
    manager = manager_of(LONG, SHORT, blocks=8, scratch_first=scratch_first)
    pass_through(manager, 0, 50)
    assert before == free(manager)
    perform(manager, Evict(3))
    assert after == free(manager)


def test_a_window_released_between_steps() -> None:
    """Goal: the order does not depend on the caller. Method: 128 tokens, masked, scratch first; the skipped are
    released: 97 tokens are dead, six blocks, of which two are cached.
    """
    manager = manager_of(LONG, SHORT, blocks=12, retention_interval_tokens=64, scratch_first=True)
    enter(manager, 0, 128)
    assert [3, 4, 5, 6, 7, 8, 9, 10] == table(manager, 0, group=1)
    perform(manager, ReleaseSkipped(0))
    assert [8, 7, 4, 3, 11, 6, 5] == free(manager)
    perform(manager, Finish(0))
    assert [8, 7, 4, 3, 11, 6, 5, 2, 1, 10, 9] == free(manager)
