"""The lemmas that other proofs use: products of unknowns, counts in maps, multiples.

The lemmas about products and counts are proved with z3's own products, and with sums over keys, so that nothing rests
on itself. The facts that ``kvspec.symbolic`` and ``kvspec.maps`` state are not written down again here: they are
recorded (``RecordedPath``). From them follow the lemmas about whole units, which z3 does not find by itself.
"""

from __future__ import annotations

from typing import Any

import z3

from kvspec import symbolic
from kvspec.maps import UnknownMap
from kvspec.obligation import AMap, Count, Lemma, Obligation, only
from kvspec.symbolic import (
    LARGER_BY,
    Condition,
    Number,
    Products,
    RealProducts,
    RecordedPath,
    Term,
    Truth,
    either,
    expression_of,
    implies,
    negated,
    on,
)

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
    return so(z3.And(*symbolic.larger(factor, less, factor * less, more, factor * more)))


def _facts_of_products(u: Any) -> Condition:
    """All that is said when ``factor * less``, ``factor * more`` and ``less * more`` are met, in that order."""
    names = ("factor", "less", "more")
    unknown = {name: z3.Int(name) for name in names}
    recorded = RecordedPath()
    met = Products(recorded)  # type: ignore[arg-type]  # it stands for a path
    meant = []
    for first, second in (("factor", "less"), ("more", "factor"), ("less", "more")):
        product = met.of(unknown[first], unknown[second])
        meant.append((product, unknown[first] * unknown[second]))
    formula = z3.substitute(z3.And(*recorded.facts), *meant)
    return so(z3.substitute(formula, *((unknown[name], _read(u, name)) for name in names)))


LARGER = Obligation(
    id="products.larger",
    statements=SUPPORTED,
    title="Of two products with a common factor of at least 0, the one with the larger other factor is larger by "
    "the common factor as many times.",
    unknowns=_signed("factor", "less", "more"),
    claim=_larger,
    witnesses={
        "the difference is not among those said exactly": lambda u: (
            (u.more_size > u.less_size + LARGER_BY) & (u.factor_size > 1) & (u.more_negative == 0) & (u.less_size > 0)
        ),
    },
    mutants=(
        only(
            "larger-by-too-much",
            "A factor that is larger by one is said to make the product larger by twice the other factor.",
            "kvspec.symbolic:larger",
            lambda factor, less, its, more, product: [
                z3.Implies(z3.And(factor >= 0, more > less), product >= its + 2 * factor)
            ],
        ),
    ),
)


LARGER_FOR_ALL_BUT_NEGATIVE = symbolic.larger


def _larger_for_all(*stated: z3.ArithRef) -> list[z3.BoolRef]:
    """A claim about a factor of at least 0, extended to any factor."""
    return [each.arg(1) for each in LARGER_FOR_ALL_BUT_NEGATIVE(*stated)]


STATED = Obligation(
    id="products.said-is-so",
    statements=SUPPORTED,
    title="All that is assumed of products of unknowns holds: compared with each other, and with the "
    "products by 0, by 1 and by the opposite factor.",
    unknowns=_signed("factor", "less", "more"),
    claim=_facts_of_products,
    witnesses={"no factor is trivial": lambda u: (u.factor_size > 2) & (u.less_size > 2) & (u.more_size > u.less_size)},
    mutants=(
        only(
            "for-negative-factors-too",
            "What is so for a factor of at least 0 is said of every factor.",
            "kvspec.symbolic:larger",
            _larger_for_all,
        ),
        only(
            "exactly-beyond-the-difference",
            "That the factor differs by two is said wherever it differs by three.",
            "kvspec.symbolic:larger",
            lambda factor, less, its, more, product: [
                z3.Implies(z3.And(factor >= 0, more == less + 3), product == its + 2 * factor)
            ],
        ),
    ),
)


def _divided(u: Any) -> Condition:
    """If two pairs are quotient and remainder of one division, they are the same pair."""
    recorded = RecordedPath()
    dividend, divisor = z3.Int("dividend"), z3.Int("divisor")
    quotient, remainder = RealProducts(recorded).divided(dividend, divisor)  # type: ignore[arg-type]  # it stands for a path
    known = (dividend, _read(u, "dividend")), (divisor, expression_of(u.divisor))
    one, other = (_read(u, "one"), expression_of(u.one_left)), (_read(u, "other"), expression_of(u.other_left))
    stated = [
        z3.substitute(z3.And(*recorded.facts), *known, (quotient, pair[0]), (remainder, pair[1]))
        for pair in (one, other)
    ]
    return implies(so(z3.And(*stated)), so(z3.And(one[0] == other[0], one[1] == other[1])))


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
    title="A division has only one quotient and one remainder, also where the dividend is negative.",
    unknowns={
        **_signed("dividend", "one", "other"),
        "divisor": Count(1),
        "one_left": Count(0),
        "other_left": Count(0),
    },
    claim=_divided,
    lemmas=lambda u: [Lemma(LARGER, _of_the_divisor(u, "one", "other"))],
    witnesses={"a negative dividend": lambda u: (u.dividend_negative == 1) & (u.dividend_size > u.divisor)},
    mutants=(
        only(
            "remainder-unbounded",
            "A remainder may be as large as the divisor, or larger.",
            "kvspec.symbolic:RealProducts.divided",
            _remainder_unbounded,
        ),
    ),
)


# Counting in maps, by induction over the keys, in any order. The first keys that have a value are counted one by one,
# and each one keeps what is claimed of the count. For no keys nothing is claimed; for all keys the claim is about the
# map.

COUNTED = ("KV-INV-01", "KV-INV-02", "KV-INV-03")
"""Guarantees of which a proof counts."""


def _one_if(number: Number, value: Number) -> Number:
    return either(number == value, 1, 0)


def _change_stated(u: Any) -> Number:
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
    title="A put changes how many keys have a value by one less if the key had it, and one more if it gets it.",
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
    assumes=lambda u: u.count_after - u.count_before == either(u.key < u.keys, _change_stated(u), 0),
    claim=lambda u: (
        (u.count_after + _one_if(_put(u)[u.keys], u.value))
        - (u.count_before + _one_if(_put(u, last=False)[u.keys], u.value))
        == either(u.key < u.keys + 1, _change_stated(u), 0)
    ),
    witnesses={"the count changes": lambda u: (u.key == u.keys) & negated(_change_stated(u) == 0)},
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


def _facts_of_count(u: Any, count: Number) -> Condition:
    """All that is said of how many keys have the value when it is looked at, if there are ``count``."""
    recorded = RecordedPath()
    with on(recorded):  # type: ignore[arg-type]  # it stands for a path
        u.map.sees(u.key, u.value)
        u.map.put(u.key, u.new).count(u.value)
    return so(z3.substitute(z3.And(*recorded.facts), (_counted_base(u.map, u.value).z3, expression_of(count))))


COUNTED_IF_SEEN = Obligation(
    id="products.seen-is-counted",
    statements=COUNTED,
    title="At least one key has a value if a key is seen to have it.",
    unknowns={
        "map": AMap(),
        "key": Count(0),
        "new": Count(0),
        "value": Count(1),
        "keys": Count(0),
        "count": Count(0),
    },
    assumes=lambda u: implies(u.key < u.keys, _facts_of_count(u, u.count)),
    claim=lambda u: implies(u.key < u.keys + 1, _facts_of_count(u, u.count + _one_if(u.map[u.keys], u.value))),
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

OF_PRODUCTS = (LARGER, STATED, DIVIDED, PUT, COUNTED_IF_SEEN)


ON_REPLACING = ("KV-INV-03", "KV-INV-05")


def _one_if_equal(number: Any, value: Any) -> Any:
    return either(number == value, 1, 0)


def _replaced(u: Any) -> Any:
    return u.map.replaced(u.old, u.new)


def _stated(u: Any) -> Any:
    """How many more keys are said to have the value after the replacement."""
    return _replaced(u).count(u.value) - u.map.count(u.value)


def _is_stated_of(u: Any, values: Any, olds: Any, count: Any) -> Any:
    """That ``count`` keys have the value now, of keys of which ``values`` had it and ``olds`` had the old one."""
    gains = either(u.new == u.value, either(u.old == u.value, 0, olds), 0)
    loses = either((u.old == u.value) & (u.new != u.value), values, 0)
    return count == values + gains - loses


def _count_of_replaced(self: UnknownMap, value: Any) -> Any:
    return self._base_count(value)


# Key by key, as for ``products.put-changes-count``: what is said of some keys stays so with the next one, and of all
# keys it is what ``UnknownMap.count`` says.
REPLACED = Obligation(
    id="counting.replacement-joins",
    statements=ON_REPLACING,
    title="Where one value is replaced by another, no key has the one any more, and the other has its own keys and "
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
    assumes=lambda u: _is_stated_of(u, u.values, u.olds, u.count) & ((u.old != u.value) | (u.olds == u.values)),
    claim=lambda u: (
        _is_stated_of(
            u,
            u.values + _one_if_equal(u.map[u.keys], u.value),
            u.olds + _one_if_equal(u.map[u.keys], u.old),
            u.count + _one_if_equal(_replaced(u)[u.keys], u.value),
        )
        & _is_stated_of(u, u.map.count(u.value), u.map.count(u.old), _replaced(u).count(u.value))
    ),
    witnesses={
        "the old is replaced by the value": lambda u: (
            (u.new == u.value) & (u.old != u.value) & (u.map[u.keys] == u.old) & (_stated(u) >= 2)
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

OF_COUNTS = (REPLACED,)


def product_of_three(first: Any, second: Any, third: Any) -> Any:
    """The product, the last two multiplied first."""
    return first * (second * third)


ORDER = Obligation(
    id="products.order-of-factors",
    statements=SUPPORTED,
    title="In which order three numbers are multiplied makes no difference.",
    unknowns={"first": Count(0), "second": Count(0), "third": Count(0)},
    claim=lambda u: product_of_three(u.first, u.second, u.third) == product_of_three(u.second, u.first, u.third),
    witnesses={"no factor is trivial": lambda u: (u.first >= 2) & (u.second > u.first) & (u.third >= 2)},
    mutants=(
        only(
            "a-factor-is-added",
            "One of the factors is added instead.",
            "kvspec.proofs.lemmas:product_of_three",
            lambda first, second, third: first * (second + third),
        ),
    ),
)


def is_multiple(number: Any, unit: Any) -> Any:
    """Whether ``number`` is a whole number of units."""
    return number % unit == 0


def _order(u: Any) -> tuple[Lemma, ...]:
    times = u.multiple // u.unit
    return (Lemma(ORDER, {"first": u.factor, "second": u.unit, "third": times}),)


MULTIPLE = Obligation(
    id="products.multiple-of-multiple",
    statements=SUPPORTED,
    title="Any number of stretches of whole blocks is whole blocks: a multiple of a multiple is a multiple.",
    unknowns={"factor": Count(0), "multiple": Count(0), "unit": Count(1)},
    assumes=lambda u: is_multiple(u.multiple, u.unit),
    claim=lambda u: is_multiple(u.factor * u.multiple, u.unit),
    lemmas=_order,
    witnesses={"neither is trivial": lambda u: (u.factor >= 2) & (u.unit >= 2) & (u.multiple > u.unit)},
    mutants=(
        only(
            "one-over-is-none",
            "A remainder of one is taken for none.",
            "kvspec.proofs.lemmas:is_multiple",
            lambda number, unit: number % unit <= 1,
        ),
    ),
)


def product_of_sum(factor: Any, first: Any, second: Any) -> Any:
    """The product by a sum."""
    return factor * (first + second)


SUM = Obligation(
    id="products.sum",
    statements=SUPPORTED,
    title="To multiply a sum is to multiply each part of it.",
    unknowns={"factor": Count(0), "first": Count(0), "second": Count(0)},
    claim=lambda u: product_of_sum(u.factor, u.first, u.second) == u.factor * u.first + u.factor * u.second,
    witnesses={"no part is trivial": lambda u: (u.factor >= 2) & (u.second > u.first) & (u.first >= 2)},
    mutants=(
        only(
            "a-part-is-not-multiplied",
            "Only the first part of the sum is multiplied.",
            "kvspec.proofs.lemmas:product_of_sum",
            lambda factor, first, second: factor * first + second,
        ),
    ),
)


def quotient_of_sum(first: Any, second: Any, unit: Any) -> Any:
    """How many whole units two numbers have together."""
    return (first + second) // unit


def _parts(u: Any) -> tuple[Lemma, ...]:
    return (Lemma(SUM, {"factor": u.unit, "first": u.multiple // u.unit, "second": u.other // u.unit}),)


SUM_OF_MULTIPLES = Obligation(
    id="products.sum-of-multiples",
    statements=SUPPORTED,
    title="To add whole units to a number adds as many units, and leaves its remainder as it is.",
    unknowns={"multiple": Count(0), "other": Count(0), "unit": Count(1)},
    assumes=lambda u: u.multiple % u.unit == 0,
    claim=lambda u: (
        (quotient_of_sum(u.multiple, u.other, u.unit) == u.multiple // u.unit + u.other // u.unit)
        & ((u.multiple + u.other) % u.unit == u.other % u.unit)
    ),
    lemmas=_parts,
    witnesses={"a remainder is left": lambda u: (u.other % u.unit > 0) & (u.multiple > u.unit) & (u.other > u.unit)},
    mutants=(
        only(
            "rounded-up",
            "A unit that is begun is counted as a whole one.",
            "kvspec.proofs.lemmas:quotient_of_sum",
            lambda first, second, unit: -(-(first + second) // unit),
        ),
    ),
)


def left_over(number: Any, block: Any) -> Any:
    """What lies after the last whole block."""
    return number % block


def _split(u: Any) -> tuple[Lemma, ...]:
    blocks = u.number // u.block
    return (
        Lemma(MULTIPLE, {"factor": blocks, "multiple": u.block, "unit": u.unit}),
        Lemma(SUM_OF_MULTIPLES, {"multiple": blocks * u.block, "other": left_over(u.number, u.block), "unit": u.unit}),
    )


REMAINDER = Obligation(
    id="products.remainder-of-multiple",
    statements=SUPPORTED,
    title="If blocks are whole units, the remainder of whole units after the last block is whole units, and at least "
    "a unit is missing to the next block.",
    unknowns={"number": Count(0), "block": Count(1), "unit": Count(1)},
    assumes=lambda u: (u.number % u.unit == 0) & (u.block % u.unit == 0),
    claim=lambda u: (left_over(u.number, u.block) % u.unit == 0) & (left_over(u.number, u.block) + u.unit <= u.block),
    lemmas=_split,
    witnesses={"some are left": lambda u: (u.number > u.block) & (u.number % u.block > u.unit) & (u.unit >= 2)},
    mutants=(
        only(
            "next-block-counted",
            "What is left over is counted from the block before.",
            "kvspec.proofs.lemmas:left_over",
            lambda number, block: number % block + block,
        ),
    ),
)

OF_MULTIPLES = (ORDER, SUM, MULTIPLE, SUM_OF_MULTIPLES, REMAINDER)
OBLIGATIONS = (*OF_PRODUCTS, *OF_COUNTS, *OF_MULTIPLES)
