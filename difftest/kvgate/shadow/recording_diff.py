"""Two recordings, compared call by call: the first thing that they do not share.

Their salts differ, so content is compared by a one-to-one correspondence of digests. When something happened, and where
checkpoints were taken, is left out: that depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from attrs import evolve, fields, frozen

from kvgate.kernel.comparison import Correspondence
from kvgate.shadow.calls import (
    Arrived,
    Checkpoint,
    End,
    Forgotten,
    Freed,
    Grew,
    Published,
    Raised,
    Restart,
    Sent,
    Step,
    Stored,
)
from kvgate.shadow.describe import describe
from kvgate.shadow.recording import Recording, open_recording
from kvreference.settings import Settings

FREED_TAIL_BEFORE = 4
"""Of how many free blocks version 2 of the format holds the order after a request has freed its blocks."""
GAPS_MAX = 10
"""How many gaps of a recording are reported."""


@frozen
class RecordingDiff:
    """What two recordings share, and where they part."""

    shared: int
    """How many calls they have in common."""
    difference: str | None
    """What differs first; None if nothing does."""
    one: str = ""
    other: str = ""
    missing: tuple[str, ...] = ()
    """What is not in the recordings, of what was compared: ends that are cut off, and gaps."""


def diff_recordings(one: Path, other: Path) -> RecordingDiff:
    """Compare two recordings.

    Raises:
        UsageError: one of them cannot be read.
    """
    first, second = open_recording(one), open_recording(other)
    # Version 2 of the format has no time of the start, and not all that is recorded now.
    is_older = None in (first.header.started_unix_ms, second.header.started_unix_ms)
    for each in fields(Settings):
        if is_older and each.name == "tells_events":
            continue
        mine, theirs = getattr(first.header.settings, each.name), getattr(second.header.settings, each.name)
        if mine != theirs:
            return RecordingDiff(0, f"settings: {each.name}", str(mine), str(theirs))
    gaps: tuple[list[str], list[str]] = [], []
    calls = (_calls(each.records(), lost, is_older) for each, lost in zip((first, second), gaps, strict=True))
    found = _first_difference(*calls)
    return evolve(found, missing=(*_missing(first, gaps[0]), *_missing(second, gaps[1])))


def _first_difference(ours: Iterator[Stored], others: Iterator[Stored]) -> RecordingDiff:
    contents = Correspondence()
    shared = 0
    while True:
        mine, theirs = next(ours, None), next(others, None)
        if mine is None and theirs is None:
            return RecordingDiff(shared, None)
        if mine is None or theirs is None:
            one, other = ("nothing more" if each is None else describe(each) for each in (mine, theirs))
            return RecordingDiff(shared, "one of them ends here", one, other)
        if not _same(contents, mine, theirs):
            what = type(mine).__name__ if type(mine) is type(theirs) else "what happens"
            return RecordingDiff(shared, what, describe(mine), describe(theirs))
        shared += 1


def _missing(recording: Recording, gaps: Sequence[str]) -> Iterator[str]:
    for gap in gaps[:GAPS_MAX]:
        yield f"{recording.path}: {gap}"
    if len(gaps) > GAPS_MAX:
        yield f"{recording.path}: … and {len(gaps) - GAPS_MAX} more gaps"
    if recording.ended:
        yield f"{recording.path}: {recording.ended}"


def _calls(records: Iterator[Stored], gaps: list[str], is_older: bool) -> Iterator[Stored]:
    """What is compared: if one ``is_older``, what both have. What was not recorded goes to ``gaps``, as far as read."""
    passed = 0
    for record in records:
        if isinstance(record, Restart) and passed:
            gaps.append(f"after call {passed - 1}, at least {record.lost} calls are missing: {record.because}")
        if isinstance(record, Step):
            record = msgspec.structs.replace(record, since_start_ms=0)
        if is_older and isinstance(record, Freed):
            after = msgspec.structs.replace(record.after, tail=record.after.tail[:FREED_TAIL_BEFORE])
            record = msgspec.structs.replace(record, because="", after=after)
        passes_over = (Checkpoint, Restart, End, *((Sent, Published, Forgotten, Raised) if is_older else ()))
        if not isinstance(record, passes_over):
            passed += 1
            yield record


def _same(contents: Correspondence, one: Stored, other: Stored) -> bool:
    if (isinstance(one, Arrived) and isinstance(other, Arrived)) or (isinstance(one, Grew) and isinstance(other, Grew)):
        digests = one.digests, other.digests
        one, other = (msgspec.structs.replace(each, digests=[]) for each in (one, other))
        return one == other and len(digests[0]) == len(digests[1]) and all(map(contents.relate, *digests))
    return one == other
