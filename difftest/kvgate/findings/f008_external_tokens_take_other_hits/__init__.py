"""Finding 008: Blocks for external tokens are taken from what another group has just hit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvgate.findings.finding import Acts, Also, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import Misread
from kvreference.block_pool import NULL
from kvreference.holdings import is_held_by_all, may_be_named_twice, rounds_of_admission
from kvreference.rules import Delta


class _TakenTwice:
    """Group by group the hit is held and external tokens get blocks: maybe those that a later group has hit."""

    def __init__(self) -> None:
        self.blocks: set[int] = set()
        """Blocks that two groups have taken for their own, as far back as the run goes."""

    def rounds(
        self,
        rounds: Callable[..., list[range]],
        tables: Sequence[Sequence[int]],
        counts: Sequence[int],
        free: Iterable[int],
        provided: int,
    ) -> list[range]:
        queue, taken, twice = list(free), set[int](), set[int]()
        for table, count in zip(tables, counts, strict=True):
            twice |= taken.intersection(table)
            held = {block for block in table if block != NULL}
            queue = [block for block in queue if block not in held]
            taken.update(queue[:count])
            queue = queue[count:]
        self.blocks |= twice
        if not twice:
            return rounds(tables, counts, free, provided)
        return [range(index, index + 1) for index in range(len(tables))]

    def may_be_named_twice(self, never: Callable[[Sequence[int]], bool], blocks: Sequence[int]) -> bool:
        """A request names what two of its groups have taken."""
        return not self.blocks.isdisjoint(blocks) or never(blocks)

    def is_held_by_all(
        self,
        held: Callable[[int, Sequence[set[int]], int], bool],
        block: int,
        others: Sequence[set[int]],
        references: int,
    ) -> bool:
        """That all requests hold a block is taken from its references: two of them can be one request's."""
        return references == len(others) if block in self.blocks else held(block, others, references)

    def misread(self, misread: Misread) -> bool:
        """What was loaded into the block took the place of what was hit."""
        return misread.block in self.blocks


def _acts(*_run: object) -> Acts:
    taken = _TakenTwice()
    follow = [
        Delta(is_held_by_all.__name__, taken.is_held_by_all),
        Delta(may_be_named_twice.__name__, taken.may_be_named_twice),
    ]
    return Acts(
        [Delta(rounds_of_admission.__name__, taken.rounds)],
        follow=follow,
        misreads=taken.misread,
        unfollowed=lambda misread: misread.is_shared,
    )


def _takes_what_a_group_hit(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: two groups of the request that loads have one block; its connector asserts that none has,
    or loads both into it, or brings what is of one group to what the other has hit."""
    difference, shown = divergence.difference, engine.memory.shown_by
    if shown is not None and (difference.statement, difference.subject) == (
        "KV-MEM-01",
        f"what {shown.request} reads in group {shown.group}",
    ):
        size = engine.settings.geometry.groups[shown.group].block_size_tokens
        was_hit = shown.claim is not None and shown.place * size < shown.claim.first
        return was_hit and sum(table.count(shown.block) for table in shown.claim.tables) > 1
    shows = (
        ("KV-SYS-01", "AssertionError in update_state_after_alloc"),
        # SimpleCPUOffloadConnector counts the blocks that were hit by their hashes, and loads into the last of them.
        ("KV-TIER-02", "a block that a load writes at once"),
        ("KV-TIER-02", "a block of the device that a load uses"),
    )
    is_shown = (difference.statement, difference.subject) in shows
    if not is_shown and difference.statement not in ("KV-TIER-01", "KV-TIER-03"):
        return False
    jobs = {job.request for job, _ in engine.memory.culprits}
    if not (jobs or is_shown):
        return False
    claims = [claim for name, claim in engine.memory.claims.items() if not jobs or name in jobs]
    blocks = [[block for table in claim.tables for block in table if block] for claim in claims]
    return any(len(each) != len(set(each)) for each in blocks)


FINDING = Finding(
    id="008-external-tokens-take-other-hits",
    rank=9,
    statement="KV-OP-05",
    also=[Also("KV-INV-04", rounds_of_admission.__name__, lambda *_asked: True)],
    condition="external tokens for one group, and a free block that a later group has hit",
    where=lambda settings: len(settings.geometry.groups) > 1,
    acts=_acts,
    holds=lambda ideal, _answered, tables, _counts, _free, provided: ideal == [range(len(tables))] and provided > 0,
    explains_tiers=_takes_what_a_group_hit,
)
