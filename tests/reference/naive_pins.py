"""An independent count of pins: found by comparing tables before and after an operation."""

from __future__ import annotations

from kvreference.answers import Answer, Granted, Hit, Refused, Success
from kvreference.attention import Kind
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Evict, Finish, Operation, Preempt, Reset, Schedule, Transferred

from .naive import tokens_read


class Pins:
    """The pinned blocks, as they should be."""

    def __init__(self, drop_blocks_min: int | None) -> None:
        self.drop_blocks_min = drop_blocks_min
        self.blocks: set[int] = set()
        self.demotions = 0

    def observe(self, before: Manager, operation: Operation, answer: Answer, after: Manager, hit: Hit) -> None:
        """Follow an operation; ``hit`` is what an admission held before anything was taken."""
        if self.drop_blocks_min is not None:
            self.blocks |= _freed(before, operation, after, self.drop_blocks_min)
        if isinstance(operation, Evict):
            self.blocks -= {operation.block}
        if isinstance(operation, Reset) and answer == Success(succeeded=True):
            self.blocks = set()
        now = after.snapshot().pinned
        assert now.blocks <= self.blocks, "nothing else pins"
        demoted = self.blocks - now.blocks
        if demoted:
            self._check_demotion(before, operation, answer, after, hit, demoted)
        self.blocks -= demoted
        self.demotions += len(demoted)

    def _check_demotion(
        self, before: Manager, operation: Operation, answer: Answer, after: Manager, hit: Hit, demoted: set[int]
    ) -> None:
        assert isinstance(operation, (Admit, Schedule)), "only an allocation demotes"
        assert not isinstance(answer, Refused) or not answer.gate, "what the gate refuses demotes nothing"
        waited = before.snapshot().pinned.queue
        kept = _held(after, operation.request, answer, hit)
        oldest = [block for block in waited if block not in kept][: len(demoted)]
        assert set(oldest) <= demoted
        # Blocks pinned by this very operation are younger than all that waited.
        assert not (demoted - set(oldest)) & set(waited)
        if isinstance(operation, Schedule) or not before.settings.full_sequence_must_fit:
            assert isinstance(answer, Granted)
            assert len(after.pool.free) == 0, "no more are demoted than are missing"


def _held(after: Manager, number: int, answer: Answer, hit: Hit) -> set[int]:
    """Of a hit, the blocks that its request holds for it, and those that are copied."""
    new = {block for blocks in answer.blocks for block in blocks} if isinstance(answer, Granted) else set()
    named = {block for table in after.tables[number] for block in table.blocks} - new
    return {block for blocks in hit.blocks for block in blocks} & named | {partial.source for partial in hit.partials}


def _is_boundary(before: Manager, tokens: int, tokens_max: int) -> bool:
    """Whether a hit may end at ``tokens``, and what must match after it ends by ``tokens_max`` with it."""
    return tokens % before.geometry.alignment_tokens == 0 and tokens <= max(0, tokens_max)


def _freed(before: Manager, operation: Operation, after: Manager, drop_blocks_min: int) -> set[int]:
    """The blocks that ``operation`` should have pinned."""
    number = getattr(operation, "request", None)
    if number not in before.tables:
        return set()
    tables = [list(table.blocks) for table in before.tables[number]]
    if number not in after.tables:
        assert isinstance(operation, (Finish, Abort, Preempt, Transferred))
        return {block for table in tables for block in table if before.pool.is_cached(block)}
    pinned = set()
    for group, was, table in zip(before.geometry.groups, tables, after.tables[number], strict=True):
        dropped = [i for i, block in enumerate(was) if block and not table.blocks[i]]
        if group.kind is Kind.SLIDING_WINDOW and len(dropped) >= drop_blocks_min:
            size = group.block_size_tokens
            end_tokens = (max(dropped) + 1) * size
            ahead = group.lookahead_tokens
            boundary = max(
                tokens for tokens in range(end_tokens + 1) if _is_boundary(before, tokens, end_tokens - ahead)
            )
            read = {token // size for token in tokens_read(group, boundary)} if boundary else set()
            read |= {token // size for token in range(boundary, boundary + ahead)} if boundary else set()
            pinned |= {was[i] for i in dropped if i in read and before.pool.is_cached(was[i])}
    return pinned
