"""Sequences of any length, for code that goes through them element by element.

Code that asks something of all elements, or of any, is run over those that decide the answer, and another one,
whichever. It may ask neither how many there are nor in which places they stand: ``Met`` answers neither.

Code that takes elements in their order is run over one element, at any place, and the stretches before and after it
(``Parts``). What it does with a stretch it does with each element of it, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import evolve, frozen

from kvreference.block_pool import NULL
from kvspec import formulas
from kvspec.symbolic import Term, current_path, either, expression_of


class Met:
    """Of a sequence of any length, the elements that are met."""

    def __init__(self, elements: Iterable[Any]) -> None:
        self._elements = list(elements)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __bool__(self) -> bool:
        """Not known: code that asks whether there is any element depends on those that are not met."""
        raise LookupError("whether there is any is not known")


@frozen(eq=False)
class Stretch:
    """Neighbouring elements, of which only the number is known; none of them is an element that is observed."""

    count: Any

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


@frozen(eq=False)
class TablePart(Stretch):
    """Neighbouring entries of a table, of which so many are not the null block."""

    live: Any

    def __ne__(self, other: object) -> Any:
        assert other == NULL, "whether it is the null block"
        return self.live

    __hash__ = object.__hash__


@frozen(eq=False)
class Repeated(Stretch):
    """One value, a number of times."""

    value: Any


class Times(Term):
    """A number of times that a tuple of one value is repeated: none if it is negative."""

    __slots__ = ()

    def __sub__(self, other: Any) -> Times:
        return Times((Term(self.z3) - other).z3)

    def __rmul__(self, other: Any) -> Any:
        (value,) = other
        return (Repeated(either(self > 0, Term(self.z3), 0), value),)


def times(number: Any) -> Times:
    """``number`` as a number of times."""
    return Times(expression_of(number))


class Parts:
    """A sequence of any length: elements that are observed, and stretches."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts = list(parts)

    @property
    def length(self) -> Any:
        """How many elements it has."""
        return sum(map(_count, self.parts))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __add__(self, others: Parts) -> Parts:
        return Parts([*self.parts, *others.parts])

    def index(self, element: object) -> Any:
        """In which place an element stands that is observed."""
        return sum(map(_count, self.parts[: self.parts.index(element)]))

    def __getitem__(self, which: slice) -> Parts:
        assert (which.start, which.step) == (None, None), "the first so many"
        kept, left = [], which.stop
        for part in self.parts:
            if left <= 0:
                break
            count = _count(part)
            kept.append(part if count <= left else Stretch(left))
            left = left - count
        return Parts(kept)


@frozen(eq=False)
class Cut:
    """Neighbouring tokens, by their places. How they would be sorted is not known: both is tried."""

    start: Any
    end: Any

    def __lt__(self, _other: Cut) -> bool:
        return current_path().decide(formulas.equal(current_path().fresh("less"), formulas.number(1)))

    def first_and_others(self) -> tuple[Cut, Cut]:
        """Its first token, and those after it: as two, they have an order."""
        middle = self.start + 1
        return evolve(self, end=middle), evolve(self, start=middle)


def _count(part: Any) -> Any:
    return part.count if isinstance(part, Stretch) else 1


def more_than(many: Any, few: Any) -> Any:
    """How many more ``many`` are than ``few``: none if they are less."""
    return either(many > few, many - few, 0)


def ranges_around(place: Any) -> Callable[[Any, Any], list[Any]]:
    """Stands for ``range``: the place that is observed, if it is in it, and the stretches before and after it."""

    def ranged(first: Any, end: Any) -> list[Any]:
        if place >= first and place < end:
            return [Stretch(place - first), place, Stretch(end - place - 1)]
        return [Stretch(more_than(end, first))]

    return ranged


def numbered(parts: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each part with the place of its first element."""
    place: Any = 0
    for part in parts:
        yield place, part
        place = place + _count(part)
