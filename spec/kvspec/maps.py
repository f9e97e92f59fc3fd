"""Maps from numbers to numbers, of any size: on numbers a dictionary, on terms a function that is not known.

Both are values: ``put`` gives another map. What a map does not mention is 0. ``count`` says how many keys have a
value. On terms that is a number that is not known either; what is known of it is how one ``put`` changes it, and that
it is at least 1 while a key is seen to have the value. Both are facts about finite maps, which ``proofs.counting``
proves for all maps up to a size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import z3
from attrs import evolve, field, frozen

from kvspec.symbolic import NotDecidableError, Number, Term, Truth, current_path, either, expression_of

Key: TypeAlias = "Number | tuple[Number, ...]"


@frozen
class FiniteMap:
    """A map that is known."""

    entries: Mapping[Any, int] = field(factory=dict, converter=lambda given: {k: v for k, v in given.items() if v != 0})

    def __getitem__(self, key: Key) -> Any:
        return self.entries.get(key, 0)

    def put(self, key: Key, value: Number) -> FiniteMap:
        """The same map, with ``value`` at ``key``."""
        return FiniteMap({**self.entries, key: value})

    def mapped(self, change: Callable[[Any], Any]) -> FiniteMap:
        """The map of the changed values; 0 stays 0."""
        return FiniteMap({key: change(value) for key, value in self.entries.items()})

    def count(self, value: Number) -> Any:
        """How many keys have ``value``, which is not 0."""
        return sum(other == value for other in self.entries.values())

    def sees(self, key: Key, value: Number) -> None:
        """Nothing to recall: the entries are there."""


@frozen(eq=False)
class UnknownMap:
    """A map that is not known: ``name`` is its function in z3, with ``arity`` numbers as key."""

    name: str
    arity: int = 1
    changes: tuple[tuple[tuple[z3.ArithRef, ...] | None, Any], ...] = ()
    """What was put, in order; a change of all values has no key."""

    def _base(self, key: tuple[z3.ArithRef, ...]) -> Term:
        sorts = [z3.IntSort()] * (self.arity + 1)
        return Term(z3.Function(self.name, *sorts)(*key))

    def __getitem__(self, key: Key) -> Any:
        place = _place(key)
        value: Number = self._base(place)
        for at, change in self.changes:
            value = change(value) if at is None else either(_same(at, place), change, value)
        return value

    def put(self, key: Key, value: Number) -> UnknownMap:
        """The same map, with ``value`` at ``key``."""
        return evolve(self, changes=(*self.changes, (_place(key), value)))

    def mapped(self, change: Callable[[Any], Any]) -> UnknownMap:
        """The map of the changed values. Nothing can be counted in it."""
        return evolve(self, changes=(*self.changes, (None, change)))

    def count(self, value: Number) -> Any:
        """How many keys have ``value``, which is not 0."""
        path = current_path()
        number: Term = Term(z3.Function(f"count {self.name}", z3.IntSort(), z3.IntSort())(expression_of(value)))
        path.fact(number.z3 >= 0)
        before = evolve(self, changes=())
        for at, put in self.changes:
            if at is None:
                raise NotDecidableError("nothing can be counted in a map of which all values were changed")
            loses = _one_if(before[at], value)
            path.fact(number.z3 >= loses.z3)
            number = number - loses + _one_if(put, value)
            before = before.put(at, put)
        return number

    def sees(self, key: Key, value: Number) -> None:
        """Recall that there is at least one key with ``value`` if ``key`` has it."""
        current_path().fact(self.count(value).z3 >= _one_if(self[key], value).z3)


def _one_if(number: Number, value: Number) -> Term:
    return Term(z3.If(expression_of(number) == expression_of(value), z3.IntVal(1), z3.IntVal(0)))


def _place(key: Key) -> tuple[z3.ArithRef, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(part if isinstance(part, z3.ExprRef) else expression_of(part) for part in parts)


def _same(first: tuple[z3.ArithRef, ...], second: tuple[z3.ArithRef, ...]) -> Truth:
    return Truth(z3.And(*(one == other for one, other in zip(first, second, strict=True))))
