"""What an operation must have done (``REQUIRED``); which transitions it may consist of says ``kvspec.simulation``.

That is which entries a request names, which of them are its hit, and what is copied for it. It is also what
becomes known to the cache, what is forgotten, and what is not pending any more. The tables follow only from the
formulas of the groups: which blocks are dead, how many entries there are, and how a table grows. Exactly the content
that retention says is due becomes known. ``kvspec.refinement`` says what is left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import evolve, frozen

from kvreference.ahead import tokens_unsure
from kvreference.answers import Copies, Granted, Refused, Success
from kvreference.attention import grown
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Dispatch,
    Evict,
    Finish,
    OfRequest,
    Operation,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Schedule,
    Transferred,
)
from kvreference.operations import Reset as ResetOperation
from kvreference.population import Request, Status, holds_on
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Dense, Retention, Sparse
from kvreference.settings import Settings
from kvspec.pool.state import Operands, Transition
from kvspec.pool.transitions import (
    Begin,
    Forget,
    Hold,
    Register,
    Reset,
)
from kvspec.refinement.step import Blocks, Drift, Step, content_of_block, content_up_to

Known: TypeAlias = tuple[Content, int]
"""A content, and the block that is known to hold it."""


def retention_of(settings: Settings) -> Retention | None:
    """The retention, which says which blocks are due; None if nothing is cached."""
    if not settings.caches:
        return None
    interval = settings.retention_interval_tokens
    return Dense(settings.geometry) if interval is None else Sparse(settings.geometry, interval)


@frozen
class Progress:
    """How far a request's content was made known, since it holds blocks."""

    hit_tokens: int
    """The boundaries that were there already: they are not made known again."""
    tokens: int
    """Of how many tokens all that is due is known."""
    opened: tuple[int, ...]
    """Per group, the first index that is not known, and may be due later."""


def progress_after(geometry: Geometry, hit_tokens: int) -> Progress:
    """The progress of a request that holds only its hit."""
    return Progress(hit_tokens, hit_tokens, tuple(hit_tokens // group.block_size_tokens for group in geometry.groups))


@frozen
class Due:
    """What becomes known in one step."""

    full: frozenset[Known]
    begun: frozenset[Known]
    progress: Progress


def due(manager: Manager, retention: Retention, number: int, tables: Blocks, progress: Progress, ends: range) -> Due:
    """The content that a step makes due, after ``progress``: it ends at the last of ``ends`` and passes the others.

    Drafts are never among them. A state is kept where a step ends, and is none of those that it passes.
    """
    request = manager.population[number]
    retention = retention.at_junction(request.junction_tokens)
    tokens = min(ends.stop - 1, len(request.tokens))
    full: list[Known] = []
    begun: list[Known] = []
    opened = []
    for index, (group, blocks) in enumerate(zip(manager.geometry.groups, tables, strict=True)):
        places, first = _places(retention, group, request, progress.opened[index], progress.tokens, tokens)
        opened.append(first)
        # Accepted drafts may span a whole window: what they filled may be dead before it is due.
        full += [
            (content_of_block(manager, number, index, place), blocks[place])
            for place in places
            if blocks[place] != NULL
            and not (
                group.attention.stops_at_block_ends
                and (place + 1) * group.block_size_tokens in range(ends.start, tokens)
            )
        ]
        begun += [
            (content_up_to(manager, number, index, end), blocks[end // group.block_size_tokens])
            for end in _boundaries(retention, group, request, progress, tokens)
        ]
    return Due(frozenset(full), frozenset(begun), evolve(progress, tokens=tokens, opened=tuple(opened)))


def _places(
    retention: Retention, group: Group, request: Request, first: int, before: int, tokens: int
) -> tuple[Sequence[int], int]:
    """The indices from ``first`` on that become due after ``before`` tokens, and the first that is not due yet."""
    end = max(first, tokens // group.block_size_tokens)
    found = []
    opened = end
    for index in range(first, end):
        due_tokens = retention.due_tokens(group, index, request.prompt_tokens)
        if due_tokens is None:
            continue
        if due_tokens > tokens:
            opened = min(opened, index)
        elif due_tokens > before:
            found.append(index)
    return found, opened


def _boundaries(retention: Retention, group: Group, request: Request, progress: Progress, tokens: int) -> Iterator[int]:
    """Where prefixes end that become entries inside blocks, in tokens."""
    if not group.copies:
        return
    start = max(progress.hit_tokens, progress.tokens - group.lookahead_tokens)
    for boundary in retention.boundaries(start, tokens - group.lookahead_tokens, request.prompt_tokens):
        matched = group.tokens_matched(boundary)
        if matched % group.block_size_tokens:
            yield matched


Pattern: TypeAlias = "list[Sequence[int | None]]"
"""Per group, what each entry must name; None where any block will do, but not the null block."""


def computed_before(step: Step, was: Request) -> int:
    """How many tokens are computed, or come from elsewhere, before the tokens of this step.

    The last token is computed here even if it arrives. Where steps are ahead, more may be computed than is known.
    """
    if was.status is Status.RUNNING:
        return was.tokens_computed
    found = step.answer.hit_tokens + step.answer.external_tokens if isinstance(step.answer, Granted) else 0
    return min(was.tokens_computed + found, len(was.tokens) - 1)


def _allocated(step: Step, was: Request) -> Pattern | None:
    """The tables of a request that was granted slots, or was rejected."""
    answer, named = step.answer, step.named
    computed = computed_before(step, was) - (0 if named is None else _unsure(step, was))
    if isinstance(answer, Granted):
        groups = enumerate(step.manager.geometry.groups)
        return [_grown(step, was, group, _kept(step, index, group, computed)) for index, group in groups]
    assert isinstance(answer, Refused)
    # The gate is asked before anything else is done.
    return _unchanged(step, was) if answer.gate or named is None else _without_dead(step, named, computed)


def _kept(step: Step, index: int, group: Group, computed: int) -> Sequence[int | None]:
    """The blocks of a table before it grows: those it named, or the full blocks of the hit, without dead ones."""
    assert isinstance(step.answer, Granted)
    if step.named is not None:
        return _freed_entries(step.named[index], group.blocks_dead(computed))
    unread = group.blocks_unread(computed)
    hit: list[int | None] = [NULL] * unread
    return grown(hit, step.answer.hit_tokens // group.block_size_tokens)


def _grown(step: Step, was: Request, group: Group, kept: Sequence[int | None]) -> Sequence[int | None]:
    """The table after what was provided, and what this step computes."""
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


def _freed_entries(blocks: Sequence[int], dead: int) -> Sequence[int]:
    dead = min(dead, len(blocks))
    return [*(NULL,) * dead, *blocks[dead:]] if any(blocks[:dead]) else blocks


def _without_dead(step: Step, named: Blocks, computed: int) -> Pattern:
    groups = step.manager.geometry.groups
    return [_freed_entries(blocks, group.blocks_dead(computed)) for group, blocks in zip(groups, named, strict=True)]


def _unchanged(step: Step, _was: Request) -> Pattern | None:
    return None if step.named is None else list(step.named)


def _skipped(step: Step, was: Request) -> Pattern | None:
    assert step.named is not None, "a running request names blocks"
    return _without_dead(step, step.named, was.tokens_computed - _unsure(step, was))


def _unsure(step: Step, was: Request) -> int:
    """Of how many of the tokens that a request has computed a window leaves nothing yet."""
    return tokens_unsure(was, step.manager.settings.loads_out_of_turn)


def _nothing(_step: Step, _was: Request) -> Pattern | None:
    return None


def _ended(step: Step, was: Request) -> Pattern | None:
    """Nothing, unless another node still reads or fills its blocks."""
    assert isinstance(step.operation, (Finish, Abort))
    if not holds_on(was, step.operation):
        return None
    if was.status is not Status.RUNNING or step.named is None:
        return _unchanged(step, was)
    return _without_dead(step, step.named, was.tokens_computed - _unsure(step, was))


def _transferred(step: Step, was: Request) -> Pattern | None:
    """Blocks that arrived stay; blocks that were read, did not arrive, or are of no use are freed."""
    assert isinstance(step.operation, Transferred)
    arrived = was.status is Status.LOADING and step.operation.succeeded and was.tokens_computed > 0
    return _unchanged(step, was) if arrived else None


def _set_back(step: Step, was: Request) -> Pattern | None:
    """The blocks stay, unless the request runs and has released one that the token after the valid ones reads."""
    assert isinstance(step.operation, Rewind)
    assert step.named is not None, "a request that runs or loads names blocks"
    tokens, groups = step.operation.tokens, step.manager.geometry.groups
    lacks = any(NULL in blocks[group.blocks_unread(tokens) :] for group, blocks in zip(groups, step.named, strict=True))
    return None if lacks and was.status is Status.RUNNING else _unchanged(step, was)


_MUST_BE: Mapping[type[Operation], Callable[[Step, Request], Pattern | None]] = MappingProxyType(
    {
        Admit: _allocated,
        Schedule: _allocated,
        ReleaseSkipped: _skipped,
        Preempt: _nothing,
        Finish: _ended,
        Abort: _ended,
        Transferred: _transferred,
        Rewind: _set_back,
    }
)
"""By operation on a request; one that is not here leaves the tables as they are."""


def tables_must_be(step: Step, was: Request) -> Pattern | None:
    """The tables of the request after the step; None if it must name nothing."""
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


Requirement: TypeAlias = Callable[[Step], Iterator[Drift]]


def _tables(step: Step) -> Iterator[Drift]:
    """The request names what it must, and nothing else."""
    if step.was is None:
        return
    wrong = wrong_entry(tables_must_be(step, step.was), step.names)
    if wrong is not None:
        where, expected, got = wrong
        yield Drift(step.operation, f"tables of request {step.number}", where, expected, got)


def _hit(step: Step) -> Iterator[Drift]:
    """The hit that was granted is held: every full block of it that some later token reads, and a copy of the rest."""
    answer, held = step.answer, {at.entry for at in _of(step, Hold)}
    if not isinstance(answer, Granted) or step.was is None or step.names is None:
        expected: set[Any] = set()
        copies: list[tuple[int, int, int]] = []
    else:
        computed = computed_before(step, step.was)
        groups = step.manager.geometry.groups
        ends = [(answer.hit_tokens // group.block_size_tokens, group) for group in groups]
        expected = {
            (step.number, index, place)
            for index, (end, group) in enumerate(ends)
            for place in range(group.blocks_unread(computed), end)
        }
        copies = [
            (index, step.names[index][end], inside)
            for index, (end, group) in enumerate(ends)
            if (inside := answer.hit_tokens % group.block_size_tokens)
        ]
    if held != expected:
        key = min(held ^ expected)
        yield Drift(step.operation, "hit", key, *_there(key in expected))
    pending = step.after.raw.copies[len(step.before.raw.copies) :]
    got = [(copy.group, copy.destination, copy.tokens) for copy in pending]
    if got != copies:
        yield Drift(step.operation, "copies", "group, destination and tokens", copies, got)


def _computed(step: Step) -> Iterator[Drift]:
    """No hit is served by a state, or by a copy, that the worker has yet to compute."""
    hit_tokens = step.answer.hit_tokens if isinstance(step.answer, Granted) else 0
    for index, group in enumerate(step.manager.geometry.groups if hit_tokens and step.undispatched else ()):
        if group.keeps_states or hit_tokens % group.block_size_tokens:
            content = content_up_to(step.manager, step.number, index, group.tokens_matched(hit_tokens))
            if content in step.undispatched:
                yield Drift(step.operation, "hit before dispatch", content, *_there(False))


def _evicted(step: Step) -> Iterator[Drift]:
    """A cached block is forgotten once, and no other block is."""
    assert isinstance(step.operation, Evict)
    block, state = step.operation.block, step.before.state
    was_cached = state.content[block] != 0 or state.begun[block] != 0
    forgotten = [at.block for at in _of(step, Forget)]
    if forgotten != [block] and (was_cached or forgotten):
        yield Drift(step.operation, "forget", f"block {block}", [block] if was_cached else [], forgotten)


def _dispatched(step: Step) -> Iterator[Drift]:
    """Nothing is pending any more, the worker got every copy that was, and what the step computed may serve hits."""
    if step.after.raw.copies:
        yield Drift(step.operation, "copies", "pending", (), step.after.raw.copies)
    reported = step.answer.copies if isinstance(step.answer, Copies) else None
    if reported != step.before.raw.copies:
        yield Drift(step.operation, "copies", "reported", step.before.raw.copies, reported)
    cache = step.manager.cache
    if isinstance(cache, PrefixCache) and cache.fenced:
        yield Drift(step.operation, "fence", next(iter(cache.fenced)), *_there(False))


def _reset(step: Step) -> Iterator[Drift]:
    """It happens if and only if no block is held, and the answer says so."""
    expected = bool(Reset.guard(step.before.state, Operands()))
    happened = bool(list(_of(step, Reset)))
    reported = isinstance(step.answer, Success) and step.answer.succeeded
    for where, got in (("happens", happened), ("reported", reported)):
        if got != expected:
            yield Drift(step.operation, "reset", where, expected, got)


REQUIRED: Mapping[type[Operation], tuple[Requirement, ...]] = MappingProxyType(
    {Admit: (_tables, _hit, _computed), Evict: (_evicted,), Dispatch: (_dispatched,), ResetOperation: (_reset,)}
)
"""By operation. One of a request that is not here has to leave its tables right, and holds no hit."""


def missing(step: Step, due: Due | None) -> Iterator[Drift]:
    """The requirements that ``step`` violates; ``due`` is the content that must become known in it."""
    of_request = isinstance(step.operation, OfRequest)
    for requirement in REQUIRED.get(type(step.operation), (_tables,) if of_request else ()):
        yield from requirement(step)
    if of_request:
        yield from _known(step, due)


def _known(step: Step, due: Due | None) -> Iterator[Drift]:
    """All due content becomes known, once, and nothing else does."""
    registered = Counter((at.content, at.block) for at in _of(step, Register))
    expected = Counter(due.full if due is not None else ())
    if registered != expected:
        yield _differs(step, "registered", expected, registered)
    offered = {(at.content, at.block) for at in _of(step, Begin)}
    begun = due.begun if due is not None else frozenset()
    if not offered <= begun:
        yield _differs(step, "begun", Counter(begun), Counter(offered))
    lacking = [each for each in begun if step.after.state.begins[each] != each[1]]
    if lacking:
        yield Drift(step.operation, "begun", lacking[0], *_there(True))


def _differs(step: Step, where: str, expected: Counter[Any], got: Counter[Any]) -> Drift:
    lacking, surplus = expected - got, got - expected
    key = next(iter(lacking or surplus))
    return Drift(step.operation, where, key, *_there(bool(lacking)))


def _there(expected: bool) -> tuple[str, str]:
    there = ("it is there", "it is not there")
    return there if expected else (there[1], there[0])


def _of(step: Step, transition: type[Transition]) -> Iterable[Operands]:
    """What each ``transition`` of the step was about."""
    return (at for happened, at in step.happened if happened is transition)
