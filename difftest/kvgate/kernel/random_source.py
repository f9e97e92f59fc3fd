"""Where choices come from: the protocol of a source, and the seeded one, which is the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Draw(Protocol):
    """A source of choices."""

    def integer(self, low: int, high: int) -> int:
        """An integer between ``low`` and ``high``, both included."""
        ...

    def chance(self, percent: int) -> bool:
        """True in about ``percent`` of a hundred draws."""
        ...

    def one_of(self, options: Sequence[T]) -> T:
        """One of ``options``, each as likely."""
        ...


class Seeded:
    """Choices that follow from a seed, the same in every process."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))

    def chance(self, percent: int) -> bool:
        return self._random.random() * 100 < percent

    def one_of(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]
