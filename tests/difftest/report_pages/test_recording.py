"""Runs written down.

Goal: a recording has what both sides did, within its limit, and does not change what is found. Method: the reference as
a sound system, and faulty ones; each is recorded and compared with a run that is not recorded.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.comparison import hit_tokens_of
from kvgate.levels.manager import Bench, run
from kvgate.monitors.leak import LeakMonitor
from kvgate.report.page import recording as recordings
from kvgate.report.page.recording import Named, Recorder, record
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Run, Schedule
from kvreference.population import Status
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

from .stage import BY_ANOTHER, ENDED, FULL, SETTINGS, TWICE, HitsNothing, KeepsABlock, Raises, ServesOthers

from .stage import case_of, recorded  # isort: skip


def test_a_sound_run_is_recorded_whole() -> None:
    """A frame for each operation, both sides in the same state, the reference's the one that it was in."""
    recording = record(Bench(Reference, ("lockstep",)), case_of(TWICE))
    assert ((), 0) == (recording.divergences, recording.left_out)
    assert recording.operations == tuple(frame.operation for frame in recording.frames)
    assert TWICE == recording.operations[:4]
    reference = Manager(SETTINGS)
    for frame in recording.frames:
        answer, state = reference.apply(frame.operation), reference.snapshot()
        ours, theirs = frame.reference, frame.system
        assert ours is not None
        assert ours.snapshot is not None
        assert theirs.snapshot is not None
        # Events name contents, and each manager has its own.
        assert str(answer) == str(ours.answer)
        assert (state.tables, state.free) == (ours.snapshot.tables, ours.snapshot.free)
        assert (ours.snapshot.tables, ours.snapshot.references) == (theirs.snapshot.tables, theirs.snapshot.references)
        assert ours.contents == theirs.contents


def test_recording_changes_nothing() -> None:
    """Every finding is found at the same operation."""
    case = case_of(TWICE)
    _, divergences = run(Bench(HitsNothing, ("lockstep",)), case.settings, case.operations)
    assert tuple(divergences) == record(Bench(HitsNothing, ("lockstep",)), case).divergences


def test_both_answers_are_kept_where_they_differ() -> None:
    """The last frame is the operation that diverges."""
    recording, _ = recorded(HitsNothing, TWICE)
    last = recording.frames[-1]
    assert last.reference is not None
    assert (8, 0) == (hit_tokens_of(last.reference.answer), hit_tokens_of(last.system.answer))


def test_content_is_named_after_who_had_it_first() -> None:
    """The same name on both sides; a later request with the same tokens has the same content."""
    recording = record(Bench(Reference, ("lockstep",)), case_of((*TWICE[:3], Admit(1, 64))))
    contents = recording.frames[3].system.contents
    named = {Named(group, 0, tokens) for group in (0, 1) for tokens in (4, 8, 12)}
    assert named == {name for name in contents if name is not None}


def test_foreign_content_keeps_its_name() -> None:
    """The system takes the adapter's content for the salt's: the page says which request it belongs to."""
    recording, found = recorded(ServesOthers, BY_ANOTHER, FULL)
    assert "KV-OP-01" == found.divergence.difference.statement
    last = recording.frames[-1]
    assert last.system.snapshot is not None
    served = last.system.snapshot.tables[1][0][0]
    assert Named(0, 0, 4) == last.system.contents[served]


def test_what_only_the_system_knows_has_a_number() -> None:
    """The number is not a name of the reference's."""

    class Inventive(Reference):
        """Says that the last block holds something."""

        def snapshot(self) -> Snapshot:
            state = super().snapshot()
            return evolve(state, contents=[*state.contents[:-1], "something"])

    recording, _ = recorded(Inventive, TWICE)
    assert Named(-1, -1, 0) == recording.frames[-1].system.contents[-1]


def test_an_exception_is_recorded() -> None:
    """In place of an answer and a state."""
    recording, found = recorded(Raises, TWICE)
    last = recording.frames[-1]
    assert "KV-SYS-01" == found.divergence.difference.statement
    assert last.system.raised.startswith("ZeroDivisionError: </script>")
    assert (None, None) == (last.system.answer, last.system.snapshot)


def test_without_lockstep_a_reference_follows() -> None:
    """As far as it can, for the reader only: it checks nothing."""
    recording, found = recorded(KeepsABlock, ENDED, detectors=("leak",))
    assert ("leak", "KV-LEAK-01") == (found.divergence.detector, found.divergence.difference.statement)
    assert all(frame.reference is not None for frame in recording.frames)
    last = recording.frames[-1]
    assert last.reference is not None
    assert last.reference.snapshot is not None
    assert last.system.snapshot is not None
    assert (0, 1) == (sum(last.reference.snapshot.references), sum(last.system.snapshot.references))


def test_where_the_reference_cannot_follow_the_system_stands_alone() -> None:
    """A request that only the system admitted is scheduled further."""

    class LetsIn(Reference):
        """No gate, even if the settings ask for one."""

        def _fits(self, *_all: object) -> bool:
            return True

    settings = Settings(FULL.geometry, blocks=4, tokens_max=64, chunk_tokens=4)
    operations = (Arrive(0, (Run(0, 20),)), Admit(0, 4), Schedule(0, 4))
    recording = record(Bench(LetsIn, ("ghost",)), case_of(operations, settings))
    assert [True, True, False] == [frame.reference is not None for frame in recording.frames[:3]]
    assert Status.RUNNING is recording.frames[2].requests[0].status


def test_what_was_closed_is_not_closed_again() -> None:
    """A case that ends at rest is shown as it is."""
    recording, _ = recorded(KeepsABlock, ENDED, detectors=("leak",))
    assert ENDED == recording.operations


def test_the_recording_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last operations are kept; how many are not is known."""
    monkeypatch.setattr(recordings, "FRAMES_MAX", 3)
    recording = record(Bench(Reference, ("lockstep",)), case_of(TWICE))
    assert (len(recording.operations) - 3, 3) == (recording.left_out, len(recording.frames))
    monkeypatch.setattr(recordings, "CELLS_MAX", 2 * SETTINGS.blocks)
    assert 2 == len(record(Bench(Reference, ("lockstep",)), case_of(TWICE)).frames)


def test_a_recorder_follows_any_lockstep() -> None:
    """With any driver and any checker, as with a scheduler."""
    lockstep = Bench(KeepsABlock, ("leak",)).set_up(SETTINGS)
    recorder = Recorder(lockstep, SETTINGS, follows=False)
    for operation in ENDED:
        assert lockstep.perform(operation) is None
    recording = recorder.recording(recordings.at_rest(lockstep))
    assert (5, "KV-LEAK-01") == (len(recording.frames), recording.divergences[0].difference.statement)
    assert {None} == {frame.reference for frame in recording.frames}
    assert [LeakMonitor.name] == [monitor.name for monitor in lockstep.monitors]
