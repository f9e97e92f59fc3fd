"""Sequences of blocks that are not known, and what it means that a linked list stands for one.

A sequence is two functions, each the other's inverse: which block stands at a position, and where a block stands.
Positions are numbers, so a sequence of any length can be spoken of without a quantifier: what is so at every position
is assumed at the few that matter, and shown at one that is arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Any

from attrs import frozen

from kvspec.linked_queue import HEAD, NOWHERE, TAIL, Insertion, LinkedQueue, Taking
from kvspec.symbolic import Condition, Number, either, implies, negated


def all_of(conditions: Iterable[Condition]) -> Condition:
    """That each of ``conditions`` is so, without a fork."""
    return reduce(and_, conditions, True)


@frozen
class Blocks:
    """``length`` blocks in order. Before the first stands the head, behind the last the tail."""

    at: Callable[[Number], Number]
    """The block at a position, from 0 on."""
    position: Callable[[Number], Number]
    """The position of a block that is there; anything else for one that is not."""
    length: Number

    def holds(self, block: Number) -> Condition:
        """Whether ``block`` is there."""
        place = self.position(block)
        return (place >= 0) & (place < self.length) & (self.at(place) == block)

    def with_between(self, gap: Number, others: Blocks) -> Blocks:
        """With ``others``, in order, before what stands at ``gap``."""

        def at(place: Number) -> Number:
            behind = either(place < gap + others.length, others.at(place - gap), self.at(place - others.length))
            return either(place < gap, self.at(place), behind)

        def position(block: Number) -> Number:
            place = self.position(block)
            moved = either(place < gap, place, place + others.length)
            return either(others.holds(block), gap + others.position(block), moved)

        return Blocks(at, position, self.length + others.length)

    def without_first(self, count: Number) -> Blocks:
        """Without the first ``count``."""
        return Blocks(
            lambda place: either(place == -1, HEAD, self.at(place + count)),
            lambda block: self.position(block) - count,
            self.length - count,
        )

    def without(self, gone: Number) -> Blocks:
        """Without the one at ``gone``: what stood behind it moves up."""

        def position(block: Number) -> Number:
            place = self.position(block)
            return either(place < gone, place, place - 1)

        return Blocks(lambda place: either(place < gone, self.at(place), self.at(place + 1)), position, self.length - 1)

    def distinct(self, place: Number) -> Condition:
        """At ``place``, if it is one, stands a block, and it stands nowhere else."""
        block = self.at(place)
        return implies((place >= 0) & (place < self.length), (block > 0) & (self.position(block) == place))


def sequence(at: Any, position: Any, length: Number) -> Blocks:
    """The blocks of two maps."""
    return Blocks(
        lambda place: either(place == -1, HEAD, either(place == length, TAIL, at[place])),
        lambda block: position[block],
        length,
    )


def linked(queue: LinkedQueue, blocks: Blocks, place: Number) -> Condition:
    """What stands at ``place`` and what stands behind it are linked both ways."""
    one, other = blocks.at(place), blocks.at(place + 1)
    return implies(
        (place >= -1) & (place < blocks.length), (queue.next[one] == other) & (queue.prev[other] == one)
    ) & blocks.distinct(place)


def apart(queue: LinkedQueue, blocks: Blocks, block: Number) -> Condition:
    """A ``block`` that is not in the sequence is not linked."""
    nowhere = (queue.next[block] == NOWHERE) & (queue.prev[block] == NOWHERE)
    return implies((block > 0) & negated(blocks.holds(block)), nowhere)


def stands_for(queue: LinkedQueue, blocks: Blocks, places: Iterable[Number], others: Iterable[Number]) -> Condition:
    """``queue`` is ``blocks``, as far as it can be seen from ``places`` and from the blocks ``others``."""
    return all_of(
        [
            queue.blocks_free == blocks.length,
            *(linked(queue, blocks, place) for place in places),
            *(apart(queue, blocks, block) for block in others),
        ]
    )


def inserting(
    insertion: Insertion, blocks: Blocks, hole: Number, places: Iterable[Number], others: Iterable[Number]
) -> Condition:
    """The invariant of an insertion: ``blocks`` are linked, but for the one at ``hole`` to the one behind it."""
    queue = insertion.queue
    return all_of(
        [
            insertion.last == blocks.at(hole),
            insertion.right == blocks.at(hole + 1),
            queue.blocks_free + insertion.blocks_in == blocks.length,
            # Whoever asks whether the last one is queued looks at its link back.
            queue.prev[insertion.right] != NOWHERE,
            implies(insertion.last > 0, queue.prev[insertion.last] != NOWHERE),
            *(implies(place != hole, linked(queue, blocks, place)) & blocks.distinct(place) for place in places),
            *(apart(queue, blocks, block) for block in others),
        ]
    )


def being_taken(taking: Taking, blocks: Blocks, places: Iterable[Number], others: Iterable[Number]) -> Condition:
    """The invariant of a taking: ``blocks`` are left, and linked, but for the head to the first."""
    queue = taking.queue
    return all_of(
        [
            taking.front == blocks.at(0),
            queue.blocks_free - taking.blocks_out == blocks.length,
            *(implies(place != -1, linked(queue, blocks, place)) & blocks.distinct(place) for place in places),
            *(apart(queue, blocks, block) for block in others),
        ]
    )
