"""Designs that do not work, each with the guarantee that it is expected to violate.

The explorer must refute every one of them: that shows that it can, and that the sound design needs what they lack.
A design is a manager with one thing changed, explored in the scope of a tiny model that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.errors import UsageError
from kvgate.explorer.judges import COMMON, Judges
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.settings import Settings


@frozen
class Design:
    """A design and what is known about it."""

    name: str
    factory: Callable[[Settings], Manager]
    model: str
    """The tiny model that shows what is wrong with it."""
    statement: str
    """The guarantee that it violates."""
    story: str
    """What it does, and what comes of it, in one sentence."""
    judges: Judges = COMMON
    """Who judges it, where the common judges would see something else first."""


class ReleasesEarly(Reference):
    """Gives up the last block that the window still reaches into."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _ReleasingEarly(settings)


class _ReleasingEarly(Holdings):
    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + 1)


_ALL = (
    Design(
        "released-early",
        ReleasesEarly,
        "tiny-swa",
        "KV-MEM-01",
        "A window is taken to be a token shorter than it is: its last block is gone when the next token reads it.",
    ),
)

DESIGNS: Mapping[str, Design] = MappingProxyType({design.name: design for design in _ALL})
"""The designs, by name."""


def load(name: str) -> Design:
    """The design called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name not in DESIGNS:
        raise UsageError(f"unknown design {name!r}: give one of {', '.join(DESIGNS)}")
    return DESIGNS[name]
