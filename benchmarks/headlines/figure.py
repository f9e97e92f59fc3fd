"""A figure that was published, and the simulations that stand for it."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen
from attrs.validators import min_len

from kvgate.simulation.arm import Setting

TOLERANCE_POINTS = 1.0
"""How far an exact figure may be from the published one, in percentage points."""


class Accepts(str, Enum):
    """What a simulation has to show."""

    EXACT = "exact"
    """Every case is within a percentage point of what is expected of it, with every arm."""
    BRACKET = "bracket"
    """The published figure depends on what was not published: the cases span what it depends on."""
    DIRECTION = "direction"
    """Better or worse, as published; not how much."""


@frozen
class Case:
    """One simulation of a figure."""

    name: str
    setting: Setting
    expected_percent: float | None = None
    """The hit rate that was published for just this; None where it is a case of a bracket."""
    arms: tuple[str, ...] = ("reference", "retention")
    """Who serves it: the fast one first, then vLLM's real scheduler with the plug-in."""


@frozen
class Figure:
    """One published figure."""

    number: str
    what: str
    published: str
    """As it was published."""
    source: str
    """Where."""
    accepts: Accepts
    cases: tuple[Case, ...] = field(validator=min_len(1))
    assumptions: tuple[str, ...] = ()
    """What had to be assumed, beside what was published."""


@frozen
class OutOfReach:
    """A published figure that no simulation of a scheduler can tell."""

    what: str
    published: str
    why: str
