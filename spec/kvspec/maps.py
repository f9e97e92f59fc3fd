"""Maps from numbers to numbers, of any size: on numbers a dictionary, on terms a function that is not known.

Both are values: ``put`` gives another map. A key that a map does not mention has the value 0. ``count`` says how many
keys have a value. On terms that is a number that is not known either. Of it no more is assumed than this, of maps in
which finitely many keys have the value:

- it is at least 0, and at least 1 while a key is seen to have the value;
- one ``put`` changes it by one at most: one less if the key had the value, one more if it gets it;
- where every ``old`` is replaced by ``new``, no key has ``old`` any more, and ``new`` has its own keys and those;
- in a map that was emptied it is 0.

``proofs.lemmas`` proves the first three for all maps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

import z3
from attrs import evolve, frozen

from kvspec import formulas
from kvspec.symbolic import Condition, Number, Term, Truth, current_path, either, expression_of

Key: TypeAlias = "Number | tuple[Number, ...]"

CHANGES_MAX = 32
"""How many changes a finite map keeps next to its entries before it merges them."""


class FiniteMap:
    """A map that is known. Keys and values may be anything, and 0 stands for no value.

    Changes are kept above the entries, which several maps share: a put is cheap for a map of any size.
    """

    __slots__ = ("_base", "_changes", "_tally")

    def __init__(self, entries: Mapping[Any, Any] | None = None) -> None:
        self._base: dict[Any, Any] = {key: value for key, value in (entries or {}).items() if value != 0}
        self._changes: dict[Any, Any] = {}
        self._tally: list[Counter[Any]] = []
        """How often each value stands in the entries, counted at the first request; shared with all maps over them."""

    @classmethod
    def of(cls, entries: dict[Any, Any]) -> FiniteMap:
        """The map of ``entries``, none of which is 0 and which do not change any more."""
        made = cls.__new__(cls)
        made._base, made._changes, made._tally = entries, {}, []
        return made

    @property
    def entries(self) -> dict[Any, Any]:
        """Every key that has a value, with it."""
        if not self._changes:
            return self._base
        entries = {**self._base, **self._changes}
        for key, value in self._changes.items():
            if value == 0:
                del entries[key]
        return entries

    def __getitem__(self, key: Any) -> Any:
        if key in self._changes:
            return self._changes[key]
        return self._base.get(key, 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FiniteMap):
            return NotImplemented
        return (self._base is other._base and self._changes == other._changes) or self.entries == other.entries

    def __hash__(self) -> int:
        return hash(frozenset(self.entries.items()))

    def __repr__(self) -> str:
        return f"FiniteMap({self.entries})"

    def put(self, key: Any, value: Any) -> FiniteMap:
        """The same map, with ``value`` at ``key``."""
        if self[key] == value:
            return self
        if len(self._changes) >= CHANGES_MAX:
            return FiniteMap.of(self.entries).put(key, value)
        other = FiniteMap.__new__(FiniteMap)
        other._base, other._tally = self._base, self._tally
        other._changes = {**self._changes, key: value}
        return other

    def replaced(self, old: Any, new: Any) -> FiniteMap:
        """The same map, with ``new`` wherever ``old`` is, which is not 0."""
        if self.count(old) == 0:
            return self
        return FiniteMap({key: new if value == old else value for key, value in self.entries.items()})

    def emptied(self) -> FiniteMap:
        """A map of no entries."""
        return FiniteMap()

    def count(self, value: Any) -> Any:
        """How many keys have ``value``, which is not 0."""
        if not self._tally:
            self._tally.append(Counter(self._base.values()))
        number = self._tally[0][value]
        for key, new in self._changes.items():
            number += (new == value) - (self._base.get(key, 0) == value)
        return number

    def sees(self, key: Any, value: Any) -> None:
        """Nothing to recall: the entries are there."""


@frozen
class Wherever:
    """Every key that has the value ``old``."""

    old: Any


class Everywhere:
    """Every key."""


Place: TypeAlias = "tuple[z3.ArithRef, ...] | Wherever | Everywhere"
"""Where something was put."""


@frozen(eq=False)
class UnknownMap:
    """A map that is not known: ``name`` is its function in z3, with ``arity`` numbers as key."""

    name: str
    arity: int = 1
    changes: tuple[tuple[Place, Any], ...] = ()
    """The changes, in order."""

    def _base(self, key: tuple[z3.ArithRef, ...]) -> Number:
        return Term(formulas.applied(self.name, *key))

    def _base_count(self, value: Number) -> Number:
        number = Term(formulas.applied(f"count {self.name}", expression_of(value)))
        current_path().fact((number >= 0).z3)
        return number

    def __getitem__(self, key: Any) -> Any:
        place = _place(key)
        value: Number = self._base(place)
        for at, change in self.changes:
            value = either(_is_at(at, place, value), change, value)
        return value

    def put(self, key: Key, value: Number) -> UnknownMap:
        """The same map, with ``value`` at ``key``."""
        return evolve(self, changes=(*self.changes, (_place(key), value)))

    def replaced(self, old: Number, new: Number) -> UnknownMap:
        """The same map, with ``new`` wherever ``old`` is, which is not 0."""
        return evolve(self, changes=(*self.changes, (Wherever(old), new)))

    def emptied(self) -> UnknownMap:
        """A map that is 0 everywhere."""
        return evolve(self, changes=(*self.changes, (Everywhere(), 0)))

    def count(self, value: Number) -> Any:
        """How many keys have ``value``, which is not 0."""
        if not self.changes:
            return self._base_count(value)
        before, (at, put) = evolve(self, changes=self.changes[:-1]), self.changes[-1]
        if isinstance(at, Everywhere):
            return 0
        number = before.count(value)
        if isinstance(at, Wherever):
            return either(put == value, _joined(before, at.old, number, put), either(at.old == value, 0, number))
        loses = _one_if(before[at], value)
        current_path().fact(formulas.at_least(expression_of(number), loses.z3))
        return number - loses + _one_if(put, value)

    def sees(self, key: Key, value: Number) -> None:
        """Recall that there is at least one key with ``value`` if ``key`` has it."""
        current_path().fact(formulas.at_least(expression_of(self.count(value)), _one_if(self[key], value).z3))


@frozen(eq=False)
class FilledMap(UnknownMap):
    """The map that has ``value`` from ``first`` to before ``end``, for any of these."""

    first: Number = 0
    end: Number = 0
    value: Number = 0

    def _base(self, key: tuple[z3.ArithRef, ...]) -> Number:
        at = Term(key[0])
        return either((at >= self.first) & (at < self.end), self.value, 0)

    def _base_count(self, value: Number) -> Number:
        there = either(self.end > self.first, self.end - self.first, 0)
        same = formulas.equal(expression_of(value), expression_of(self.value))
        return Term(formulas.chosen(same, expression_of(there), formulas.number(0)))


Map: TypeAlias = "FiniteMap | UnknownMap"


def entries_of(known: Map) -> Mapping[Any, Any]:
    """Every key that has a value, with it, of a map that is known."""
    assert isinstance(known, FiniteMap), "only what is known has entries"
    return known.entries


def filled(first: int, end: Number, value: int) -> Map:
    """The map that has ``value`` from ``first`` to before ``end``."""
    if isinstance(end, Term):
        return FilledMap("filled", first=first, end=end, value=value)
    return FiniteMap(dict.fromkeys(range(first, end), value))


def _joined(before: UnknownMap, old: Number, number: Number, new: Number) -> Number:
    """How many keys have ``new`` once they are joined by those that have ``old``; ``number`` had it before."""
    return either(old == new, number, number + before.count(old))


def _one_if(number: Number, value: Number) -> Term:
    same = formulas.equal(expression_of(number), expression_of(value))
    return Term(formulas.chosen(same, formulas.number(1), formulas.number(0)))


def _place(key: Key) -> tuple[z3.ArithRef, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(part if isinstance(part, z3.ExprRef) else expression_of(part) for part in parts)


def _is_at(at: Place, place: tuple[z3.ArithRef, ...], value: Number) -> Condition:
    """Whether a change at ``at`` reaches ``place``, which has ``value``."""
    if isinstance(at, Everywhere):
        return True
    if isinstance(at, Wherever):
        return Truth(formulas.equal(expression_of(value), expression_of(at.old)))
    assert at is not None
    return Truth(formulas.every(*(formulas.equal(one, other) for one, other in zip(at, place, strict=True))))
