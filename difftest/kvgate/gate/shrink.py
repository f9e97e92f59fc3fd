"""Shrinking what the seeded driver found: the shortest case that still shows the same defect.

Hypothesis shrinks what it drew itself, and cannot start from a given case. So a case of the seeded driver is reduced
here: first operations are deleted, then numbers are made smaller. Every part of a case is legal, which is what makes
deletion work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import evolve, fields_dict

from kvgate.gate.level import Case, Operation
from kvreference.content import Keys
from kvreference.operations import Admit, Arrive, Continue, Run, Sample, Schedule
from kvreference.settings import Settings

T = TypeVar("T")
StillFails = Callable[[Sequence[T]], bool]
Simpler = Callable[[T], Iterable[T]]
"""Simpler forms of an operation, the boldest first."""
ATTEMPTS_MAX = 3000
ROUNDS_MAX = 4
"""How often operations and settings are tried in turn."""


class _Attempts(Generic[T]):
    """Asks whether a candidate still fails, and stops after a limit."""

    def __init__(self, still_fails: StillFails[T], until: float) -> None:
        self._still_fails = still_fails
        self._until = until
        self.left = ATTEMPTS_MAX

    def __call__(self, candidate: Sequence[T]) -> bool:
        if time.monotonic() > self._until:
            self.left = 0
        if self.left <= 0:
            return False
        self.left -= 1
        return self._still_fails(candidate)


def shrink_case(case: Case, still_fails: Callable[[Case], bool], until: float = math.inf) -> Case:
    """A small case for which ``still_fails`` holds, given that it holds for ``case``.

    Where there is a stage, it and the settings get smaller too: what fails in a pool of four blocks needs fewer steps.
    ``until`` is a time of ``time.monotonic``: what is smallest by then is returned.
    """
    level = case.level
    for _ in range(1 if level.stage_type is None else ROUNDS_MAX):
        before = case
        attempts = _Attempts[Case](lambda candidate: still_fails(candidate[0]), until)
        case = next((each for each in _plainer(case) if attempts((each,))), case)

        def fails_with(operations: Sequence[Operation], among: Case = case) -> bool:
            return still_fails(evolve(among, operations=tuple(operations)))

        operations = shrink(case.operations, fails_with, partial(simpler, rules=level.simpler), until)
        # The settings one by one: each is tried on what the ones before have left.
        (case,) = shrink(
            (evolve(case, operations=operations),),
            lambda candidate: len(candidate) == 1 and still_fails(candidate[0]),
            _simpler_around,
            until,
        )
        if case == before:
            break
    return case


def _plainer(case: Case) -> Iterator[Case]:
    """The case with several defaults at once, the boldest first: one of them alone may hide what is looked for.

    The stage's and those of all operations; then those of the operations with each of the stage's, or with none.
    """
    if case.level.stage_type is None:
        return
    rules = case.level.simpler
    operations = tuple(plain(each, rules) for each in case.operations)
    for stage in (plain(case.stage, rules), *simpler(case.stage, rules), case.stage):
        plainer = evolve(case, stage=stage, operations=operations)
        if plainer != case:
            yield plainer


def _simpler_around(case: Case) -> Iterator[Case]:
    if case.level.stage_type is None:
        return
    for stage in simpler(case.stage, case.level.simpler):
        yield evolve(case, stage=stage)
    for settings in simpler(case.settings, _SETTINGS):
        yield evolve(case, settings=settings)
    if case.settings.chunk_tokens < case.settings.tokens_max:
        # A request is computed in one step.
        with suppress(ValueError):
            yield evolve(case, settings=evolve(case.settings, chunk_tokens=case.settings.tokens_max))


def shrink(
    operations: Sequence[T], still_fails: StillFails[T], simpler: Simpler[T], until: float = math.inf
) -> tuple[T, ...]:
    """A short list of operations for which ``still_fails`` holds, given that it holds for ``operations``.

    ``simpler`` knows what is simpler. ``until`` is a time of ``time.monotonic``: what is shortest by then is returned.
    """
    attempts = _Attempts(still_fails, until)
    current = tuple(operations)
    while attempts.left > 0:
        reduced = _with_smaller_numbers(_with_fewer(current, attempts), attempts, simpler)
        if reduced == current:
            break
        current = reduced
    return current


def _with_fewer(operations: tuple[T, ...], attempts: _Attempts[T]) -> tuple[T, ...]:
    """Delete operations, for as long as something can go: all of a kind, then stretches, from long ones to single ones.

    First all but those of one kind; then each kind. The last may stay: no stretch has the steps between other
    operations, if one step must remain.
    """
    for kind in dict.fromkeys(map(type, operations)):
        alone = tuple(each for each in operations[:-1] if type(each) is kind) + operations[-1:]
        last = max((index for index, each in enumerate(operations) if type(each) is kind), default=-1)
        without = [
            tuple(each for index, each in enumerate(operations) if type(each) is not kind or index in kept)
            for kept in ((), (last,))
        ]
        fewer = (each for each in (alone, *without) if len(each) < len(operations))
        operations = next((each for each in fewer if attempts(each)), operations)
    size = max(1, len(operations) // 2)
    while True:
        start = len(operations) - size
        removed = False
        while start > -size:
            candidate = operations[: max(0, start)] + operations[max(0, start) + size :]
            if len(candidate) < len(operations) and attempts(candidate):
                operations = candidate
                removed = True
            start -= size
        if size == 1 and not removed:
            return operations
        size = max(1, size // 2)


def _with_smaller_numbers(operations: tuple[T, ...], attempts: _Attempts[T], simpler: Simpler[T]) -> tuple[T, ...]:
    """Try every simpler form of every operation, one at a time."""
    for index in range(len(operations)):
        progress = True
        while progress:
            progress = False
            for form in simpler(operations[index]):
                candidate = (*operations[:index], form, *operations[index + 1 :])
                if attempts(candidate):
                    operations = candidate
                    progress = True
                    break
    return operations


# Simpler values

DEFAULT = -1
"""In a rule: the attribute goes to its default, or gets simpler by a rule of its own."""
INSIDE = -2
"""In a rule: the attribute is a value with a rule of its own, or a tuple of such values, which also gets shorter."""
Rules = Mapping[type, Mapping[str, int]]
"""How values of each type get simpler: per attribute, in the order in which they are tried, ``DEFAULT``, ``INSIDE``, or
the least number that it may be."""
OF_BLOCK_MANAGERS: Rules = {
    Arrive: {"keys": DEFAULT, "reads_cache": DEFAULT, "prompt": INSIDE},
    Keys: {"media": INSIDE},
    Continue: {"prompt": INSIDE, "media": INSIDE},
    Run: {"length": 1},
    Admit: {"tokens": 1},
    Schedule: {"tokens": 1},
    Sample: {"drafts": 0, "accepted": 0, "beyond": 0},
}
_SETTINGS: Rules = {
    Settings: {
        **{"blocks": 2, "drafts_max": 0, "tokens_max": 2, "requests_max": 1},
        **{"draft_model": DEFAULT, "tells_events": DEFAULT, "full_sequence_must_fit": DEFAULT},
    }
}


def simpler(value: Any, rules: Rules) -> Iterator[Any]:
    """Simpler forms of an operation, or of another value, the boldest first."""
    for name, rule in rules.get(type(value), {}).items():
        for changed in _simpler_attribute(value, name, rule, rules):
            with suppress(ValueError):
                yield evolve(value, **{name: changed})


def plain(value: Any, rules: Rules) -> Any:
    """A value with every attribute that a rule sends to its default."""
    for name, rule in rules.get(type(value), {}).items():
        item = getattr(value, name)
        if rule == DEFAULT:
            value = evolve(value, **{name: _default(value, name)})
        elif rule == INSIDE and not isinstance(item, tuple):
            value = evolve(value, **{name: plain(item, rules)})
    return value


def _default(value: Any, name: str) -> Any:
    default: Any = fields_dict(type(value))[name].default
    return default.factory() if getattr(default, "factory", None) is not None else default


def _simpler_attribute(value: Any, name: str, rule: int, rules: Rules) -> Iterator[Any]:
    item = getattr(value, name)
    if rule == DEFAULT:
        default = _default(value, name)
        if item != default:
            yield default
            yield from simpler(item, rules)
    elif rule != INSIDE:
        yield from smaller(item, rule)
    elif not isinstance(item, tuple):
        yield from simpler(item, rules)
    else:
        if len(item) > 1:
            yield item[:1]
        if item:
            # The empty rest of a single item, where that is allowed.
            yield item[1:]
        for index, each in enumerate(item):
            for form in simpler(each, rules):
                yield (*item[:index], form, *item[index + 1 :])


def smaller(number: int, least: int) -> Iterator[int]:
    """Numbers below ``number``, the boldest first."""
    step = number - least
    while step > 0:
        yield number - step
        step //= 2
