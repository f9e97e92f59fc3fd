"""Products of two unknowns, about which z3 can decide next to nothing by itself.

So a product is a new number, of which three things are said: with a factor larger by one or more it is larger by the
other factor as many times; it is 0 or the other factor itself if one factor is 0 or 1; with the opposite of a factor
it is the opposite. With nothing but linear arithmetic left, z3 decides nearly every question. What it
proves so is proved, since ``proofs.products`` proves all three. What it refutes so may be wrong only because too little
was said, and is asked again with the products as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import z3

if TYPE_CHECKING:
    from kvspec.paths import Path

LARGER_BY = 2
"""Up to which difference of a factor the difference of the product is said exactly."""
FACTS_MAX = 50_000
"""How many comparisons are kept, so that another way through the same code need not write them again."""


class RealProducts:
    """Products as they are, and divisions as products."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._divisions: dict[tuple[int, int], tuple[z3.ArithRef, z3.ArithRef]] = {}
        self._kept: list[z3.ArithRef] = []

    def of(self, first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
        """The product."""
        return first * second

    def divided(self, dividend: z3.ArithRef, divisor: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
        """Quotient and remainder of a division by a positive ``divisor``; the same ones for the same division."""
        dividend = z3.simplify(dividend)
        key = dividend.get_id(), divisor.get_id()
        if key not in self._divisions:
            quotient, remainder = self.path.fresh("quotient"), self.path.fresh("remainder")
            self.path.fact(z3.And(self.of(divisor, quotient) + remainder == dividend))
            self.path.fact(z3.And(remainder >= 0, remainder < divisor))
            self._divisions[key] = quotient, remainder
            # An id is given again once its expression is gone.
            self._kept += [dividend, divisor]
        return self._divisions[key]


class Products(RealProducts):
    """Products of which only the lemmas are known."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._multiples: dict[int, list[tuple[z3.ArithRef, z3.ArithRef]]] = {}
        """Per factor, the other factors that it was met with, and the products."""

    def of(self, first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
        first, second = sorted((z3.simplify(first), z3.simplify(second)), key=lambda each: int(each.get_id()))
        known = self._multiples.get(first.get_id(), ())
        found = next((product for other, product in known if other.eq(second)), None)
        if found is not None:
            return found
        product = self.path.fresh("product")
        self._kept += [first, second]
        self._say(first, second, product)
        self._say(second, first, product)
        return product

    def _say(self, factor: z3.ArithRef, other: z3.ArithRef, product: z3.ArithRef) -> None:
        """How ``product = factor * other`` compares with the products of ``factor`` that there are."""
        start = [(z3.IntVal(0), z3.IntVal(0)), (z3.IntVal(1), factor), (z3.IntVal(-1), -factor)]
        multiples = self._multiples.setdefault(factor.get_id(), start)
        for before, its in multiples:
            self.path.fact(_compared(larger, factor, before, its, other, product))
        opposite = z3.simplify(-other)
        self._kept.append(opposite)
        multiples += [(other, product), (opposite, -product)]


_compared_before: dict[tuple[object, ...], tuple[z3.BoolRef, tuple[z3.ArithRef, ...]]] = {}


def _compared(say: Callable[..., list[z3.BoolRef]], *numbers: z3.ArithRef) -> z3.BoolRef:
    """What is to ``say`` of two products of a factor: the same on every way, and so written once."""
    key = (say, *(number.get_id() for number in numbers))
    if key not in _compared_before:
        if len(_compared_before) >= FACTS_MAX:
            _compared_before.clear()
        # The numbers are kept too: an id is given again once its expression is gone.
        _compared_before[key] = z3.And(*say(*numbers)), numbers
    return _compared_before[key][0]


def larger(
    factor: z3.ArithRef, first: z3.ArithRef, its: z3.ArithRef, second: z3.ArithRef, product: z3.ArithRef
) -> list[z3.BoolRef]:
    """What is said of ``its = factor * first`` and ``product = factor * second``, for a ``factor`` of at least 0.

    Said by bounds and not by equations, which would be two questions each.
    """
    difference, gain = second - first, product - its
    differences = range(-LARGER_BY, LARGER_BY + 1)
    at_least = [z3.Implies(difference >= by, gain >= by * factor) for by in differences]
    at_most = [z3.Implies(difference <= by, gain <= by * factor) for by in differences]
    return [z3.Implies(factor >= 0, z3.And(*at_least, *at_most))]
