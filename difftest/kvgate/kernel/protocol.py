"""The pinned protocol of a system under test: what the gate asks of any block manager.

The reference satisfies it too, so every check of a system can also run on the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from kvreference.answers import Answer
from kvreference.operations import Operation
from kvreference.population import Population
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class System(Protocol):
    """A block manager with the requests it serves.

    Block 0 is the null block, and blocks are compared by id: a system must hand them out in the specified order.
    Content identities are opaque; they need only be equal for equal content.
    """

    population: Population
    """The requests alive. ``apply`` settles it with the system's own answer."""

    def apply(self, operation: Operation) -> Answer:
        """Perform an operation that ``population.resolve`` returned.

        Any exception is a violation of KV-SYS-01, except ``UsageError``: an operation that it does not support.
        """
        ...

    def snapshot(self) -> Snapshot:
        """The state as it is now. Later operations do not change the returned value, except for ``read_entries``."""
        ...

    def roots(self) -> Mapping[str, object]:
        """The objects in which state may hide, by name: the leak monitor walks everything that they reach."""
        ...

    def name_of(self, request: int) -> str:
        """What the system calls a request internally; the leak monitor looks for it."""
        ...


@runtime_checkable
class Parts(Protocol):
    """A system that can be read in part. A system that lacks this is compared as a whole each time."""

    def tables_of(self, request: int) -> Sequence[list[int]]:
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


Factory: TypeAlias = Callable[[Settings], System]
"""Builds a fresh system. May raise ``ValueError`` for settings it does not support, saying which and why."""
