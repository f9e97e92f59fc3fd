"""A reference that reports hits: the full report of releases from 0.24 on, as it should be.

The reference itself knows no such report, so in lockstep with it a right report would be a difference as well as a
wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvreference.answers import Answer, Hit
from kvreference.events import Stored
from kvreference.manager import Manager
from kvreference.operations import LookUp, Operation


def telling_hits(manager: Manager) -> None:
    """From now on ``manager`` reports for each hit the blocks that serve it, and no others."""
    apply = manager.apply

    def applied(operation: Operation) -> Answer:
        answer = apply(operation)
        if isinstance(operation, LookUp) and isinstance(answer, Hit):
            for index, blocks in enumerate(answer.blocks):
                manager._events += [_stored(manager, operation.request, index, *run) for run in _runs(blocks)]
        return answer

    manager.apply = applied  # type: ignore[method-assign]  # of this one alone


def _stored(manager: Manager, number: int, index: int, first: int, end: int) -> Stored:
    """The event of neighbouring blocks of a group."""
    request, size = manager.population[number], manager.geometry.groups[index].block_size_tokens
    places = range(first, end)
    return Stored(
        group=index,
        contents=tuple(manager.content(number, index, place) for place in places),
        parent=manager.content(number, index, first - 1) if first else None,
        tokens=tuple(request.tokens[first * size : end * size]),
        block_size_tokens=size,
        lora=request.keys.lora,
        extra_keys=tuple(request.keys.of_block(place * size, (place + 1) * size) for place in places),
    )


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of neighbours that are not null: where each begins, and where it ends."""
    first = None
    for place, block in enumerate((*blocks, 0)):
        if block and first is None:
            first = place
        elif not block and first is not None:
            yield first, place
            first = None
