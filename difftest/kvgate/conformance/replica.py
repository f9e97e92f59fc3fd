"""A reference that follows a system's choice of blocks, for a system that hands them out in an order of its own.

The system goes first. Where the reference has to take a free block, it takes the one that stands at that place of the
system's table, if that block is free. If several blocks hold what a hit needs, it uses the one that the system uses.
Everything else is its own: how many blocks, at which places, whether there is a hit and how long it is, what is
released, and what is cached or forgotten. So from the first operation on the two name blocks alike: a bijection of
block ids that is never written down, because it is the identity.

An invalid choice, such as a block that a request holds, is not followed: then the tables differ, and lockstep reports
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvgate.kernel.protocol import System
from kvreference.answers import Answer, BlockTable, Hit
from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import CachedMap, Content
from kvreference.geometry import Geometry
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.operations import Admit, LookUp, OfRequest, Operation
from kvreference.population import Population
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot
from kvreference.tables import Plan, Tables


class GoesFirst:
    """A system that has performed an operation before it is asked for it, so that others can follow."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.population: Population = system.population
        """The requests alive, as the system has them."""
        self._ahead: tuple[Answer, Snapshot] | BaseException | None = None

    def ahead(self, operation: Operation) -> tuple[Answer, Snapshot] | None:
        """Perform ``operation`` now; None if that raised, which is raised again when the system is asked for it."""
        try:
            self._ahead = self._system.apply(operation), self._system.snapshot()
        except (Exception, SystemExit) as error:
            self._ahead = error
            return None
        self.population = self._system.population
        return self._ahead

    def apply(self, operation: Operation) -> Answer:
        """The answer to the operation that was performed."""
        del operation
        if isinstance(self._ahead, BaseException):
            raise self._ahead
        assert self._ahead is not None, "performed first"
        return self._ahead[0]

    def snapshot(self) -> Snapshot:
        return self._ahead[1] if isinstance(self._ahead, tuple) else self._system.snapshot()

    def roots(self) -> Mapping[str, object]:
        return self._system.roots()

    def name_of(self, request: int) -> str:
        return self._system.name_of(request)


class FollowingMap(CachedMap):
    """A cached map that serves a hit with the block that was chosen, if that one holds the content."""

    def __init__(self, blocks: int, geometry: Geometry) -> None:
        super().__init__(blocks)
        self.geometry = geometry
        self.chosen: Sequence[Sequence[int]] = ()
        """Per group, the blocks that were chosen, in table order."""

    def find(self, content: Content) -> int | None:
        blocks = self._blocks.get(content, ())
        group, prefix = content
        table = self.chosen[group] if group < len(self.chosen) else ()
        position = prefix.tokens // self.geometry.groups[group].block_size_tokens - 1
        if position < len(table) and table[position] in blocks:
            return table[position]
        return blocks[0] if blocks else None


class FollowingPool(BlockPool):
    """A pool from which certain blocks can be taken."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.blocks)
        self.geometry = settings.geometry
        self.cached: FollowingMap = FollowingMap(settings.blocks, settings.geometry)

    def take_these(self, wanted: Sequence[int | None]) -> tuple[list[int], list[Content]]:
        """Take a block for each of ``wanted``: that one if it is free, else another."""
        taken: list[int] = []
        lost: list[Content] = []
        spoken_for = set(wanted)
        for block in wanted:
            if block is None or not self._is_free(block):
                free = list(self.free)
                block = next((other for other in free if other not in spoken_for), free[0])
            self.free.remove(block)
            content = self._forget(block)
            if content is not None:
                lost.append(content)
            self.references[block] = 1
            taken.append(block)
        return taken, lost

    def _is_free(self, block: int) -> bool:
        return NULL < block < len(self.references) and self.references[block] == 0

    def reset(self) -> bool:
        succeeded = super().reset()
        if succeeded:
            self.cached = FollowingMap(len(self.references), self.geometry)
        return succeeded


class FollowingHoldings(Holdings):
    """Holdings that take the blocks which stand in ``reported``, the system's tables of the request that is served."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pool: FollowingPool = FollowingPool(settings)
        self.reported: Sequence[Sequence[int]] = ()

    def _fill(self, tables: Tables, layouts: Plan) -> list[Content]:
        all_lost = []
        for group, (table, layout) in enumerate(zip(tables, layouts, strict=True)):
            if layout is None:
                continue
            reported = self.reported[group] if group < len(self.reported) else ()
            wanted = [
                reported[place] if place < len(reported) else None
                for place, block in enumerate(layout)
                if block is None
            ]
            blocks, lost = self.pool.take_these(wanted)
            new = iter(blocks)
            table.blocks = [next(new) if block is None else block for block in layout]
            all_lost += lost
        return all_lost


class FollowingManager(Manager):
    """The reference that follows a system that goes first."""

    def __init__(self, settings: Settings, system: GoesFirst) -> None:
        super().__init__(settings)
        self.holdings: FollowingHoldings = FollowingHoldings(settings)
        self._system = system

    def apply(self, operation: Operation) -> Answer:
        seen = self._system.ahead(operation)
        reported = _reported(operation, *seen) if seen is not None else ()
        self.holdings.reported = reported
        self.holdings.pool.cached.chosen = reported if isinstance(operation, (Admit, LookUp)) else ()
        return super().apply(operation)


def _reported(operation: Operation, answer: Answer, snapshot: Snapshot) -> BlockTable:
    """The blocks that the system has chosen for the request of ``operation``, by place; 0 where it chose none."""
    if isinstance(operation, LookUp):
        return answer.blocks if isinstance(answer, Hit) else ()
    if not isinstance(operation, OfRequest):
        return ()
    return tuple(map(tuple, snapshot.tables.get(operation.request, ())))
