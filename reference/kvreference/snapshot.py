"""A state as it can be observed, of the reference or of any system under test, and the invariants it must satisfy.

Contents are opaque here: any identity of what a cached block holds, equal for equal content. So the same check serves
the reference and a system that identifies content by hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from kvreference.answers import Copy
from kvreference.block_pool import NULL, Pinned


@frozen
class Violation:
    """One statement that does not hold, by its id, and what was seen instead."""

    statement: str
    detail: str


@frozen
class Snapshot:
    """Everything observable about the blocks of one system, block 0 being the null block."""

    tables: Mapping[int, Sequence[Sequence[int]]]
    """Per request that holds blocks and per group, the block table."""
    references: Sequence[int]
    """Per block, its reference count."""
    free: Sequence[int]
    """The free queue, front first."""
    blocks_free: int
    """How many blocks the system says are free."""
    contents: Sequence[Hashable | None]
    """Per block, the content it says it holds."""
    read_entries: Callable[[], Mapping[Any, Sequence[int]]] = field(eq=False)
    """Reads ``entries``, which is costly, and right until the next operation."""
    pinned: Pinned = field(factory=Pinned)
    """The pinned blocks, held or not."""
    copies: tuple[Copy, ...] = ()
    """The copies that the worker makes before it computes the next step."""
    freed_late: Sequence[Sequence[int]] = ()
    """Per request whose blocks are free when the steps in flight are over, oldest first, what its tables name."""
    begun: Collection[int] = ()
    """The blocks inside which a boundary is an entry of the cache."""
    scratch_first: bool = False
    """Whether the system promises to allocate scratch before cached blocks."""

    @property
    def entries(self) -> Mapping[Any, Sequence[int]]:
        """Per content cached, the blocks that the map lists for it, the one that serves first."""
        return self.read_entries()


def check(snapshot: Snapshot) -> list[Violation]:
    """The statements that ``snapshot`` violates; see ``kvreference.statements`` for their sentences."""
    return [
        *_check_holders(snapshot),
        *_check_free_queue(snapshot),
        *_check_pinned(snapshot),
        *_check_scratch(snapshot),
        *_check_cached(snapshot),
        *_check_copies(snapshot),
    ]


def _check_holders(snapshot: Snapshot) -> Iterator[Violation]:
    holders: Counter[int] = Counter()
    for number, tables in snapshot.tables.items():
        named = Counter(block for table in tables for block in table if block != NULL)
        holders.update(named)
        for block, count in named.items():
            if count > 1:
                yield Violation("KV-INV-04", f"request {number} names block {block} {count} times")
    holders.update(block for blocks in snapshot.freed_late for block in blocks)
    reads = Counter(copy.source for copy in snapshot.copies)
    for block, references in enumerate(snapshot.references):
        if block != NULL and references != holders[block] + reads[block]:
            copies = f" and {reads[block]} copies read it" if reads[block] else ""
            yield Violation(
                "KV-INV-01",
                f"block {block} counts {references} references, {holders[block]} table entries name it{copies}",
            )


def _check_free_queue(snapshot: Snapshot) -> Iterator[Violation]:
    queued = Counter(snapshot.free)
    for block, references in enumerate(snapshot.references):
        if block == NULL:
            continue
        if references == 0 and not queued[block] and block not in snapshot.pinned.blocks:
            yield Violation("KV-INV-02", f"block {block} has no holder, and it is not in the free queue")
        if queued[block] and block in snapshot.pinned.blocks:
            yield Violation("KV-INV-02", f"block {block} is pinned, and is in the free queue")
        if references != 0 and queued[block]:
            yield Violation("KV-INV-02", f"block {block} counts {references} references and is in the free queue")
        if queued[block] > 1:
            yield Violation("KV-INV-03", f"block {block} stands {queued[block]} times in the free queue")
    if len(snapshot.free) != snapshot.blocks_free:
        yield Violation("KV-INV-03", f"said to be free: {snapshot.blocks_free}, queued: {len(snapshot.free)}")
    if queued[NULL] or snapshot.contents[NULL] is not None:
        yield Violation("KV-INV-06", "the null block is queued or cached")


def _check_pinned(snapshot: Snapshot) -> Iterator[Violation]:
    pinned = snapshot.pinned
    waiting = sorted(block for block in pinned.blocks if snapshot.references[block] == 0)
    if waiting != sorted(pinned.queue):
        yield Violation("KV-INV-07", f"pinned without a holder: {waiting}, queued as pinned: {list(pinned.queue)}")
    for block in sorted(pinned.blocks):
        if snapshot.contents[block] is None and block not in snapshot.begun:
            yield Violation("KV-INV-07", f"block {block} is pinned, and no hit can use it")


def _check_scratch(snapshot: Snapshot) -> Iterator[Violation]:
    if not snapshot.scratch_first:
        return
    is_cached = [snapshot.contents[block] is not None or block in snapshot.begun for block in snapshot.free]
    if is_cached != sorted(is_cached):
        yield Violation("KV-INV-08", f"the free queue {list(snapshot.free)} has a cached block before a scratch one")


def _check_copies(snapshot: Snapshot) -> Iterator[Violation]:
    for copy in snapshot.copies:
        for block in (copy.source, copy.destination):
            if snapshot.references[block] < 1:
                yield Violation("KV-INV-09", f"block {block} has no holder, and {copy} is not dispatched")


def _check_cached(snapshot: Snapshot) -> Iterator[Violation]:
    entries = snapshot.entries
    listed = {block: content for content, blocks in entries.items() for block in blocks}
    if len(listed) != sum(map(len, entries.values())):
        yield Violation("KV-INV-05", "a block is listed under two contents")
    for block, content in enumerate(snapshot.contents):
        if content != listed.get(block):
            yield Violation("KV-INV-05", f"block {block} holds {content}, and is listed under {listed.get(block)}")
