"""The answers of a block manager to operations."""

from __future__ import annotations

from typing import TypeAlias

from attrs import evolve, frozen

from kvreference.events import Event

BlockTable: TypeAlias = tuple[tuple[int, ...], ...]
"""Per group, block ids in the order of the tokens they hold; 0 stands where a block is not needed any more."""


@frozen
class Done:
    """It happened; there is nothing to tell."""


@frozen
class Partial:
    """Where a hit ends inside a block of ``group``: the block to copy from, and how many of its first tokens."""

    group: int
    source: int
    tokens: int


@frozen
class Hit:
    """The longest hit, in tokens, and the blocks that serve it."""

    tokens: int
    blocks: BlockTable
    """The full blocks of the hit."""
    partials: tuple[Partial, ...] = ()
    """The blocks of which a beginning is copied."""


@frozen
class Granted:
    """Blocks were allocated: the hit that was used, in tokens, and the new blocks per group."""

    hit_tokens: int
    blocks: BlockTable
    external_tokens: int = 0
    """How many tokens after the hit come from another node."""
    loads: bool = False
    """Whether those arrive later."""


@frozen
class Refused:
    """No blocks were allocated: the full sequence does not fit (``gate``), or this step does not."""

    hit_tokens: int
    gate: bool


@frozen
class Success:
    """Whether the operation took effect."""

    succeeded: bool


@frozen
class Shared:
    """Per group, how many leading blocks are shared."""

    blocks: tuple[int, ...]


@frozen
class Happened:
    """The events since the last time, oldest first."""

    events: tuple[Event, ...]


@frozen
class Copy:
    """The first ``tokens`` tokens of block ``source`` go to the same slots of block ``destination``, in one group."""

    group: int
    source: int
    destination: int
    tokens: int


@frozen
class Copies:
    """The copies that the worker makes before it computes the step, in order."""

    copies: tuple[Copy, ...]


@frozen
class Statistics:
    """Prefix-cache statistics: look-ups, tokens asked for, tokens hit; those of preempted requests apart."""

    requests: int = 0
    queries_tokens: int = 0
    hits_tokens: int = 0
    preempted_requests: int = 0
    preempted_queries_tokens: int = 0
    preempted_hits_tokens: int = 0
    reset: bool = False
    """Whether the cache was reset since the last time."""

    def counted(self, queries_tokens: int, hits_tokens: int, preempted: bool) -> Statistics:
        """These statistics with one look-up more."""
        if preempted:
            return evolve(
                self,
                preempted_requests=self.preempted_requests + 1,
                preempted_queries_tokens=self.preempted_queries_tokens + queries_tokens,
                preempted_hits_tokens=self.preempted_hits_tokens + hits_tokens,
            )
        return evolve(
            self,
            requests=self.requests + 1,
            queries_tokens=self.queries_tokens + queries_tokens,
            hits_tokens=self.hits_tokens + hits_tokens,
        )


Answer: TypeAlias = Done | Hit | Granted | Refused | Success | Shared | Happened | Copies | Statistics
