"""A disagreement as data. Goal: it quotes the guarantee, and says what makes two of them the same. Method: read it."""

from __future__ import annotations

from kvgate.kernel.difference import Difference, Divergence
from kvreference.operations import Reset


def test_a_kind_is_detector_statement_and_subject() -> None:
    """The expected and the actual value, and the time, belong to the case."""
    first = Divergence(7, Reset(), "lockstep", Difference("KV-OP-11", "free queue", "1", "2"))
    second = Divergence(9, None, "lockstep", Difference("KV-OP-11", "free queue", "3", "4"))
    assert ("lockstep", "KV-OP-11", "free queue") == first.kind == second.kind
