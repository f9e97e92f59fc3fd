"""Tables that continue past what is loaded: a negative number of blocks is taken. Findings 013 and 014.

The run is followed with a count that is too high, until a block is given that the queue does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from traceback import walk_tb

from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.admission import blocks_said_free
from kvreference.answers import Granted, Refused, Success
from kvreference.block_pool import BlockPool, is_unused
from kvreference.geometry import Geometry
from kvreference.holdings import rounds_of_admission
from kvreference.rules import Delta


class TablesPastLoad:
    """The pool is asked for that number and counts it: it says that it has that many more free blocks than it has."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.blocks = 0
        """How many blocks too many it says that it has."""

    def deltas(self) -> list[Delta]:
        """Those of the count. They take what other deltas have made of a hit as it is."""
        return [
            Delta(rounds_of_admission.__name__, self._admit),
            Delta(blocks_said_free.__name__, self._said),
            Delta(is_unused.__name__, self._is_unused),
        ]

    def _admit(
        self,
        rounds: Callable[..., list[range]],
        tables: Sequence[Sequence[int]],
        counts: Sequence[int],
        free: Iterable[int],
        provided: int,
    ) -> list[range]:
        if provided:
            self.blocks += sum(
                max(0, len(table) - group.blocks_occupied(provided))
                for group, table in zip(self.geometry.groups, tables, strict=True)
                if group.keeps_all
            )
        return rounds(tables, counts, free, provided)

    def _said(self, said: Callable[[BlockPool], int], pool: BlockPool) -> int:
        return said(pool) + self.blocks

    def _is_unused(self, rule: Callable[[Sequence[int]], bool], references: Sequence[int]) -> bool:
        if not self.blocks:
            return rule(references)
        return references.count(0) + self.blocks == len(references)


def miscounted(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Whether a pool gave blocks that its queue did not have, or took itself for in use when a reset emptied it.

    More blocks than there are, or a block that an empty queue gives twice, end the step with an assertion there.
    """
    reference, (expected, answered) = lockstep.reference, lockstep.answers
    if reference is None or reference.snapshot().blocks_free <= len(reference.pool.free):
        return False
    detector, subject = divergence.detector, divergence.difference.subject
    if isinstance(expected, Refused) and detector == "lockstep":
        if isinstance(answered, Granted):
            return sum(map(len, answered.blocks)) > len(reference.pool.free)
        return subject == AssertionError.__name__ and _is_of_the_queue(lockstep.raised)
    if (detector, subject) == ("scheduler", AssertionError.__name__):
        return _is_of_the_queue(lockstep.raised)
    return (detector, subject, answered) == ("scheduler", RuntimeError.__name__, Success(False))


def _is_of_the_queue(raised: BaseException | None) -> bool:
    """Whether an assertion failed where blocks are taken from the queue."""
    frames = [] if raised is None else [frame.f_code.co_name for frame, _line in walk_tb(raised.__traceback__)]
    return frames[-1:] in (["popleft_n"], ["get_new_blocks"])
