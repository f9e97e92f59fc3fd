"""Chapter 02: blocks put into a doubly linked list stand in the sequence where they were put, however many there are.

What is put in together is a loop: its invariant holds at the beginning, is kept by a step, and gives the result at the
end. Nothing is assumed of positions and blocks but what the invariant says of a few of them.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvspec import linked_queue
from kvspec.linked_queue import HEAD, NOWHERE, TAIL, Insertion, LinkedQueue
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.sequences import Blocks, inserting, sequence, stands_for
from kvspec.symbolic import Number, negated
from kvspec.unknown_list import LIST, SEQUENCE, is_whole, queue_of, sequence_of

MODULE = "kvspec.linked_queue"
GIVEN: dict[str, Unknown] = {"given_at": AMap(), "given_position": AMap(), "given": Count(0)}


EMPTY = Obligation(
    id="free-queue.empty-is-whole",
    statements=("KV-INV-03",),
    sentence="The linked free queue begins as the sequence without a block.",
    unknowns={"links": AMap(), "at": AMap(), "position": AMap(), "place": Count(-1), "block": Count(1)},
    given=lambda u: u.links[u.block] == NOWHERE,
    shows=lambda u: stands_for(linked_queue.empty(u.links), sequence(u.at, u.position, 0), (u.place,), (u.block,)),
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
    def shows(u: Any) -> Any:
        insertion = getattr(linked_queue, begin)(queue_of(u))
        return inserting(insertion, sequence_of(u), gap(u) - 1, (u.place,), (u.block,)) & (insertion.blocks_in == 0)

    return shows


APPEND_BEGINS = Obligation(
    id="free-queue.append-begins-at-the-back",
    statements=("KV-OP-07", "KV-OP-17"),
    sentence="Appending to a linked free queue of any length begins behind its last block.",
    unknowns={**LIST, **SEQUENCE},
    given=is_whole,
    shows=_begins("insertion_at_back", lambda u: u.length),
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
    sentence="Prepending to a linked free queue of any length begins before its first block.",
    unknowns={**LIST, **SEQUENCE},
    given=is_whole,
    shows=_begins("insertion_at_front", lambda u: 0),
    witnesses={"some are queued": lambda u: (u.length == 3) & (u.place == 1)},
    mutants=(
        only(
            "prepended-behind-the-first",
            "What is prepended goes behind the first block.",
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
    """The new block is in behind those of this call, and nothing else has moved."""
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
    sentence="Each of many blocks that are put in together stands behind the one before it, and moves no other.",
    unknowns=INSERTION,
    given=lambda u: _is_inserting(u) & negated(queue_of(u).holds(u.new)),
    shows=_keeps_order,
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
    sentence="A block that is already in the free queue, from before or from the same call, is refused; no other is.",
    unknowns=INSERTION,
    given=_is_inserting,
    shows=_refuses_what_is_there,
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
    sentence="Once all are in, the list is whole, holds no block twice, and its counter is its length.",
    unknowns=INSERTION,
    given=_is_inserting,
    shows=_is_the_result,
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
            "What stood behind still points to what stood before.",
            f"{MODULE}:inserted",
            lambda insertion: LinkedQueue(
                insertion.queue.next.put(insertion.last, insertion.right),
                insertion.queue.prev,
                insertion.queue.blocks_free + insertion.blocks_in,
            ),
        ),
    ),
)

OBLIGATIONS = (EMPTY, APPEND_BEGINS, PREPEND_BEGINS, INSERTION_STEP, TWICE, INSERTION_ENDS)
