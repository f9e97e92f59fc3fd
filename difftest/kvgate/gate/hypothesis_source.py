"""The source of choices that Hypothesis makes and shrinks, and the strategies over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from kvgate.gate.generator import Generator
from kvreference.operations import Operation
from kvreference.settings import Settings

T = TypeVar("T")


class Shrinking:
    """Choices that Hypothesis makes, and makes smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        # Counted from the top, so that the smallest choice is "no".
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def one_of(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))


@st.composite
def settings_of(draw: st.DrawFn, generator: Generator) -> Settings:
    """The settings of a case, as a Hypothesis strategy."""
    return generator.settings(Shrinking(draw))


@st.composite
def operations_of(draw: st.DrawFn, generator: Generator) -> Operation:
    """One operation, as a Hypothesis strategy."""
    return generator.operation(Shrinking(draw))
