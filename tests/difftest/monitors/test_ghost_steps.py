"""Ghost memory, step by step: what is copied, and the order in which a worker does what one step asks for.

Goal: a copy that comes too early, too late or from elsewhere is seen, and a sound system raises no alarm. Method: the
same operations on the reference, which is the control, and on subclasses that each break one thing that only the memory
shows.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.monitors.slot_memory import (
    FAILED,
    FAILED_ELSEWHERE,
    LATE,
    PREEMPTED,
    GhostMemory,
    Misread,
    Where,
    Work,
    WorkerMemory,
)
from kvreference.answers import Answer, Copies, Copy
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Finish, Operation, Run, Transferred
from kvreference.settings import Settings
from kvspec.refuted.block_managers import UnheldSources

from .stage import NEVER, Hasty, WithHoldings, arrive, settings_of, state, watch, wrong

COPIED = Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=2)


class CopiesNothing(Reference):
    """Sends the worker no copies."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        return Copies(()) if isinstance(operation, Dispatch) else answer


class CopiesLess(Reference):
    """Sends the worker copies of one slot less."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(answer, Copies):
            return Copies(tuple(evolve(copy, tokens=copy.tokens - 2) for copy in answer.copies))
        return answer


class Unheld(WithHoldings):
    """No request holds a copy's source."""

    holdings_kind = UnheldSources


SHARED: tuple[Operation, ...] = (arrive(0, 7), Admit(0, 64), Dispatch(), arrive(1, 8), Admit(1, 64))
"""Of the first one's block the second one copies six tokens, and computes two."""
RECYCLED: tuple[Operation, ...] = (*SHARED, Finish(0), arrive(2, 10, 500))
"""And then the first one ends, so that its block may be another's before the step is dispatched."""
TIGHT = settings_of(COPIED, blocks=4)

SEVERAL = {
    "a copy is forgotten": (
        settings_of(COPIED),
        CopiesNothing,
        (*SHARED, Dispatch()),
        wrong(1, f"token 0 in block 2: {state(1, 0, 0)}", NEVER),
    ),
    "a copy is too short": (
        settings_of(COPIED),
        CopiesLess,
        (*SHARED, Dispatch()),
        wrong(1, f"token 4 in block 2: {state(5, 4, 4)}", NEVER),
    ),
    "copied before it is computed": (
        settings_of(COPIED),
        Hasty,
        (arrive(0, 7), Admit(0, 64), arrive(1, 8), Admit(1, 64), Dispatch()),
        wrong(1, f"token 0 in block 2: {state(1, 0, 0)}", NEVER),
    ),
    "a source that another node writes": (
        TIGHT,
        Unheld,
        (*RECYCLED, Admit(2, 64, external_tokens=9), Dispatch()),
        wrong(1, f"token 0 in block 2: {state(1, 0, 0)}", state(17, 508, 8)),
    ),
}


@pytest.mark.parametrize(("settings", "broken", "operations", "expected"), SEVERAL.values(), ids=SEVERAL)
def test_what_is_not_in_its_slot_is_seen(
    settings: Settings, broken: type[Reference], operations: tuple[Operation, ...], expected: Difference
) -> None:
    """The first slot that is wrong, what should be in it, and what is."""
    assert expected == watch(GhostMemory(settings), broken(settings), *operations)


@pytest.mark.parametrize(("settings", "operations"), [(each[0], each[2]) for each in SEVERAL.values()], ids=SEVERAL)
def test_a_sound_system_reads_what_it_wrote(settings: Settings, operations: tuple[Operation, ...]) -> None:
    """The control: the reference, with the same operations, and room for those that it would reject."""
    roomy = evolve(settings, blocks=64)
    assert watch(GhostMemory(roomy), Reference(roomy), *operations) is None


# The order of a step


def test_the_worker_copies_before_it_computes() -> None:
    """An unheld source is copied in time even if the same step computes over it: here request 2 does.

    What another node provides comes before both: see above.
    """
    system = Unheld(TIGHT)
    operations = (*RECYCLED, Admit(2, 64), Dispatch())
    assert watch(GhostMemory(TIGHT), system, *operations) is None
    assert [3, 1] == system.tables[2][0].blocks


def test_whole_blocks_serve_in_the_step_that_computes_them() -> None:
    """Everything is written before attention reads; only copies and states come too early."""
    system = Reference(settings_of(COPIED))
    operations = (arrive(0, 9), Admit(0, 64), Arrive(1, (Run(0, 8), Run(500, 3))), Admit(1, 64), Dispatch())
    assert watch(GhostMemory(system.settings), system, *operations) is None
    assert system.tables[0][0].blocks[0] == system.tables[1][0].blocks[0]


def test_copies_are_done_in_their_order() -> None:
    """The second takes what the first one brought; in the other order it finds nothing to take."""
    first, second = Copy(0, 1, 2, 4), Copy(0, 2, 3, 4)
    for copies, expected in (((first, second), True), ((second, first), False)):
        ghost = GhostMemory(settings_of(COPIED))
        assert watch(ghost, Reference(ghost.settings), arrive(0, 7), Admit(0, 64), Dispatch()) is None
        for copy in copies:
            ghost._physical.perform(copy, 8)
        (source, copied) = ghost.slots(1), ghost.slots(3)
        assert source is not None
        assert copied is not None
        assert expected == (source[1][:4] == copied[1][:4])
        assert (None,) * 4 == copied[1][4:]


def test_a_request_that_is_gone_is_forgotten() -> None:
    """Steps that were dispatched, and transfers that are over."""
    system = Reference(settings_of(COPIED))
    ghost = GhostMemory(system.settings)
    assert watch(ghost, system, *SHARED, arrive(2, 9), Admit(2, 64, external_tokens=9, loads=True)) is None
    assert [1, 2] == [work.request for work in ghost.under_way()]
    over = (Dispatch(), Finish(0, sends=True), Abort(1), Abort(2), Transferred(0), Transferred(2))
    assert watch(ghost, system, *over) is None
    assert ((), {}, {}) == (ghost.under_way(), ghost._chains, ghost._computed)


def test_a_copy_of_the_memory_is_independent() -> None:
    """The operations under way continue in both, and neither sees what the other does."""
    system = Reference(settings_of(COPIED))
    ghost = GhostMemory(system.settings)
    assert watch(ghost, system, *SHARED, arrive(2, 9), Admit(2, 64, external_tokens=9, loads=True)) is None
    other = ghost.copy()
    assert watch(ghost, system, arrive(3, 9, 500), Admit(3, 64)) is None
    assert (2, 3) == (len(other.under_way()), len(ghost.under_way()))
    assert watch(ghost, system, Dispatch(), Transferred(2)) is None
    assert (2, 0) == (len(other.under_way()), len(ghost.under_way()))
    assert (None, True) == (other.slots(2), ghost.slots(2) is not None)
    assert ghost.slots(1) == other.slots(1)


OF_ANOTHER = {"other's, from the first slot": (1, 0, False), "other's, after it": (1, 2, True), "its own": (0, 0, True)}


@pytest.mark.parametrize("mark", [PREEMPTED, FAILED, FAILED_ELSEWHERE, LATE])
@pytest.mark.parametrize("name", OF_ANOTHER)
def test_a_mark_goes_when_another_request_begins_the_block(name: str, mark: str) -> None:
    """Goal: a mark explains no misread of what came later. Method: a block of four slots of request 0 is marked; then
    a request writes a part of it, and the mark is asked for."""
    writer, start, stays = OF_ANOTHER[name]
    memory = WorkerMemory(settings_of(Group(Kind.FULL, 4)))
    work = Work(0, ((5,),), range(4), 0, 0, 4, 4, 4, 4, again=False, computed_from=0)
    memory._mark(work, 0, mark)
    assert [None] == [*memory._write(evolve(work, request=writer, start=start, end=3, verified=3, drafted=3))]
    misread = Misread(Where(writer, 0, 4), 3, 5, "this", "that", [], [])
    assert (mark if stays else None) == memory._mark_of(misread)
