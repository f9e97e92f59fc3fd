"""z3's terms of integers and truths, made by its own functions directly.

Its Python operators ask the sort of each operand anew, which takes longer than to make the term. z3 itself rejects
operands that do not fit.
"""

from __future__ import annotations

from functools import lru_cache

import z3

_CONTEXT = z3.main_ctx()
_IN = _CONTEXT.ref()
KEPT_MAX = 4096
"""How many numbers and functions are kept."""


@lru_cache(KEPT_MAX)
def number(value: int) -> z3.ArithRef:
    """The term of a number."""
    return z3.IntVal(value)


def plus(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """Their sum."""
    return z3.ArithRef(z3.Z3_mk_add(_IN, 2, (z3.Ast * 2)(first.ast, second.ast)), _CONTEXT)


def minus(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """Their difference."""
    return z3.ArithRef(z3.Z3_mk_sub(_IN, 2, (z3.Ast * 2)(first.ast, second.ast)), _CONTEXT)


def less(first: z3.ArithRef, second: z3.ArithRef) -> z3.BoolRef:
    """That the first is less."""
    return z3.BoolRef(z3.Z3_mk_lt(_IN, first.ast, second.ast), _CONTEXT)


def at_most(first: z3.ArithRef, second: z3.ArithRef) -> z3.BoolRef:
    """That the first is less, or they are equal."""
    return z3.BoolRef(z3.Z3_mk_le(_IN, first.ast, second.ast), _CONTEXT)


def equal(first: z3.ExprRef, second: z3.ExprRef) -> z3.BoolRef:
    """That two numbers, or two truths, are equal."""
    return z3.BoolRef(z3.Z3_mk_eq(_IN, first.ast, second.ast), _CONTEXT)


def opposite(formula: z3.BoolRef) -> z3.BoolRef:
    """That it is not so."""
    return z3.BoolRef(z3.Z3_mk_not(_IN, formula.ast), _CONTEXT)


def every(*parts: z3.BoolRef) -> z3.BoolRef:
    """That all are so."""
    return z3.BoolRef(z3.Z3_mk_and(_IN, len(parts), (z3.Ast * len(parts))(*(each.ast for each in parts))), _CONTEXT)


def one_of(first: z3.BoolRef, second: z3.BoolRef) -> z3.BoolRef:
    """That at least one is so."""
    return z3.BoolRef(z3.Z3_mk_or(_IN, 2, (z3.Ast * 2)(first.ast, second.ast)), _CONTEXT)


def chosen(formula: z3.BoolRef, first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """The first if ``formula`` is so, else the second."""
    return z3.ArithRef(z3.Z3_mk_ite(_IN, formula.ast, first.ast, second.ast), _CONTEXT)


@lru_cache(KEPT_MAX)
def _function(name: str, arity: int) -> z3.FuncDeclRef:
    return z3.Function(name, *[z3.IntSort()] * (arity + 1))


def applied(name: str, *key: z3.ArithRef) -> z3.ArithRef:
    """The value of the unknown function ``name`` of so many numbers."""
    arguments = (z3.Ast * len(key))(*(each.ast for each in key))
    return z3.ArithRef(z3.Z3_mk_app(_IN, _function(name, len(key)).ast, len(key), arguments), _CONTEXT)


def simple(formula: z3.BoolRef) -> z3.BoolRef:
    """The same formula, simplified."""
    return z3.BoolRef(z3.Z3_simplify(_IN, formula.ast), _CONTEXT)


def is_so(formula: z3.BoolRef, example: z3.ModelRef) -> bool:
    """Whether it is so in an ``example``, with any values for what the example leaves open."""
    found = (z3.Ast * 1)()
    known = z3.Z3_model_eval(_IN, example.model, formula.ast, True, found)
    return bool(known) and z3.is_true(z3.BoolRef(found[0], _CONTEXT))


def add(solver: z3.Solver, formula: z3.BoolRef) -> None:
    """The solver knows it."""
    z3.Z3_solver_assert(_IN, solver.solver, formula.ast)
