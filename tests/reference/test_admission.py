"""Admission: a bound on the blocks that a request holds at once, and whether they can be had."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.admission import blocks_at_peak, blocks_to_come, fits_empty_pool, passes_gate, tables_of_hit
from kvreference.answers import Hit, Partial
from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.pinned_tier import PinnedPool
from kvreference.settings import Settings

from .stage import SHORT, UNIT

FULL = Group("full", 4)
WINDOW = Group("sliding_window", 4, 9)
LOCAL = Group("chunked_local", 4, 8)
STATES = Group("mamba", 8, states="align", draft_states=2)
STATE = Group("mamba", 100, states="none", draft_states=2)


def settings_of(*groups: Group, **rest: Any) -> Settings:
    """Chunks of 8 tokens, requests of up to 100."""
    return Settings(Geometry(groups), **{"blocks": 20, "tokens_max": 100, "chunk_tokens": 8, **rest})


@pytest.mark.parametrize(
    ("group", "tokens", "computed", "expected"),
    [
        (FULL, 41, 0, 11),
        (FULL, 41, 40, 11),
        (FULL, 999, 0, 25),  # what the longest request takes
        (WINDOW, 12, 0, 3),
        (WINDOW, 41, 0, 5),  # ceil((9 - 1 + 8) / 4) + 1
        (WINDOW, 41, 32, 5),  # 11 entries, 24 tokens dead: 6 blocks
        (WINDOW, 41, 36, 4),
        (LOCAL, 41, 0, 4),  # ceil((8 + 8) / 4), attention chunks begin where blocks begin
        (LOCAL, 41, 33, 3),  # 11 entries, 8 dead
        (STATES, 41, 0, 4),  # running, where it came from, two for drafts
        (STATES, 3, 0, 3),
        (STATES, 41, 40, 4),  # 8 entries, 40 - 3 tokens dead: 4 blocks
        (STATE, 41, 0, 3),
    ],
)
def test_the_peak(group: Group, tokens: int, computed: int, expected: int) -> None:
    """Goal: a request counts what it holds at its peak: all its blocks, or what its kind holds at most while it is
    computed in chunks, whichever is less. Method: by hand, for every kind; block 4, states of 8
    tokens.
    """
    assert expected == blocks_at_peak(settings_of(group, caches=False), group, tokens, computed)


def test_what_is_still_to_come() -> None:
    """Goal: blocks that a request has count, in their own group only. Method: peaks of 11 and 5; it has 3 and 7."""
    settings = settings_of(FULL, WINDOW)
    assert 16 == blocks_to_come(settings, 41, 0, (0, 0))
    assert 8 == blocks_to_come(settings, 41, 0, (3, 7))


@pytest.mark.parametrize(("blocks", "expected"), [(17, True), (16, False)])
def test_what_fits_an_empty_pool(blocks: int, expected: bool) -> None:
    """Goal: a request that never fits is known at once. Method: 16 blocks for 41 tokens, and the null block."""
    assert expected == fits_empty_pool(settings_of(FULL, WINDOW, blocks=blocks), 41)


@pytest.mark.parametrize(("blocks", "expected"), [(9, True), (8, False)])
def test_an_empty_pool_has_room_for_a_copy(blocks: int, expected: bool) -> None:
    """Goal: a hit does not make a request too large. Method: 80 tokens are 2 and 5 blocks; the source of a copy, which
    no other request may hold, is one more.
    """
    settings = settings_of(UNIT, SHORT, blocks=blocks, chunk_tokens=64, tokens_max=1024)
    assert expected == fits_empty_pool(settings, 80)


@pytest.mark.parametrize(
    ("computed", "expected"),
    [
        (16, ((1, 2, 3, 4), (0, 0, 6, 7))),  # 8 tokens dead
        (20, ((1, 2, 3, 4), (0, 0, 0, 7))),  # 12, with 4 provided
        (40, ((1, 2, 3, 4), (0,) * 8)),
    ],
)
def test_the_blocks_of_a_hit(computed: int, expected: tuple[tuple[int, ...], ...]) -> None:
    """Goal: of a hit, what a later token reads. Method: a hit of 16, window 9; more is provided after it."""
    hit = Hit(16, ((1, 2, 3, 4), (0, 0, 6, 7)))
    assert expected == tables_of_hit(settings_of(FULL, WINDOW), hit, computed)


@pytest.mark.parametrize(
    ("usable", "held", "expected"), [(9, [], True), (8, [], False), (9, [1, 2], True), (8, [1, 2], False)]
)
def test_the_gate(usable: int, held: list[int], expected: bool) -> None:
    """Goal: the blocks still to come, and the free blocks of the hit, must fit into the free ones. Method: 36 tokens
    are nine blocks, two of them a hit. If those are free, all nine must be; if another holds them, it is seven of the
    others.
    """
    pool = BlockPool(usable + 1)
    pool.touch(held)
    assert expected == passes_gate(settings_of(FULL), pool, Hit(8, ((1, 2),)), 36, 8)


@pytest.mark.parametrize(("usable", "expected"), [(8, True), (7, False)])
def test_the_source_of_a_copy_counts(usable: int, expected: bool) -> None:
    """Goal: a source is held besides the block that it is copied into. Method: 80 tokens are 2 blocks of 64, and 5 of
    16 in a window of 32. A hit of 16 has one of the 5, and a source: 6 blocks to come, 2 to be held.
    """
    settings = settings_of(UNIT, SHORT, chunk_tokens=64, tokens_max=1024)
    hit = Hit(16, ((), (1,)), (Partial(0, 2, 16),))
    assert [2, 5] == [blocks_at_peak(settings, group, 80, 16) for group in (UNIT, SHORT)]
    assert expected == passes_gate(settings, BlockPool(usable + 1), hit, 80, 16)


def test_the_gate_demotes() -> None:
    """Goal: pinned blocks give way to a request that needs them, never its own hit. Method: 1 is the hit, pinned like 2
    and 3; 4 is free. 12 tokens are two blocks more: 2 is demoted. 16 tokens: 3 as well; 20 do not fit.
    """
    for tokens, passes, queue in [(12, True, (1, 3)), (16, True, (1,)), (20, False, (1, 2, 3))]:
        pool = PinnedPool(5, False, 1)
        for block in (1, 2, 3):
            pool.cached.register((0, Prefix(None, block, 4)), block)
        pool.touch([1, 2, 3])
        pool.end([1, 2, 3])
        assert passes == passes_gate(settings_of(FULL), pool, Hit(4, ((1,),)), tokens, 4)
        assert queue == pool.pinned_blocks().queue
