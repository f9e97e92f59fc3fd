"""Ghost memory where other nodes take part: what they write into blocks, and read from them.

Goal: transfers that find or leave wrong content are seen, and a sound system raises no alarm. Method: the same
operations on the reference, which is the control, and on subclasses that each break one thing that only the memory
shows. Where the control needs more room, it has more blocks.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.answers import Answer, Granted
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.operations import Abort, Admit, Dispatch, Finish, Operation, Sample, Schedule, Transferred
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

from .stage import FULL, NEVER, WINDOW, arrive, settings_of, state, watch, wrong


class TakesHeldBlocks(Reference):
    """Has the blocks of another request written by another node."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Admit) and operation.external_tokens and isinstance(answer, Granted):
            self.tables[operation.request][0].blocks[0] = self.tables[0][0].blocks[0]
        return answer


class CallsItAHit(Reference):
    """Says of what another node provides that it was there."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(answer, Granted):
            return evolve(answer, hit_tokens=answer.hit_tokens + answer.external_tokens, external_tokens=0)
        return answer


class GivesUpLoading(Reference):
    """Frees the blocks of an aborted request, although a load still writes into them."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.holdings.release_all(operation.request)
        return super().apply(operation)


class BelievesInLoads(Reference):
    """Takes every load for a success."""

    def apply(self, operation: Operation) -> Answer:
        return super().apply(Transferred(operation.request) if isinstance(operation, Transferred) else operation)


class SendsWhatIsFree(Reference):
    """Frees the blocks of a request that ends while another node still reads them."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                self.pool.release(table.blocks[::-1])
                self.pool.free.remove(table.blocks[0])
                self.pool.free.prepend(table.blocks[0])
        elif isinstance(operation, Transferred):
            self.tables.pop(operation.request, None)
        return answer


class SendsWithoutTables(Reference):
    """Shows no tables of a request that another node still reads."""

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        return evolve(
            found, tables={n: tables for n, tables in found.tables.items() if self.population[n].answers_next}
        )


SENT: tuple[Operation, ...] = (arrive(0, 7), Admit(0, 64), Finish(0, sends=True), arrive(1, 9, 500), Admit(1, 64))
LOADED: tuple[Operation, ...] = (
    arrive(0, 9),
    Admit(0, 64, external_tokens=9, loads=True),
    Abort(0),
    arrive(1, 9, 500),
    Admit(1, 64),
)

SEVERAL = {
    "written over": (
        settings_of(FULL),
        TakesHeldBlocks,
        (
            arrive(0, 7),
            Admit(0, 64),
            arrive(1, 9, 500),
            Admit(1, 64, external_tokens=6),
            Sample(0, 0, 9, 0),
            Schedule(0, 1),
        ),
        wrong(0, f"token 0 in block 1: {state(1, 0, 0)}", state(8, 500, 0)),
    ),
    "said to be there": (
        settings_of(FULL),
        CallsItAHit,
        (arrive(0, 9), Admit(0, 64, external_tokens=6)),
        wrong(0, f"token 0 in block 1: {state(1, 0, 0)}", NEVER),
    ),
    "a load that comes late": (
        settings_of(FULL, blocks=4),
        GivesUpLoading,
        (*LOADED, Transferred(0), Sample(1, 0, 9, 0), Schedule(1, 1)),
        wrong(1, f"token 0 in block 3: {state(10, 500, 0)}", state(9, 8, 8)),
    ),
    "a load that failed": (
        settings_of(FULL, WINDOW),
        BelievesInLoads,
        (arrive(0, 9), Admit(0, 64, external_tokens=8, loads=True), Transferred(0, succeeded=False), Admit(0, 64)),
        wrong(0, f"token 0 in block 1: {state(1, 0, 0)}", NEVER),
    ),
    "sent and written over": (
        settings_of(FULL),
        SendsWhatIsFree,
        (*SENT, Transferred(0)),
        wrong(0, f"token 0 in block 1: {state(1, 0, 0)}", state(8, 500, 0)),
    ),
    "sent from nowhere": (
        settings_of(FULL),
        SendsWithoutTables,
        SENT,
        Difference("KV-OP-25", "request 0", "a table in every group until it is read", "0 tables"),
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


def test_another_node_writes_what_it_provides_and_no_more() -> None:
    """After the hit, before what is computed here; a load does not write before it is over."""
    chain = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    system = Reference(settings_of(FULL))
    ghost = GhostMemory(system.settings)
    assert watch(ghost, system, arrive(0, 9), Admit(0, 64, external_tokens=9, loads=True)) is None
    assert [None, None, None] == [ghost.slots(block) for block in (1, 2, 3)]
    assert [(0, 9)] == [(work.provided, work.start) for work in ghost.under_way()]
    assert watch(ghost, system, Transferred(0)) is None
    assert [(0, chain[:4]), (0, chain[4:8]), (0, (9, None, None, None))] == [ghost.slots(block) for block in (1, 2, 3)]
    assert watch(ghost, system, Admit(0, 64), arrive(1, 8), Admit(1, 2, external_tokens=3)) is None
    # The hit is the first block; of the second one, three tokens were provided and the last was computed.
    assert (1, 4) == (system.tables[1][0].blocks[0], system.tables[1][0].blocks[1])
    assert (0, chain[4:8]) == ghost.slots(4)


def test_another_node_writes_the_state_that_it_ends_with() -> None:
    """Into the only block that a resume reads; the blocks for the drafts after it do not change."""
    system = Reference(settings_of(Group(Kind.MAMBA, 4, states=StateMode.ALL, draft_states=2)))
    ghost = GhostMemory(system.settings)
    assert watch(ghost, system, arrive(0, 11), Admit(0, 64, external_tokens=10, loads=True), Dispatch()) is None
    assert watch(ghost, system, Transferred(0)) is None
    assert [0, 0, 1] == system.tables[0][0].blocks[:3]
    assert [None, (0, (10,)), None, None] == [ghost.slots(block) for block in (0, 1, 2, 3)]
    assert watch(ghost, system, Admit(0, 64), Dispatch()) is None


def test_a_load_that_failed_writes_nothing() -> None:
    """Nor does what was sent."""
    system = Reference(settings_of(FULL))
    ghost = GhostMemory(system.settings)
    failed = (arrive(0, 9), Admit(0, 64, external_tokens=9, loads=True), Transferred(0, succeeded=False))
    assert watch(ghost, system, *failed) is None
    assert ghost.slots(1) is None
    assert watch(ghost, system, Admit(0, 64)) is None
    block = system.tables[0][0].blocks[0]
    computed = ghost.slots(block)
    assert computed is not None
    assert watch(ghost, system, Finish(0, sends=True), Transferred(0, succeeded=False)) is None
    assert computed == ghost.slots(block)
