"""The capacity of a pool.

Goal: the operator reads how much a pool can keep, in numbers that can be worked out by hand. Method: one full-attention
group in blocks of 32 and five windows of 1024 in blocks of 16, as in Gemma 3, and the pool of a report.
"""

from __future__ import annotations

from collections.abc import Callable

from swa_retention.fits import blocks_kept, told
from swa_retention.reachable import Anchor


def window_of(tokens: int) -> Callable[[int], int]:
    """How many leading tokens a resume does not read."""
    return lambda boundary: max(0, boundary - tokens + 1)


FULL = Anchor(32, lambda _boundary: 0, 0, 32)
WINDOW = Anchor(16, window_of(1024), 0, 32)
GEMMA = (FULL, *(WINDOW,) * 5)


def test_a_prefix_keeps_what_a_hit_reads() -> None:
    """28672 tokens: 896 blocks of full attention, and 64 in each window; of 31 tokens no hit can be."""
    assert 896 + 5 * 64 == blocks_kept(GEMMA, 28672)
    assert 896 + 5 * 64 == blocks_kept(GEMMA, 28672 + 31)
    assert 0 == blocks_kept(GEMMA, 31)


def test_a_draft_layer_keeps_a_block_more() -> None:
    """The block after the boundary."""
    assert 65 == blocks_kept((Anchor(16, window_of(1024), 16, 32),), 2048)


def test_the_operator_gets_a_message() -> None:
    """Prefixes of some lengths, up to the model's longest; 8192 tokens keep 256 + 320 = 576 blocks."""
    line = told(GEMMA, 189_244, 28672)
    assert line.startswith("of 189244 blocks, at most this many prefixes can be kept while nothing runs: ")
    assert "328 of 8192 tokens (576 blocks each)" in line
    assert line.endswith("155 of 28672 tokens (1216 blocks each)")
    assert told(GEMMA, 100, 31).endswith("none of 31 tokens")
