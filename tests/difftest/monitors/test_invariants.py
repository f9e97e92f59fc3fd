"""The invariants as a monitor.

Goal: a system's own state is checked after every operation. Method: the reference is the control; subclasses of it
show a state that no sound system has.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.monitors.invariants import Invariants
from kvreference.answers import Copy
from kvreference.block_pool import Pinned
from kvreference.operations import Admit, Finish, Sample, Schedule
from kvreference.snapshot import Snapshot
from kvreference.statements import STATEMENTS

from .stage import FULL, arrive, settings_of, watch

SETTINGS = settings_of(FULL, blocks=6)
OPERATIONS = (arrive(0, 9), Admit(0, 64), Finish(0))


class Shows(Reference):
    """Shows a state that differs from its own, once a request holds blocks."""

    def snapshot(self) -> Snapshot:
        state = super().snapshot()
        return self.shown(state) if self.tables else state

    def shown(self, state: Snapshot) -> Snapshot:
        raise NotImplementedError


class CountsTwice(Shows):
    """KV-INV-01."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, references=[0, 2, *state.references[2:]])


class LosesFree(Shows):
    """KV-INV-02."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, free=state.free[1:], blocks_free=state.blocks_free - 1)


class Boasts(Shows):
    """KV-INV-03."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, blocks_free=99)


class NamesTwice(Shows):
    """KV-INV-04, and with it KV-INV-01: the first is reported."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, tables={0: [[1, 1, 3]]})


class Mislabels(Shows):
    """KV-INV-05."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, contents=[*state.contents[:1], None, *state.contents[2:]])


class QueuesNull(Shows):
    """KV-INV-06."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, contents=["something", *state.contents[1:]])


class PinsWhatIsHeld(Shows):
    """KV-INV-07."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, pinned=Pinned(frozenset({1}), (1,)))


class KeepsScratchBehind(Shows):
    """KV-INV-08."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, scratch_first=True, begun=frozenset({4}))


class CopiesIntoTheFree(Shows):
    """KV-INV-09."""

    def shown(self, state: Snapshot) -> Snapshot:
        return evolve(state, copies=(Copy(0, 1, 4, 2),), references=[0, 2, *state.references[2:]])


INJECTED = {
    CountsTwice: ("KV-INV-01", "block 1 counts 2 references, 1 table entries name it"),
    LosesFree: ("KV-INV-02", "block 4 has no holder, and it is not in the free queue"),
    Boasts: ("KV-INV-03", "said to be free: 99, queued: 2"),
    NamesTwice: ("KV-INV-04", "request 0 names block 1 2 times"),
    Mislabels: ("KV-INV-05", "block 1 holds None, and is listed under"),
    QueuesNull: ("KV-INV-06", "the null block is queued or cached"),
    PinsWhatIsHeld: ("KV-INV-07", "pinned without a holder: [], queued as pinned: [1]"),
    KeepsScratchBehind: ("KV-INV-08", "the free queue [4, 5] has a cached block before a scratch one"),
    CopiesIntoTheFree: ("KV-INV-09", "block 4 has no holder, and Copy(group=0, source=1, destination=4"),
}


@pytest.mark.parametrize(("broken", "expected"), INJECTED.items(), ids=lambda each: getattr(each, "__name__", None))
def test_a_state_that_no_sound_system_has_is_seen(broken: type[Reference], expected: tuple[str, str]) -> None:
    """The first statement that does not hold, and what was seen instead."""
    found = watch(Invariants(), broken(SETTINGS), *OPERATIONS)
    assert found is not None
    assert ("state", "the statement holds") == (found.subject, found.expected)
    assert expected == (found.statement, found.got[: len(expected[1])])


def test_no_invariant_is_forgotten() -> None:
    """One that is added needs a row above."""
    assert {name for name in STATEMENTS if name.startswith("KV-INV")} == {name for name, _ in INJECTED.values()}


def test_a_sound_system_shows_sound_states() -> None:
    """The control; at rest, nothing is left to check."""
    system = Reference(SETTINGS)
    assert watch(Invariants(), system, *OPERATIONS[:2], Sample(0, 0, 9, 0), Schedule(0, 1), *OPERATIONS[2:]) is None
    nothing: list[Difference] = []
    assert nothing == list(Invariants().at_rest(system))
