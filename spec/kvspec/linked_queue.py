"""The free queue as production code keeps it: a doubly linked list, in which removal from the middle costs no search.

It is written from its meaning, as loops of small steps, and it runs on maps that are known and on maps of which nothing
is known. So the steps that run are the steps that ``proofs.free_queue`` proves: each loop has a beginning, a step and
an end, and an invariant that holds between them. ``kvspec.sequences`` says which sequence a list stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve, frozen

from kvspec.symbolic import Condition, Number

HEAD = -1
"""Stands before the first block. No block has a negative number, and block 0, the null block, is never queued."""
TAIL = -2
"""Stands behind the last block."""
NOWHERE = 0
"""The link of a block that is not queued. It is what a map holds that was told nothing."""


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


# Blocks are put in, one behind the other


@frozen
class Insertion:
    """Some blocks are in, up to ``last``, which is not linked to ``right`` yet."""

    queue: LinkedQueue
    last: Number
    right: Number
    blocks_in: Number


def insertion_at_back(queue: LinkedQueue) -> Insertion:
    """What is put in follows all that is queued."""
    return Insertion(queue, queue.prev[TAIL], TAIL, 0)


def insertion_at_front(queue: LinkedQueue) -> Insertion:
    """What is put in stands before all that is queued."""
    return Insertion(queue, HEAD, queue.next[HEAD], 0)


def with_another(insertion: Insertion, block: Number) -> Insertion:
    """``block`` is put in behind the last one.

    Raises:
        ValueError: it is in already, from before or from this very call.
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
    """Put ``blocks`` at the front, in order: the first of them is handed out next."""
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
    """The blocks, from the head on; at most as many as are counted, and one more if the links go on."""
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
