"""A case: one system's settings and the operations performed on it. Whatever was found can be run again from it."""

from __future__ import annotations

from attrs import frozen

from kvreference.operations import Operation
from kvreference.settings import Settings


@frozen
class Case:
    """Enough to run one run again."""

    settings: Settings
    operations: tuple[Operation, ...]
    model: str
    """The name of the preset or file that the geometry came from."""
    preset: str
    """The name of the generator preset."""
    seed: int
    """The seed that the operations were generated from."""
