"""Pins through the manager: what is pinned when, what keeps a pin, and who makes pinned blocks give way."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvreference.answers import Granted, Hit, Refused, Success
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    Transferred,
)

from .stage import (
    BUDGET,
    FULL,
    SHORT,
    UNIT,
    arrive,
    cached,
    dispatched,
    enter,
    free,
    manager_of,
    pass_through,
    perform,
    pinned,
    seen,
    serve,
    table,
)


@pytest.mark.parametrize(
    ("drop_blocks_min", "chunk_tokens", "blocks"),
    [(2, 64, [2, 1]), (3, 64, []), (3, 128, [6, 5]), (6, 128, [6, 5]), (7, 128, [])],
)
def test_a_long_drop_pins_its_tail(drop_blocks_min: int, chunk_tokens: int, blocks: list[int]) -> None:
    """Goal: of what a window slides past at once, a hit after it would read the last two blocks. Method: window 32:
    after a chunk of 64, two blocks are dead; after one of 128, six. A drop that is too short pins none.
    """
    manager = manager_of(SHORT, chunk_tokens=chunk_tokens, pin_drop_blocks_min=drop_blocks_min)
    enter(manager, 0, 200)
    perform(manager, Schedule(0, BUDGET))
    assert (sorted(blocks), blocks) == pinned(manager)


def test_decoding_pins_nothing() -> None:
    """Goal: blocks dropped one by one are not an anchor. Method: 46 tokens and 40 sampled, one by one; drops of two
    blocks and more are pinned.
    """
    manager = manager_of(SHORT, pin_drop_blocks_min=2)
    enter(manager, 0, 46)
    for token in range(40):
        perform(manager, Sample(0, 0, 500 + token, 0), Schedule(0, 1))
    assert ([], []) == pinned(manager)
    assert [0, 0, 0] == table(manager, 0)[:3]


def test_what_is_released_when_asked_is_a_drop_too() -> None:
    """Goal: it does not matter which call lets the window slide. Method: 128 tokens; the skipped are released, six
    blocks.
    """
    manager = manager_of(SHORT, pin_drop_blocks_min=2)
    enter(manager, 0, 128)
    perform(manager, ReleaseSkipped(0))
    assert ([5, 6], [6, 5]) == pinned(manager)


def test_the_anchor_is_that_of_a_boundary() -> None:
    """Goal: pinned blocks serve a hit. Method: alignment 64: after 112 tokens, 81 are dead, five blocks. No hit ends
    after the last of them; one at 64 reads 2 and 3.
    """
    manager = manager_of(Group("full", 64), SHORT, pin_drop_blocks_min=2, retention_interval_tokens=64)
    enter(manager, 0, 112)
    assert [3, 4, 5, 6, 7, 8, 9] == table(manager, 0, group=1)
    perform(manager, ReleaseSkipped(0))
    assert ([5, 6], [6, 5]) == pinned(manager)


def test_an_anchor_with_a_draft_layer() -> None:
    """Goal: pins serve a hit where a draft layer looks ahead. Method: 128 tokens are dropped but for the last two
    blocks; a hit at 80 reads the two before it and the one after it. All else is evicted, and a second prompt hits 80.
    """
    manager = manager_of(FULL, evolve(SHORT, lookahead=True), pin_drop_blocks_min=2)
    enter(manager, 0, 128)
    window = table(manager, 0, group=1)
    perform(manager, ReleaseSkipped(0))
    anchor = window[3:6]
    assert (sorted(anchor), anchor[::-1]) == pinned(manager)
    perform(manager, *(Evict(block) for block in window if block not in anchor))
    perform(manager, Arrive(1, (Run(0, 128),)))
    hit = manager.apply(LookUp(1))
    assert isinstance(hit, Hit)
    assert 80 == hit.tokens


@pytest.mark.parametrize("end", [Finish(0), Abort(0), Preempt(0)])
def test_an_end_pins_all_that_is_cached(end: Operation) -> None:
    """Goal: the next turn of a conversation finds all of it. Method: 40 tokens are two full blocks and a half."""
    manager = manager_of(FULL, blocks=6, pin_drop_blocks_min=2)
    enter(manager, 0, 40)
    perform(manager, end)
    assert (([1, 2], [2, 1]), [4, 5, 3]) == (pinned(manager), free(manager))
    assert [1, 2] == cached(manager)


def test_without_prefix_caching_nothing_is_pinned() -> None:
    """Goal: blocks that are never cached are never pinned. Method: caching off; a request passes."""
    manager = manager_of(SHORT, caches=False, pin_drop_blocks_min=1)
    enter(manager, 0, 128)
    perform(manager, ReleaseSkipped(0), Finish(0))
    assert ([], []) == pinned(manager)


def test_blocks_that_were_sent_are_pinned_at_last() -> None:
    """Goal: an end is an end, also after a transfer. Method: finish, sending; the transfer ends. A load that failed
    left nothing cached.
    """
    manager = manager_of(FULL, blocks=6, pin_drop_blocks_min=1)
    enter(manager, 0, 40)
    perform(manager, Finish(0, sends=True))
    assert ([], []) == pinned(manager)
    perform(manager, Transferred(0))
    assert ([1, 2], [2, 1]) == pinned(manager)
    perform(manager, arrive(1, 32, first=5000), Admit(1, BUDGET, 32, loads=True), Transferred(1, succeeded=False))
    assert ([1, 2], [2, 1]) == pinned(manager)


def test_a_pin_outlives_hits() -> None:
    """Goal: blocks that were asked for again stay. Method: two pinned blocks are a hit, and released after the
    request's own third, pinned in turn.
    """
    manager = manager_of(FULL, pin_drop_blocks_min=2)
    pass_through(manager, 0, 32)
    assert Granted(32, ((3,),)) == enter(manager, 1, 48)
    assert ([1, 2], []) == pinned(manager)
    perform(manager, Finish(1))
    assert ([1, 2, 3], [3, 2, 1]) == pinned(manager)


def test_a_copy_from_a_pinned_block() -> None:
    """Goal: a source is held like a hit, and its pin stays as well. Method: 40 tokens, of which 32 are copied from the
    pinned block 1; it waits again after the others.
    """
    manager = manager_of(UNIT, SHORT, pin_drop_blocks_min=2)
    serve(manager, 0, 40)
    perform(manager, Finish(0))
    assert ([1, 2, 3], [1, 3, 2]) == pinned(manager)
    enter(manager, 1, 33)
    assert ([1, 2, 3], []) == pinned(manager)
    dispatched(manager)
    assert ([1, 2, 3], [1]) == pinned(manager)


def full_of_pins(gate: bool) -> Manager:
    """Seven usable blocks: 2, 1 and then 4, 3 are pinned, 5 and 6 are held by request 2, 7 is free."""
    manager = manager_of(FULL, blocks=8, pin_drop_blocks_min=2, full_sequence_must_fit=gate)
    pass_through(manager, 0, 32)
    pass_through(manager, 1, 32, first=1000)
    enter(manager, 2, 32, first=2000)
    assert (([1, 2, 3, 4], [2, 1, 4, 3]), [7]) == (pinned(manager), free(manager))
    return manager


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(
    ("tokens", "given", "queue"),
    [
        (16, (7,), [2, 1, 4, 3]),
        (32, (7, 2), [1, 4, 3]),
        (64, (7, 2, 1, 4), [3]),
        (80, (7, 2, 1, 4, 3), []),
    ],
)
def test_an_admission_demotes_what_is_missing(
    gate: bool, tokens: int, given: tuple[int, ...], queue: list[int]
) -> None:
    """Goal: pins refuse nothing: the oldest give way, as many as are missing, to the gate and to the allocation alike.

    Method: one block is free; other tokens want one to five.
    """
    manager = full_of_pins(gate)
    assert Granted(0, (given,)) == enter(manager, 3, tokens, first=5000)
    assert (sorted(queue), queue) == pinned(manager)


@pytest.mark.parametrize("gate", [True, False])
def test_nothing_is_demoted_if_it_cannot_help(gate: bool) -> None:
    """Goal: a refusal takes nothing. Method: of five blocks that can be had, six are asked for."""
    manager = full_of_pins(gate)
    perform(manager, arrive(3, 96, first=5000))
    before = seen(manager)
    assert Refused(0, gate=gate) == perform(manager, Admit(3, BUDGET))
    assert before == seen(manager)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(("more", "queue"), [(16, [4, 3]), (32, [3]), (48, []), (64, None)])
def test_a_hit_is_never_demoted_for_its_own_request(gate: bool, more: int, queue: list[int] | None) -> None:
    """Goal: a request does not lose what it came for. Method: 32 tokens are the hit 1, 2, pinned, and older than 4, 3.

    One to three blocks more than the free one are the others; a fourth there is not, though the hit was pinned.
    """
    manager = full_of_pins(gate)
    perform(manager, Arrive(3, (Run(0, 32), Run(5000, more))))
    assert Hit(32, ((1, 2),)) == perform(manager, LookUp(3))
    answer = perform(manager, Admit(3, BUDGET))
    if queue is None:
        assert Refused(32, gate=gate) == answer
        assert ([1, 2, 3, 4], [2, 1, 4, 3]) == pinned(manager)
    else:
        assert isinstance(answer, Granted)
        assert (sorted([1, 2, *queue]), queue) == pinned(manager)
        assert [1, 2] == table(manager, 3)[:2]


def test_decoding_demotes() -> None:
    """Goal: no request is stopped by pins. Method: request 2 has 32 tokens in two blocks; 7 and the oldest pin, 2, are
    its next.
    """
    manager = full_of_pins(gate=True)
    for step in range(17):
        answer = perform(manager, Sample(2, 0, 500 + step, 0), Schedule(2, 1))
        assert Granted(0, ({0: (7,), 16: (2,)}.get(step, ()),)) == answer
    assert ([1, 3, 4], [1, 4, 3]) == pinned(manager)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(("others", "queue"), [(1, [2, 1, 4]), (2, [1, 4]), (6, None)])
def test_a_request_that_has_loaded_demotes(gate: bool, others: int, queue: list[int] | None) -> None:
    """Goal: continuing a request after its load makes room as well. Method: 8 usable blocks; 2, 1 and 4 are pinned,
    four are free. Of 64 tokens 16 are loaded, and three blocks are still to come. Others take one of the four, or two,
    so that a pin is in the way; or six, so that one is left of what there was.
    """
    manager = manager_of(FULL, blocks=9, pin_drop_blocks_min=2, full_sequence_must_fit=gate)
    pass_through(manager, 0, 32)
    pass_through(manager, 1, 32, first=1000)
    perform(manager, Evict(3), arrive(2, 64, first=2000), Admit(2, BUDGET, 16, loads=True), Transferred(2))
    assert (([1, 2, 4], [2, 1, 4]), 4) == (pinned(manager), len(free(manager)))
    enter(manager, 3, 16 * others, first=3000)
    answer = perform(manager, Admit(2, BUDGET))
    if queue is None:
        assert (Refused(0, gate=gate), ([4], [4])) == (answer, pinned(manager))
    else:
        assert (True, (sorted(queue), queue)) == (isinstance(answer, Granted), pinned(manager))


def test_a_demoted_block_serves_until_it_is_taken() -> None:
    """Goal: demotion forgets nothing. Method: the gate counts 3 blocks of a request of 48 tokens, demotes 2 and 1, and
    the first chunk takes but one; 2 and 1 are free, at the back, and a hit.
    """
    manager = manager_of(FULL, blocks=8, pin_drop_blocks_min=2, chunk_tokens=32)
    pass_through(manager, 0, 32)
    pass_through(manager, 1, 32, first=1000)
    enter(manager, 2, 32, first=2000)
    perform(manager, arrive(3, 48, first=5000), Admit(3, 16))
    assert (([3, 4], [4, 3]), [2, 1]) == (pinned(manager), free(manager))
    assert Hit(32, ((1, 2),)) == perform(manager, arrive(4, 33), LookUp(4))


def test_an_eviction_unpins() -> None:
    """Goal: forgotten content keeps no block. Method: evict the pinned 2 while no request holds it, and 1 while it is
    held as a hit.
    """
    manager = manager_of(FULL, blocks=6, pin_drop_blocks_min=2)
    pass_through(manager, 0, 32)
    perform(manager, Evict(2))
    assert (([1], [1]), [3, 4, 5, 2]) == (pinned(manager), free(manager))
    enter(manager, 1, 17)
    perform(manager, Evict(1), Finish(1))
    assert (([], []), [4, 5, 2, 3, 1]) == (pinned(manager), free(manager))


def test_a_reset_unpins() -> None:
    """Goal: after a reset everything is free. Method: two pinned blocks; rejected while one is held, then done."""
    manager = manager_of(FULL, blocks=6, pin_drop_blocks_min=2)
    pass_through(manager, 0, 32)
    enter(manager, 1, 17)
    assert Success(succeeded=False) == perform(manager, Reset())
    assert ([1, 2], [2]) == pinned(manager)
    perform(manager, Finish(1))
    assert Success(succeeded=True) == perform(manager, Reset())
    assert (([], []), {1, 2, 3, 4, 5}) == (pinned(manager), set(free(manager)))
