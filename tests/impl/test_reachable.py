"""Reachable blocks.

Goal: the plug-in's formulas, which know nothing of the reference, say what the reference says. Method: all small sizes,
and numbers that were worked out by hand.
"""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from kvreference.geometry import Geometry, Group
from kvreference.retention import Sparse, replay_boundary
from swa_retention.reachable import Anchor, Reach, replay_boundary_tokens


def reach_of(geometry: Geometry, group: Group, interval: int) -> Reach:
    """A group in the plug-in's words."""
    return Reach(
        group.block_size_tokens,
        group.attention.tokens_unread,
        group.lookahead_tokens,
        interval if group.slides else geometry.alignment_tokens,
    )


def expected(due: list[int | None], start: int, tokens: int) -> tuple[set[int], int]:
    """The full blocks due from ``start`` on, and the first that is due later; after that none is."""
    pending = next((i for i in range(start, len(due)) if (due[i] or 0) > tokens), len(due))
    return {i for i in range(start, len(due)) if (due[i] or tokens + 1) <= tokens}, pending


def said(reach: Reach, start: int, tokens: int, *boundaries: int) -> tuple[set[int], int]:
    """The same in the plug-in's words."""
    spans, behind = reach.due(start, tokens, *boundaries)
    assert all(end < follower for (_, end), (follower, _) in pairwise(spans)), "ranges in order, that do not touch"
    return {index for first, end in spans for index in range(first, end)}, behind


@pytest.mark.ci
@pytest.mark.parametrize("block", [pytest.param(1, marks=pytest.mark.ci), 2, pytest.param(4, marks=pytest.mark.ci)])
def test_as_the_reference_says(block: int) -> None:
    """Every block of every prompt of up to 24 tokens, in windows and next to them, with and without look-ahead.

    The junction is nowhere, before the replay boundary, or after it as after a preemption.
    """
    compared = 0
    for window, lookahead, alignments, junction in product((2, 3, 8), (False, True), (0, 1, 2), (0, 8, 20)):
        groups = (
            Group("full", 4, lookahead=lookahead),
            Group("sliding_window", block, window, lookahead=lookahead),
            Group("chunked_local", 4, 8),
        )
        geometry = Geometry(groups)
        interval = alignments * geometry.alignment_tokens
        reference = Sparse(geometry, interval, junction)
        for group, prompt in product(groups, range(1, 25)):
            reach, replay = reach_of(geometry, group, interval), replay_boundary(geometry, prompt)
            assert replay == replay_boundary_tokens(prompt, geometry.alignment_tokens, geometry.lookahead_tokens)
            due = [reference.due_tokens(group, index, prompt) for index in range(24)]
            for tokens in range(25):
                full = tokens // group.block_size_tokens
                for start in range(full):
                    assert expected(due[:full], start, tokens) == said(reach, start, tokens, replay, junction)
                    compared += 1
    assert compared > 100_000


def test_worked_numbers() -> None:
    """vllm-project/vllm#42258: full 32, window 8 in blocks of 8: blocks 3 and 7 are kept, and no other."""
    reach = Reach(8, lambda tokens: max(0, tokens - 7), 0, 32)
    assert ([(3, 4), (7, 8)], 8) == reach.due(0, 64, 64)
    assert ([(3, 4)], 7) == reach.due(0, 63, 64)
    assert ([], 3) == reach.due(0, 31, 64)


def test_anchors_are_as_the_reference_says() -> None:
    """The pins of a window drop, at every end, with and without look-ahead, in blocks next to larger ones."""
    compared = 0
    for block, window, lookahead in product((1, 2, 4), (2, 3, 8), (False, True)):
        group = Group("sliding_window", block, window, lookahead=lookahead)
        geometry = Geometry((Group("full", 4), group))
        anchor = Anchor(block, group.attention.tokens_unread, group.lookahead_tokens, geometry.alignment_tokens)
        for end in range(40):
            assert geometry.anchor(group, end) == anchor.before(end)
            compared += 1
    assert 720 == compared
