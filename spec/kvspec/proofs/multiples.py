"""Arithmetic of whole units: what follows for multiples, and is too far from a single product for z3 to see alone.

The first two are proved with z3's own products. The others are proved from them, and are lemmas for the chapters.
"""

from __future__ import annotations

from typing import Any

from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.products import SUPPORTED


def product_of_three(first: Any, second: Any, third: Any) -> Any:
    """The product, the last two multiplied first."""
    return first * (second * third)


ORDER = Obligation(
    id="products.order-of-factors",
    statements=SUPPORTED,
    sentence="In which order three numbers are multiplied makes no difference.",
    unknowns={"first": Count(0), "second": Count(0), "third": Count(0)},
    shows=lambda u: product_of_three(u.first, u.second, u.third) == product_of_three(u.second, u.first, u.third),
    witnesses={"no factor is trivial": lambda u: (u.first >= 2) & (u.second > u.first) & (u.third >= 2)},
    mutants=(
        only(
            "a-factor-is-added",
            "One of the factors is added instead.",
            "kvspec.proofs.multiples:product_of_three",
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
    sentence="Any number of stretches of whole blocks is whole blocks: a multiple of a multiple is a multiple.",
    unknowns={"factor": Count(0), "multiple": Count(0), "unit": Count(1)},
    given=lambda u: is_multiple(u.multiple, u.unit),
    shows=lambda u: is_multiple(u.factor * u.multiple, u.unit),
    lemmas=_order,
    witnesses={"neither is trivial": lambda u: (u.factor >= 2) & (u.unit >= 2) & (u.multiple > u.unit)},
    mutants=(
        only(
            "one-over-is-none",
            "A remainder of one is taken for none.",
            "kvspec.proofs.multiples:is_multiple",
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
    sentence="To multiply a sum is to multiply each part of it.",
    unknowns={"factor": Count(0), "first": Count(0), "second": Count(0)},
    shows=lambda u: product_of_sum(u.factor, u.first, u.second) == u.factor * u.first + u.factor * u.second,
    witnesses={"no part is trivial": lambda u: (u.factor >= 2) & (u.second > u.first) & (u.first >= 2)},
    mutants=(
        only(
            "a-part-is-not-multiplied",
            "Only the first part of the sum is multiplied.",
            "kvspec.proofs.multiples:product_of_sum",
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
    sentence="To add whole units to a number adds as many units, and leaves its remainder as it is.",
    unknowns={"multiple": Count(0), "other": Count(0), "unit": Count(1)},
    given=lambda u: u.multiple % u.unit == 0,
    shows=lambda u: (
        (quotient_of_sum(u.multiple, u.other, u.unit) == u.multiple // u.unit + u.other // u.unit)
        & ((u.multiple + u.other) % u.unit == u.other % u.unit)
    ),
    lemmas=_parts,
    witnesses={"a remainder is left": lambda u: (u.other % u.unit > 0) & (u.multiple > u.unit) & (u.other > u.unit)},
    mutants=(
        only(
            "rounded-up",
            "A unit that is begun is counted as a whole one.",
            "kvspec.proofs.multiples:quotient_of_sum",
            lambda first, second, unit: -(-(first + second) // unit),
        ),
    ),
)


def left_over(number: Any, block: Any) -> Any:
    """What lies behind the last whole block."""
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
    sentence="What whole units leave over behind the last block is whole units, if blocks are, and at least a unit is "
    "missing to the next block.",
    unknowns={"number": Count(0), "block": Count(1), "unit": Count(1)},
    given=lambda u: (u.number % u.unit == 0) & (u.block % u.unit == 0),
    shows=lambda u: (left_over(u.number, u.block) % u.unit == 0) & (left_over(u.number, u.block) + u.unit <= u.block),
    lemmas=_split,
    witnesses={"some are left": lambda u: (u.number > u.block) & (u.number % u.block > u.unit) & (u.unit >= 2)},
    mutants=(
        only(
            "next-block-counted",
            "What is left over is counted from the block before.",
            "kvspec.proofs.multiples:left_over",
            lambda number, block: number % block + block,
        ),
    ),
)

OBLIGATIONS = (ORDER, SUM, MULTIPLE, SUM_OF_MULTIPLES, REMAINDER)
