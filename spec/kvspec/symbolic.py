"""Numbers that stand for all numbers: z3 terms that Python code can be run on.

A formula of the reference is run as it is, on a ``Term`` in place of an int. Where it asks whether something is so, in
an ``if``, a ``max`` or an ``and``, the run takes one of the two ways, and ``kvspec.paths`` runs it again for the other.
So what is proved is the code that runs, and not a transcription of it.

Floor division and remainder are Python's, by a positive divisor only. By an unknown divisor they are a new quotient
and remainder with ``divisor * quotient + remainder = dividend``. What is known of products of unknowns is said in
``kvspec.products``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import z3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvspec.paths import Path

VALUES_MAX = 64
"""How many values a term may have where Python needs a number, such as in an index."""


class NotDecidableError(Exception):
    """Code asks for what no formula can say: a division that may be by zero, an index without a bound."""


_on_the_way: list[Path] = []


@contextmanager
def on(path: Path) -> Iterator[None]:
    """Terms that are asked something within ask ``path``."""
    _on_the_way.append(path)
    try:
        yield
    finally:
        _on_the_way.pop()


def current_path() -> Path:
    """The path that is being run.

    Raises:
        NotDecidableError: none is.
    """
    if not _on_the_way:
        raise NotDecidableError("a term was asked for its value outside of a proof")
    return _on_the_way[-1]


class Truth:
    """A statement about terms. As a condition it makes the run fork; ``&`` and ``|`` do not."""

    __slots__ = ("z3",)
    # As it says what equals it, it has no hash.

    def __init__(self, formula: z3.BoolRef) -> None:
        self.z3 = formula

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, same=True)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, same=False)

    def __bool__(self) -> bool:
        return current_path().decide(self.z3)

    def __and__(self, other: Truth | bool) -> Truth:
        return Truth(z3.And(self.z3, formula_of(other)))

    def __or__(self, other: Truth | bool) -> Truth:
        return Truth(z3.Or(self.z3, formula_of(other)))

    __rand__ = __and__
    __ror__ = __or__

    def __add__(self, other: Number | Truth) -> Term:
        """Python counts what is so as 1."""
        return Term(expression_of(self) + expression_of(other))

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"Truth({self.z3})"


class Term:
    """An integer that is not known."""

    __slots__ = ("z3",)
    # Nothing symbolic is a key: two terms may be equal on one path and not on another. What says what equals it has no
    # hash.

    def __init__(self, expression: z3.ArithRef) -> None:
        self.z3 = expression

    def __add__(self, other: Number) -> Term:
        return Term(self.z3 + expression_of(other))

    def __sub__(self, other: Number) -> Term:
        return Term(self.z3 - expression_of(other))

    def __rsub__(self, other: Number) -> Term:
        return Term(expression_of(other) - self.z3)

    def __mul__(self, other: Number) -> Term:
        return Term(multiplied(self.z3, expression_of(other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Term:
        return Term(-self.z3)

    def __floordiv__(self, other: Number) -> Term:
        return divided(self.z3, expression_of(other))[0]

    def __rfloordiv__(self, other: Number) -> Term:
        return divided(expression_of(other), self.z3)[0]

    def __mod__(self, other: Number) -> Term:
        return divided(self.z3, expression_of(other))[1]

    def __rmod__(self, other: Number) -> Term:
        return divided(expression_of(other), self.z3)[1]

    def __lt__(self, other: Number) -> Truth:
        return Truth(self.z3 < expression_of(other))

    def __le__(self, other: Number) -> Truth:
        return Truth(self.z3 <= expression_of(other))

    def __gt__(self, other: Number) -> Truth:
        return Truth(self.z3 > expression_of(other))

    def __ge__(self, other: Number) -> Truth:
        return Truth(self.z3 >= expression_of(other))

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, same=True)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, same=False)

    def __bool__(self) -> bool:
        return current_path().decide(self.z3 != 0)

    def __index__(self) -> int:
        """The value, on a path of its own for each that there may be."""
        for value in range(VALUES_MAX):
            if current_path().decide(self.z3 == value):
                return value
        raise NotDecidableError(f"{self.z3} has more than {VALUES_MAX} values")

    def __repr__(self) -> str:
        return f"Term({self.z3})"


Number: TypeAlias = "Term | int"
Condition: TypeAlias = "Truth | bool"


def expression_of(number: object) -> z3.ArithRef:
    """``number`` as z3 knows it; a truth counts as 1 or 0.

    Raises:
        NotDecidableError: it is no integer.
    """
    if isinstance(number, Truth):
        return z3.If(number.z3, z3.IntVal(1), z3.IntVal(0))
    if isinstance(number, Term):
        return number.z3
    if isinstance(number, int):
        return z3.IntVal(int(number))
    raise NotDecidableError(f"{number!r} is no integer")


def formula_of(condition: object) -> z3.BoolRef:
    """``condition`` as z3 knows it.

    Raises:
        NotDecidableError: it is no truth. A number is none: Python's ``&`` and ``|`` of numbers are something else.
    """
    if isinstance(condition, Truth):
        return condition.z3
    if isinstance(condition, bool):
        return z3.BoolVal(condition)
    raise NotDecidableError(f"{condition!r} is no truth")


def _compared(first: Term | Truth, second: object, same: bool) -> Any:
    """Whether two are equal, or are not; a truth is 1 or 0, as in Python.

    Else Python would compare which objects they are, and a statement would be false without a word.
    """
    if second is None or isinstance(second, str):
        return NotImplemented
    if isinstance(first, Truth) and isinstance(second, (bool, Truth)):
        equal = first.z3 == formula_of(second)
    else:
        equal = expression_of(first) == expression_of(second)
    return Truth(equal if same else z3.Not(equal))


def is_known(expression: z3.ArithRef) -> bool:
    """Whether ``expression`` is a number."""
    return bool(z3.is_int_value(z3.simplify(expression)))


def multiplied(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """The product."""
    if is_known(first) or is_known(second):
        return first * second
    return current_path().products.of(first, second)


def divided(dividend: z3.ArithRef, divisor: z3.ArithRef) -> tuple[Term, Term]:
    """Quotient and remainder, rounded down.

    Raises:
        NotDecidableError: the divisor may be zero or negative here.
    """
    path = current_path()
    # Decided like any fork, so that it is asked once and not again on every way.
    if path.decide(divisor <= 0):
        raise NotDecidableError(f"the divisor {divisor} may be zero or negative")
    if is_known(divisor):
        return Term(dividend / divisor), Term(dividend % divisor)
    quotient, remainder = path.products.divided(dividend, divisor)
    return Term(quotient), Term(remainder)


def negated(condition: Condition) -> Condition:
    """That ``condition`` is not so, without a fork."""
    return Truth(z3.Not(condition.z3)) if isinstance(condition, Truth) else not condition


def implies(condition: Condition, consequence: Condition) -> Condition:
    """That ``consequence`` is so wherever ``condition`` is, without a fork."""
    return negated(condition) | consequence


def either(condition: Condition, first: Number, second: Number) -> Number:
    """``first`` if ``condition`` is so, else ``second``, without a fork."""
    if isinstance(condition, Truth):
        return Term(z3.If(condition.z3, expression_of(first), expression_of(second)))
    return first if condition else second
