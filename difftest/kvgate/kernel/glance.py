"""A glance: what one operation may have changed, compared without reading the rest of either state.

What it may have changed is what it changed in the reference, and the tables of its request. Both are read from the
system itself, which is not asked what it changed. Anything else that it changed is seen when the whole state is
compared, a few operations later. The case is then run again with a comparison of the whole state after each operation.

A glance only says whether all is equal. What differs is for ``kvgate.kernel.comparison`` to say, from the whole state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count, islice
from operator import is_not, ne
from typing import TypeAlias, cast

from kvgate.kernel.comparison import Correspondence
from kvgate.kernel.monitor import Change
from kvgate.kernel.protocol import Parts
from kvreference.block_pool import BlockPool
from kvreference.cached_map import Content
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
Tables: TypeAlias = Sequence[list[int]]


class Glance:
    """Follows one run of the reference, and looks at what changes there."""

    def __init__(self, reference: Manager, system: Parts, correspondence: Correspondence) -> None:
        self.reference = reference
        self.system = system
        self.correspondence = correspondence
        self._references = list(reference.pool.references)
        self._contents = reference.pool.cached.contents()
        self._tables: dict[int, tuple[Tables, Tables]] = {}
        """Per request, its tables on both sides, which were alike when they were last looked at."""

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
        old, ours, same = self._tables_alike(operation) if isinstance(operation, _OF_TABLES) else ((), (), True)
        change = Change(
            lambda: [_difference(*pair) for pair in zip(old, ours, strict=False)],
            [(before[block], references[block]) for block in moved],
            [(held[block], contents[block]) for block in renewed],
            len(pool.free),
        )
        same = (
            same
            and self.system.blocks_free() == len(pool.free)
            and (not (moved or renewed) or self._held_alike(moved))
            and (not renewed or self._cached_alike(renewed, change))
        )
        return change, same

    def _tables_alike(self, operation: OfRequest) -> tuple[Tables, Tables, bool]:
        """The tables of a request in the reference, before and after; and whether it has the same in the system."""
        number = operation.request
        ours = [list(table.blocks) for table in self.reference.tables.get(number, ())]
        theirs = list(self.system.tables_of(number))
        known = self._tables.pop(number, ((), ()))
        if ours:
            self._tables[number] = ours, theirs
        # Numbers of one system are the same objects as before, so that is compared fast, and most tables are as before.
        return known[0], ours, (ours == known[0] and theirs == known[1]) or ours == theirs

    def _held_alike(self, moved: Sequence[int]) -> bool:
        """Whether the blocks that changed hands have the same references, and the queue the same ends after that."""
        references, free = self.reference.pool.references, self.reference.pool.free
        if self.system.references_of(moved) != [references[block] for block in moved]:
            return False
        blocks = len(moved) + 1
        ends = list(islice(free, blocks)), list(islice(reversed(free), blocks))
        return ends == self.system.free_ends(blocks)

    def _cached_alike(self, renewed: Sequence[int], change: Change) -> bool:
        """Whether the blocks hold the same content, and the map lists the same blocks for it and for what is lost."""
        pairs = zip(change.contents, self.system.contents_of(renewed), strict=True)
        if not all(self.correspondence.relate(now, theirs) for (_, now), theirs in pairs):
            return False
        touched = [cast("Content", content) for pair in change.contents for content in pair if content is not None]
        listed = self.system.listed(self.correspondence.theirs(touched))
        return listed == [self.reference.pool.cached.blocks_of(content) for content in touched]


def _difference(old: list[int], new: list[int]) -> tuple[int, int]:
    if old == new:
        return 0, 0
    return len(new) - len(old), sum(map(ne, old, new))
