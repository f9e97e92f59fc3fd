"""``kvgate explore`` with steps in flight.

Goal: a refuted design is reported with its story, and the report says that it has no trace. Method: the command.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .stage import Ended


def test_a_design_is_refuted_without_a_trace(kvgate: Callable[..., Ended], here: Path) -> None:
    """A trace has no operation for the end of a step."""
    ended = kvgate("explore", "--design", "window-counts-drafts", "--trace", "drafts.jsonl")
    assert 1 == ended.code
    assert ended.out.startswith("tiny-ahead-drafts: refuted by KV-OP-06")
    assert "no trace file can say that a step in flight is over: tiny-ahead-drafts" in ended.err
    assert not (here / "drafts.jsonl").exists()
    ended = kvgate("explore", "--design", "window-read-after-rejection")
    assert "The oldest step in flight is over; Sample for request 0: " in ended.out
