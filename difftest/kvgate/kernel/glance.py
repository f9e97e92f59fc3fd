"""A glance: what one operation may have changed, compared without reading the rest of either state.

What it may have changed is what it changed in the reference, and the tables of its request; both are read from the
system itself, which is not asked what it changed. Anything else that it changed is seen when the whole state is
compared, a few operations later: the case is then run again with a comparison of the whole after each operation.

A glance only says whether all is equal. What differs is for ``kvgate.kernel.comparison`` to say, from the whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import compress, count, islice
from operator import is_not, ne
from typing import Protocol, runtime_checkable

from attrs import frozen

from kvgate.kernel.comparison import Correspondence
from kvreference.block_pool import BlockPool
from kvreference.free_queue import FreeQueue
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Finish,
    OfRequest,
    Operation,
    Preempt,
    ReleaseSkipped,
    Schedule,
    Transferred,
)

WHOLE_EVERY = 16
"""How often, in operations, the whole state is compared where glances are enough in between."""
_OF_TABLES = (Admit, Schedule, Preempt, Finish, Abort, Transferred, ReleaseSkipped)
"""What may change the tables of its request."""


@runtime_checkable
class Parts(Protocol):
    """A system that can be read in part. A system that lacks this is compared as a whole each time."""

    def tables(self, request: int) -> Sequence[list[int]]:
        """The block table of a request in each group; nothing if it holds no blocks."""
        ...

    def references_of(self, blocks: Sequence[int]) -> list[int]:
        """The reference counts of some blocks."""
        ...

    def contents_of(self, blocks: Sequence[int]) -> list[Hashable]:
        """What some blocks are said to hold."""
        ...

    def listed(self, contents: Sequence[Hashable]) -> list[tuple[int, ...]]:
        """The blocks that the cached map lists for each of some contents."""
        ...

    def blocks_free(self) -> int:
        """How many blocks are said to be free."""
        ...

    def free_ends(self, blocks: int) -> tuple[list[int], list[int]]:
        """So many blocks of the free queue from the front on, and so many from the back on."""
        ...


@frozen
class Change:
    """What one operation changed in the reference."""

    tables: Callable[[], Sequence[tuple[int, int]]]
    """Per group of its request's tables before and after, how many entries there are more, and how many differ."""
    references: Sequence[tuple[int, int]]
    """Of each block that changed hands, its references before and after."""
    contents: Sequence[tuple[Hashable, Hashable]]
    """Of each block whose content changed, what it held before and after."""
    blocks_free: int
    others: Sequence[int] = ()
    """How many other things changed, of each sort that a state has besides these."""


class Glance:
    """Follows one run of the reference, and looks at what changes there."""

    def __init__(self, reference: Manager, system: Parts, correspondence: Correspondence) -> None:
        self.reference = reference
        self.system = system
        self.correspondence = correspondence
        self._references = list(reference.pool.references)
        self._contents = reference.pool.cached.contents()
        self._tables: dict[int, list[list[int]]] = {}

    @staticmethod
    def is_enough(reference: Manager) -> bool:
        """Whether what a glance sees is all that an operation changes as a rule.

        Pins, copies and boundaries inside blocks, and scratch that is moved within the queue, are not looked at.
        """
        settings = reference.settings
        return (
            type(reference.pool) is BlockPool
            and type(reference.pool.free) is FreeQueue
            and not settings.scratch_first
            and settings.pin_drop_blocks_min is None
            and not settings.geometry.fences
            and not any(group.copies for group in settings.geometry.groups)
        )

    def look(self, operation: Operation) -> tuple[Change, bool]:
        """What the operation changed in the reference, and whether the system is seen to have changed the same."""
        pool = self.reference.pool
        references, before = pool.references, self._references
        moved: list[int] = []
        if references != before:
            moved = list(compress(count(), map(ne, references, before)))
            self._references = list(references)
        contents, held = pool.cached.contents(), self._contents
        renewed: list[int] = []
        if contents != held:
            renewed = list(compress(count(), map(is_not, contents, held)))
            self._contents = contents
        number, ours, theirs = self._of_request(operation)
        old = self._tables.pop(number, [])
        if ours:
            self._tables[number] = ours
        change = Change(
            lambda: [_difference(*pair) for pair in zip(old, ours, strict=False)],
            [(before[block], references[block]) for block in moved],
            [(held[block], contents[block]) for block in renewed],
            len(pool.free),
        )
        same = (
            ours == theirs
            and self._free_alike(len(moved) + 1)
            and (not moved or self.system.references_of(moved) == [references[block] for block in moved])
            and (not renewed or self._cached_alike(renewed, change))
        )
        return change, same

    def _of_request(self, operation: Operation) -> tuple[int, list[list[int]], list[list[int]]]:
        """Which request's tables are looked at, and the tables on both sides."""
        if not isinstance(operation, OfRequest):
            return -1, [], []
        number = operation.request
        ours = [list(table.blocks) for table in self.reference.tables.get(number, ())]
        return number, ours, list(self.system.tables(number)) if isinstance(operation, _OF_TABLES) else ours

    def _free_alike(self, blocks: int) -> bool:
        """Whether as many blocks are free, and the same ones come first and last."""
        free = self.reference.pool.free
        if self.system.blocks_free() != len(free):
            return False
        ends = list(islice(free, blocks)), list(islice(reversed(free), blocks))
        return ends == self.system.free_ends(blocks)

    def _cached_alike(self, renewed: Sequence[int], change: Change) -> bool:
        """Whether the blocks hold the same content, and the map lists the same blocks for it and for what is lost."""
        pairs = zip(change.contents, self.system.contents_of(renewed), strict=True)
        if not all(self.correspondence.relate(now, theirs) for (_, now), theirs in pairs):
            return False
        touched = [content for pair in change.contents for content in pair if content is not None]
        listed = self.system.listed(self.correspondence.theirs(touched))
        return listed == [self.reference.pool.cached.blocks_of(content) for content in touched]


def _difference(old: list[int], new: list[int]) -> tuple[int, int]:
    if old == new:
        return 0, 0
    return len(new) - len(old), sum(map(ne, old, new))


