"""Traces of engines.

Goal: a stored run is read as it was; and a file from anywhere either is a trace or ends in one message that names the
line. Method: a run with every kind of operation, stored and read; and the same file with one thing wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.gate import trace_codec
from kvgate.gate.trace_codec import level_of, trace_of, write
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.trace_lines import TOKENS_MAX
from kvgate.levels.scheduler.level import PLACES_MAX, SCHEDULER, TOKEN_MAX
from kvgate.levels.scheduler.operations import (
    OPERATIONS,
    Close,
    Collect,
    GrammarReady,
    Lost,
    Operation,
    PauseEngine,
    ResetCache,
    ResetEncoder,
    Serve,
    Stage,
)
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Continue, Run, Transferred
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16), Group("sliding_window", 16, 32))), blocks=14, drafts_max=2)
STAGE = Stage(3, asynchronous=True, by_priority=True, connector=True, long_prefill_tokens=7)
PERFORMED: tuple[Operation, ...] = (
    Submit(Arrive(0, (Run(0, 9), Run(50, 2)), Keys("salt")), 4, external_tokens=3, loads=True, sends=True),
    Serve(Arrive(1, (Run(0, 5),)), 2, priority=1, structured=True, undecided=2, fails_from_block=0),
    GrammarReady(1),
    Step((Reply(1, 70, 2), Reply(ends=True))),
    Collect(),
    Transferred(0, succeeded=False),
    Lost(1),
    Continue(1, (Run(60, 2), Run(0, 1))),
    Close(1),
    ResetEncoder(),
    ResetCache(preempts=True, connector=True),
    PauseEngine(running=True),
    Abort(1),
)
CASE = SCHEDULER.case(SETTINGS, PERFORMED, STAGE, model="hybrid", preset="tiny", seed="0/7")
FOUND = Divergence(5, None, "line", Difference("KV-LIVE-01", "the line", "one", "another"))
LAST = len(PERFORMED) + 1
"""The last line of the file."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The run, stored."""
    path = tmp_path / "deep" / "trace.jsonl"
    write(trace_of(CASE, FOUND, "stock", "0.20.2", SCHEDULER.gate), path)
    return path


def test_every_kind_of_operation_is_in_the_run() -> None:
    """The control of all that follows."""
    assert set(OPERATIONS) == set(map(type, PERFORMED))


def test_what_is_stored_is_read(path: Path) -> None:
    """The run, where it came from, and what it shows."""
    trace = trace_codec.read(path, SCHEDULER)
    assert CASE == trace.case
    header = trace.header
    assert ("stock", "0.20.2", SCHEDULER.gate) == (header.system, header.system_version, header.detectors)
    assert header.violates is not None
    assert ("line", "KV-LIVE-01") == (header.violates.detector, header.violates.statement)
    assert level_of(path, [SCHEDULER])


def test_what_is_at_its_default_need_not_be_said(path: Path) -> None:
    """A case written by hand may leave out defaults."""
    lines = path.read_text().splitlines()[:1]
    path.write_text("\n".join([*lines, '{"operation": "Step"}', '{"operation": "Collect"}']) + "\n")
    assert (Step(), Collect()) == trace_codec.read(path, SCHEDULER).operations


def spoilt(path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the document in one line of the file, the first of which is 1."""
    lines = path.read_text().splitlines()
    document = json.loads(lines[number - 1])
    change(document)
    lines[number - 1] = json.dumps(document)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, lambda it: it.update(level="blocks"), 'line 1: not the trace of an engine: "format" has to be'),
        (1, lambda it: it.update(version=6), "line 1: version 6; this kvgate reads 1 to 5"),
        (1, lambda it: it.update(version=True), "line 1: version True; this kvgate reads 1 to 5"),
        (1, lambda it: it.update(detectors=["check"]), 'line 1: "detectors" are one or more of lockstep'),
        (1, lambda it: it.update(detectors=[]), 'line 1: "detectors" are one or more of lockstep'),
        (1, lambda it: it["stage"].update(running_max=0), "line 1: .*running_max"),
        (
            1,
            lambda it: it["stage"].update(running_max=PLACES_MAX + 1),
            f"line 1: Stage.running_max: .*, at most {PLACES_MAX}",
        ),
        (1, lambda it: it["stage"].update(unknown=1), "line 1: .*unknown"),
        (1, lambda it: it["settings"].update(blocks=10**9), "line 1: at most .* blocks"),
        (1, lambda it: it.pop("stage"), "line 1: .*stage"),
        (2, lambda it: it.update(operation="Evict"), "line 2: unknown operation 'Evict'"),
        (2, lambda it: it.pop("operation"), "line 2: unknown operation None"),
        (2, lambda it: it.update(answers_max="4"), "line 2: .*expected int"),
        (2, lambda it: it.update(answers_max=TOKENS_MAX + 1), f"line 2: Submit.answers_max: .*, at most {TOKENS_MAX}"),
        (2, lambda it: it["arrival"]["prompt"][0].update(length=TOKENS_MAX + 1), "line 2: more than"),
        (3, lambda it: it.update(fails_from_block=-1), "line 3: .*fails_from_block"),
        (5, lambda it: it.update(replies=[]), "line 5: .*replies"),
        (5, lambda it: it["replies"][0].update(token=TOKEN_MAX + 1), f"line 5: Reply.token: .*, at most {TOKEN_MAX}"),
        (LAST, lambda it: it.update(more=1), f"line {LAST}: .*more"),
    ],
)
def test_a_line_that_is_wrong_is_named(path: Path, number: int, change: Callable[..., object], message: str) -> None:
    """With what is wrong in it."""
    spoilt(path, number, change)
    with pytest.raises(UsageError, match=message):
        trace_codec.read(path, SCHEDULER)


def test_a_file_that_is_cut_off_is_rejected(path: Path) -> None:
    """So is one that is not a trace, or is missing."""
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=f"line {LAST}: cut off"):
        trace_codec.read(path, SCHEDULER)
    path.write_text("junk\n")
    with pytest.raises(UsageError, match="line 1: not JSON"):
        level_of(path, [SCHEDULER])
    path.write_text('{"format": "kvgate-trace"}\n')
    assert level_of(path, [SCHEDULER]) is None
    with pytest.raises(UsageError, match="cannot be read"):
        trace_codec.read(path.parent / "absent", SCHEDULER)
