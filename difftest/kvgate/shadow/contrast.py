"""Two recordings, compared call by call: the first thing that they do not share.

Their salts differ, so content is compared by a one-to-one correspondence of digests. When something happened, and where
checkpoints were taken, is left out: that depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from attrs import fields, frozen

from kvgate.correspondence import Correspondence
from kvgate.shadow.calls import Arrived, Checkpoint, End, Grew, Restart, Step, Stored
from kvgate.shadow.recording import open_recording
from kvgate.shadow.story import describe
from kvreference.settings import Settings


@frozen
class Contrast:
    """What two recordings share, and where they part."""

    shared: int
    """How many calls they have in common."""
    difference: str | None
    """What differs first; None if nothing does."""
    one: str = ""
    other: str = ""


def contrast(one: Path, other: Path) -> Contrast:
    """Compare two recordings.

    Raises:
        UsageError: one of them cannot be read.
    """
    first, second = open_recording(one), open_recording(other)
    for each in fields(Settings):
        mine, theirs = getattr(first.header.settings, each.name), getattr(second.header.settings, each.name)
        if mine != theirs:
            return Contrast(0, f"settings: {each.name}", str(mine), str(theirs))
    contents = Correspondence()
    ours, others = _calls(first.records()), _calls(second.records())
    shared = 0
    while True:
        mine, theirs = next(ours, None), next(others, None)
        if mine is None and theirs is None:
            return Contrast(shared, None)
        if mine is None or theirs is None:
            told = ("nothing more" if each is None else describe(each) for each in (mine, theirs))
            return Contrast(shared, "one of them ends here", *told)
        if not _same(contents, mine, theirs):
            what = type(mine).__name__ if type(mine) is type(theirs) else "what happens"
            return Contrast(shared, what, describe(mine), describe(theirs))
        shared += 1


def _calls(records: Iterator[Stored]) -> Iterator[Stored]:
    for record in records:
        if isinstance(record, Step):
            yield msgspec.structs.replace(record, since_start_ms=0)
        elif not isinstance(record, (Checkpoint, Restart, End)):
            yield record


def _same(contents: Correspondence, one: Stored, other: Stored) -> bool:
    if (isinstance(one, Arrived) and isinstance(other, Arrived)) or (isinstance(one, Grew) and isinstance(other, Grew)):
        digests = one.digests, other.digests
        one, other = (msgspec.structs.replace(each, digests=[]) for each in (one, other))
        return one == other and len(digests[0]) == len(digests[1]) and all(map(contents.relate, *digests))
    return one == other
