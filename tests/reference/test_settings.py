"""The settings of a system: what is rejected, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

FULL = Group("full", 16)
WINDOW = Group("sliding_window", 24, 64)
GEOMETRY = Geometry((FULL,))
SLIDING = Geometry((FULL, WINDOW))


@pytest.mark.parametrize(
    ("name", "least"),
    [("tokens_max", 2), ("chunk_tokens", 1), ("requests_max", 1), ("drafts_max", 0)],
)
def test_limits(name: str, least: int) -> None:
    """Goal: a system that can do nothing is never built. Method: the least that is something, and one below it."""
    given: dict[str, Any] = {"blocks": 8, name: least}
    assert least == getattr(Settings(GEOMETRY, **given), name)
    with pytest.raises(ValueError, match=f"'{name}' must be >= {least}"):
        Settings(GEOMETRY, **{**given, name: least - 1})
    with pytest.raises(TypeError, match=name):
        Settings(GEOMETRY, **{**given, name: str(least)})


def test_a_pool_has_a_block() -> None:
    """Goal: besides the null block, unless nothing is kept. Method: the least, and one below it."""
    assert 2 == Settings(GEOMETRY, 2).blocks
    with pytest.raises(ValueError, match="a pool of 1 blocks has none besides the null block"):
        Settings(GEOMETRY, 1)
    assert 1 == Settings(Geometry(()), 1).blocks
    with pytest.raises(ValueError, match="'blocks' must be >= 1"):
        Settings(Geometry(()), 0)


@pytest.mark.parametrize(
    ("drafting", "drafts_max", "lookahead_tokens"),
    [((False, False), 3, 0), ((False, True), 3, 3), ((True, True), 3, 3), ((True, True), 0, 0)],
)
def test_lookahead_slots_are_for_draft_layers(
    drafting: tuple[bool, bool], drafts_max: int, lookahead_tokens: int
) -> None:
    """Goal: a running request gets slots for its drafts if any group holds a draft layer.

    Method: none, one and both of two groups; drafts that come from elsewhere need no slots of their own.
    """
    groups = tuple(Group("full", 16, lookahead=lookahead) for lookahead in drafting)
    assert lookahead_tokens == Settings(Geometry(groups), 8, drafts_max=drafts_max).lookahead_tokens


def test_defaults() -> None:
    """Goal: by default caching, events and the admission gate are on, all else off. Method: give no values."""
    settings = Settings(GEOMETRY, 8)
    assert (True, True, True) == (settings.caches, settings.tells_events, settings.full_sequence_must_fit)
    assert (0, False) == (settings.drafts_max, settings.scratch_first)
    assert (None, None) == (settings.retention_interval_tokens, settings.pin_drop_blocks_min)


@pytest.mark.parametrize("interval_tokens", [None, 0, 48, 96, 48 * 1000])
def test_a_retention_interval(interval_tokens: int | None) -> None:
    """Goal: none, zero and multiples of the alignment are intervals. Method: blocks of 16 and 24 align to 48."""
    settings = Settings(SLIDING, 8, retention_interval_tokens=interval_tokens)
    assert interval_tokens == settings.retention_interval_tokens


@pytest.mark.parametrize("interval_tokens", [1, 16, 24, 47, 72])
def test_a_retention_interval_between_alignments(interval_tokens: int) -> None:
    """Goal: windows kept where no hit can end are rejected. Method: no multiples of 48, though some of 16 or 24."""
    with pytest.raises(ValueError, match=f"{interval_tokens} tokens is not a multiple of the scheduler block size, 48"):
        Settings(SLIDING, 8, retention_interval_tokens=interval_tokens)


@pytest.mark.parametrize(("interval_tokens", "error"), [(-48, ValueError), (48.0, TypeError), ("auto", TypeError)])
def test_what_is_not_a_retention_interval(interval_tokens: Any, error: type[Exception]) -> None:
    """Goal: a number of tokens or nothing. Method: negative, not whole, a word that was not read yet."""
    with pytest.raises(error, match="retention_interval_tokens"):
        Settings(SLIDING, 8, retention_interval_tokens=interval_tokens)


@pytest.mark.parametrize(
    "group",
    [FULL, Group("chunked_local", 16, 64), Group("full", 16, compress_ratio=4)],
)
@pytest.mark.parametrize("interval_tokens", [0, 16])
def test_retention_is_for_sliding_windows_and_states(group: Group, interval_tokens: int) -> None:
    """Goal: an interval that would be silently ignored is rejected. Method: models without either, and with."""
    with pytest.raises(ValueError, match="needs a sliding-window or a mamba group, and the model has neither"):
        Settings(Geometry((group,)), 8, retention_interval_tokens=interval_tokens)
    assert None is Settings(Geometry((group,)), 8).retention_interval_tokens
    states = Geometry((group, Group("mamba", 16, states="all")))
    if not group.window_tokens:
        assert (
            interval_tokens == Settings(states, 8, retention_interval_tokens=interval_tokens).retention_interval_tokens
        )


def test_pinning_starts_at_a_drop_of_one_block() -> None:
    """Goal: a drop that pins is at least one block. Method: one, zero, a word."""
    assert 1 == Settings(GEOMETRY, 8, pin_drop_blocks_min=1).pin_drop_blocks_min
    with pytest.raises(ValueError, match="'pin_drop_blocks_min' must be >= 1"):
        Settings(GEOMETRY, 8, pin_drop_blocks_min=0)
    with pytest.raises(TypeError, match="pin_drop_blocks_min"):
        Settings(GEOMETRY, 8, pin_drop_blocks_min="1")  # type: ignore[arg-type]  # what it refuses


def test_the_minimum_of_partial_hits_is_a_number_of_tokens() -> None:
    """Goal: a hit may be worth a copy from any length on. Method: zero, which is the default, more, less, nothing."""
    least = Settings(GEOMETRY, 8, partial_hit_tokens_min=48)
    assert (0, 48) == (Settings(GEOMETRY, 8).partial_hit_tokens_min, least.partial_hit_tokens_min)
    with pytest.raises(ValueError, match="'partial_hit_tokens_min' must be >= 0"):
        Settings(GEOMETRY, 8, partial_hit_tokens_min=-1)
    with pytest.raises(TypeError, match="partial_hit_tokens_min"):
        Settings(GEOMETRY, 8, partial_hit_tokens_min=None)  # type: ignore[arg-type]  # what it refuses


def test_caching_needs_the_states_kept() -> None:
    """Goal: a cache that could never serve is rejected. Method: a state-space group in each mode, with and without."""
    running_alone = Geometry((FULL, Group("mamba", 1024, states="none")))
    with pytest.raises(ValueError, match="needs the states of a mamba group kept"):
        Settings(running_alone, 8)
    assert False is Settings(running_alone, 8, caches=False).caches
    for states in ("all", "align"):
        assert True is Settings(Geometry((FULL, Group("mamba", 16, states=states))), 8).caches


@pytest.mark.parametrize("states", ["none", "all", "align"])
def test_every_draft_in_flight_has_a_state(states: str) -> None:
    """Goal: the state before a draft cannot be restored, so drafts without a state of their own are rejected.

    Method: room for two drafts, next to full attention that needs none: two, three, and in full attention alone three.
    """
    geometry = Geometry((FULL, Group("mamba", 16, states=states, draft_states=2)))
    assert 2 == Settings(geometry, 8, caches=False, drafts_max=2).drafts_max
    with pytest.raises(ValueError, match="3 drafts in flight need as many draft_states in every mamba group"):
        Settings(geometry, 8, caches=False, drafts_max=3)
    assert 3 == Settings(GEOMETRY, 8, drafts_max=3).drafts_max
