"""Minimising what the seeded driver found: the shortest case that still shows the same defect.

Hypothesis shrinks what it drew itself, and cannot start from a given case; so a case of the seeded driver is reduced
here, by deleting operations and then by making numbers smaller. Every part of a case is legal, which is what makes
deletion work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from kvreference.content import Keys
from kvreference.operations import Admit, Arrive, Operation, Run, Sample, Schedule

StillFails = Callable[[Sequence[Operation]], bool]
ATTEMPTS_MAX = 3000


class _Attempts:
    """Asks whether a candidate still fails, and gives up after a limit."""

    def __init__(self, still_fails: StillFails, until: float) -> None:
        self._still_fails = still_fails
        self._until = until
        self.left = ATTEMPTS_MAX

    def __call__(self, candidate: Sequence[Operation]) -> bool:
        if time.monotonic() > self._until:
            self.left = 0
        if self.left <= 0:
            return False
        self.left -= 1
        return self._still_fails(candidate)


def minimise(
    operations: Sequence[Operation], still_fails: StillFails, until: float = math.inf
) -> tuple[Operation, ...]:
    """A short list of operations for which ``still_fails`` holds, given that it holds for ``operations``.

    ``until`` is a time of ``time.monotonic``: what is shortest by then is returned.
    """
    attempts = _Attempts(still_fails, until)
    current = tuple(operations)
    while attempts.left > 0:
        smaller = _with_smaller_numbers(_with_fewer(current, attempts), attempts)
        if smaller == current:
            break
        current = smaller
    return current


def _with_fewer(operations: tuple[Operation, ...], attempts: _Attempts) -> tuple[Operation, ...]:
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


def _with_smaller_numbers(operations: tuple[Operation, ...], attempts: _Attempts) -> tuple[Operation, ...]:
    """Try every simpler form of every operation, one at a time."""
    for index in range(len(operations)):
        progress = True
        while progress:
            progress = False
            for simpler in _simpler(operations[index]):
                candidate = (*operations[:index], simpler, *operations[index + 1 :])
                if attempts(candidate):
                    operations = candidate
                    progress = True
                    break
    return operations


def _simpler(operation: Operation) -> Iterator[Operation]:
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
            for length in _smaller(run.length, 1):
                prompt = (*operation.prompt[:index], Run(run.first, length), *operation.prompt[index + 1 :])
                yield evolve(operation, prompt=prompt)
    elif isinstance(operation, (Admit, Schedule)):
        for tokens in _smaller(operation.tokens, 1):
            yield evolve(operation, tokens=tokens)
    elif isinstance(operation, Sample):
        for drafts in _smaller(operation.drafts, 0):
            yield evolve(operation, drafts=drafts)
        for accepted in _smaller(operation.accepted, 0):
            yield evolve(operation, accepted=accepted)


def _smaller(number: int, least: int) -> Iterator[int]:
    """Numbers below ``number``, the boldest first."""
    step = number - least
    while step > 0:
        yield number - step
        step //= 2
