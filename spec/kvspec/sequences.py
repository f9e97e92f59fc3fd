"""Sequences of any length, for code that goes through them element by element.

Code that asks something of all elements, or of any, is run over those that decide the answer, and another one,
whichever. It may ask neither how many there are nor in which places they stand: ``Met`` answers neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class Met:
    """Of a sequence of any length, the elements that are met."""

    def __init__(self, elements: Iterable[Any]) -> None:
        self._elements = list(elements)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)
