"""Chapter 02: a doubly linked list keeps the sequence that it stands for, however long it is.

Blocks that are put in stand where they were put; what is taken is what the sequence says, and the rest keeps its order.
To put in or take out several blocks is a loop: its invariant holds at the beginning, is kept by a step, and gives the
result at the end. Nothing is assumed of positions and blocks but what the invariant says of a few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from kvreference.free_queue import FreeQueue
from kvspec import linked_queue
from kvspec.linked_queue import (
    HEAD,
    LIST,
    NOWHERE,
    SEQUENCE,
    TAIL,
    Blocks,
    Insertion,
    LinkedQueue,
    Taking,
    being_taken,
    inserting,
    is_whole,
    queue_of,
    sequence,
    sequence_of,
    stands_for,
)
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.symbolic import Number, either, negated

MODULE = "kvspec.linked_queue"
GIVEN: dict[str, Unknown] = {"given_at": AMap(), "given_position": AMap(), "given": Count(0)}


EMPTY = Obligation(
    id="free-queue.empty-is-whole",
    statements=("KV-INV-03",),
    title="The linked free queue begins as the sequence without a block.",
    unknowns={"links": AMap(), "at": AMap(), "position": AMap(), "place": Count(-1), "block": Count(1)},
    assumes=lambda u: u.links[u.block] == NOWHERE,
    claim=lambda u: stands_for(linked_queue.empty(u.links), sequence(u.at, u.position, 0), (u.place,), (u.block,)),
    witnesses={"seen from the head": lambda u: u.place == -1},
    mutants=(
        only(
            "tail-not-linked",
            "The tail is not linked back to the head, so that nothing can be appended.",
            f"{MODULE}:empty",
            lambda links: LinkedQueue(links.put(HEAD, TAIL), links, 0),
        ),
    ),
)


def _given(u: Any) -> Blocks:
    """The blocks of this call that are in already."""
    return Blocks(lambda place: u.given_at[place], lambda block: u.given_position[block], u.given)


def _begins(begin: str, gap: Any) -> Any:
    def claim(u: Any) -> Any:
        insertion = getattr(linked_queue, begin)(queue_of(u))
        return inserting(insertion, sequence_of(u), gap(u) - 1, (u.place,), (u.block,)) & (insertion.blocks_in == 0)

    return claim


APPEND_BEGINS = Obligation(
    id="free-queue.append-begins-at-the-back",
    statements=("KV-OP-07", "KV-OP-17"),
    title="Appending to a linked free queue of any length begins after its last block.",
    unknowns={**LIST, **SEQUENCE},
    assumes=is_whole,
    claim=_begins("insertion_at_back", lambda u: u.length),
    witnesses={"some are queued": lambda u: (u.length == 3) & (u.place == 1)},
    mutants=(
        only(
            "appended-in-front",
            "What is appended goes to the front.",
            f"{MODULE}:insertion_at_back",
            linked_queue.insertion_at_front,
        ),
    ),
)

PREPEND_BEGINS = Obligation(
    id="free-queue.prepend-begins-at-the-front",
    statements=("KV-OP-17",),
    title="Prepending to a linked free queue of any length begins before its first block.",
    unknowns={**LIST, **SEQUENCE},
    assumes=is_whole,
    claim=_begins("insertion_at_front", lambda u: 0),
    witnesses={"some are queued": lambda u: (u.length == 3) & (u.place == 1)},
    mutants=(
        only(
            "prepended-behind-the-first",
            "What is prepended goes after the first block.",
            f"{MODULE}:insertion_at_front",
            lambda queue: Insertion(queue, queue.next[HEAD], queue.next[queue.next[HEAD]], 0),
        ),
    ),
)

INSERTION: dict[str, Unknown] = {
    **LIST,
    **SEQUENCE,
    **GIVEN,
    "last": Count(-2),
    "right": Count(-2),
    "gap": Count(0),
    "new": Count(1),
}


def _insertion(u: Any) -> Insertion:
    return Insertion(queue_of(u), u.last, u.right, u.given)


def _hole(u: Any) -> Any:
    return u.gap + u.given - 1


def _is_inserting(u: Any) -> Any:
    """Some blocks are in, between what stood before ``gap`` and what stood at it."""
    blocks = sequence_of(u).with_between(u.gap, _given(u))
    where = blocks.position(u.new)
    places = (u.place, u.place - 1, u.place + 1, _hole(u), _hole(u) + 1, where, where - 1)
    return (u.gap <= u.length) & inserting(_insertion(u), blocks, _hole(u), places, (u.block, u.new))


def _keeps_order(u: Any) -> Any:
    """The new block stands after those of this call, and nothing else has moved."""
    after = linked_queue.with_another(_insertion(u), u.new)
    more = Blocks(
        lambda place: u.given_at.put(u.given, u.new)[place],
        lambda block: u.given_position.put(u.new, u.given)[block],
        u.given + 1,
    )
    blocks = sequence_of(u).with_between(u.gap, more)
    return inserting(after, blocks, _hole(u) + 1, (u.place,), (u.block,)) & (after.blocks_in == u.given + 1)


def _linked_one_way(insertion: Insertion, block: Number) -> Insertion:
    queue = evolve(insertion.queue, next=insertion.queue.next.put(insertion.last, block))
    return Insertion(queue, block, insertion.right, insertion.blocks_in + 1)


def _turned_around(insertion: Insertion, block: Number) -> Insertion:
    queue, before = insertion.queue, insertion.queue.prev[insertion.last]
    return Insertion(
        queue.joined(before, block).joined(block, insertion.last),
        insertion.last,
        insertion.right,
        insertion.blocks_in + 1,
    )


def _put_in_and_not_counted(insertion: Insertion, block: Number) -> Insertion:
    return Insertion(insertion.queue.joined(insertion.last, block), block, insertion.right, insertion.blocks_in)


def _unguarded(insertion: Insertion, block: Number) -> Insertion:
    return Insertion(insertion.queue.joined(insertion.last, block), block, insertion.right, insertion.blocks_in + 1)


INSERTION_STEP = Obligation(
    id="free-queue.insertion-keeps-order",
    statements=("KV-OP-07", "KV-OP-17", "KV-INV-03"),
    title="Each of many blocks that are put in together stands after the one before it, and moves no other.",
    unknowns=INSERTION,
    assumes=lambda u: _is_inserting(u) & negated(queue_of(u).holds(u.new)),
    claim=_keeps_order,
    witnesses={
        "in the middle of many": lambda u: (u.given == 2) & (u.gap == 1) & (u.length == 3) & (u.place == 1),
    },
    mutants=(
        only("prev-link-forgotten", "The link back is forgotten.", f"{MODULE}:with_another", _linked_one_way),
        only("order-reversed", "Each goes in front of the one before.", f"{MODULE}:with_another", _turned_around),
        only("not-counted", "A block is not counted.", f"{MODULE}:with_another", _put_in_and_not_counted),
    ),
)


def _refuses_what_is_there(u: Any) -> Any:
    there = sequence_of(u).with_between(u.gap, _given(u)).holds(u.new)
    try:
        linked_queue.with_another(_insertion(u), u.new)
    except ValueError:
        return there
    return negated(there)


TWICE = Obligation(
    id="free-queue.twice-is-refused",
    statements=("KV-INV-03",),
    title="A block that is already in the free queue, from before or from the same call, is rejected; no other is.",
    unknowns=INSERTION,
    assumes=_is_inserting,
    claim=_refuses_what_is_there,
    witnesses={"twice in one call": lambda u: (u.given >= 2) & (u.new == u.last) & (u.last == u.given_at[1])},
    mutants=(
        only("unguarded", "A block freed twice in one call is queued twice.", f"{MODULE}:with_another", _unguarded),
        only(
            "guard-looks-forward",
            "The guard looks at the link forward, which the block put in last does not have yet.",
            f"{MODULE}:LinkedQueue.holds",
            lambda self, block: self.next[block] != NOWHERE,
        ),
    ),
)


def _is_the_result(u: Any) -> Any:
    blocks = sequence_of(u).with_between(u.gap, _given(u))
    return stands_for(linked_queue.inserted(_insertion(u)), blocks, (u.place,), (u.block,))


INSERTION_ENDS = Obligation(
    id="free-queue.insertion-ends-whole",
    statements=("KV-OP-07", "KV-OP-17", "KV-INV-03"),
    title="Once all are in, the list is whole, holds no block twice, and its counter is its length.",
    unknowns=INSERTION,
    assumes=_is_inserting,
    claim=_is_the_result,
    witnesses={"into the middle": lambda u: (u.given == 2) & (u.gap == 1) & (u.length == 3) & (u.place == 2)},
    mutants=(
        only(
            "counter-not-raised",
            "The blocks are in, and the counter is what it was.",
            f"{MODULE}:inserted",
            lambda insertion: insertion.queue.joined(insertion.last, insertion.right),
        ),
        only(
            "right-not-linked-back",
            "The block after it still points to the one before it.",
            f"{MODULE}:inserted",
            lambda insertion: LinkedQueue(
                insertion.queue.next.put(insertion.last, insertion.right),
                insertion.queue.prev,
                insertion.queue.blocks_free + insertion.blocks_in,
            ),
        ),
    ),
)

INSERTIONS = (EMPTY, APPEND_BEGINS, PREPEND_BEGINS, INSERTION_STEP, TWICE, INSERTION_ENDS)


# Taking from the front


def _guards(u: Any) -> Any:
    asked = u.more - u.less
    fits = (asked >= 0) & (asked <= u.length)
    try:
        state = linked_queue.taking(queue_of(u), asked)
    except (ValueError, LookupError):
        return negated(fits)
    return fits & being_taken(state, sequence_of(u), (u.place,), (u.block,)) & (state.blocks_out == 0)


TAKING_BEGINS = Obligation(
    id="free-queue.pop-is-guarded",
    statements=("KV-OP-05", "KV-INV-03"),
    title="Blocks are allocated if and only if none or more are asked for and so many are free.",
    unknowns={**LIST, **SEQUENCE, "more": Count(0), "less": Count(0)},
    assumes=is_whole,
    claim=_guards,
    witnesses={
        "some are asked for": lambda u: (u.more == 2) & (u.less == 0) & (u.length == 3),
        "a negative number is asked for": lambda u: (u.more == 0) & (u.less == 1) & (u.length == 1),
    },
    mutants=(
        only(
            "negative-taken",
            "A negative number of blocks is taken, which raises the counter.",
            f"{MODULE}:taking",
            lambda queue, blocks: Taking(queue, queue.next[HEAD], 0) if blocks <= queue.blocks_free else _rejected(),
        ),
        only(
            "more-than-there-are",
            "More blocks are taken than there are.",
            f"{MODULE}:taking",
            lambda queue, blocks: Taking(queue, queue.next[HEAD], 0) if blocks >= 0 else _rejected(),
        ),
    ),
)


def _rejected() -> Taking:
    raise ValueError


TAKING: dict[str, Unknown] = {**LIST, **SEQUENCE, "front": Count(-2), "out": Count(0)}


def _taking(u: Any) -> Taking:
    return Taking(queue_of(u), u.front, u.out)


def _is_taking(u: Any) -> Any:
    """``out`` blocks were taken of a sequence, and the rest is linked."""
    rest = sequence_of(u).without_first(u.out)
    where = rest.position(u.block)
    return (u.out <= u.length) & being_taken(
        _taking(u), rest, (u.place, u.place + 1, u.place + 2, -1, 0, 1, where), (u.block, u.front)
    )


def _takes_the_front(u: Any) -> Any:
    """The block taken is the next of the sequence, and the rest is what follows it."""
    before = _taking(u)
    after = linked_queue.with_front_taken(before)
    rest = sequence_of(u).without_first(u.out + 1)
    taken_in_order = before.front == sequence_of(u).at(u.out)
    return taken_in_order & being_taken(after, rest, (u.place,), (u.block,)) & (after.blocks_out == u.out + 1)


TAKING_STEP = Obligation(
    id="free-queue.pop-takes-the-front",
    statements=("KV-OP-05", "KV-INV-03"),
    title="Each of many blocks taken together is the one that stood next, and what is left keeps its order.",
    unknowns=TAKING,
    assumes=lambda u: _is_taking(u) & (u.out < u.length),
    claim=_takes_the_front,
    witnesses={"in the middle of many": lambda u: (u.out == 2) & (u.length == 5) & (u.place == 1)},
    mutants=(
        only(
            "one-passed-over",
            "After each block taken one is passed over.",
            f"{MODULE}:with_front_taken",
            lambda taking: Taking(
                taking.queue.unlinked(taking.front),
                taking.queue.next[taking.queue.next[taking.front]],
                taking.blocks_out + 1,
            ),
        ),
        only(
            "still-linked",
            "A block that is taken keeps its links.",
            f"{MODULE}:with_front_taken",
            lambda taking: Taking(taking.queue, taking.queue.next[taking.front], taking.blocks_out + 1),
        ),
    ),
)

TAKING_ENDS = Obligation(
    id="free-queue.pop-ends-whole",
    statements=("KV-OP-05", "KV-INV-03"),
    title="Once all are taken, the list is whole, is what stood after them, and its counter is its length.",
    unknowns=TAKING,
    assumes=_is_taking,
    claim=lambda u: stands_for(
        linked_queue.taken(_taking(u)), sequence_of(u).without_first(u.out), (u.place,), (u.block,)
    ),
    witnesses={"some are left": lambda u: (u.out == 2) & (u.length == 4) & (u.place == -1)},
    mutants=(
        only(
            "counter-not-lowered",
            "The blocks are gone, and the counter is what it was.",
            f"{MODULE}:taken",
            lambda taking: taking.queue.joined(HEAD, taking.front),
        ),
        only(
            "front-linked-to-a-taken-block",
            "The new front still points back to a block that is gone.",
            f"{MODULE}:taken",
            lambda taking: LinkedQueue(
                taking.queue.next.put(HEAD, taking.front),
                taking.queue.prev,
                taking.queue.blocks_free - taking.blocks_out,
            ),
        ),
    ),
)

# Taking out of the middle


def _is_the_list_with_the_gone(u: Any) -> Any:
    blocks = sequence_of(u)
    gone, other = blocks.position(u.gone), blocks.position(u.block)
    places = (u.place, u.place + 1, gone, gone - 1, gone + 1, other, other - 1)
    return stands_for(queue_of(u), blocks, places, (u.block, u.gone))


def _closes_the_gap(u: Any) -> Any:
    blocks = sequence_of(u)
    try:
        after = linked_queue.remove(queue_of(u), u.gone)
    except LookupError:
        return negated(blocks.holds(u.gone))
    rest = blocks.without(blocks.position(u.gone))
    return blocks.holds(u.gone) & stands_for(after, rest, (u.place,), (u.block,))


def _removed(after: Any) -> Any:
    """A removal that ends as ``after`` says of the links left and right."""

    def removal(queue: LinkedQueue, block: Number) -> LinkedQueue:
        if not queue.holds(block):
            raise LookupError
        found: LinkedQueue = after(queue, block, queue.prev[block], queue.next[block])
        return found

    return removal


def _bypassed(queue: LinkedQueue, block: Number, left: Number, right: Number) -> LinkedQueue:
    return LinkedQueue(queue.next.put(left, right), queue.prev, queue.blocks_free - 1).unlinked(block)


REMOVE = Obligation(
    id="free-queue.remove-closes-the-gap",
    statements=("KV-INV-02", "KV-INV-03"),
    title="A block taken out of the middle leaves all others in their order; one that is not there is rejected.",
    unknowns={**LIST, **SEQUENCE, "gone": Count(1)},
    assumes=_is_the_list_with_the_gone,
    claim=_closes_the_gap,
    witnesses={"from the middle": lambda u: (u.length == 3) & (u.at[1] == u.gone) & (u.place == 0)},
    mutants=(
        only("prev-link-forgotten", "The link back is forgotten.", f"{MODULE}:remove", _removed(_bypassed)),
        only(
            "still-counted",
            "The block is gone, and still counted.",
            f"{MODULE}:remove",
            _removed(lambda queue, block, left, right: queue.joined(left, right).unlinked(block)),
        ),
        only(
            "still-linked",
            "The block keeps its links, and will be taken for a queued one.",
            f"{MODULE}:remove",
            _removed(
                lambda queue, block, left, right: LinkedQueue(
                    queue.next.put(left, right), queue.prev.put(right, left), queue.blocks_free - 1
                )
            ),
        ),
    ),
)

REMOVALS = (TAKING_BEGINS, TAKING_STEP, TAKING_ENDS, REMOVE)

# The reference's queue


class _Ordered:
    """Stands for Python's ordered dictionary, of any length, by the sequence of its keys."""

    def __init__(self, keys: Blocks) -> None:
        self.keys = keys

    def __bool__(self) -> bool:
        return bool(self.keys.length > 0)

    def __contains__(self, block: Number) -> bool:
        return bool(self.keys.holds(block))

    def __setitem__(self, block: Number, _nothing: None) -> None:
        """A key that is new goes to the end."""
        assert block not in self, "a new one"
        self._put(block, self.keys.length)

    def __delitem__(self, block: Number) -> None:
        self.keys = self.keys.without(self.keys.position(block))

    def move_to_end(self, block: Number, last: bool = True) -> None:
        """Either end."""
        del self[block]
        self._put(block, self.keys.length if last else 0)

    def popitem(self, last: bool = True) -> tuple[Number, None]:
        """From either end."""
        place = self.keys.length - 1 if last else 0
        block = self.keys.at(place)
        self.keys = self.keys.without(place)
        return block, None

    def _put(self, block: Number, place: Number) -> None:
        one = Blocks(lambda _place: block, lambda other: either(other == block, 0, -1), 1)
        self.keys = self.keys.with_between(place, one)


def _takes_one(queue: LinkedQueue, _block: Number) -> tuple[Number, LinkedQueue]:
    (front,), rest = linked_queue.popleft_n(queue, 1)
    return front, rest


WAYS: tuple[tuple[Callable[[FreeQueue, Any], Any], Callable[[LinkedQueue, Any], tuple[Any, LinkedQueue]]], ...] = (
    (lambda queue, block: queue.append(block), lambda queue, block: (None, linked_queue.append_n(queue, [block]))),
    (lambda queue, block: queue.prepend(block), lambda queue, block: (None, linked_queue.prepend_n(queue, [block]))),
    (lambda queue, block: queue.remove(block), lambda queue, block: (None, linked_queue.remove(queue, block))),
    (lambda queue, _block: queue.pop(), _takes_one),
)
"""What is done to a queue, by the reference and by the list."""


def _both(u: Any) -> Any:
    """The same is done to the reference's queue and to the list that stands for its sequence."""
    of_reference, of_list = WAYS[u.way.__index__()]
    queue: Any = object.__new__(FreeQueue)
    queue._order = _Ordered(sequence_of(u))
    before, rejected = queue._order.keys, None
    taken: Any = None
    try:
        taken = of_reference(queue, u.gone)
    except (LookupError, ValueError) as error:
        rejected = type(error)
    try:
        found, after = of_list(queue_of(u), u.gone)
    except (LookupError, ValueError) as error:
        return rejected is type(error) and queue._order.keys is before
    same = (taken is None) if found is None else (taken == found)
    return (rejected is None) & same & stands_for(after, queue._order.keys, (u.place,), (u.block,))


def _is_the_list_of_both(u: Any) -> Any:
    return is_whole(u) & stands_for(queue_of(u), sequence_of(u), (0, u.place - 1), ()) & _is_the_list_with_the_gone(u)


_APPEND, _POP = FreeQueue.append, FreeQueue.pop
"""What these do, where nothing is broken."""


def _appends_in_front(self: FreeQueue, block: Any) -> None:
    _APPEND(self, block)
    self._order.move_to_end(block, last=False)


def _removes_the_front(self: FreeQueue, block: Any) -> None:
    if block not in self._order:
        raise LookupError
    self._order.popitem(last=False)


SAME = Obligation(
    id="free-queue.running-queue-is-the-list",
    statements=("KV-OP-05", "KV-OP-07", "KV-OP-17", "KV-INV-03"),
    title="The reference's queue, of any length, is the sequence that the linked list stands for: if a block is put in "
    "at the back or at the front, taken from the front or taken out of the middle, both say the same, reject the same, "
    "and stand for the same sequence afterwards.",
    unknowns={**LIST, **SEQUENCE, "gone": Count(1), "way": Count(0, len(WAYS) - 1)},
    assumes=_is_the_list_of_both,
    claim=_both,
    witnesses={
        "out of the middle": lambda u: (u.way == 2) & (u.length == 3) & (u.at[1] == u.gone) & (u.place == 0),
        "one is there already": lambda u: (u.way == 0) & (u.length == 3) & (u.at[1] == u.gone),
        "none is there": lambda u: (u.way == 3) & (u.length == 0),
    },
    mutants=(
        only(
            "appended-in-front",
            "What is appended goes to the front.",
            "kvreference.free_queue:FreeQueue.append",
            _appends_in_front,
        ),
        only(
            "taken-from-the-back",
            "The block at the back is taken.",
            "kvreference.free_queue:FreeQueue.pop",
            lambda self: self._order.popitem()[0] if self._order else _POP(self),
        ),
        only(
            "another-is-removed",
            "In the place of a block the one at the front is removed.",
            "kvreference.free_queue:FreeQueue.remove",
            _removes_the_front,
        ),
        only(
            "list-appends-in-front",
            "The list puts what is appended in front.",
            f"{MODULE}:insertion_at_back",
            linked_queue.insertion_at_front,
        ),
    ),
)

OBLIGATIONS = (*INSERTIONS, *REMOVALS, SAME)
