"""The settings of a system: what is refused, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

FULL = Group("full", 16)
GEOMETRY = Geometry((FULL,))


@pytest.mark.parametrize(
    ("name", "least"),
    [("blocks", 2), ("tokens_max", 2), ("chunk_tokens", 1), ("requests_max", 1), ("drafts_max", 0)],
)
def test_limits(name: str, least: int) -> None:
    """Goal: a system that can do nothing is never built. Method: the least that is something, and one below it."""
    given: dict[str, Any] = {"blocks": 8, name: least}
    assert least == getattr(Settings(GEOMETRY, **given), name)
    with pytest.raises(ValueError, match=f"'{name}' must be >= {least}"):
        Settings(GEOMETRY, **{**given, name: least - 1})
    with pytest.raises(TypeError, match=name):
        Settings(GEOMETRY, **{**given, name: str(least)})


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
    """Goal: caching and the admission gate are on unless told otherwise, speculation is off. Method: say nothing."""
    settings = Settings(GEOMETRY, 8)
    assert (True, True, 0) == (settings.caches, settings.full_sequence_must_fit, settings.drafts_max)
