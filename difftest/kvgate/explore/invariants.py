"""What a block manager is checked by: every state, and every step between two.

Of a step: that no request is kept out, that a replay hits, that no work is done twice. A design that is known to be
wrong may bring its own checks. One that counts otherwise violates the common statements at once, which says nothing
about the fault that it is known for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from kvgate.explore.steps_in_flight import AheadMemory, what_steps_in_flight_need
from kvreference.admission import fits_empty_pool
from kvreference.answers import Answer, Granted, Refused
from kvreference.block_pool import NULL
from kvreference.manager import Manager
from kvreference.operations import Admit, Operation, Schedule
from kvreference.population import Request, Status
from kvreference.retention import replay_boundary
from kvreference.snapshot import Violation, check


def kept_out(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A request is rejected although no block is held and all of it fits: it can never be admitted."""
    del after
    if not (isinstance(operation, Admit) and isinstance(answer, Refused)):
        return ()
    if before.tables or before.holdings.deferred:
        return ()
    tokens = len(before.population[operation.request].tokens)
    if not fits_empty_pool(before.settings, tokens):
        return ()
    return (Violation("KV-LIVE-01", f"no block is held, {tokens} tokens fit, and the request is rejected"),)


def unhit(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A request hits less than its replay boundary, though another with the same prompt holds all that it needs."""
    del after
    if not (isinstance(operation, Admit) and isinstance(answer, (Granted, Refused))):
        return ()
    asking = before.population[operation.request]
    # Where states are kept at chunk ends alone, whether there is one at a boundary depends on the chunks.
    if asking.tokens_computed or before.geometry.state_block_tokens is not None or not before.settings.caches:
        return ()
    boundary = replay_boundary(before.geometry, len(asking.tokens))
    if answer.hit_tokens >= boundary:
        return ()
    holders = [other for other in before.population.alive.values() if _could_serve(before, other, asking, boundary)]
    return tuple(
        Violation(
            "KV-OP-16",
            f"request {holder.number} computed the same prompt and holds all that a hit of {boundary} tokens reads; "
            f"the hit is {answer.hit_tokens} tokens",
        )
        for holder in holders[:1]
    )


def parts_elsewhere(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """An admitted request has another junction than the last boundary that full attention holds; all are tried."""
    settings, geometry = before.settings, before.geometry
    if settings.retention_interval_tokens is None or not settings.keeps_junctions:
        return ()
    if not (isinstance(operation, Admit) and isinstance(answer, Granted)):
        return ()
    request = before.population[operation.request]
    if request.tokens_computed or not request.reads_cache:
        return ()
    expected = 0
    for boundary in range(answer.hit_tokens + 1, len(request.tokens) - geometry.lookahead_tokens):
        matched = boundary + geometry.lookahead_tokens
        if boundary % geometry.alignment_tokens == 0 and any(
            _knows(before, request, index, matched) for index, group in enumerate(geometry.groups) if group.keeps_all
        ):
            expected = boundary
    got = after.population[operation.request].junction_tokens
    if got == expected:
        return ()
    return (Violation("KV-OP-27", f"full attention holds what a hit at {expected} matches; the junction is {got}"),)


def _knows(manager: Manager, request: Request, index: int, tokens: int) -> bool:
    """Whether whole blocks of a group hold the first ``tokens`` tokens of a request."""
    size = manager.geometry.groups[index].block_size_tokens
    blocks = -(-tokens // size)
    return blocks * size <= len(request.tokens) and all(
        manager.pool.cached.find(manager.content(request.number, index, block)) is not None for block in range(blocks)
    )


def unhit_at_junction(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A request hits less than the junction of another, though both begin alike, and that one holds what is needed."""
    del after
    if not (isinstance(operation, Admit) and isinstance(answer, (Granted, Refused))):
        return ()
    asking, geometry = before.population[operation.request], before.geometry
    if asking.tokens_computed or geometry.state_block_tokens is not None:
        return ()
    for holder in before.population.alive.values():
        boundary = holder.junction_tokens
        shared = boundary + geometry.lookahead_tokens
        alike = asking.tokens[:shared] == holder.tokens[:shared] and shared < len(asking.tokens)
        computed = holder.status is Status.RUNNING and shared <= holder.tokens_computed
        if answer.hit_tokens < boundary and alike and computed and _holds(before, holder, boundary):
            same_start = (
                f"request {holder.number} begins alike, and holds all that a hit at its junction, {boundary}, reads"
            )
            return (Violation("KV-OP-27", f"{same_start}; the hit is {answer.hit_tokens} tokens"),)
    return ()


def _could_serve(manager: Manager, holder: Request, asking: Request, boundary: int) -> bool:
    """Whether ``holder`` computed the prompt of ``asking``, and still holds all blocks that a hit at ``boundary``
    reads."""
    if holder.status is not Status.RUNNING or holder.prompt_tokens != len(asking.tokens):
        return False
    if holder.tokens[: holder.prompt_tokens] != asking.tokens or holder.tokens_computed < holder.prompt_tokens:
        return False
    return _holds(manager, holder, boundary)


def _holds(manager: Manager, holder: Request, boundary: int) -> bool:
    """Whether ``holder`` still holds all blocks that a hit at ``boundary`` reads."""
    # What was copied is an entry of the block that it was copied from, and lost with that one.
    if any(group.tokens_matched(boundary) % group.block_size_tokens for group in manager.geometry.groups):
        return False
    needed = [
        table.blocks[index]
        for group, table in zip(manager.geometry.groups, manager.tables[holder.number], strict=True)
        for index in range(*group.blocks_needed(boundary))
    ]
    return NULL not in needed


def cached_in_vain(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A step caches a block that no hit at an admitted boundary reads; the boundaries are tried one by one."""
    interval = after.settings.retention_interval_tokens
    if interval is None or not (isinstance(operation, (Admit, Schedule)) and isinstance(answer, Granted)):
        return ()
    request = after.population[operation.request]
    alignment = after.geometry.alignment_tokens
    lengths = range(alignment, after.settings.tokens_max + alignment + 1, alignment)
    replay = max((n for n in lengths if n + after.geometry.lookahead_tokens < request.prompt_tokens), default=0)
    found = []
    for index, (group, table) in enumerate(zip(after.geometry.groups, after.tables[request.number], strict=True)):
        single = (replay, request.junction_tokens)
        admitted = [n for n in lengths if not group.is_sparse or n in single or (interval and n % interval == 0)]
        for position, block in enumerate(table.blocks):
            fresh = after.pool.cached.content_of(block) is not None and before.pool.cached.content_of(block) is None
            reads = (range(*group.blocks_needed(boundary)) for boundary in admitted)
            if fresh and not any(position in read for read in reads):
                found.append(Violation("KV-OP-15", f"group {index}: no hit at {admitted} reads block {position}"))
    return found


def offered_twice(before: Manager, operation: Operation, answer: Answer, after: Manager) -> Sequence[Violation]:
    """A step offers more boundaries to the cache than lie in the tokens that were not offered yet."""
    if not (isinstance(operation, (Admit, Schedule)) and isinstance(answer, Granted)):
        return ()
    request = after.population[operation.request]
    verified = min(request.tokens_computed, len(request.tokens))
    alignment = after.geometry.alignment_tokens
    allowed = 0
    for index, group in enumerate(after.geometry.groups):
        if group.copies:
            known = before.tables.get(request.number)
            start = answer.hit_tokens if known is None else known[index].boundary_tokens
            allowed += max(0, (verified - group.lookahead_tokens) // alignment - start // alignment)
    offered = after.pool.partial.offers - before.pool.partial.offers
    if offered <= allowed:
        return ()
    return (Violation("KV-WORK-01", f"{allowed} boundaries are new, and {offered} were offered"),)


OfState: TypeAlias = Callable[[Manager], Sequence[Violation]]
"""What is wrong with a state. It may depend on nothing that the canonical form leaves out."""
OfFlight: TypeAlias = Callable[[Manager, AheadMemory], Sequence[Violation]]
"""What is wrong with a state for steps in flight, of which the memory has what they read and write."""
OfStep: TypeAlias = Callable[[Manager, Operation, Answer, Manager], Sequence[Violation]]
"""What is wrong with a step: the state before it, the operation, the answer, and the state after it."""


def invariants(manager: Manager) -> Sequence[Violation]:
    """The invariants that a state violates."""
    return check(manager.snapshot())


def no_invariants(manager: Manager) -> Sequence[Violation]:
    """Nothing: for a design whose fault the invariants would see before it has done any harm."""
    del manager
    return ()


def nothing_in_flight(manager: Manager, memory: AheadMemory) -> Sequence[Violation]:
    """The same of steps in flight."""
    del manager, memory
    return ()


def copies_unheld(manager: Manager) -> Sequence[Violation]:
    """Copies whose source or destination is not held, and nothing else."""
    return [violation for violation in check(manager.snapshot()) if violation.statement == "KV-INV-09"]


@frozen
class Checks:
    """What checks."""

    of_state: OfState = invariants
    watches_memory: bool = True
    """Whether ghost memory checks too."""
    of_flight: OfFlight = what_steps_in_flight_need
    """What is checked of a state where steps are in flight."""
    of_steps: tuple[OfStep, ...] = (kept_out, unhit, parts_elsewhere, unhit_at_junction, cached_in_vain, offered_twice)

    def of_step(
        self, before: Manager, operation: Operation, answer: Answer, after: Manager, lossless: bool
    ) -> Sequence[Violation]:
        """What is wrong with a step; ``lossless`` if nothing cached is ever forgotten by order."""
        checks = (each for each in self.of_steps if lossless or each not in (unhit, unhit_at_junction))
        return [violation for each in checks for violation in each(before, operation, answer, after)]


COMMON = Checks()
"""What the reference is checked by, and a design that brings no checkers of its own."""
