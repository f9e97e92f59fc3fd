"""z3's terms of integers and truths, made by its own functions directly, and each only once.

Its Python operators ask the sort of each operand anew, which takes longer than to make the term. z3 itself rejects
operands that do not fit.

Code is run again for every path, and makes mostly the terms that it made before. So the last of them are kept, by
what they are made of: a term that is found needs no call of z3.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import z3

_CONTEXT = z3.main_ctx()
_IN = _CONTEXT.ref()
KEPT_MAX = 1 << 15
"""How many terms of each kind are kept."""
_kept = lru_cache(KEPT_MAX)


class _Number(z3.ArithRef):  # type: ignore[misc]  # z3 has no types
    """A number that is found by which object it is: z3's own hash is a call."""

    __hash__ = object.__hash__


class _Numeral(z3.IntNumRef):  # type: ignore[misc]  # z3 has no types
    """The same of a number that is known."""

    __hash__ = object.__hash__


class _Truth(z3.BoolRef):  # type: ignore[misc]  # z3 has no types
    """The same of a truth."""

    __hash__ = object.__hash__


def _pair(first: z3.ExprRef, second: z3.ExprRef) -> Any:
    return (z3.Ast * 2)(first.ast, second.ast)


@_kept
def number(value: int) -> z3.ArithRef:
    """The term of a number."""
    return _Numeral(z3.IntVal(value).ast, _CONTEXT)


@_kept
def unknown(name: str) -> z3.ArithRef:
    """The unknown number ``name``."""
    return _Number(z3.Int(name).ast, _CONTEXT)


@_kept
def plus(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """Their sum."""
    return _Number(z3.Z3_mk_add(_IN, 2, _pair(first, second)), _CONTEXT)


@_kept
def minus(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """Their difference."""
    return _Number(z3.Z3_mk_sub(_IN, 2, _pair(first, second)), _CONTEXT)


@_kept
def times(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """Their product."""
    return _Number(z3.Z3_mk_mul(_IN, 2, _pair(first, second)), _CONTEXT)


@_kept
def negative(of: z3.ArithRef) -> z3.ArithRef:
    """The number with the opposite sign."""
    return _Number(z3.Z3_mk_unary_minus(_IN, of.ast), _CONTEXT)


@_kept
def quotient(dividend: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
    """What z3 calls the quotient."""
    return _Number(z3.Z3_mk_div(_IN, dividend.ast, divisor.ast), _CONTEXT)


@_kept
def remainder(dividend: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
    """What z3 calls the remainder: it is never negative."""
    return _Number(z3.Z3_mk_mod(_IN, dividend.ast, divisor.ast), _CONTEXT)


@_kept
def less(first: z3.ArithRef, second: z3.ArithRef) -> z3.BoolRef:
    """That the first is less."""
    return _Truth(z3.Z3_mk_lt(_IN, first.ast, second.ast), _CONTEXT)


@_kept
def at_most(first: z3.ArithRef, second: z3.ArithRef) -> z3.BoolRef:
    """That the first is less, or they are equal."""
    return _Truth(z3.Z3_mk_le(_IN, first.ast, second.ast), _CONTEXT)


@_kept
def at_least(first: z3.ArithRef, second: z3.ArithRef) -> z3.BoolRef:
    """That the first is more, or they are equal."""
    return _Truth(z3.Z3_mk_ge(_IN, first.ast, second.ast), _CONTEXT)


@_kept
def equal(first: z3.ExprRef, second: z3.ExprRef) -> z3.BoolRef:
    """That two numbers, or two truths, are equal."""
    return _Truth(z3.Z3_mk_eq(_IN, first.ast, second.ast), _CONTEXT)


@_kept
def opposite(formula: z3.BoolRef) -> z3.BoolRef:
    """That it is not so."""
    return _Truth(z3.Z3_mk_not(_IN, formula.ast), _CONTEXT)


@_kept
def every(*parts: z3.BoolRef) -> z3.BoolRef:
    """That all are so."""
    return _Truth(z3.Z3_mk_and(_IN, len(parts), (z3.Ast * len(parts))(*(each.ast for each in parts))), _CONTEXT)


@_kept
def one_of(first: z3.BoolRef, second: z3.BoolRef) -> z3.BoolRef:
    """That at least one is so."""
    return _Truth(z3.Z3_mk_or(_IN, 2, _pair(first, second)), _CONTEXT)


@_kept
def chosen(formula: z3.BoolRef, first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """The first if ``formula`` is so, else the second."""
    return _Number(z3.Z3_mk_ite(_IN, formula.ast, first.ast, second.ast), _CONTEXT)


@_kept
def _function(name: str, arity: int) -> z3.FuncDeclRef:
    return z3.Function(name, *[z3.IntSort()] * (arity + 1))


@_kept
def applied(name: str, *key: z3.ArithRef) -> z3.ArithRef:
    """The value of the unknown function ``name`` of so many numbers."""
    arguments = (z3.Ast * len(key))(*(each.ast for each in key))
    return _Number(z3.Z3_mk_app(_IN, _function(name, len(key)).ast, len(key), arguments), _CONTEXT)


@_kept
def simple(formula: z3.BoolRef) -> z3.BoolRef:
    """The same formula, simplified."""
    return _Truth(z3.Z3_simplify(_IN, formula.ast), _CONTEXT)


@_kept
def simple_number(expression: z3.ArithRef) -> z3.ArithRef:
    """The same number, simplified."""
    found = z3.Z3_simplify(_IN, expression.ast)
    return (_Numeral if z3.Z3_is_numeral_ast(_IN, found) else _Number)(found, _CONTEXT)


@_kept
def is_known(expression: z3.ArithRef) -> bool:
    """Whether ``expression`` is a number that is the same for all values of the unknowns."""
    return isinstance(simple_number(expression), _Numeral)


def is_same(first: z3.ExprRef, second: z3.ExprRef) -> bool:
    """Whether both are one term: z3 makes no two that are written alike."""
    return first is second or bool(first.ast.value == second.ast.value)


TRUE = _Truth(z3.BoolVal(True).ast, _CONTEXT)
FALSE = _Truth(z3.BoolVal(False).ast, _CONTEXT)


def truth_if_known(formula: z3.BoolRef) -> bool | None:
    """Whether ``formula`` is true or false for all values of its unknowns; None if that needs a search."""
    found = simple(formula)
    return True if is_same(found, TRUE) else False if is_same(found, FALSE) else None


def is_so(formula: z3.BoolRef, example: z3.ModelRef) -> bool:
    """Whether it is so in an ``example``, with any values for what the example leaves open."""
    found = (z3.Ast * 1)()
    known = z3.Z3_model_eval(_IN, example.model, formula.ast, True, found)
    return bool(known) and found[0].value == TRUE.ast.value


def value(expression: z3.ArithRef, example: z3.ModelRef) -> int:
    """The number that it is in an ``example``, with any values for what the example leaves open."""
    found = (z3.Ast * 1)()
    z3.Z3_model_eval(_IN, example.model, expression.ast, True, found)
    return int(z3.Z3_get_numeral_string(_IN, found[0]))


def add(solver: z3.Solver, formula: z3.BoolRef) -> None:
    """The solver knows it."""
    z3.Z3_solver_assert(_IN, solver.solver, formula.ast)


def answer(solver: z3.Solver, formula: z3.BoolRef) -> z3.CheckSatResult:
    """Whether all that the solver knows, and ``formula`` as well, can be so."""
    asked = (z3.Ast * 1)(formula.ast)
    return z3.CheckSatResult(z3.Z3_solver_check_assumptions(_IN, solver.solver, 1, asked))
