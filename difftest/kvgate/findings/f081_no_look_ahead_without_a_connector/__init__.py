"""Finding 081: Without a connector, vLLM-Ascend serves hits of a draft layer without their look-ahead block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.in_turn import Longest, without_look_ahead
from kvreference.hit_lookup import longest_length
from kvreference.rules import Delta


def _unasked(longest: Longest, found: Sequence[Any], lengths: range, *rest: int) -> int:
    """No group asks for a look-ahead block."""
    return longest([without_look_ahead(each) for each in found], lengths, *rest)


FINDING = Finding(
    id="081-no-look-ahead-without-a-connector",
    rank=19,
    statement="KV-OP-01",
    condition="a draft layer, and no connector",
    where=lambda settings: settings.geometry.lookahead_tokens > 0,
    off=lambda stage: stage.connector,
    acts=lambda *_run: Acts([Delta(longest_length.__name__, _unasked)]),
    holds=lambda ideal, answered, *_asked: answered > ideal,
)
