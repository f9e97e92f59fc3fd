"""A linked list that is not known, and the sequence that it stands for: what the proofs of both halves start from."""

from __future__ import annotations

from typing import Any

from kvspec.linked_queue import LinkedQueue
from kvspec.obligation import AMap, Count, Unknown
from kvspec.sequences import Blocks, sequence, stands_for
from kvspec.symbolic import Condition

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
