"""Minimising what the seeded driver found: the shortest case that still shows the same defect.

Hypothesis shrinks what it drew itself, and cannot start from a given case; so a case of the seeded driver is reduced
here, by deleting operations and then by making numbers smaller. Every part of a case is legal, which is what makes
deletion work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from attrs import evolve

from kvreference.content import Keys
from kvreference.operations import Admit, Arrive, Operation, Run, Sample, Schedule

T = TypeVar("T")
StillFails = Callable[[Sequence[T]], bool]
Simpler = Callable[[T], Iterable[T]]
"""Simpler forms of an operation, the boldest first."""
ATTEMPTS_MAX = 3000


class _Attempts(Generic[T]):
    """Asks whether a candidate still fails, and gives up after a limit."""

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


def minimise(
    operations: Sequence[Operation], still_fails: StillFails[Operation], until: float = math.inf
) -> tuple[Operation, ...]:
    """A short list of operations for which ``still_fails`` holds, given that it holds for ``operations``.

    ``until`` is a time of ``time.monotonic``: what is shortest by then is returned.
    """
    return minimise_with(operations, still_fails, simpler_operation, until)


def minimise_with(
    operations: Sequence[T], still_fails: StillFails[T], simpler: Simpler[T], until: float = math.inf
) -> tuple[T, ...]:
    """The same for operations of any kind, of which ``simpler`` knows what is simpler."""
    attempts = _Attempts(still_fails, until)
    current = tuple(operations)
    while attempts.left > 0:
        reduced = _with_smaller_numbers(_with_fewer(current, attempts), attempts, simpler)
        if reduced == current:
            break
        current = reduced
    return current


def _with_fewer(operations: tuple[T, ...], attempts: _Attempts[T]) -> tuple[T, ...]:
    """Delete stretches of operations, from long ones down to single ones, for as long as something can go."""
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


def simpler_operation(operation: Operation) -> Iterator[Operation]:
    """Simpler forms of an operation of a block manager, the boldest first."""
    if isinstance(operation, Arrive):
        if operation.keys != Keys():
            yield evolve(operation, keys=Keys())
            if operation.keys.media:
                yield evolve(operation, keys=evolve(operation.keys, media=operation.keys.media[:-1]))
        if not operation.reads_cache:
            yield evolve(operation, reads_cache=True)
        if len(operation.prompt) > 1:
            yield evolve(operation, prompt=operation.prompt[:1])
            yield evolve(operation, prompt=operation.prompt[1:])
        for index, run in enumerate(operation.prompt):
            for length in smaller(run.length, 1):
                prompt = (*operation.prompt[:index], Run(run.first, length), *operation.prompt[index + 1 :])
                yield evolve(operation, prompt=prompt)
    elif isinstance(operation, (Admit, Schedule)):
        for tokens in smaller(operation.tokens, 1):
            yield evolve(operation, tokens=tokens)
    elif isinstance(operation, Sample):
        for drafts in smaller(operation.drafts, 0):
            yield evolve(operation, drafts=drafts)
        for accepted in smaller(operation.accepted, 0):
            yield evolve(operation, accepted=accepted)


def smaller(number: int, least: int) -> Iterator[int]:
    """Numbers below ``number``, the boldest first."""
    step = number - least
    while step > 0:
        yield number - step
        step //= 2
