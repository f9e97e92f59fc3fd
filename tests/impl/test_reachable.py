"""What is reachable.

Goal: the plug-in's formulas, which know nothing of the reference, say what the reference says. Method: all small sizes,
and numbers that were worked out by hand.
"""

from __future__ import annotations

from itertools import product

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


def test_as_the_reference_says() -> None:
    """Every block of every prompt of up to 40 tokens, in windows and beside them, with and without look-ahead."""
    compared = 0
    for block, window, lookahead, alignments in product((1, 2, 4), (2, 3, 8), (False, True), (0, 1, 2)):
        groups = (
            Group("full", 4, lookahead=lookahead),
            Group("sliding_window", block, window, lookahead=lookahead),
            Group("chunked_local", 4, 8),
        )
        geometry = Geometry(groups)
        interval = alignments * geometry.alignment_tokens
        reference = Sparse(geometry, interval)
        for group, prompt in product(groups, range(1, 41)):
            reach, replay = reach_of(geometry, group, interval), replay_boundary(geometry, prompt)
            assert replay == replay_boundary_tokens(prompt, geometry.alignment_tokens, geometry.lookahead_tokens)
            for index in range(14):
                assert reference.due_tokens(group, index, prompt) == reach.due_tokens(index, replay)
                compared += 1
    assert 3 * 3 * 2 * 3 * 3 * 40 * 14 == compared


def test_worked_numbers() -> None:
    """vllm-project/vllm#42258: full 32, window 8 in blocks of 8: blocks 3 and 7 are kept, and no other."""
    reach = Reach(8, lambda tokens: max(0, tokens - 7), 0, 32)
    assert [3, 7] == [index for index in range(9) if reach.due_tokens(index, 64) is not None]
    assert [32, 64] == [reach.due_tokens(index, 64) for index in (3, 7)]


def test_anchors_are_as_the_reference_says() -> None:
    """What is pinned of a window drop, at every end, with and without look-ahead, in blocks beside larger ones."""
    compared = 0
    for block, window, lookahead in product((1, 2, 4), (2, 3, 8), (False, True)):
        group = Group("sliding_window", block, window, lookahead=lookahead)
        geometry = Geometry((Group("full", 4), group))
        anchor = Anchor(block, group.attention.tokens_unread, group.lookahead_tokens, geometry.alignment_tokens)
        for end in range(40):
            assert geometry.anchor(group, end) == anchor.before(end)
            compared += 1
    assert 720 == compared
