"""Block managers that do not work: what others tried and dropped, each with one part of the reference changed.

z3 refutes the first three (``masks``, ``admission``, ``pins``); ``kvgate explore --design`` finds a trace for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from attrs import evolve, frozen

from kvreference.answers import Copy, Hit
from kvreference.block_pool import NULL, BlockPool, Pinned
from kvreference.cached_map import Content
from kvreference.choices import Choices
from kvreference.content import Prefix
from kvreference.events import Event
from kvreference.free_queue import FreeQueue
from kvreference.geometry import Group
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Sparse
from kvreference.settings import Settings
from kvreference.snapshot import Violation
from kvreference.tables import Tables


@frozen
class UnshiftedSparse(Sparse):
    """A mask that does not know the look-ahead: it keeps the tail before every boundary, as if no layer drafted.

    With a draft layer a hit must match one more block, after the boundary, which was never cached: the hit rate was
    0 %. Source: vLLM's pull requests 42258 (the mask) and 44082 (its repair).
    """

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        return super().due_tokens(evolve(group, lookahead=False), index, prompt_tokens)


class MaskWithoutShift(Manager):
    """The block manager with such a mask."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cache = PrefixCache(self.geometry, UnshiftedSparse(self.geometry, settings.retention_interval_tokens or 0))


class UnguardedPool(PinnedPool):
    """A gate that rejects without demoting first: unused pins keep every request out.

    Since nothing runs, nothing ends, and this never changes. Source: vLLM's pull request 40676 after its rebase, when
    two gates had been added that did not know the pinned tier.
    """

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        return count <= len(self.free)


class UnguardedGate(Manager):
    """The block manager with such a gate."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.pin_drop_blocks_min is not None, "the settings have a pinned tier"
        self.holdings.pool = UnguardedPool(settings.blocks, settings.scratch_first, settings.pin_drop_blocks_min)


class CountingPool(BlockPool, changing=("tracked",)):
    """A pin as a second reference: every new block has a count of two, one of which stays when the holder goes.

    A window drop takes two from blocks that it frees and one from those that it pins; the end of a request takes one. A
    block whose count fell to one is assumed to be pinned without a holder, and demotion takes its last one. So one
    number means two things, with four loopholes, each with its check below:

    1. a drop takes two from a block that another request still holds (``undoes_another_holder``);
    2. then its count says "pinned, no holder", and demotion frees it although it is held (``frees_under_holder``);
    3. a block that was demoted and hit again has a count of one, and a drop takes two: with a count of minus one it is
       in no queue, and can never be allocated again (``loses_block``);
    4. a pin does not outlive a hit and the drop that follows it (``forgets_pin``).

    Source: the first commits of vLLM's pull request 40676, and its own account of why they were dropped.
    """

    def __init__(self, blocks: int, drop_blocks_min: int) -> None:
        super().__init__(blocks)
        self.drop_blocks_min = drop_blocks_min
        self.tracked = FreeQueue()
        """Blocks whose count fell to one, the oldest first: taken to be pinned."""
        self.meant: frozenset[int] = frozenset()
        """The blocks pinned and not demoted since. The design does not know them; the checkers do."""

    def pinned_blocks(self) -> Pinned:
        return Pinned(self.meant, tuple(self.tracked))

    def take(self, count: int) -> tuple[list[int], list[Content]]:
        blocks, lost = super().take(count)
        for block in blocks:
            self.references[block] = 2
        self.meant -= set(blocks)
        return blocks, lost

    def slide(self, blocks: Sequence[int], anchor: Sequence[int]) -> None:
        dropped = [block for block in blocks if block != NULL]
        pins = anchor if len(dropped) >= self.drop_blocks_min else ()
        self._release([block for block in dropped if block not in pins], 2)
        self.end(pins)

    def end(self, blocks: Sequence[int]) -> None:
        held = [block for block in blocks if block != NULL]
        self.meant |= {block for block in held if self.is_cached(block)}
        self._release(held, 1)

    def _release(self, blocks: Iterable[int], references: int) -> None:
        for block in blocks:
            self.references[block] -= references
            if self.references[block] == 0:
                self.free.append(block)
            elif self.references[block] == 1 and block not in self.tracked:
                self.tracked.append(block)

    def make_room(self, count: int, kept: Collection[int]) -> bool:
        for block in list(self.tracked):
            if count <= len(self.free):
                break
            self.tracked.remove(block)
            if self.references[block] == 1:
                self.references[block] = 0
                self.meant -= {block}
                self.free.append(block)
        return count <= len(self.free)


class PinnedByCount(Manager):
    """The block manager over such a pool."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings.pool = CountingPool(settings.blocks, settings.pin_drop_blocks_min or 1)


def _counted(manager: Manager) -> tuple[CountingPool, Counter[int]]:
    """The pool, and per block how many table entries name it."""
    assert isinstance(manager.pool, CountingPool)
    tables = (table for tables in manager.tables.values() for table in tables)
    return manager.pool, Counter(block for table in tables for block in table.live())


def undoes_another_holder(manager: Manager) -> list[Violation]:
    """Loophole 1: a block counts fewer references than it has holders and, on top, its pin to come."""
    pool, holders = _counted(manager)
    return [
        Violation("KV-INV-01", f"{held} requests hold block {block}, and its count of {count} leaves nothing for a pin")
        for block, held in sorted(holders.items())
        if (count := pool.references[block]) < held + 1
    ]


def frees_under_holder(manager: Manager) -> list[Violation]:
    """Loophole 2: a block is in the free queue while it is held."""
    pool, holders = _counted(manager)
    return [
        Violation("KV-INV-02", f"block {block} is in the free queue while {held} requests hold it")
        for block, held in sorted(holders.items())
        if block in pool.free
    ]


def loses_block(manager: Manager) -> list[Violation]:
    """Loophole 3: a block has no holder and is in no queue."""
    pool, held = _counted(manager)
    return [
        Violation("KV-LEAK-01", f"block {block} has no holder, its count is {references}, and no queue has it")
        for block, references in enumerate(pool.references)
        if block != NULL and not held[block] and block not in pool.free and block not in pool.tracked
    ]


def forgets_pin(manager: Manager) -> list[Violation]:
    """Loophole 4: a block that was pinned and never demoted can be allocated."""
    pool, _ = _counted(manager)
    return [
        Violation("KV-OP-22", f"block {block} was pinned and never demoted, and is in the free queue")
        for block in sorted(pool.meant)
        if block in pool.free
    ]


class UnheldSources(Holdings):
    """Holdings that do not hold the source of a copy until the copy is done, when the step is dispatched.

    Between the two other requests are admitted, and one of them may be given that very block.
    """

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        allocation = super().allocate(request, span, hit)
        copied = hit.partials if allocation else ()
        self.pool.release(partial.source for partial in copied)
        return allocation

    def dispatch(self) -> tuple[Copy, ...]:
        copies, self.copies = self.copies, []
        return tuple(copies)


class UnheldCopy(Manager):
    """The block manager over such holdings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Choices(UnheldSources))


class ForgetfulCache(PrefixCache):
    """A prefix cache that offers a request's boundaries inside compressed blocks again in every step.

    Nothing was wrong with the cache; but a decode step cost more the longer the context was, until the scheduler did
    nothing else. Source: the account of vLLM-Ascend's pull request 10193, which registers each boundary exactly once.
    """

    def register(
        self,
        pool: BlockPool,
        request: Request,
        prefixes: Sequence[Prefix],
        tables: Tables,
        tokens: int,
        begun: int | None,
    ) -> list[Event]:
        for table in tables:
            table.boundary_tokens = 0
        return super().register(pool, request, prefixes, tables, tokens, begun)


class RepeatedRegistration(Manager):
    """The block manager with such a cache."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert isinstance(self.cache, PrefixCache), "prefix caching is on"
        self.cache = ForgetfulCache(self.geometry, self.cache.retention)
