"""What the sanitizer remembers of one block pool: sites, contents, owners. It checks what it is asked to, and no more.

Calls that it did not see make it less strict, and never cause an alarm. A block that it has not seen allocated has no
history. Content that it has not seen cached is unknown, and a manager whose tables change outside the block manager's
own calls is not followed any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType

from attrs import define, field

from kvgate.sanitizer.content import Contents
from kvgate.sanitizer.misuse import Misuse, Site, site_here

USE_AFTER_FREE = "use after free"
DOUBLE_FREE = "double free"
FOREIGN_HIT = "foreign hit"
LEAK = "leak"
REFERENCES = "wrong reference count"
QUEUE = "broken free queue"
CACHED = "broken prefix cache"
TABLE = "wrong block table"
EVENTS = "wrong KV events"
ANSWER = "wrong answer"
RAISED = "exception in the block manager"


class Content(NamedTuple):
    """What a cached block holds."""

    group: int
    number: int | None
    """As in ``Contents``; None if nothing is known of it."""


class Gone(NamedTuple):
    """Why a block's content may not be used any more."""

    why: str
    site: Site


TableKey = tuple[int, str]
"""A group and a request."""


@define(eq=False)
class Ledger:
    """One block pool."""

    report: Callable[[Misuse], None]
    contents: Contents
    is_exact: bool
    """Whether the rules that hold in some releases only are checked."""
    knows_tables: bool = True
    """Whether it is known which tables and groups may name a block: not with vLLM 0.33's HiSparse."""
    allocated: dict[int, Site] = field(factory=dict)
    freed: dict[int, Site] = field(factory=dict)
    cached: dict[int, Site] = field(factory=dict)
    content: dict[int, Content | Gone] = field(factory=dict)
    blocks_with: Counter[Content] = field(factory=Counter)
    """How many blocks hold a content."""
    tables: dict[TableKey, list[int]] = field(factory=dict)
    owners: Counter[int] = field(factory=Counter)
    """Per block, how many entries of tables name it."""
    external: Counter[int] = field(factory=Counter)
    """Per block, the references that were taken outside of the block manager: by a connector, or by a test."""
    events: list[tuple[object, ...]] = field(factory=list)
    """What was cached and forgotten since the events were taken last."""
    follows: bool = True
    """Whether the tables are known; once they are not, they never are again."""
    operation: str = ""
    """The call of the block manager that runs."""
    end_tokens: int | None = None
    """Within it: no token from this one on may be cached, for it is not computed."""
    moved: set[int] = field(factory=set)
    """Blocks that were allocated, touched or freed in this call."""
    manager: ReferenceType[Any] | None = None
    """The block manager that has the tables."""
    caches: bool = False
    """Whether ``cache_full_blocks`` runs: what it registers is known when it returns."""
    depth: int = 0
    """How many calls of the pool run."""
    free_at_rest: int | None = None
    """How many blocks are free when no request has any."""

    def found(self, kind: str, what: str, block: int | None = None) -> None:
        """Report a misuse, with what is known of the block."""
        history = []
        if block is not None:
            for event, sites in (("allocated", self.allocated), ("cached", self.cached), ("freed", self.freed)):
                if block in sites:
                    history.append((event, sites[block]))
            gone = self.content.get(block)
            if isinstance(gone, Gone):
                history.append((gone.why, gone.site))
        self.report(Misuse(kind, what, site_here(), tuple(history)))

    # Contents

    def hold(self, block: int, content: Content) -> None:
        """A block is cached with this content."""
        self.drop(block, "cached again")
        self.content[block] = content
        self.blocks_with[content] += 1
        self.cached[block] = site_here()

    def drop(self, block: int, why: str) -> None:
        """A block's content may not be used from now on."""
        if isinstance(self.content.get(block), Content):
            self.forget(block)
            self.content[block] = Gone(why, site_here())

    def forget(self, block: int) -> None:
        """What a block holds is unknown from now on."""
        had = self.content.pop(block, None)
        if isinstance(had, Content):
            self.blocks_with[had] -= 1
            if not self.blocks_with[had]:
                del self.blocks_with[had]

    def distrust(self) -> None:
        """A check has failed: what it should have remembered is missing."""
        self.follows = self.is_exact = False
        self.content.clear()
        self.blocks_with.clear()

    def check_hit(
        self, request: Any, index: int, group: int, size: int, blocks: Sequence[Any], own: Sequence[Any]
    ) -> None:
        """The blocks of a hit hold what the request would have computed; with HiSparse not all are the pool's own."""
        wanted = self.contents.of(request, size, len(blocks))
        for position, block in enumerate(blocks):
            if block.is_null or block.block_id >= len(own) or own[block.block_id] is not block:
                continue
            number, had = block.block_id, self.content.get(block.block_id)
            where = f"block {number} serves block {position} of request {request.request_id}, group {index}"
            if isinstance(had, Gone):
                self.found(FOREIGN_HIT, f"{where}, and no longer holds what was cached there", number)
            elif had is not None and had.group != group:
                if not self.knows_tables:
                    continue
                self.found(FOREIGN_HIT, f"{where}, and was written by group {had.group}", number)
            elif had is None or had.number is None or wanted is None or position >= len(wanted):
                continue
            elif had.number != wanted[position]:
                self.found(FOREIGN_HIT, f"{where}, and was written for other tokens or keys", number)

    def cached_from_the_start(self, request: Any, group: int, size: int, blocks: int) -> int | None:
        """How many of a request's first blocks are cached one after the other, of ``blocks`` at most."""
        wanted = self.contents.of(request, size, blocks)
        if wanted is None:
            return None
        count = 0
        while count < len(wanted) and Content(group, wanted[count]) in self.blocks_with:
            count += 1
        return count

    # Tables

    def follow(self, manager: Any, request_id: str) -> None:
        """Before a call: the tables are as the last call left them, or they were changed outside of such calls."""
        for index, table in tables_of(manager, request_id):
            if table != self.tables.get((index, request_id), []):
                self.follows = False
                return

    def settle(self, manager: Any, request_id: str) -> None:
        """After a call: who owns which block now; each block that moved has as many references as owners."""
        if not self.follows:
            return
        moved = self.moved
        for index, table in tables_of(manager, request_id):
            had = self.tables.get((index, request_id), [])
            if table == had:
                continue
            start = len(had) if table[: len(had)] == had else 0
            self.owners.subtract(had[start:])
            self.owners.update(table[start:])
            moved.update(had[start:], table[start:])
            if table:
                self.tables[index, request_id] = table
            else:
                self.tables.pop((index, request_id), None)
        pool = manager.block_pool
        for number in sorted(moved):
            block = pool.blocks[number]
            if block.is_null:
                continue
            owners = self.owners[number] + self.external[number]
            if block.ref_cnt < owners:
                self.found(USE_AFTER_FREE, f"{owners} tables name block {number}, {block.ref_cnt} hold it", number)
            elif block.ref_cnt > owners:
                self.found(LEAK, f"block {number} has {block.ref_cnt} references, and {owners} tables name it", number)

    def check_rest(self, pool: Any) -> None:
        """When no request has a table, every block is free."""
        if (
            not (self.follows and self.is_exact)
            or self.free_at_rest is None
            or self.tables
            or any(self.external.values())
        ):
            return
        missing = self.free_at_rest - pool.free_block_queue.num_free_blocks
        if missing:
            held = [block.block_id for block in pool.blocks if block.ref_cnt > 0 and not block.is_null]
            what = f"no request has a table, and {missing} blocks are not free; held are {held[:20]}"
            self.found(LEAK, what, held[0] if held else None)


def tables_of(manager: Any, request_id: str) -> Iterable[tuple[int, list[int]]]:
    """The tables of a request, by group."""
    for index, each in enumerate(manager.coordinator.single_type_managers):
        yield index, [block.block_id for block in each.req_to_blocks.get(request_id, ())]
