"""Finding 012: The block in which a prompt ends is cached by a key that nobody can ask for.

It has no fault to inject: the entry that it adds to the cached map is never served, so nothing else changes. If another
fault acts in the same step, an admission with a shorter hit for example, the reference with that fault takes the place
of the reference: that admission caches the end of its prompt as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from attrs import evolve

from kvgate.adapters.release_variants import reference_for_release
from kvgate.findings.finding import Finding
from kvgate.kernel.comparison import Comparison
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Answer
from kvreference.manager import Manager
from kvreference.operations import Admit, Operation, Schedule, Transferred


def _only_prompt_tails(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Whether all that differs is that blocks in which prompts end are known by what of them the prompt fills."""
    reference, ours = lockstep.reference, lockstep.answers[0]
    if reference is None or ours is None or divergence.operation is None:
        return False
    return _differs_by_tails(divergence.operation, reference, ours, lockstep)


def _prompt_tails_with(fault: type[Manager], divergence: Divergence, lockstep: Lockstep) -> bool:
    """Whether that is all that differs from the reference with ``fault``."""
    reference = lockstep.reference
    if reference is None or not _caches(divergence.operation):
        return False
    manager = reference_for_release(lockstep.system, fault)(reference.settings)
    manager._interned = reference._interned
    ours: Answer | None = None
    for operation in lockstep.performed:
        if manager.population.resolve(operation) != operation:
            return False
        ours = manager.apply(operation)
    return ours is not None and _differs_by_tails(operation, manager, ours, lockstep)


def _caches(operation: Operation | None) -> bool:
    return isinstance(operation, (Admit, Schedule, Transferred))


def _differs_by_tails(operation: Operation, manager: Manager, ours: Answer, lockstep: Lockstep) -> bool:
    """Whether ``manager`` stands where the system stands, but for the ends of the prompt."""
    theirs, run = lockstep.answers[1], lockstep.comparison
    if theirs is None or not isinstance(operation, (Admit, Schedule, Transferred)):
        return False
    tails = dict(_tails(manager, operation.request))
    expected, seen = manager.snapshot(), lockstep.system.snapshot()
    tail_only = {block for block in tails.values() if expected.contents[block] is None}
    partners: set[Hashable] = {seen.contents[block] for block in tail_only}
    known = set(run.correspondence.theirs(expected.entries))
    kept = {
        identity: blocks
        for identity, blocks in seen.entries.items()
        if identity not in partners and (identity in known or not set(blocks) <= set(tails.values()))
    }
    contents = [None if block in tail_only else identity for block, identity in enumerate(seen.contents)]
    bare = evolve(seen, contents=contents, read_entries=lambda: kept)
    # Another one than the run's, which takes what it has seen before for compared.
    again = Comparison(run.retains)
    again.correspondence = run.correspondence.copy()
    return (
        bool(tails)
        and again.of_answers(operation, ours, theirs) is None
        and again.of_states(operation, expected, bare) is None
    )


def _tails(manager: Manager, number: int) -> Iterator[tuple[int, int]]:
    """Per group of full attention, the block inside which the hashed part of a request's prompt ends."""
    request, grain = manager.population[number], manager.geometry.grain_tokens
    for index, group in enumerate(manager.geometry.groups):
        table = manager.tables[number][index] if number in manager.tables else None
        last = request.prompt_tokens - (0 if group.lookahead else 1)
        boundary = last // grain * grain
        if table is None or not group.keeps_all or boundary % group.block_size_tokens == 0:
            continue
        if boundary // group.block_size_tokens < len(table.blocks):
            yield index, table.blocks[boundary // group.block_size_tokens]


def _explains_together(
    fault: type[Manager], without: type[Manager], divergence: Divergence, lockstep: Lockstep
) -> bool:
    if _only_prompt_tails(divergence, lockstep):
        return False
    if without is not Manager and _prompt_tails_with(without, divergence, lockstep):
        return False
    return _prompt_tails_with(fault, divergence, lockstep)


FINDING = Finding(
    id="012-prompt-tail-that-serves-nobody",
    rank=12,
    releases=("0.27.1", "0.30.0", "0.33.0"),
    explains=_only_prompt_tails,
    explains_together=_explains_together,
)
