"""Finding 005: A hit is served although a window's look-ahead block is not cached."""

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.in_turn import hits_whole_blocks, in_turn, satisfied, windows_with_look_ahead
from kvreference.hit_lookup import longest_length
from kvreference.rules import Delta

FINDING = Finding(
    id="005-lookahead-verified-at-another-length",
    rank=6,
    statement="KV-OP-01",
    condition="two kinds of windows with look-ahead, and a hit that is longer than the right one",
    where=lambda settings: hits_whole_blocks(settings) and len(windows_with_look_ahead(settings)) > 1,
    acts=lambda *_run: Acts([Delta(longest_length.__name__, in_turn)]),
    holds=lambda ideal, answered, *asked: answered > ideal == satisfied(*asked),
)
