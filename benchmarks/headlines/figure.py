"""A figure that was published, and the simulations that stand for it."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen
from attrs.validators import min_len

from kvgate.simulation.arm import Setting
from kvgate.simulation.result import Result

TOLERANCE_POINTS = 1.0
"""How far an exact figure may be from the published one, in percentage points."""


class Accepts(str, Enum):
    """What a simulation has to show."""

    EXACT = "exact"
    """Every case is within a percentage point of what is expected of it, with every arm."""
    BRACKET = "bracket"
    """The published figure depends on what was not published: the row says whether it lies between the cases."""
    AGREES = "agrees"
    """Nothing was published: another simulation is what it is compared with, or only its own arms."""


@frozen
class Case:
    """One simulation of a figure."""

    name: str
    setting: Setting
    expected_percent: float | None = None
    """The hit rate that was published for just this; None where nothing was."""
    arms: tuple[str, ...] = ("reference", "retention")
    """Who serves it: the fast one first, then vLLM's real scheduler, as it is or with the plug-in, or both."""
    spans: bool = True
    """Whether it is one of those that a bracket spans; otherwise it only shows what the figure depends on."""

    @staticmethod
    def percent(result: Result) -> float:
        """The hit rate that is compared, in per cent: the server's own."""
        return 100 * result.server.hit_rate


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
    """What had to be assumed, in addition to what was published."""
    published_percent: float | None = None
    """The same as a number, where a bracket is to hold it."""

    def __attrs_post_init__(self) -> None:
        if self.accepts is Accepts.BRACKET and self.published_percent is None:
            raise ValueError(f"figure {self.number}: a bracket needs a number that it is to hold")


@frozen
class OutOfReach:
    """A published figure that no simulation of a scheduler can reproduce."""

    what: str
    published: str
    why: str


_DEVICE = "a time on a device"
OUT_OF_REACH = (
    OutOfReach("8k x 32: TTFT, mean", "14593.2 to 6098.9 ms", _DEVICE),
    OutOfReach("8k x 32: TPOT, mean", "36.9 to 27.9 ms", _DEVICE),
    OutOfReach("8k x 32: requests per second", "0.6023 to 0.8658", _DEVICE),
    OutOfReach("32k x 32: TTFT, mean", "14298.8 to 8623.7 ms", _DEVICE),
    OutOfReach("32k x 32: prefill throughput", "2291.9 to 3800.2 tokens/s", _DEVICE),
    OutOfReach("28k prefixes, 30 of them, with pinning: TTFT, mean", "1970 to 499 ms", _DEVICE),
    OutOfReach("GPQA Diamond, accuracy", "89.90 %", "needs the model's weights; sound blocks are the scheduler's part"),
)
"""What was published in addition to hit rates, and depends on a device: a simulation of a scheduler cannot give it."""
