"""What an operation must have done; which transitions it may consist of is in ``allowed``.

That is which entries a request names behind it, which of them are its hit and what is copied for it, what becomes known
to the cache, what is forgotten, and what is not pending any more. What it leaves open is in ``kvspec.conformance``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from kvreference.answers import Copies, Granted, Success
from kvreference.operations import Admit, Dispatch, Evict, OfRequest, Operation
from kvreference.operations import Reset as ResetOperation
from kvreference.prefix_cache import PrefixCache
from kvspec.conformance.drift import Drift
from kvspec.conformance.due import Due
from kvspec.conformance.identity import content_up_to
from kvspec.conformance.step import Step
from kvspec.conformance.tables import computed_before, tables_must_be, wrong_entry
from kvspec.pool.contents import Begin, Forget, Register, Reset
from kvspec.pool.holders import Hold
from kvspec.pool.state import Operands
from kvspec.pool.transition import Transition

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
    """Nothing is pending any more, the worker was told whatever was, and whatever the step computed may serve hits."""
    if step.after.raw.copies:
        yield Drift(step.operation, "copies", "pending", (), step.after.raw.copies)
    told = step.answer.copies if isinstance(step.answer, Copies) else None
    if told != step.before.raw.copies:
        yield Drift(step.operation, "copies", "told", step.before.raw.copies, told)
    cache = step.manager.cache
    if isinstance(cache, PrefixCache) and cache.fenced:
        yield Drift(step.operation, "fence", next(iter(cache.fenced)), *_there(False))


def _reset(step: Step) -> Iterator[Drift]:
    """It happens exactly if nobody holds a block, and is told so."""
    expected = bool(Reset.guard(step.before.state, Operands()))
    happened = bool(list(_of(step, Reset)))
    told = isinstance(step.answer, Success) and step.answer.succeeded
    for where, got in (("happens", happened), ("told", told)):
        if got != expected:
            yield Drift(step.operation, "reset", where, expected, got)


REQUIRED: Mapping[type[Operation], tuple[Requirement, ...]] = MappingProxyType(
    {Admit: (_tables, _hit, _computed), Evict: (_evicted,), Dispatch: (_dispatched,), ResetOperation: (_reset,)}
)
"""By operation. One of a request that is not here has to leave its tables right, and holds no hit."""


def missing(step: Step, due: Due | None) -> Iterator[Drift]:
    """What must be so behind ``step``, and is not; ``due`` is what must become known in it."""
    of_request = isinstance(step.operation, OfRequest)
    for requirement in REQUIRED.get(type(step.operation), (_tables,) if of_request else ()):
        yield from requirement(step)
    if of_request:
        yield from _known(step, due)


def _known(step: Step, due: Due | None) -> Iterator[Drift]:
    """What is due becomes known, once and with its own content, and nothing else does."""
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
