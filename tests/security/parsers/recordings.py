"""Recordings of live engines: read to their end, and checked."""

from __future__ import annotations

from pathlib import Path

from kvgate.report.document import to_json
from kvgate.report.recordings import report_of
from kvgate.report.text import text_report
from kvgate.shadow.calls import (
    After,
    Allocated,
    Arrived,
    Cached,
    Checkpoint,
    Counted,
    End,
    Evicted,
    Freed,
    Gated,
    Grew,
    LookedUp,
    Registered,
    Reset,
    Restart,
    Shared,
    Skipped,
    Standing,
    Step,
    Stored,
    Suspended,
)
from kvgate.shadow.recheck import recheck_recordings
from kvgate.shadow.recording import Header, Writer, encoded
from kvgate.shadow.recording_diff import diff_recordings
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

from .parser import Form, Parser, from_file

_HYBRID = Settings(Geometry((Group("full", 16), Group("sliding_window", 16, 32))), blocks=12, scratch_first=True)
_FULL = Settings(Geometry((Group("full", 16),)), blocks=6)
_DIGESTS = [bytes([number]) * 16 for number in range(8)]
_AFTER = After(3, 0, (3, 2, 1))


def _steps(groups: int) -> list[list[Stored]]:
    """A call of every kind, most of them as an engine would make them."""
    blocks = 5 + 6 * (groups > 1)
    empty = Checkpoint([0] * (blocks + 1), list(range(1, blocks + 1)), {}, [], [])
    tables = [[1, 2]] * groups
    runs = [Registered(0, 0, [1])]
    held = Checkpoint(
        [0, 1, 1, *[0] * (blocks - 2)],
        list(range(3, blocks + 1)),
        {1: _DIGESTS[0]},
        [],
        [Standing(0, tables, [1] * groups, True)],
        {1: (0, _DIGESTS[0])},
        [Arrived(0, 20, 20, True, _DIGESTS[:1])],
    )
    return [
        [empty, Step(1, 0), Arrived(0, 20, 20, True, _DIGESTS[:1])],
        [LookedUp(0, 0, [[]] * groups, False), Gated(0, 0, 0, 0, True)],
        [Allocated(0, 0, 20, 0, 0, 0, False, True, tables, False, (0,) * (groups - 1), runs, After(3, 1, (5, 4, 3)))],
        [Step(2, 5), Grew(0, 21), Allocated(0, 20, 1, 0, 0, 0, False, False, [[]] * groups, False, (0,), [], _AFTER)],
        [Cached(0, 20, runs, _AFTER), Skipped(0, 20, (0,), _AFTER), Shared(0, [1] * groups), held],
        [Counted(1, 20, 0, 0, 0, 0, False), Evicted([1], _AFTER), Reset(False, _AFTER)],
        [Freed(0, True, _AFTER), Suspended("why"), Restart(3, "why"), empty, End()],
    ]


def _seeds(folder: Path) -> list[bytes]:
    found = []
    for number, settings in enumerate((_FULL, _HYBRID)):
        writer = Writer(folder / f"seed-{number}", Header(settings, "stock", "0.20.2", "Scheduler", 0, "engine"))
        for step in _steps(len(settings.geometry.groups)):
            writer.append(encoded(step))
        writer.close()
        found.append(writer.path.read_bytes())
    return found


def _judge(path: Path) -> None:
    rejudged = recheck_recordings(path, lambda _text: None)
    report = report_of(rejudged)
    text_report(report)
    to_json(report)


RECORDINGS = (
    Parser("recording", "recording of an engine, judged", Form.FRAMES, _seeds, from_file(_judge)),
    Parser("diff", "the same, compared", Form.FRAMES, _seeds, from_file(lambda path: diff_recordings(path, path))),
)
