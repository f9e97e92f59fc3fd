"""What the tables of a request must be behind an operation: nothing live is given up, and nothing dead is kept.

This follows from the formulas of the groups alone: which blocks are dead, how many entries there are, and how a table
grows. Which new blocks it gets is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from kvreference.answers import Granted, Refused
from kvreference.attention import grown
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.operations import Abort, Admit, Finish, Operation, Preempt, ReleaseSkipped, Schedule, Transferred
from kvreference.population import Request, Status, holds_on
from kvspec.conformance.step import Blocks, Step

Pattern: TypeAlias = "list[Sequence[int | None]]"
"""Per group, what each entry must name; None where any block will do, but not the null block."""


def computed_before(step: Step, was: Request) -> int:
    """How many tokens are computed, or come from elsewhere, before the tokens of this step.

    The last token is computed here even if it arrives.
    """
    found = step.answer.hit_tokens + step.answer.external_tokens if isinstance(step.answer, Granted) else 0
    return min(was.tokens_computed + found, len(was.tokens) - 1)


def _allocated(step: Step, was: Request) -> Pattern | None:
    """The tables of a request that was granted slots, or was refused."""
    answer, computed, named = step.answer, computed_before(step, was), step.named
    if isinstance(answer, Granted):
        groups = enumerate(step.manager.geometry.groups)
        return [_grown(step, was, group, _kept(step, index, group, computed)) for index, group in groups]
    assert isinstance(answer, Refused)
    # The gate is asked before anything else is done.
    return _unchanged(step, was) if answer.gate or named is None else _without_dead(step, named, computed)


def _kept(step: Step, index: int, group: Group, computed: int) -> Sequence[int | None]:
    """What a table names before it grows: what it named, or the full blocks of the hit, without what is dead."""
    assert isinstance(step.answer, Granted)
    if step.named is not None:
        return _given_up(step.named[index], group.blocks_dead(computed))
    unread = group.blocks_unread(computed)
    hit: list[int | None] = [NULL] * unread
    return grown(hit, step.answer.hit_tokens // group.block_size_tokens)


def _grown(step: Step, was: Request, group: Group, kept: Sequence[int | None]) -> Sequence[int | None]:
    """The table behind what was provided, and what this step computes."""
    assert isinstance(step.answer, Granted)
    settings, tokens = step.manager.settings, step.manager.population[step.number].tokens_computed
    if step.answer.external_tokens:
        end = was.tokens_computed + step.answer.hit_tokens + step.answer.external_tokens
        kept = grown(kept, group.blocks_occupied(end))
    # A request drafts nothing in its first step.
    drafts = isinstance(step.operation, Schedule) or was.tokens_computed > 0
    slots = min(tokens + (settings.lookahead_tokens if drafts else 0), settings.tokens_max)
    entries = group.entries(tokens, slots)
    return group.layout(kept, entries, step.named is None) if entries > len(kept) else kept


def _given_up(blocks: Sequence[int], dead: int) -> Sequence[int]:
    dead = min(dead, len(blocks))
    return [*(NULL,) * dead, *blocks[dead:]] if any(blocks[:dead]) else blocks


def _without_dead(step: Step, named: Blocks, computed: int) -> Pattern:
    groups = step.manager.geometry.groups
    return [_given_up(blocks, group.blocks_dead(computed)) for group, blocks in zip(groups, named, strict=True)]


def _unchanged(step: Step, _was: Request) -> Pattern | None:
    return None if step.named is None else list(step.named)


def _skipped(step: Step, was: Request) -> Pattern | None:
    assert step.named is not None, "a running request names blocks"
    return _without_dead(step, step.named, was.tokens_computed)


def _nothing(_step: Step, _was: Request) -> Pattern | None:
    return None


def _ended(step: Step, was: Request) -> Pattern | None:
    """Nothing, unless another node still reads or fills its blocks."""
    assert isinstance(step.operation, (Finish, Abort))
    if not holds_on(was, step.operation):
        return None
    if was.status is not Status.RUNNING or step.named is None:
        return _unchanged(step, was)
    return _without_dead(step, step.named, was.tokens_computed - was.drafts_in_flight)


def _transferred(step: Step, was: Request) -> Pattern | None:
    """What arrived stays; what was read, or did not arrive, is given up."""
    assert isinstance(step.operation, Transferred)
    arrived = was.status is Status.LOADING and step.operation.succeeded
    return _unchanged(step, was) if arrived else None


_MUST_BE: Mapping[type[Operation], Callable[[Step, Request], Pattern | None]] = MappingProxyType(
    {
        Admit: _allocated,
        Schedule: _allocated,
        ReleaseSkipped: _skipped,
        Preempt: _nothing,
        Finish: _ended,
        Abort: _ended,
        Transferred: _transferred,
    }
)
"""By operation on a request; one that is not here leaves the tables as they are."""


def tables_must_be(step: Step, was: Request) -> Pattern | None:
    """The tables of the request behind the step; None if it must name nothing."""
    return _MUST_BE.get(type(step.operation), _unchanged)(step, was)


def wrong_entry(wanted: Pattern | None, got: Blocks | None) -> tuple[Any, Any, Any] | None:
    """The first group or entry that is not as it must be, what it must be and what it is; None if there is none."""
    if wanted is None or got is None:
        same = wanted is None and got is None
        return None if same else ("tables", "none" if wanted is None else wanted, "none" if got is None else got)
    for group, (entries, blocks) in enumerate(zip(wanted, got, strict=True)):
        if len(entries) != len(blocks):
            return f"group {group}", f"{len(entries)} entries", f"{len(blocks)} entries"
        for place, (entry, block) in enumerate(zip(entries, blocks, strict=True)):
            if block == NULL if entry is None else block != entry:
                return (group, place), "a block" if entry is None else entry, block
    return None
