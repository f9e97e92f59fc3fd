"""Hits that end inside a compressed block: boundaries, copies, and the step they wait for.

Blocks of 64 tokens in which a hit may end at every 16, next to a window of two blocks of 16.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvreference.answers import Copies, Copy, Granted, Hit, Partial, Refused, Shared
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    Transferred,
)

from .stage import (
    BUDGET,
    FULL,
    SHORT,
    UNIT,
    WINDOW,
    arrive,
    dispatched,
    enter,
    free,
    manager_of,
    perform,
    references,
    seen,
    serve,
    table,
)

DRAFTING = evolve(UNIT, lookahead=True)


def hit_of(manager: Manager, number: int, tokens: int) -> Hit:
    """The hit of a newcomer with the first ``tokens`` tokens."""
    answer = perform(manager, arrive(number, tokens), LookUp(number))
    assert isinstance(answer, Hit)
    return answer


def test_boundaries_are_offered_once() -> None:
    """Goal: work does not grow with the context. Method: 40 tokens reach the boundaries 16 and 32; of twelve decode
    steps the eighth, which computes token 47, reaches 48. No other offers anything.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    offers = [manager.pool.partial.offers]
    for _ in range(12):
        perform(manager, Sample(0, 0, 500, 0), Schedule(0, 1), Dispatch())
        offers.append(manager.pool.partial.offers)
    assert [2] * 8 + [3] * 5 == offers


def test_a_hit_inside_a_block_is_a_copy() -> None:
    """Goal: the computed part of a block serves, though the block is not full, and its holder keeps it to itself.

    Method: 40 tokens are in block 1, and 2, 3, 4 of the window. 33 tokens agree with them: 32 are a hit; token 32 reads
    1..32, the blocks 2 and 3. Of block 1 the first 32 tokens go to 5.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    perform(manager, arrive(1, 33))
    assert Hit(32, ((), (2, 3)), (Partial(0, 1, 32),)) == perform(manager, LookUp(1))
    assert Granted(32, ((5,), (6,))) == perform(manager, Admit(1, BUDGET))
    assert ([5], [2, 3, 6]) == (table(manager, 1), table(manager, 1, group=1))
    assert [2, 1, 2, 2] == references(manager, 1, 5, 2, 3)
    assert (Copy(0, 1, 5, 32),) == dispatched(manager)
    assert [1, 1, 2, 2] == references(manager, 1, 5, 2, 3)
    assert () == dispatched(manager)


def test_a_copy_changes_no_order() -> None:
    """Goal: blocks are taken group by group, whichever of them is copied into. Method: of 60 tokens 32 are a hit, two
    blocks of the first group and a part of 4 in the second: two new ones for the first come before one for the second.
    """
    manager = manager_of(FULL, UNIT)
    serve(manager, 0, 40)
    assert [[1, 2, 3], [4]] == [table(manager, 0, group) for group in (0, 1)]
    assert Granted(32, ((5, 6), (7,))) == enter(manager, 1, 60)
    assert (Copy(1, 4, 7, 32),) == dispatched(manager)


@pytest.mark.parametrize(("tokens_min", "hit_tokens"), [(0, 32), (32, 32), (33, 0)])
def test_a_hit_that_is_not_worth_a_copy(tokens_min: int, hit_tokens: int) -> None:
    """Goal: the setting decides how short a hit inside a block may be. Method: 32 tokens of a block could be copied."""
    manager = manager_of(UNIT, SHORT, partial_hit_tokens_min=tokens_min)
    serve(manager, 0, 40)
    assert hit_tokens == hit_of(manager, 1, 33).tokens


def test_full_blocks_are_shared_and_the_rest_is_copied() -> None:
    """Goal: only the last block of a hit is copied. Method: 100 of 101 tokens agree, 96 are a hit: block 1, and 32
    tokens of block 2.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 100)
    assert [1, 2] == table(manager, 0)
    enter(manager, 1, 101)
    assert [1, 10] == table(manager, 1)
    assert (Copy(0, 2, 10, 32),) == dispatched(manager)


def test_a_source_without_a_holder_is_held_until_the_dispatch() -> None:
    """Goal: a source is not recycled before it was copied; then it is the youngest of the free.

    Method: 7 usable blocks; 1..4 are released, the hit holds 2 and 3, the copy 1; 5 and 6 are new.
    """
    manager = manager_of(UNIT, SHORT, blocks=8)
    serve(manager, 0, 40)
    perform(manager, Finish(0))
    assert [5, 6, 7, 1, 4, 3, 2] == free(manager)
    assert Granted(32, ((5,), (6,))) == enter(manager, 1, 33)
    assert ([7, 4], [1]) == (free(manager), references(manager, 1))
    dispatched(manager)
    assert ([7, 4, 1], [0]) == (free(manager), references(manager, 1))


def test_a_source_outlives_its_holder() -> None:
    """Goal: the same if its holder ends in between. Method: 0, of an earlier step, finishes before the dispatch."""
    manager = manager_of(UNIT, SHORT, blocks=8)
    serve(manager, 0, 40)
    enter(manager, 1, 33)
    perform(manager, Finish(0))
    assert ([7, 4], [1]) == (free(manager), references(manager, 1))
    assert (Copy(0, 1, 5, 32),) == dispatched(manager)
    assert [7, 4, 1] == free(manager)


def test_one_source_for_two() -> None:
    """Goal: every copy holds its source, and copies are reported in the order of admission. Method: 33 and
    20 tokens.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    perform(manager, Finish(0))
    enter(manager, 1, 33)
    enter(manager, 2, 20)
    assert [2] == references(manager, 1)
    first, second = table(manager, 1)[0], table(manager, 2)[0]
    assert (Copy(0, 1, first, 32), Copy(0, 1, second, 16)) == dispatched(manager)
    assert [0] == references(manager, 1)


@pytest.mark.parametrize(("usable", "answer"), [(5, Granted(32, ((5,), (4,)))), (4, Refused(32, gate=True))])
def test_a_source_takes_room(usable: int, answer: object) -> None:
    """Goal: a block held for a copy cannot be allocated. Method: the hit's two blocks and the source are free, and two
    new ones are needed: five in all.
    """
    manager = manager_of(UNIT, SHORT, blocks=usable + 1)
    serve(manager, 0, 40)
    perform(manager, Finish(0))
    assert answer == enter(manager, 1, 33)


def test_an_eviction_takes_the_entries_along() -> None:
    """Goal: a block that was evicted by its id serves no copy. Method: evict block 1; 40 tokens agree with nothing."""
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    perform(manager, Evict(1))
    assert Hit(0, ((), ())) == hit_of(manager, 1, 40)


def test_an_allocated_block_has_no_entries() -> None:
    """Goal: overwritten content serves no request. Method: five usable blocks; other tokens take 5, 1 and 4 after the
    end.

    The window's first two blocks are still cached, and are of no use.
    """
    manager = manager_of(UNIT, SHORT, blocks=6)
    serve(manager, 0, 40)
    perform(manager, Finish(0))
    assert Granted(0, ((5,), (1, 4))) == serve(manager, 1, 17, first=5000)
    assert Hit(0, ((), ())) == hit_of(manager, 2, 40)
    perform(manager, Finish(1), Reset())
    assert frozenset() == manager.pool.partial.blocks()


def test_what_was_copied_is_not_an_entry_again() -> None:
    """Goal: each boundary is an entry once per request; copied tokens were not computed. Method: 60 tokens, of which 32
    are copied into 5: 48 is an entry of 5, and 32 still one of block 1 alone.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    serve(manager, 1, 60)
    assert [5] == table(manager, 1)
    assert [32, 48] == [hit_of(manager, number, tokens).tokens for number, tokens in ((2, 40), (3, 50))]
    perform(manager, Evict(1))
    hits: list[Any] = [perform(manager, LookUp(number)) for number in (2, 3)]
    assert [0, 48] == [hit.tokens for hit in hits]


@pytest.mark.parametrize("gate", [True, False])
def test_a_copy_waits_for_the_step_that_computes_its_source(gate: bool) -> None:
    """Goal: the worker copies before it computes, so nothing is copied that this step computes. Method: a request with
    the same 32 tokens is rejected in the same step, with and without the gate, and takes nothing; it is admitted in the
    next.
    """
    manager = manager_of(UNIT, SHORT, full_sequence_must_fit=gate)
    enter(manager, 0, 40)
    assert 32 == hit_of(manager, 1, 33).tokens
    before = seen(manager)
    assert Refused(32, gate=gate) == perform(manager, Admit(1, BUDGET))
    assert before == seen(manager)
    perform(manager, Dispatch())
    assert Granted(32, ((5,), (6,))) == perform(manager, Admit(1, BUDGET))


def test_full_blocks_are_shared_in_the_same_step() -> None:
    """Goal: a shared block needs no copy: it is written before it is read. Method: 70 tokens, then 65 and 70 with the
    same 64: a hit of 64 each. Token 64 reads 33..64: of the window, blocks 2 and 3.
    """
    manager = manager_of(UNIT, SHORT)
    enter(manager, 0, 70)
    assert Granted(64, ((8,), (9,))) == enter(manager, 1, 65)
    assert ([1, 8], [0, 0, 5, 6, 9]) == (table(manager, 1), table(manager, 1, group=1))
    assert Granted(64, ((10,), (11,))) == enter(manager, 2, 70)
    assert () == dispatched(manager)


def test_an_older_step_does_not_matter() -> None:
    """Goal: the fence is the step's own. Method: 20 tokens of the last step serve a copy; of this step's 40 those after
    them do not.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 20)
    enter(manager, 1, 40)
    assert Refused(32, gate=True) == enter(manager, 2, 40)
    perform(manager, Abort(2))
    assert isinstance(enter(manager, 3, 20), Granted)
    dispatched(manager)


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [
        (32, Hit(0, ((),))),
        (33, Hit(16, ((),), (Partial(0, 1, 16),))),
        (64, Hit(32, ((),), (Partial(0, 1, 32),))),
        (65, Hit(48, ((),), (Partial(0, 1, 48),))),
        (81, Hit(64, ((1,),))),
    ],
)
def test_a_look_ahead_in_a_unit_group(tokens: int, hit: Hit) -> None:
    """Goal: a unit more must match than is served; the source may be a full block. Method: 80 tokens; 16 are served
    once 32 match. If all 64 of block 1 match 48 are served, and copied, though the block is full.
    """
    manager = manager_of(DRAFTING)
    serve(manager, 0, 80)
    assert hit == hit_of(manager, 1, tokens)
    perform(manager, Admit(1, BUDGET))
    copies = [Copy(0, 1, table(manager, 1)[0], partial.tokens) for partial in hit.partials]
    assert copies == list(dispatched(manager))


@pytest.mark.parametrize(
    "operation",
    [Sample(0, 0, 7, 0), Schedule(0, 16), Preempt(0), Finish(0), Finish(0, sends=True), Abort(0), ReleaseSkipped(0)],
)
def test_a_step_on_its_way_is_left_alone(operation: Operation) -> None:
    """Goal: the target blocks of a copy are not freed before it was made. Method: 0 is to be answered, or has more to
    compute; nothing of it before the dispatch.
    """
    manager = manager_of(UNIT, SHORT, chunk_tokens=32)
    enter(manager, 0, 40 if isinstance(operation, Schedule) else 30)
    assert manager.population.resolve(operation) is None
    perform(manager, Dispatch())
    assert operation == manager.population.resolve(operation)


def test_a_load_after_a_copy() -> None:
    """Goal: tokens that another node writes go into the block that the copy begins. Method: 16 tokens of block 1 are
    copied into 4, and 20 more are loaded, up to 36 of 40. The load cannot be over, nor aborted, before the dispatch.
    When it is, no step computes it, so it serves a copy at once.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 17)
    perform(manager, arrive(1, 40))
    assert Granted(16, ((4,), (5, 6)), 20, loads=True) == perform(manager, Admit(1, BUDGET, 20, loads=True))
    assert manager.population.resolve(Transferred(1)) is None
    assert Abort(0) == manager.population.resolve(Abort(1))
    assert (Copy(0, 1, 4, 16),) == dispatched(manager)
    perform(manager, Transferred(1), arrive(2, 40))
    assert Hit(32, ((), (2, 5)), (Partial(0, 4, 32),)) == perform(manager, LookUp(2))
    assert isinstance(perform(manager, Admit(2, BUDGET)), Granted)


def test_nothing_of_this_without_units() -> None:
    """Goal: without copied blocks, a model has no steps, no entries and no waiting. Method: the plain geometry; a
    request is admitted in the same step as the one that computes its hit.
    """
    manager = manager_of(FULL, WINDOW)
    enter(manager, 0, 40)
    assert manager.population.resolve(Dispatch()) is None
    assert Granted(32, ((7,), (8,))) == enter(manager, 1, 33)
    perform(manager, Sample(0, 0, 500, 0), Preempt(0), Finish(1))
    assert (0, frozenset(), []) == (manager.pool.partial.offers, manager.pool.partial.blocks(), manager.copies)
    assert Copies(()) == manager.apply(Dispatch())


def test_a_copied_block_is_not_shared() -> None:
    """Goal: the common prefix is what everyone holds; a request that copies a block does not. Method: 1 copies from
    block 1, the only block of 0. The one who copies has it no more before the dispatch than after.
    """
    manager = manager_of(UNIT, SHORT)
    serve(manager, 0, 40)
    enter(manager, 1, 33)
    assert Shared((0, 0)) == perform(manager, CommonPrefix(0))
    dispatched(manager)
    assert Shared((0, 0)) == perform(manager, CommonPrefix(0))
