"""Scripts of queue operations, to tie the linked list of the proofs to other queues: same script, same answers.

A script is data and follows from its seed. It contains impossible calls too; the player reports whether each was
rejected. Blocks are queued or held; what is taken or removed is held, and may be put in again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol, TypeAlias

from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvspec import linked_queue
from kvspec.linked_queue import LinkedQueue
from kvspec.maps import FiniteMap

Call: TypeAlias = "tuple[str, tuple[int, ...]]"
"""The name of an operation and the blocks, or the one number, that it is given."""
Observed: TypeAlias = "tuple[str, tuple[int, ...], tuple[int, ...], int]"
"""The rejection, the blocks taken, the order, and the counter of free blocks."""

LEGAL = ("append", "append_n", "popleft", "popleft_n", "remove")
WITH_FRONT = (*LEGAL, "prepend", "prepend_n")


class Queue(Protocol):
    """A queue that plays scripts."""

    def play(self, call: Call) -> tuple[int, ...]:
        """Do it; the blocks that are taken."""
        ...

    def order(self) -> tuple[int, ...]:
        """The blocks from front to back."""
        ...

    def blocks_free(self) -> int:
        """How many there are said to be."""
        ...


def random_script(seed: int, blocks: int, calls: int, names: Sequence[str], hostile: bool = False) -> Iterator[Call]:
    """So many calls on a queue that begins with ``blocks`` blocks; if ``hostile``, some of them to be rejected."""
    random = Random(seed)
    queued, held = list(range(1, blocks + 1)), [0] * 0
    for _ in range(calls):
        if hostile and random.random() < 0.1:
            yield _hostile(random, queued, held)
            continue
        name = random.choice(names)
        if name in ("popleft", "popleft_n", "remove"):
            count = random.randint(0, min(4, len(queued))) if name == "popleft_n" else min(1, len(queued))
            if name != "popleft_n" and not count:
                continue
            gone = [random.choice(queued)] if name == "remove" else queued[:count]
            queued = [block for block in queued if block not in gone]
            held += gone
            yield name, (tuple(gone) if name == "remove" else (count,))
        else:
            random.shuffle(held)
            count = random.randint(0, min(4, len(held))) if name.endswith("_n") else min(1, len(held))
            if not name.endswith("_n") and not count:
                continue
            new, held = held[:count], held[count:]
            queued = [*new, *queued] if name.startswith("prepend") else [*queued, *new]
            yield name, tuple(new)


def _hostile(random: Random, queued: Sequence[int], held: Sequence[int]) -> Call:
    """A call that must be rejected: a block twice, a block that is there, one that is not, too many, or a negative
    number."""
    wrong: list[Call] = [("popleft_n", (len(queued) + 1,)), ("popleft_n", (-1,))]
    if queued:
        wrong.append(("append_n", (random.choice(queued),)))
    if held:
        wrong += [("append_n", (held[0], held[0])), ("remove", (held[0],))]
    return random.choice(wrong)


def observed(queue: Queue, script: Iterator[Call]) -> Iterator[Observed]:
    """What ``queue`` shows after each call."""
    for call in script:
        rejected, taken = "", tuple[int, ...]()
        try:
            taken = queue.play(call)
        except (LookupError, ValueError) as error:
            rejected = type(error).__name__
        yield rejected, taken, queue.order(), queue.blocks_free()


class Linked:
    """The linked list of the proofs."""

    def __init__(self, blocks: int) -> None:
        self.queue: LinkedQueue = linked_queue.append_n(linked_queue.empty(FiniteMap()), range(1, blocks + 1))

    def play(self, call: Call) -> tuple[int, ...]:
        name, given = call
        taken: tuple[int, ...] = ()
        if name.startswith("append"):
            self.queue = linked_queue.append_n(self.queue, given)
        elif name.startswith("prepend"):
            self.queue = linked_queue.prepend_n(self.queue, given)
        elif name.startswith("popleft"):
            taken, self.queue = linked_queue.popleft_n(self.queue, given[0])
        else:
            self.queue = linked_queue.remove(self.queue, given[0])
        return taken

    def order(self) -> tuple[int, ...]:
        forward, backward = linked_queue.forward(self.queue), linked_queue.backward(self.queue)
        # A list that reads differently from its end has no order.
        return tuple(forward) if forward == backward[::-1] else (*forward, -1, *backward)

    def blocks_free(self) -> int:
        return int(self.queue.blocks_free)


class OfReference:
    """The reference's queue. It takes one block at a time, and undoes what it must reject halfway."""

    def __init__(self, blocks: int, scratch_first: bool = False) -> None:
        self.queue = (ScratchFirstQueue if scratch_first else FreeQueue)(range(1, blocks + 1))

    def play(self, call: Call) -> tuple[int, ...]:
        before = self.queue.copy()
        try:
            return self._play(*call)
        except (LookupError, ValueError):
            self.queue = before
            raise

    def _play(self, name: str, given: tuple[int, ...]) -> tuple[int, ...]:
        if name.startswith("popleft"):
            if given[0] < 0:
                raise ValueError("no number of blocks")
            return tuple(self.queue.pop() for _ in range(given[0]))
        if name.startswith("prepend"):
            for block in reversed(given):
                self.queue.prepend(block)
        elif name.startswith("append"):
            self.queue.put(given, ())
        else:
            self.queue.remove(given[0])
        return ()

    def order(self) -> tuple[int, ...]:
        return tuple(self.queue)

    def blocks_free(self) -> int:
        return len(self.queue)
