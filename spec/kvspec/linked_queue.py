"""The free queue as production code keeps it: a doubly linked list, in which removal from the middle costs no search.

It is written from its meaning, as loops of small steps, and runs on known and on unknown maps. So the steps that run
are the steps that ``proofs.linked_free_queue`` proves. Each loop has a beginning, a step, an end, and an invariant that
holds between them.

A list stands for a sequence of blocks (``Blocks``): two inverse functions, from a position to its block and from a
block to its position. Positions are numbers, so a sequence of any length needs no quantifier: a property of every
position is assumed at the few that matter, and shown at an arbitrary one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Any

from attrs import evolve, frozen

from kvspec.obligation import AMap, Count, Unknown
from kvspec.symbolic import Condition, Number, either, implies, negated

HEAD = -1
"""Stands before the first block. No block has a negative number, and block 0, the null block, is never queued."""
TAIL = -2
"""Stands after the last block."""
NOWHERE = 0
"""The link of a block that is not queued. An empty map has it everywhere."""


@frozen
class LinkedQueue:
    """Links in both directions, and how many blocks there are."""

    next: Any
    prev: Any
    blocks_free: Number

    def holds(self, block: Number) -> Condition:
        """Whether ``block`` is queued. A block that was put in is linked back at once, and forward only later."""
        held: Condition = self.prev[block] != NOWHERE
        return held

    def joined(self, left: Number, right: Number) -> LinkedQueue:
        """``right`` follows ``left``."""
        return evolve(self, next=self.next.put(left, right), prev=self.prev.put(right, left))

    def unlinked(self, block: Number) -> LinkedQueue:
        """``block`` points nowhere."""
        return evolve(self, next=self.next.put(block, NOWHERE), prev=self.prev.put(block, NOWHERE))


def empty(links: Any) -> LinkedQueue:
    """Nothing between head and tail; in the map ``links`` no block is linked."""
    return LinkedQueue(links, links, 0).joined(HEAD, TAIL)


# Blocks are put in, one after the other


@frozen
class Insertion:
    """Some blocks are in, up to ``last``, which is not linked to ``right`` yet."""

    queue: LinkedQueue
    last: Number
    right: Number
    blocks_in: Number


def insertion_at_back(queue: LinkedQueue) -> Insertion:
    """Blocks that are put in follow all queued blocks."""
    return Insertion(queue, queue.prev[TAIL], TAIL, 0)


def insertion_at_front(queue: LinkedQueue) -> Insertion:
    """Blocks that are put in stand before all queued blocks."""
    return Insertion(queue, HEAD, queue.next[HEAD], 0)


def with_another(insertion: Insertion, block: Number) -> Insertion:
    """``block`` is put in after the last one.

    Raises:
        ValueError: it is in already, from before or from this call.
    """
    queue = insertion.queue
    if queue.holds(block):
        raise ValueError(f"block {block} is already in the free queue")
    return Insertion(queue.joined(insertion.last, block), block, insertion.right, insertion.blocks_in + 1)


def inserted(insertion: Insertion) -> LinkedQueue:
    """The list is closed, and the blocks are counted."""
    queue = insertion.queue.joined(insertion.last, insertion.right)
    return evolve(queue, blocks_free=queue.blocks_free + insertion.blocks_in)


def append_n(queue: LinkedQueue, blocks: Iterable[int]) -> LinkedQueue:
    """Put ``blocks`` at the back, in order."""
    return _all_in(insertion_at_back(queue), blocks)


def prepend_n(queue: LinkedQueue, blocks: Iterable[int]) -> LinkedQueue:
    """Put ``blocks`` at the front, in order: the first of them is allocated next."""
    return _all_in(insertion_at_front(queue), blocks)


def _all_in(insertion: Insertion, blocks: Iterable[int]) -> LinkedQueue:
    for block in blocks:
        insertion = with_another(insertion, block)
    return inserted(insertion)


# Blocks are taken from the front


@frozen
class Taking:
    """Some blocks are taken; the head is not linked to ``front``, which is now first, yet."""

    queue: LinkedQueue
    front: Number
    blocks_out: Number


def taking(queue: LinkedQueue, blocks: Number) -> Taking:
    """Nothing is taken yet, and ``blocks`` are to be.

    Raises:
        ValueError: a negative number of blocks is asked for.
        LookupError: there are not so many.
    """
    if blocks < 0:
        raise ValueError(f"{blocks} blocks cannot be taken")
    if blocks > queue.blocks_free:
        raise LookupError(f"{blocks} blocks are asked for, and {queue.blocks_free} are free")
    return Taking(queue, queue.next[HEAD], 0)


def with_front_taken(taking: Taking) -> Taking:
    """The block at the front is taken."""
    queue, front = taking.queue, taking.front
    return Taking(queue.unlinked(front), queue.next[front], taking.blocks_out + 1)


def taken(taking: Taking) -> LinkedQueue:
    """The list is closed, and the blocks are counted no longer."""
    queue = taking.queue.joined(HEAD, taking.front)
    return evolve(queue, blocks_free=queue.blocks_free - taking.blocks_out)


def popleft_n(queue: LinkedQueue, blocks: int) -> tuple[tuple[int, ...], LinkedQueue]:
    """Take so many blocks from the front: they, in order, and what is left."""
    state = taking(queue, blocks)
    out: list[Any] = []
    for _ in range(blocks):
        out.append(state.front)
        state = with_front_taken(state)
    return tuple(out), taken(state)


# A block is taken out of the middle


def remove(queue: LinkedQueue, block: Number) -> LinkedQueue:
    """Take ``block`` out, wherever it stands.

    Raises:
        LookupError: it is not queued.
    """
    if not queue.holds(block):
        raise LookupError(f"block {block} is not in the free queue")
    left, right = queue.prev[block], queue.next[block]
    queue = queue.joined(left, right).unlinked(block)
    return evolve(queue, blocks_free=queue.blocks_free - 1)


# What is in it


def forward(queue: LinkedQueue) -> list[int]:
    """The blocks, from the head on; at most as many as are counted, and one more if the links continue."""
    return _walk(queue.next, HEAD, queue.blocks_free)


def backward(queue: LinkedQueue) -> list[int]:
    """The same from the tail on."""
    return _walk(queue.prev, TAIL, queue.blocks_free)


def _walk(links: Any, start: int, blocks: Any) -> list[int]:
    seen: list[int] = []
    block = links[start]
    while block not in (HEAD, TAIL, NOWHERE) and len(seen) <= blocks:
        seen.append(block)
        block = links[block]
    return seen


def all_of(conditions: Iterable[Condition]) -> Condition:
    """That each of ``conditions`` is so, without a fork."""
    return reduce(and_, conditions, True)


@frozen
class Blocks:
    """``length`` blocks in order. The head stands before the first, the tail after the last."""

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
        """Without the one at ``gone``: what stood after it moves up."""

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
    """The block at ``place`` and the one after it are linked in both directions."""
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
    """The invariant of an insertion: ``blocks`` are linked, but for the one at ``hole`` to the one after it."""
    queue = insertion.queue
    return all_of(
        [
            insertion.last == blocks.at(hole),
            insertion.right == blocks.at(hole + 1),
            queue.blocks_free + insertion.blocks_in == blocks.length,
            # A check whether the last one is queued looks at its link back.
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


LIST: dict[str, Unknown] = {"next": AMap(), "prev": AMap(), "blocks_free": Count(0)}
SEQUENCE: dict[str, Unknown] = {
    "at": AMap(),
    "position": AMap(),
    "length": Count(0),
    "place": Count(-1),
    "block": Count(1),
}
"""A sequence, and an arbitrary position and block to look at."""


def queue_of(u: Any) -> LinkedQueue:
    """The list."""
    return LinkedQueue(u.next, u.prev, u.blocks_free)


def sequence_of(u: Any) -> Blocks:
    """The sequence."""
    return sequence(u.at, u.position, u.length)


def is_whole(u: Any) -> Condition:
    """The list is the sequence, as far as it is seen from both ends and from what is looked at."""
    return stands_for(queue_of(u), sequence_of(u), (u.place, -1, u.length - 1, u.length - 2), (u.block,))
