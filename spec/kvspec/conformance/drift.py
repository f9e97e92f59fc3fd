"""A drift: where the reference and the transition system part."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from kvreference.operations import Operation


@frozen
class Drift:
    """One difference, told by what it was seen in."""

    operation: Operation | None
    """None if it is wrong before anything happened."""
    where: str
    """A transition that cannot happen, a map of the state, or an invariant."""
    key: Any
    """Which block, entry, copy or content."""
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.operation}: {self.where} at {self.key}: expected {self.expected}, got {self.got}"
