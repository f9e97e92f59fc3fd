"""Prove one obligation: every path through it, its witnesses, its mutants.

z3 has a limit of effort and not of time: the same question has the same answer on every machine. If it cannot decide,
the result is *unknown*, which is not proved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice, product
from types import SimpleNamespace
from typing import Any

import z3
from attrs import evolve, frozen

from kvspec import formulas
from kvspec.maps import FiniteMap, UnknownMap
from kvspec.obligation import NO_VALUES, AMap, Count, Lemma, Mutant, Obligation
from kvspec.symbolic import (
    Condition,
    ImpossibleError,
    NotDecidableError,
    Path,
    Term,
    Truth,
    all_paths,
    collection_waits,
    current_path,
    expression_of,
    first_seed,
    formula_of,
    implies,
    limit,
    on,
)

EFFORT = 60_000_000
"""How hard z3 tries to decide one question, in its own units of work."""
SMALLER_EFFORT = 2_000_000
"""The same, for a counterexample that is smaller than the one that there is."""
SEEDS = 4
"""How often values for a witness are looked for."""

Values = Mapping[str, Any]
"""Unknown to value: an int, or a map."""


class Verdict(Enum):
    """The outcome of an obligation."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    VACUOUS = "empty"
    """The assumptions contradict each other: nothing was shown."""


@frozen
class Raised:
    """The code that is proved raised an error on a way."""

    error: Exception


NOT_ASSUMED = object()
"""A way on which what is assumed is not so."""


@frozen
class Proof:
    """An obligation, checked."""

    verdict: Verdict
    ways: int
    """How many paths through the code were looked at."""
    seconds: float
    counterexample: Values | None = None
    """Values for which it does not hold, the smallest that were found."""
    confirmed: bool | None = None
    """Whether it fails on these values as numbers too; None if they cannot be run, because of what is counted."""
    detail: str = ""
    """Why it is unknown, or what was raised."""


@collection_waits()
def prove(obligation: Obligation, fixed: Mapping[str, int] = NO_VALUES, effort: int = EFFORT) -> Proof:
    """Whether ``obligation`` holds for all values of its unknowns, or of those that are not ``fixed``.

    First with what ``kvspec.symbolic`` says of products. A refutation that does not fail as numbers is asked again,
    with the products as they are.
    """
    by_lemmas = _attempt(obligation, fixed, effort, by_lemmas=True)
    if by_lemmas.verdict is not Verdict.REFUTED or by_lemmas.confirmed is not False:
        return by_lemmas
    real = _attempt(obligation, fixed, effort, by_lemmas=False)
    return evolve(real, seconds=real.seconds + by_lemmas.seconds)


def _attempt(obligation: Obligation, fixed: Mapping[str, int], effort: int, by_lemmas: bool) -> Proof:
    started = time.perf_counter()
    ways = 0
    undecided = ""
    try:
        for path, unknowns, shown in _cases(obligation, obligation.claim, fixed, by_lemmas):
            ways += 1
            raised = repr(shown.error) if isinstance(shown, Raised) else ""
            if isinstance(shown, Raised):
                shown = False
            answer = path.ask(z3.Not(formula_of(shown)), effort, refutes=True)
            if answer == z3.sat:
                values = _smallest(path, shown, obligation, fixed, unknowns)
                confirmed = _fails(obligation, values)
                return Proof(Verdict.REFUTED, ways, time.perf_counter() - started, values, confirmed, raised)
            if answer == z3.unknown:
                undecided = f"z3 gives up on path {ways}: {path.solver.reason_unknown()}"
    except NotDecidableError as error:
        undecided = str(error)
    verdict = Verdict.UNKNOWN if undecided else Verdict.PROVED if ways else Verdict.VACUOUS
    if verdict is Verdict.VACUOUS:
        undecided = "what is assumed cannot be: nothing was proved"
    return Proof(verdict, ways, time.perf_counter() - started, detail=undecided)


@collection_waits()
def witness(obligation: Obligation, name: str, fixed: Mapping[str, int] = NO_VALUES) -> Values | None:
    """Values for which what is assumed holds, and the witness ``name`` too; None if none are found."""
    claim = obligation.witnesses[name]
    for by_lemmas in (True, False):
        for path, unknowns, seen in _cases(obligation, claim, fixed, by_lemmas):
            limit(path.solver, EFFORT)
            for seed in range(SEEDS) if not isinstance(seen, Raised) else ():
                # With products among the unknowns, whether z3 finds values depends on where its search begins.
                path.solver.set("random_seed", first_seed() + seed)
                if path.solver.check(formula_of(seen)) != z3.sat:
                    continue
                values = _values(path.solver.model(), obligation, fixed, unknowns)
                if _has_maps(obligation) or holds(obligation, values, claim):
                    return values
    return None


@collection_waits()
def run(obligation: Obligation, ways: int | None = None) -> None:
    """Run ``obligation`` on every way, or on the first ``ways``, without asking whether it holds."""
    for _ in islice(_cases(obligation, obligation.claim, NO_VALUES, by_lemmas=True), ways):
        pass


def survives(obligation: Obligation, mutant: Mutant) -> Proof:
    """The outcome of ``obligation`` with ``mutant`` in place: it must be refuted."""
    with mutant.applied():
        return prove(obligation)


def holds(obligation: Obligation, values: Values, claim: Callable[[Any], Any] | None = None) -> bool:
    """Whether the statement, or another thing ``claim``, holds for these values, run as numbers."""
    unknowns = SimpleNamespace(**values)
    return bool(obligation.assumes(unknowns)) and bool((claim or obligation.claim)(unknowns))


def _cases(
    obligation: Obligation, claim: Callable[[Any], Any], fixed: Mapping[str, int], by_lemmas: bool
) -> Iterator[tuple[Path, SimpleNamespace, Condition | Raised]]:
    """Every way through what is assumed and what is ``claim``, with the values that the unknowns then have."""
    last: list[SimpleNamespace] = []
    values = _unknowns(obligation, fixed)
    bounds = [
        bound
        for name, unknown in obligation.unknowns.items()
        if isinstance(unknown, Count) and name not in fixed
        for bound in _bounds(values[name].z3, unknown)
    ]

    def run() -> Any:
        unknowns = SimpleNamespace(**values)
        last[:] = [unknowns]
        for bound in bounds:
            current_path().assume(bound)
        try:
            return _assumed_and_claimed(obligation, claim, unknowns)
        except (NotDecidableError, ImpossibleError):
            raise
        except Exception as error:
            return Raised(error)

    for path, shown in all_paths(run, by_lemmas):
        if shown is NOT_ASSUMED:
            continue
        if not isinstance(shown, (bool, Truth, Raised)):
            raise NotDecidableError(f"{shown!r} is not a truth value, and cannot be proved")
        if path.may_be(z3.BoolVal(True)):
            yield path, last[0], shown


def _assumed_and_claimed(obligation: Obligation, claim: Callable[[Any], Any], unknowns: SimpleNamespace) -> Any:
    """The ``claim`` about the unknowns, where the assumptions hold, with the lemmas available."""
    path = current_path()
    assumed = obligation.assumes(unknowns)
    if isinstance(assumed, Truth):
        path.assume(assumed.z3)
    elif not isinstance(assumed, bool):
        raise NotDecidableError(f"{assumed!r} is not a truth value, and cannot be assumed")
    elif not assumed:
        return NOT_ASSUMED
    for lemma in obligation.lemmas(unknowns):
        values = SimpleNamespace(**lemma.values)
        path.fact(formula_of(implies(_premise(lemma, values), lemma.obligation.claim(values))))
    return claim(unknowns)


def _premise(lemma: Lemma, values: SimpleNamespace) -> Condition:
    """The condition on values for a lemma to apply: within the bounds, and satisfying its assumptions."""
    premise: Condition = lemma.obligation.assumes(values)
    for name, unknown in lemma.obligation.unknowns.items():
        if isinstance(unknown, Count):
            premise = (getattr(values, name) >= unknown.least) & premise
            if unknown.most is not None:
                premise = (getattr(values, name) <= unknown.most) & premise
    return premise


def _bounds(value: z3.ArithRef, unknown: Count) -> Iterator[z3.BoolRef]:
    """That a value is within the bounds of an unknown."""
    yield formulas.at_least(value, formulas.number(unknown.least))
    if unknown.most is not None:
        yield formulas.at_most(value, formulas.number(unknown.most))


def _unknowns(obligation: Obligation, fixed: Mapping[str, int]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, unknown in obligation.unknowns.items():
        if name in fixed:
            values[name] = fixed[name]
        else:
            value = Term(formulas.unknown(name))
            values[name] = UnknownMap(name, unknown.arity) if isinstance(unknown, AMap) else value
    return values


def _smallest(
    path: Path, shown: Condition, obligation: Obligation, fixed: Mapping[str, int], unknowns: SimpleNamespace
) -> Values:
    """Values that refute what is ``shown`` on this way, as small as they are found."""
    model = path.solver.model()
    path.solver.add(z3.Not(formula_of(shown)))
    with on(path):
        size = expression_of(obligation.size(unknowns))
    limit(path.solver, SMALLER_EFFORT)
    # Half as large, or half of what is left between that and what was not found: the first values may be large.
    least, found = 0, formulas.value(size, model)
    while least < found:
        middle = (least + found) // 2
        if formulas.answer(path.solver, formulas.at_most(size, formulas.number(middle))) == z3.sat:
            model = path.solver.model()
            found = formulas.value(size, model)
        else:
            least = middle + 1
    return _values(model, obligation, fixed, unknowns)


def _values(
    model: z3.ModelRef, obligation: Obligation, fixed: Mapping[str, int], unknowns: SimpleNamespace
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, unknown in obligation.unknowns.items():
        if name in fixed:
            values[name] = fixed[name]
        elif isinstance(unknown, Count):
            values[name] = formulas.value(getattr(unknowns, name).z3, model)
    keys = sorted(set(values.values()))
    for name, unknown in obligation.unknowns.items():
        if isinstance(unknown, AMap):
            values[name] = _finite(model, getattr(unknowns, name), keys)
    return values


def _finite(model: z3.ModelRef, chosen: UnknownMap, numbers: Sequence[int]) -> FiniteMap:
    """The map that z3 chose, at the numbers that it chose: it may have more entries."""
    keys = product(numbers, repeat=chosen.arity)
    return FiniteMap({key if chosen.arity > 1 else key[0]: formulas.value(chosen[key].z3, model) for key in keys})


def _fails(obligation: Obligation, values: Values) -> bool | None:
    """Whether the statement fails for these values as numbers.

    A map that z3 chose may have more entries than it reports, so statements about maps are not run.
    """
    if _has_maps(obligation):
        return None
    try:
        return bool(obligation.assumes(SimpleNamespace(**values))) and not holds(obligation, values)
    except Exception:
        # As it did on terms.
        return True


def _has_maps(obligation: Obligation) -> bool:
    return any(isinstance(unknown, AMap) for unknown in obligation.unknowns.values())
