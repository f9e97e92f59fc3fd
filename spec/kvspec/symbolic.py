"""Numbers that stand for all numbers: z3 terms that Python code runs on, and all paths that such a run can take.

A formula of the reference is run as it is, on a ``Term`` in place of an int. At a condition, in an ``if``, a ``max`` or
an ``and``, the run takes one of the two branches, and ``all_paths`` runs it again for the other. So what is proved is
the code that runs, and not a transcription of it. A branch that contradicts the decisions before it is not taken. When
z3 cannot decide, it is taken: an impossible path costs time, and proves nothing wrong.

Floor division and remainder are Python's, by a positive divisor only. By an unknown divisor they are a new quotient
and remainder with ``divisor * quotient + remainder = dividend``.

z3 can decide almost nothing about products of two unknowns. So a product is a new number with three stated facts. If a
factor is larger by one or more, the product is larger by the other factor as many times. If one factor is 0 or 1, it is
0 or the other factor. With the opposite of a factor it is the opposite. With nothing but linear arithmetic left, z3
decides nearly every question. A proof from these facts is a proof, since ``proofs.lemmas`` proves all three. A
refutation may be wrong only because too few facts were stated; it is asked again with the products as they are.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import z3
from attrs import define, evolve

from kvspec import formulas

# An example of z3 is asked a few questions and dropped: to shorten its functions first takes longer.
z3.set_param("model.compact", False)

LARGER_BY = 2
"""Up to which difference of a factor the difference of the product is said exactly."""
FACTS_MAX = 50_000
"""How many comparisons are kept, so that another path through the same code need not write them again."""


class RealProducts:
    """Products as they are, and divisions as products."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._divisions: dict[tuple[int, int], tuple[z3.ArithRef, z3.ArithRef]] = {}
        self._kept: list[z3.ArithRef] = []

    def of(self, first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
        """The product."""
        return formulas.times(first, second)

    def divided(self, dividend: z3.ArithRef, divisor: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
        """Quotient and remainder of a division by a positive ``divisor``; the same ones for the same division."""
        dividend = formulas.simple_number(dividend)
        key = dividend.get_id(), divisor.get_id()
        if key not in self._divisions:
            quotient, remainder = self.path.fresh("quotient"), self.path.fresh("remainder")
            self.path.fact(formulas.equal(formulas.plus(self.of(divisor, quotient), remainder), dividend))
            self.path.fact(
                formulas.every(formulas.at_least(remainder, formulas.number(0)), formulas.less(remainder, divisor))
            )
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
        first, second = sorted(map(formulas.simple_number, (first, second)), key=_id_of)
        known = self._multiples.get(_id_of(first), ())
        found = next((product for other, product in known if formulas.is_same(other, second)), None)
        if found is not None:
            return found
        product = self.path.fresh("product")
        self._kept += [first, second]
        self._add(first, second, product)
        self._add(second, first, product)
        return product

    def _add(self, factor: z3.ArithRef, other: z3.ArithRef, product: z3.ArithRef) -> None:
        """How ``product = factor * other`` compares with the products of ``factor`` that there are."""
        zero, one, minus_one = map(formulas.number, (0, 1, -1))
        start = [(zero, zero), (one, factor), (minus_one, formulas.negative(factor))]
        multiples = self._multiples.setdefault(_id_of(factor), start)
        for before, its in multiples:
            self.path.fact(_facts_of(larger, factor, before, its, other, product))
        opposite = formulas.simple_number(formulas.negative(other))
        self._kept.append(opposite)
        multiples += [(other, product), (opposite, formulas.negative(product))]


@lru_cache(FACTS_MAX)
def _id_of(expression: z3.ArithRef) -> int:
    return int(expression.get_id())


@lru_cache(FACTS_MAX)
def _facts_of(fact_sources: Callable[..., list[z3.BoolRef]], *numbers: z3.ArithRef) -> z3.BoolRef:
    """The facts to ``say`` of two products of a factor: the same on every path, and so written once."""
    return formulas.every(*fact_sources(*numbers))


def larger(
    factor: z3.ArithRef, first: z3.ArithRef, its: z3.ArithRef, second: z3.ArithRef, product: z3.ArithRef
) -> list[z3.BoolRef]:
    """The facts about ``its = factor * first`` and ``product = factor * second``, for a ``factor`` of at least 0.

    Said by bounds and not by equations, which would be two questions each.
    """
    difference, gain = second - first, product - its
    differences = range(-LARGER_BY, LARGER_BY + 1)
    at_least = [z3.Implies(difference >= by, gain >= by * factor) for by in differences]
    at_most = [z3.Implies(difference <= by, gain <= by * factor) for by in differences]
    return [z3.Implies(factor >= 0, z3.And(*at_least, *at_most))]


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
    # It defines equality, so it has no hash.

    def __init__(self, formula: z3.BoolRef) -> None:
        self.z3 = formula

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, same=True)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, same=False)

    def __bool__(self) -> bool:
        return current_path().decide(self.z3)

    def __and__(self, other: Truth | bool) -> Truth:
        return Truth(formulas.every(self.z3, formula_of(other)))

    def __or__(self, other: Truth | bool) -> Truth:
        return Truth(formulas.one_of(self.z3, formula_of(other)))

    __rand__ = __and__
    __ror__ = __or__

    def __add__(self, other: Number | Truth) -> Term:
        """Python counts what is so as 1."""
        return Term(formulas.plus(expression_of(self), expression_of(other)))

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"Truth({self.z3})"


class Term:
    """An integer that is not known."""

    __slots__ = ("z3",)
    # Nothing symbolic is a key: two terms may be equal on one path and not on another. A class that defines equality
    # has no hash.

    def __init__(self, expression: z3.ArithRef) -> None:
        self.z3 = expression

    def __add__(self, other: Number) -> Term:
        return Term(formulas.plus(self.z3, expression_of(other)))

    def __sub__(self, other: Number) -> Term:
        return Term(formulas.minus(self.z3, expression_of(other)))

    def __rsub__(self, other: Number) -> Term:
        return Term(formulas.minus(expression_of(other), self.z3))

    def __mul__(self, other: Number) -> Term:
        return Term(multiplied(self.z3, expression_of(other)))

    def __rmul__(self, other: Any) -> Any:
        # Python repeats a tuple a number of times: on a path of its own for each number that there may be.
        return other * self.__index__() if isinstance(other, tuple) else self * other

    __radd__ = __add__

    def __neg__(self) -> Term:
        return Term(formulas.negative(self.z3))

    def __floordiv__(self, other: Number) -> Term:
        return divided(self.z3, expression_of(other))[0]

    def __rfloordiv__(self, other: Number) -> Term:
        return divided(expression_of(other), self.z3)[0]

    def __mod__(self, other: Number) -> Term:
        return divided(self.z3, expression_of(other))[1]

    def __rmod__(self, other: Number) -> Term:
        return divided(expression_of(other), self.z3)[1]

    def __lt__(self, other: Number) -> Truth:
        return Truth(formulas.less(self.z3, expression_of(other)))

    def __le__(self, other: Number) -> Truth:
        return Truth(formulas.at_most(self.z3, expression_of(other)))

    def __gt__(self, other: Number) -> Truth:
        return Truth(formulas.less(expression_of(other), self.z3))

    def __ge__(self, other: Number) -> Truth:
        return Truth(formulas.at_most(expression_of(other), self.z3))

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, same=True)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, same=False)

    def __bool__(self) -> bool:
        return current_path().decide(formulas.opposite(formulas.equal(self.z3, formulas.number(0))))

    def __index__(self) -> int:
        """The value, on a path of its own for each that there may be."""
        for value in range(VALUES_MAX):
            if current_path().decide(formulas.equal(self.z3, formulas.number(value))):
                return value
        raise NotDecidableError(f"{self.z3} has more than {VALUES_MAX} values")

    def __repr__(self) -> str:
        return f"Term({self.z3})"


Number: TypeAlias = "Term | int"
Condition: TypeAlias = "Truth | bool"


def expression_of(number: object) -> z3.ArithRef:
    """``number`` as z3 knows it; a truth counts as 1 or 0.

    Raises:
        NotDecidableError: it is not an integer.
    """
    if isinstance(number, Term):
        return number.z3
    if isinstance(number, Truth):
        return formulas.chosen(number.z3, formulas.number(1), formulas.number(0))
    if isinstance(number, int):
        return formulas.number(int(number))
    raise NotDecidableError(f"{number!r} is not an integer")


def formula_of(condition: object) -> z3.BoolRef:
    """``condition`` as z3 knows it.

    Raises:
        NotDecidableError: it is not a truth value. A number is not one: Python's ``&`` and ``|`` of numbers are
        something else.
    """
    if isinstance(condition, Truth):
        return condition.z3
    if isinstance(condition, bool):
        return formulas.TRUE if condition else formulas.FALSE
    raise NotDecidableError(f"{condition!r} is not a truth value")


def _compared(first: Term | Truth, second: object, same: bool) -> Any:
    """Whether two are equal, or are not; a truth is 1 or 0, as in Python.

    Else Python would compare which objects they are, and a statement would be false without a word.
    """
    if second is None or isinstance(second, str):
        return NotImplemented
    if isinstance(first, Truth) and isinstance(second, (bool, Truth)):
        equal = formulas.equal(first.z3, formula_of(second))
    else:
        equal = formulas.equal(expression_of(first), expression_of(second))
    return Truth(equal if same else formulas.opposite(equal))


def multiplied(first: z3.ArithRef, second: z3.ArithRef) -> z3.ArithRef:
    """The product."""
    if formulas.is_known(first) or formulas.is_known(second):
        return formulas.times(first, second)
    return current_path().products.of(first, second)


def divided(dividend: z3.ArithRef, divisor: z3.ArithRef) -> tuple[Term, Term]:
    """Quotient and remainder, rounded down.

    Raises:
        NotDecidableError: the divisor may be zero or negative here.
    """
    path = current_path()
    # Decided like any fork, so that it is asked once and not again on every way.
    if path.decide(formulas.at_most(divisor, formulas.number(0))):
        raise NotDecidableError(f"the divisor {divisor} may be zero or negative")
    if formulas.is_known(divisor):
        return Term(formulas.quotient(dividend, divisor)), Term(formulas.remainder(dividend, divisor))
    quotient, remainder = path.products.divided(dividend, divisor)
    return Term(quotient), Term(remainder)


def negated(condition: Condition) -> Condition:
    """That ``condition`` is not so, without a fork."""
    return Truth(formulas.opposite(condition.z3)) if isinstance(condition, Truth) else not condition


def implies(condition: Condition, consequence: Condition) -> Condition:
    """That ``consequence`` is so wherever ``condition`` is, without a fork."""
    return negated(condition) | consequence


def either(condition: Condition, first: Number, second: Number) -> Number:
    """``first`` if ``condition`` is so, else ``second``, without a fork."""
    if isinstance(condition, Truth):
        return Term(formulas.chosen(condition.z3, expression_of(first), expression_of(second)))
    return first if condition else second


PATHS_MAX = 20_000
"""How many paths a run may have."""
BRANCH_EFFORT = 400_000
"""How hard z3 tries to exclude a way, in its own units of work: the same on every machine."""

Result = TypeVar("Result")

Listener: TypeAlias = Callable[[z3.Solver, z3.BoolRef, z3.CheckSatResult], None]
"""A listener for answers: it gets the solver with all that holds on the path, the formula asked, and the answer."""
_listeners: list[Listener] = []
_seeds: list[int] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Meanwhile ``listener`` hears of each answer that a proof or a refutation rests on."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Meanwhile z3 begins with another seed; by default it is 0."""
    _seeds.append(seed)
    try:
        yield
    finally:
        _seeds.pop()


def first_seed() -> int:
    """The seed that z3 begins with."""
    return _seeds[-1] if _seeds else 0


class ImpossibleError(Exception):
    """The assumptions contradict each other."""


@define
class _Decision:
    """What was decided at one condition."""

    formula: z3.BoolRef
    choice: bool
    """The branch that is taken."""
    is_open: bool = False
    """Whether the other is still to be taken; then all that is said in this one is above a mark of the solver."""
    example: z3.ModelRef | None = None
    """Values that take the other branch, if some are known."""
    said: int = 0
    """How many formulas were said before it."""


def limit(solver: z3.Solver, effort: int) -> None:
    """From here on the solver answers each question with so much ``effort`` at most."""
    if getattr(solver, "effort", None) != effort:
        solver.set("rlimit", effort)
        solver.effort = effort


class Path:
    """One way. While it is run it knows what is so on it."""

    def __init__(
        self, solver: z3.Solver, decisions: list[_Decision], by_lemmas: bool, memory: dict[object, Any] | None = None
    ) -> None:
        self.solver = solver
        self.memory = {} if memory is None else memory
        """Values that are the same on every path, and are made only once; dropped after the last path."""
        self._decisions = decisions
        self._known = len(decisions)
        """So many decisions are those of the way before; but for the last, so is all that is said until then."""
        self._taken = self._said = 0
        self._example: z3.ModelRef | None = None
        """Values that satisfy everything stated so far: what they show need not be asked."""
        self.products = Products(self) if by_lemmas else RealProducts(self)
        self._named = 0
        self._there: dict[int, z3.BoolRef] = {}
        """What was said on this way, by where z3 keeps it."""

    def ask(self, formula: z3.BoolRef, effort: int, refutes: bool = False) -> z3.CheckSatResult:
        """Whether ``formula`` can be so here. Listeners hear that it cannot, and that it can if that ``refutes``."""
        limit(self.solver, effort)
        answer = formulas.answer(self.solver, formula)
        if answer == z3.unsat or (refutes and answer == z3.sat):
            for listener in _listeners:
                listener(self.solver, formula, answer)
        return answer

    def may_be(self, formula: z3.BoolRef) -> bool:
        """Whether ``formula`` is not excluded here."""
        possible, example = self._example_of(formula)
        self._example = self._example or example
        return possible

    def _example_of(self, formula: z3.BoolRef) -> tuple[bool, z3.ModelRef | None]:
        """Whether ``formula`` is not excluded here, and values for which it is so, if they are found."""
        if self._shows(formula):
            return True, self._example
        answer = self.ask(formula, BRANCH_EFFORT)
        return bool(answer != z3.unsat), self.solver.model() if answer == z3.sat else None

    def _shows(self, formula: z3.BoolRef) -> bool:
        return self._example is not None and formulas.is_so(formula, self._example)

    def _add(self, formula: z3.BoolRef) -> bool:
        """Whether it is new here: else it was said before on this way, or the way before said it."""
        self._said += 1
        known, self._there[formula.ast.value] = formula.ast.value in self._there, formula
        if known or self._taken < self._known:
            return False
        formulas.add(self.solver, formula)
        if not self._shows(formula):
            self._example = None
        return True

    def assume(self, formula: z3.BoolRef) -> None:
        """From here on ``formula`` is so.

        Raises:
            ImpossibleError: it cannot be.
        """
        if self._add(formula) and formulas.truth_if_known(formula) is False:
            raise ImpossibleError

    def fact(self, formula: z3.BoolRef) -> None:
        """``formula`` holds in any case: it defines a name that was made here."""
        self._add(formula)

    def decide(self, formula: z3.BoolRef) -> bool:
        """Whether ``formula`` is so on this way."""
        if self._taken == len(self._decisions):
            self._decisions.append(self._decided(formula))
            self._taken += 1
        else:
            known = self._decisions[self._taken]
            if not formulas.is_same(known.formula, formula):
                raise NotDecidableError(f"the code does not repeat itself: it asks {formula}")
            if known.said != self._said:
                raise NotDecidableError(f"the code does not repeat itself: it says more or less before {formula}")
            self._taken += 1
            if self._taken == self._known:
                # The other branch of the last fork of the way before.
                formulas.add(self.solver, formulas.opposite(formula))
                self._example = self._decisions[-1].example
        return self._decisions[self._taken - 1].choice

    def _decided(self, formula: z3.BoolRef) -> _Decision:
        truth = formulas.truth_if_known(formula)
        if truth is not None:
            return _Decision(formula, truth, said=self._said)
        opposite = formulas.opposite(formula)
        can, example = self._example_of(formula)
        can_not, other = self._example_of(opposite)
        if not can and not can_not:
            raise ImpossibleError
        if can and can_not:
            self.solver.push()
        formulas.add(self.solver, formula if can else opposite)
        self._example = example if can else other
        return _Decision(formula, can, can and can_not, other, self._said)

    @property
    def is_complete(self) -> bool:
        """Whether every decision was asked for that is known to be on this way."""
        return self._taken >= self._known

    @property
    def names_something(self) -> bool:
        """Whether an unknown was made on it."""
        return self._named > 0

    def fresh(self, prefix: str) -> z3.ArithRef:
        """A new unknown; the same one whenever this way is run."""
        self._named += 1
        return formulas.unknown(f"{prefix}!{self._named}")


@contextmanager
def collection_waits() -> Iterator[None]:
    """No term of z3 is freed by another thread meanwhile. One thread at a time may use it.

    Python's collector runs in whichever thread allocates, and z3 works without the GIL: a term that another thread
    frees while z3 works here ends the process.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # All that was made meanwhile is in the youngest generation.
        gc.collect(0)
        gc.enable()


def all_paths(function: Callable[[], Result], by_lemmas: bool) -> Iterator[tuple[Path, Result]]:
    """Run ``function`` on every way; each is still open when it is yielded, so that more can be asked of it.

    With ``by_lemmas``, of products of unknowns no more is known than ``kvspec.symbolic`` says.

    Raises:
        NotDecidableError: there are too many.
    """
    solver = z3.Solver()
    solver.set("random_seed", first_seed())
    decisions: list[_Decision] = []
    memory: dict[object, Any] = {}
    solver.push()
    for _ in range(PATHS_MAX):
        path = Path(solver, decisions, by_lemmas, memory)
        try:
            with on(path):
                result = function()
            if not path.is_complete:
                raise NotDecidableError("the code does not repeat itself: it asks less")
            yield path, result
        except ImpossibleError:
            pass
        while decisions and not decisions[-1].is_open:
            decisions.pop()
        if not decisions:
            return
        solver.pop()
        decisions[-1] = evolve(decisions[-1], choice=False, is_open=False)
    raise NotDecidableError(f"more than {PATHS_MAX} paths")


class RecordedPath:
    """Stands for a path where code only says facts, and makes new unknowns."""

    def __init__(self) -> None:
        self._facts: dict[int, z3.BoolRef] = {}
        self._names = 0

    @property
    def facts(self) -> tuple[z3.BoolRef, ...]:
        """The stated facts, each once."""
        return tuple(self._facts.values())

    def fact(self, formula: z3.BoolRef) -> None:
        """``formula`` is said."""
        self._facts[formula.get_id()] = formula

    def fresh(self, prefix: str) -> z3.ArithRef:
        """A new unknown."""
        self._names += 1
        return formulas.unknown(f"{prefix}?{self._names}")


Value = TypeVar("Value")


def remembered(key: object, make: Callable[[], Value]) -> Value:
    """What is the same on every path of a run: it is made once, and found by its ``key`` on the others."""
    memory = _on_the_way[-1].memory if _on_the_way else {}
    if key not in memory:
        memory[key] = make()
    value: Value = memory[key]
    return value


def _values_by_path(function: Callable[[], Value], given: Condition) -> Iterator[tuple[Condition, Value]]:
    """Per way, when it is taken, and what is said on it. Only where ``given`` is so do they say anything."""

    def run() -> Value:
        current_path().assume(formula_of(given))
        return function()

    for path, value in all_paths(run, by_lemmas=True):
        if path.names_something:
            raise NotDecidableError("code that is folded into a formula multiplies or divides by what is not known")
        when = z3.simplify(z3.And(*path.solver.assertions()))
        yield (True if z3.is_true(when) else Truth(when)), value


def truth_of(function: Callable[[], bool], given: Condition) -> Condition:
    """The truth of ``function``, where ``given`` holds."""
    truth: Condition = False
    for when, value in _values_by_path(function, given):
        truth = when | truth if value else truth
    return truth


def number_of(function: Callable[[], Number], given: Condition) -> Number:
    """The value of ``function``, where ``given`` holds."""
    number: Number = -1
    for when, value in _values_by_path(function, given):
        number = either(when, value, number)
    return number
