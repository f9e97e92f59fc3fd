"""What every benchmark answers with: rows, each one figure with its unit and how far its rounds lay apart.

A benchmark is a module of this folder with a function ``rows(quick)``. It yields each row as soon as it is measured, so
that whoever interrupts it keeps what there is. `python -m benchmarks` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Protocol

from attrs import field, frozen
from attrs.validators import instance_of


def _is_finite(_row: object, attribute: object, value: float) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{getattr(attribute, 'name', 'value')} must be a finite number, got {value}")


@frozen
class Row:
    """One figure.

    Raises:
        ValueError: a figure that is no finite number, or one that does not lie in its own spread.
    """

    what: str = field(validator=instance_of(str))
    value: float = field(converter=float, validator=_is_finite)
    """The median of the rounds."""
    unit: str = field(validator=instance_of(str))
    """Of a ratio, what it is a ratio to."""
    least: float = field(converter=float, validator=_is_finite)
    largest: float = field(converter=float, validator=_is_finite)
    rounds: int = 1

    def __attrs_post_init__(self) -> None:
        if not self.least <= self.value <= self.largest:
            raise ValueError(f"{self.what}: {self.value} is not between {self.least} and {self.largest}")


class Benchmark(Protocol):
    """What a module of this folder offers."""

    def __call__(self, quick: bool) -> Iterator[Row]:
        """Measure; with ``quick`` briefly, in few rounds and with small loads, and of a long list a part."""
        ...


def row_of(what: str, values: Sequence[float], unit: str) -> Row:
    """The row of some rounds."""
    return Row(what, median(values), unit, min(values), max(values), len(values))


def ratio_row(what: str, values: Sequence[float], base: Sequence[float], unit: str) -> Row:
    """The row of rounds set against those of a base, round by round."""
    return row_of(what, [value / other for value, other in zip(values, base, strict=True)], unit)
