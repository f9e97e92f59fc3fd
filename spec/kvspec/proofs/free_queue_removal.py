"""Chapter 02: what is taken from a doubly linked list is what the sequence says, and the rest keeps its order.

What is taken together from the front is a loop, like that of ``proofs.free_queue_insertion``.
"""

from __future__ import annotations

from typing import Any

from kvspec import linked_queue
from kvspec.linked_queue import HEAD, LinkedQueue, Taking
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.sequences import being_taken, stands_for
from kvspec.symbolic import Number, negated
from kvspec.unknown_list import LIST, SEQUENCE, is_whole, queue_of, sequence_of

MODULE = "kvspec.linked_queue"

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
    sentence="Blocks are handed out exactly if none or more are asked for and so many are free.",
    unknowns={**LIST, **SEQUENCE, "more": Count(0), "less": Count(0)},
    given=is_whole,
    shows=_guards,
    witnesses={
        "some are asked for": lambda u: (u.more == 2) & (u.less == 0) & (u.length == 3),
        "a negative number is asked for": lambda u: (u.more == 0) & (u.less == 1) & (u.length == 1),
    },
    mutants=(
        only(
            "negative-taken",
            "A negative number of blocks is taken, which raises the counter.",
            f"{MODULE}:taking",
            lambda queue, blocks: Taking(queue, queue.next[HEAD], 0) if blocks <= queue.blocks_free else _refused(),
        ),
        only(
            "more-than-there-are",
            "More blocks are taken than there are.",
            f"{MODULE}:taking",
            lambda queue, blocks: Taking(queue, queue.next[HEAD], 0) if blocks >= 0 else _refused(),
        ),
    ),
)


def _refused() -> Taking:
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
    sentence="Each of many blocks taken together is the one that stood next, and what is left keeps its order.",
    unknowns=TAKING,
    given=lambda u: _is_taking(u) & (u.out < u.length),
    shows=_takes_the_front,
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
    sentence="Once all are taken, the list is whole, is what stood behind them, and its counter is its length.",
    unknowns=TAKING,
    given=_is_taking,
    shows=lambda u: stands_for(
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
    sentence="A block taken out of the middle leaves all others in their order; one that is not there is refused.",
    unknowns={**LIST, **SEQUENCE, "gone": Count(1)},
    given=_is_the_list_with_the_gone,
    shows=_closes_the_gap,
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

OBLIGATIONS = (TAKING_BEGINS, TAKING_STEP, TAKING_ENDS, REMOVE)
