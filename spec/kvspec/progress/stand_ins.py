"""Stand-ins for what progress depends on: requests whose tokens are counted, tables whose blocks are counted.

The scheduler's rules ask how long a list is, and nothing else about what is in it. So a list of any length stands here
as its length, a term. Python's own ``len`` gives ints alone: within ``counted`` the modules of the reference that ask
for lengths have a ``len`` that takes a ``Counted`` at its word. They also have a ``min`` and a ``max`` that give a term
where Python's own would fork the run. Nothing else of their code is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import frozen

from kvreference import admission, attention, mamba, manager, pinned_tier, population
from kvreference.population import Population, Request, Status
from kvreference.refuted import scheduling
from kvreference.scheduler import progress, room, scheduler
from kvreference.scheduler.queues import Queues, Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.symbolic import either

COUNTING = (admission, attention, mamba, manager, pinned_tier, population, progress, room, scheduler, scheduling)
"""The modules that ask how long something is, or which of two numbers is smaller."""


@frozen(eq=False)
class Counted:
    """A list of which only the length is known."""

    number: Any

    def __add__(self, other: Sequence[int]) -> Counted:
        return Counted(self.number + length_of(other))


def length_of(value: Any) -> Any:
    """How long ``value`` is."""
    return value.number if isinstance(value, Counted) else len(value)


def least(*numbers: Any) -> Any:
    """The smallest, without a fork."""
    return reduce(lambda first, second: either(first <= second, first, second), numbers)


def most(*numbers: Any) -> Any:
    """The largest, without a fork."""
    return reduce(lambda first, second: either(first >= second, first, second), numbers)


BUILT_IN = {"len": length_of, "min": least, "max": most}


@contextmanager
def counted() -> Iterator[None]:
    """Lengths may be terms, and the smaller of two numbers is one."""
    with ExitStack() as stack:
        for module in COUNTING:
            for name, by in BUILT_IN.items():
                stack.enter_context(patch.object(module, name, by, create=True))
        yield


def settings_of(blocks: Any = 0, **rest: Any) -> Any:
    """Settings, as far as progress reads them; ``state_block_tokens`` is part of the geometry."""
    geometry = SimpleNamespace(state_block_tokens=rest.pop("state_block_tokens", None), fences=False, groups=())
    return SimpleNamespace(blocks=blocks, geometry=geometry, **rest)


def request_of(
    number: int, tokens: Any, computed: Any = 0, status: Status = Status.WAITING, drafts: Any = 0
) -> Request:
    """A request that has counts in place of lists."""
    lists: Any = Counted(tokens), Counted(drafts)
    keys: Any = None
    return Request(number, lists[0], keys, False, status=status, tokens_computed=computed, drafts=lists[1])


def scheduler_of(
    settings: Any,
    limits: Any,
    requests: Sequence[Request],
    terms: Mapping[int, Terms],
) -> Scheduler:
    """A scheduler over these requests, in line as they are given: those that run, then those that wait."""
    made = object.__new__(Scheduler)
    made.settings, made.limits, made.queues = settings, limits, Queues()
    made.queues.running = [each.number for each in requests if each.status is Status.RUNNING]
    made.queues.waiting = [each.number for each in requests if each.status is not Status.RUNNING]
    made.queues.terms = dict(terms)
    books = Population(settings)
    books.alive = {each.number: each for each in requests}
    blocks: Any = SimpleNamespace(population=books, tables={})
    made.manager = blocks
    made._performed = []
    return made


def tables_of(held: Mapping[int, Any]) -> dict[int, list[Any]]:
    """Per request, one table that has so many blocks."""
    return {number: [SimpleNamespace(live=lambda blocks=blocks: Counted(blocks))] for number, blocks in held.items()}
