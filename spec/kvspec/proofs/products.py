"""The lemmas on which other proofs rest: what is said of products of unknowns, and of counts in maps, is so.

They are about z3's own products, and about sums over keys, so that nothing rests on itself. What ``kvspec.products``
and ``kvspec.maps`` say is not written down again here: it is listened to.
"""

from __future__ import annotations

from typing import Any

import z3

from kvspec import products
from kvspec.heard import Heard
from kvspec.maps import UnknownMap
from kvspec.obligation import AMap, Count, Lemma, Obligation, only
from kvspec.products import LARGER_BY, Products, RealProducts
from kvspec.symbolic import Condition, Number, Term, Truth, either, expression_of, implies, negated, on

SUPPORTED = ("KV-OP-01", "KV-OP-06", "KV-OP-15", "KV-OP-16")
"""Guarantees of which a proof multiplies or divides unknowns."""


def _integer(size: Number, negative: Number) -> z3.ArithRef:
    """Any integer, from two numbers that are not negative."""
    return expression_of(-size if negative else size)


def so(formula: z3.BoolRef) -> Condition:
    """``formula`` as a condition: a bool if nothing in it is unknown."""
    simple = z3.simplify(formula)
    return bool(z3.is_true(simple)) if z3.is_true(simple) or z3.is_false(simple) else Truth(formula)


SIGNED = {name: Count(0, most) for name, most in (("size", None), ("negative", 1))}


def _signed(*names: str) -> dict[str, Count]:
    return {f"{name}_{part}": count for name in names for part, count in SIGNED.items()}


def _read(u: Any, name: str) -> z3.ArithRef:
    return _integer(getattr(u, f"{name}_size"), getattr(u, f"{name}_negative"))


def _larger(u: Any) -> Condition:
    factor, less, more = (_read(u, name) for name in ("factor", "less", "more"))
    return so(z3.And(*products.larger(factor, less, factor * less, more, factor * more)))


def _said_of_products(u: Any) -> Condition:
    """All that is said when ``factor * less``, ``factor * more`` and ``less * more`` are met, in that order."""
    names = ("factor", "less", "more")
    unknown = {name: z3.Int(name) for name in names}
    heard = Heard()
    met = Products(heard)  # type: ignore[arg-type]  # it stands for a path
    meant = []
    for first, second in (("factor", "less"), ("more", "factor"), ("less", "more")):
        product = met.of(unknown[first], unknown[second])
        meant.append((product, unknown[first] * unknown[second]))
    formula = z3.substitute(z3.And(*heard.facts), *meant)
    return so(z3.substitute(formula, *((unknown[name], _read(u, name)) for name in names)))


LARGER = Obligation(
    id="products.larger",
    statements=SUPPORTED,
    sentence="Of two products with a common factor of at least 0, the one with the larger other factor is larger by "
    "the common factor as many times.",
    unknowns=_signed("factor", "less", "more"),
    shows=_larger,
    witnesses={
        "the difference is not among those said exactly": lambda u: (
            (u.more_size > u.less_size + LARGER_BY) & (u.factor_size > 1) & (u.more_negative == 0) & (u.less_size > 0)
        ),
    },
    mutants=(
        only(
            "larger-by-too-much",
            "A factor that is larger by one is said to make the product larger by twice the other factor.",
            "kvspec.products:larger",
            lambda factor, less, its, more, product: [
                z3.Implies(z3.And(factor >= 0, more > less), product >= its + 2 * factor)
            ],
        ),
    ),
)


LARGER_FOR_ALL_BUT_NEGATIVE = products.larger


def _larger_for_all(*said: z3.ArithRef) -> list[z3.BoolRef]:
    """What is said of a factor of at least 0, said of any."""
    return [each.arg(1) for each in LARGER_FOR_ALL_BUT_NEGATIVE(*said)]


SAID = Obligation(
    id="products.said-is-so",
    statements=SUPPORTED,
    sentence="Whatever is said when products of unknowns are met is so: compared with each other, and with the "
    "products by 0, by 1 and by the opposite factor.",
    unknowns=_signed("factor", "less", "more"),
    shows=_said_of_products,
    witnesses={"no factor is trivial": lambda u: (u.factor_size > 2) & (u.less_size > 2) & (u.more_size > u.less_size)},
    mutants=(
        only(
            "for-negative-factors-too",
            "What is so for a factor of at least 0 is said of every factor.",
            "kvspec.products:larger",
            _larger_for_all,
        ),
        only(
            "exactly-beyond-the-difference",
            "That the factor differs by two is said wherever it differs by three.",
            "kvspec.products:larger",
            lambda factor, less, its, more, product: [
                z3.Implies(z3.And(factor >= 0, more == less + 3), product == its + 2 * factor)
            ],
        ),
    ),
)


def _divided(u: Any) -> Condition:
    """Whatever two pairs are said to be quotient and remainder of one division, they are the same pair."""
    heard = Heard()
    dividend, divisor = z3.Int("dividend"), z3.Int("divisor")
    quotient, remainder = RealProducts(heard).divided(dividend, divisor)  # type: ignore[arg-type]  # it stands for a path
    known = (dividend, _read(u, "dividend")), (divisor, expression_of(u.divisor))
    one, other = (_read(u, "one"), expression_of(u.one_left)), (_read(u, "other"), expression_of(u.other_left))
    said = [
        z3.substitute(z3.And(*heard.facts), *known, (quotient, pair[0]), (remainder, pair[1])) for pair in (one, other)
    ]
    return implies(so(z3.And(*said)), so(z3.And(one[0] == other[0], one[1] == other[1])))


def _of_the_divisor(u: Any, less: str, more: str) -> dict[str, Any]:
    """Two multiples of the divisor, as they are compared."""
    values = {"factor_size": u.divisor, "factor_negative": 0}
    for name, its in (("less", less), ("more", more)):
        values |= {f"{name}_{part}": getattr(u, f"{its}_{part}") for part in ("size", "negative")}
    return values


def _remainder_unbounded(self: RealProducts, dividend: Any, divisor: Any) -> tuple[z3.ArithRef, z3.ArithRef]:
    quotient, remainder = self.path.fresh("quotient"), self.path.fresh("remainder")
    self.path.fact(z3.And(self.of(divisor, quotient) + remainder == dividend, remainder >= 0))
    return quotient, remainder


DIVIDED = Obligation(
    id="products.one-quotient",
    statements=SUPPORTED,
    sentence="What is said of a division is so of one quotient and one remainder alone, also where the dividend is "
    "negative.",
    unknowns={
        **_signed("dividend", "one", "other"),
        "divisor": Count(1),
        "one_left": Count(0),
        "other_left": Count(0),
    },
    shows=_divided,
    lemmas=lambda u: [Lemma(LARGER, _of_the_divisor(u, "one", "other"))],
    witnesses={"a negative dividend": lambda u: (u.dividend_negative == 1) & (u.dividend_size > u.divisor)},
    mutants=(
        only(
            "remainder-unbounded",
            "A remainder may be as large as the divisor, or larger.",
            "kvspec.products:RealProducts.divided",
            _remainder_unbounded,
        ),
    ),
)


# Counting in maps, by induction over the keys, numbered in any order. How many of the first ones have a value is
# counted key by key, and what is said of the count goes on to be so with each: of none of them nothing is said, and of
# all of them it is said of the map.

COUNTED = ("KV-INV-01", "KV-INV-02", "KV-INV-03")
"""Guarantees of which a proof counts."""


def _one_if(number: Number, value: Number) -> Number:
    return either(number == value, 1, 0)


def _change_said(u: Any) -> Number:
    """By how much a put is said to change the count."""
    changed: Number = _put(u).count(u.value) - _put(u, last=False).count(u.value)
    return changed


def _put(u: Any, last: bool = True) -> Any:
    """A map in which something was put before, perhaps at the same key."""
    before = u.map.put(u.first_key, u.first)
    return before.put(u.key, u.new) if last else before


PUT = Obligation(
    id="products.put-changes-count",
    statements=COUNTED,
    sentence="A put changes how many keys have a value by one less if the key had it, and one more if it gets it.",
    unknowns={
        "map": AMap(),
        "first_key": Count(0),
        "first": Count(0),
        "key": Count(0),
        "new": Count(0),
        "value": Count(1),
        "keys": Count(0),
        "count_before": Count(0),
        "count_after": Count(0),
    },
    given=lambda u: u.count_after - u.count_before == either(u.key < u.keys, _change_said(u), 0),
    shows=lambda u: (
        (u.count_after + _one_if(_put(u)[u.keys], u.value))
        - (u.count_before + _one_if(_put(u, last=False)[u.keys], u.value))
        == either(u.key < u.keys + 1, _change_said(u), 0)
    ),
    witnesses={"the count changes": lambda u: (u.key == u.keys) & negated(_change_said(u) == 0)},
    mutants=(
        only(
            "what-was-there-is-forgotten",
            "A value that is put over another is counted, and the other is not taken away.",
            "kvspec.maps:UnknownMap.count",
            lambda self, value: _counted_base(self, value) + sum(_one_if(put, value) for _, put in self.changes),
        ),
    ),
)


def _counted_base(changed: UnknownMap, value: Number) -> Term:
    count = z3.Function(f"count {changed.name}", z3.IntSort(), z3.IntSort())
    return Term(count(expression_of(value)))


def _said_of_count(u: Any, count: Number) -> Condition:
    """All that is said of how many keys have the value when it is looked at, if there are ``count``."""
    heard = Heard()
    with on(heard):  # type: ignore[arg-type]  # it stands for a path
        u.map.sees(u.key, u.value)
        u.map.put(u.key, u.new).count(u.value)
    return so(z3.substitute(z3.And(*heard.facts), (_counted_base(u.map, u.value).z3, expression_of(count))))


SEEN = Obligation(
    id="products.seen-is-counted",
    statements=COUNTED,
    sentence="At least one key has a value if a key is seen to have it.",
    unknowns={
        "map": AMap(),
        "key": Count(0),
        "new": Count(0),
        "value": Count(1),
        "keys": Count(0),
        "count": Count(0),
    },
    given=lambda u: implies(u.key < u.keys, _said_of_count(u, u.count)),
    shows=lambda u: implies(u.key < u.keys + 1, _said_of_count(u, u.count + _one_if(u.map[u.keys], u.value))),
    witnesses={"the value is seen": lambda u: (u.key < u.keys) & (u.map[u.key] == u.value)},
    mutants=(
        only(
            "seen-counts-twice",
            "A key that is seen is said to be two.",
            "kvspec.maps:_one_if",
            lambda number, value: Term(
                z3.If(expression_of(number) == expression_of(value), z3.IntVal(2), z3.IntVal(0))
            ),
        ),
    ),
)

OBLIGATIONS = (LARGER, SAID, DIVIDED, PUT, SEEN)
