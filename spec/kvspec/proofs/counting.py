"""What is assumed of counting where a value is replaced by another wherever it stands: see ``kvspec.maps``."""

from __future__ import annotations

from typing import Any

from kvspec.maps import UnknownMap
from kvspec.obligation import AMap, Count, Obligation, only
from kvspec.symbolic import either

COUNTED = ("KV-INV-03", "KV-INV-05")


def _one_if(number: Any, value: Any) -> Any:
    return either(number == value, 1, 0)


def _replaced(u: Any) -> Any:
    return u.map.replaced(u.old, u.new)


def _said(u: Any) -> Any:
    """How many more keys are said to have the value after the replacement."""
    return _replaced(u).count(u.value) - u.map.count(u.value)


def _is_said_of(u: Any, values: Any, olds: Any, count: Any) -> Any:
    """That ``count`` keys have the value now, of keys of which ``values`` had it and ``olds`` had the old one."""
    gains = either(u.new == u.value, either(u.old == u.value, 0, olds), 0)
    loses = either((u.old == u.value) & (u.new != u.value), values, 0)
    return count == values + gains - loses


def _count_of_replaced(self: UnknownMap, value: Any) -> Any:
    return self._base_count(value)


# Key by key, as for ``products.put-changes-count``: what is said of some keys goes on to be so with the next one, and
# of all keys it is what ``UnknownMap.count`` says.
REPLACED = Obligation(
    id="counting.replacement-joins",
    statements=COUNTED,
    sentence="Where one value is replaced by another, no key has the one any more, and the other has its own keys and "
    "those.",
    unknowns={
        "map": AMap(),
        "old": Count(1),
        "new": Count(0),
        "value": Count(1),
        "keys": Count(0),
        "values": Count(0),
        "olds": Count(0),
        "count": Count(0),
    },
    given=lambda u: _is_said_of(u, u.values, u.olds, u.count) & ((u.old != u.value) | (u.olds == u.values)),
    shows=lambda u: (
        _is_said_of(
            u,
            u.values + _one_if(u.map[u.keys], u.value),
            u.olds + _one_if(u.map[u.keys], u.old),
            u.count + _one_if(_replaced(u)[u.keys], u.value),
        )
        & _is_said_of(u, u.map.count(u.value), u.map.count(u.old), _replaced(u).count(u.value))
    ),
    witnesses={
        "the old is replaced by the value": lambda u: (
            (u.new == u.value) & (u.old != u.value) & (u.map[u.keys] == u.old) & (_said(u) >= 2)
        )
    },
    mutants=(
        only(
            "a-replacement-is-not-counted",
            "What a value is replaced by is counted as if nothing had been replaced.",
            "kvspec.maps:UnknownMap.count",
            _count_of_replaced,
        ),
    ),
)

OBLIGATIONS = (REPLACED,)
