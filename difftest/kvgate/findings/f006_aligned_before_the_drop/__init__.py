"""Finding 006: With look-ahead and blocks of two sizes, a hit shorter than the window loses a whole alignment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.in_turn import Longest, hits_whole_blocks, in_turn, satisfied, windows_with_look_ahead
from kvreference.hit_lookup import longest_length
from kvreference.rules import Delta
from kvreference.settings import Settings


def _aligned_before_the_drop(longest: Longest, found: Sequence[Any], lengths: range, *rest: int) -> int:
    """Where the window reaches back to the first token, the match is aligned before its look-ahead block is dropped."""
    return in_turn(partial(_cut, longest), found, lengths, *rest)


def _cut(longest: Longest, found: Sequence[Any], lengths: range, *rest: int) -> int:
    length, kind, alignment = longest(found, lengths, *rest), found[0].group, -lengths.step
    if not (kind.lookahead and kind.window_tokens and kind.block_size_tokens != alignment):
        return length
    whole_window = kind.blocks_occupied(kind.window_tokens - 1) * kind.block_size_tokens
    return length if length >= whole_window else max(0, length - alignment)


def _windows(settings: Settings) -> bool:
    """Whether there is a window with look-ahead whose blocks are shorter than the alignment."""
    alignment = settings.geometry.alignment_tokens
    return any(group.block_size_tokens != alignment for group in windows_with_look_ahead(settings))


FINDING = Finding(
    id="006-aligned-before-the-drop",
    rank=7,
    statement="KV-OP-01",
    condition="a window with look-ahead in blocks shorter than the alignment, and a hit shorter than the right one",
    where=lambda settings: hits_whole_blocks(settings) and _windows(settings),
    acts=lambda *_run: Acts([Delta(longest_length.__name__, _aligned_before_the_drop)]),
    # Where 005 acts as well, it comes first.
    holds=lambda ideal, answered, *asked: answered < ideal in (satisfied(*asked), in_turn(longest_length, *asked)),
)
