"""Logs of requests, and recordings of a live engine, become workloads.

Goal: two prompts share as many tokens as they did where they were logged, including quoted answers; a file that is not
a log is rejected with its line. Method: small files with known prompts; a recording of them written by the shadow's own
code.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvgate.campaigns.recorded_workload import recorded
from kvgate.cli.app import app
from kvgate.kernel.errors import UsageError
from kvgate.report.document import from_json
from kvgate.report.simulations import results_of
from kvgate.shadow.calls import Appended, Arrived, Arriving, Checkpoint, End, Grew, Raw, Restart, Stored
from kvgate.shadow.recording import Header, Writer, encoded
from kvgate.shadow.salting import TOKEN, Salting
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.traces.requests import requests_log
from kvgate.simulation.workload import Workload, common_tokens, cut, joined
from kvreference.geometry import Geometry, Group
from kvreference.operations import Run
from kvreference.settings import Settings

SYSTEM = "You are a helpful assistant that answers in one sentence. " * 4
LOG: list[dict[str, Any]] = [
    {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Why?"}], "max_tokens": 9},
    {
        "custom_id": "2",
        "body": {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "How?"}]},
        "usage": {"prompt_tokens": 70, "completion_tokens": 5},
    },
    {"prompt": [*range(20), 4, 5], "max_completion_tokens": 1},
    {"prompt": [*range(20), 9], "max_tokens": 2},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"}]}], "max_tokens": 1},
]
HEADER = Header(Settings(Geometry((Group("full", 16),)), blocks=4), "stock", "0.20.2", "Scheduler", 0, "engine-1")
START: Raw = Checkpoint([0, 0, 0, 0], [1, 2, 3], {}, [], [])


def log(folder: Path, *documents: object) -> str:
    """A log with a line for each."""
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, documents)))
    return str(path)


def shared(workload: Workload, one: int, other: int) -> int:
    """How many tokens two prompts share."""
    first, second = (workload.sessions[place].turns[0].prompt for place in (one, other))
    return common_tokens(first, second)


def test_a_log_shares_what_its_texts_share(tmp_path: Path) -> None:
    """Four characters are a token; token ids are themselves; prompts share whole grains."""
    workload = requests_log(log(tmp_path, *LOG), lanes=3)
    turns = [session.turns[0] for session in workload.sessions]
    head = len(f"<system>{SYSTEM}<user>")
    assert head // 64 * 16 == shared(workload, 0, 1) > 0
    assert [16, 0] == [shared(workload, 2, 3), shared(workload, 0, 2)]
    assert [-(-(head + 4) // 4), 22, 21] == [turns[place].prompt_tokens for place in (0, 2, 3)]
    assert [9, 5, 1, 2, 1] == [turn.answers.length for turn in turns]
    assert (3, 3) == (workload.lanes, -(-len("<user>See ") // 4))
    assert 2 == workload_of(f"requests:file={log(tmp_path, *LOG)},requests=2").requests


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"messages": []}, "how much was answered is not known"),
        ({"max_tokens": 1}, "needs 'messages', or a 'prompt'"),
        ({"messages": ["hi"], "max_tokens": 1}, "'messages' must be a list of objects"),
        ({"messages": [], "prompt": ["a", 1], "max_tokens": 1}, "needs 'messages', or a 'prompt'"),
        ({"prompt": "hi", "max_tokens": 0}, "'max_tokens' must be a whole number from 1"),
        ({"prompt": "hi", "usage": {}}, "'completion_tokens' must be a whole number"),
        ({"body": 3}, "'body' must be an object"),
    ],
)
def test_a_line_that_is_not_a_request(document: object, message: str, tmp_path: Path) -> None:
    """It is named by its number."""
    with pytest.raises(UsageError, match=f"line 2: {message}"):
        requests_log(log(tmp_path, LOG[0], document))


def test_an_empty_log(tmp_path: Path) -> None:
    """One message."""
    with pytest.raises(UsageError, match="no request in it"):
        requests_log(log(tmp_path))


def test_what_makes_prompts_differ(tmp_path: Path) -> None:
    """Another image, another call of a tool, other tools, another model, and another salt."""
    same = [{"role": "user", "content": SYSTEM}]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": name}]} for name in ("a", "b")]
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"name": name}]} for name in ("a", "b")]
    workload = requests_log(
        log(
            tmp_path,
            *({"messages": [each, *same], "max_tokens": 1} for each in (*image, *calls)),
            {"messages": same, "max_tokens": 1},
            {"messages": same, "max_tokens": 1, "tools": [{"name": "a"}]},
            {"messages": same, "max_tokens": 1, "model": "an-adapter"},
            {"messages": same, "max_tokens": 1, "cache_salt": "mine"},
            {"messages": same, "usage": None},
            {"messages": same},
        ),
        answer_tokens=3,
    )
    assert [0] * 6 == [shared(workload, *pair) for pair in ((0, 1), (2, 3), (4, 5), (4, 6), (4, 7), (6, 7))]
    assert (
        workload.sessions[4].turns[0].prompt
        == workload.sessions[8].turns[0].prompt
        == workload.sessions[9].turns[0].prompt
    )
    assert 3 == workload.sessions[9].turns[0].answers.length


# Recordings


def recording(path: Path, steps: list[list[Raw]], header: Header = HEADER) -> str:
    """Calls as an engine makes them, salted and written as the sidecar does."""
    salting = Salting(16, (16,), b"a salt")
    writer = Writer(path, header)
    last: list[Raw] = [End()]
    for step in [[START], *steps, last]:
        writer.append(encoded(salting.salted(list(step))))
    writer.close()
    return str(path)


def arriving(number: int, tokens: list[int], salt: str | None = None) -> Raw:
    """A request with its prompt."""
    return Arriving(number, array(TOKEN, tokens).tobytes(), len(tokens), True, salt)


FIRST = [*range(100, 140)]
ANSWER = [*range(900, 930)]


def test_a_recording_shares_what_was_shared(tmp_path: Path) -> None:
    """Up to a whole grain: a system prompt, and an answer that the next turn quotes; not past a salt."""
    steps: list[list[Raw]] = [
        [arriving(0, FIRST)],
        [Appended(0, ANSWER[:7]), Appended(0, ANSWER[7:])],
        [arriving(1, [*FIRST, *ANSWER, 7, 8, 9])],
        [arriving(2, [*FIRST[:32], 1, 2, 3]), arriving(3, FIRST, "another")],
    ]
    workload = recorded(recording(tmp_path / "a.kvrec", steps), lanes=2)
    turns = [session.turns[0] for session in workload.sessions]
    assert [40, 73, 35, 40] == [turn.prompt_tokens for turn in turns]
    assert [30, 1, 1, 1] == [turn.answers.length for turn in turns]
    assert 64 == common_tokens((*turns[0].prompt, turns[0].answers), turns[1].prompt)
    assert [32, 32, 0] == [shared(workload, 1, 2), shared(workload, 0, 2), shared(workload, 0, 3)]
    assert 2 == recorded(str(tmp_path / "a.kvrec"), requests=2).requests


def test_the_simulation_hits_what_was_shared(tmp_path: Path) -> None:
    """By the command, of a folder with a recording."""
    recording(tmp_path / "a.kvrec", [[arriving(0, FIRST), Appended(0, ANSWER)], [arriving(1, [*FIRST, *ANSWER, 7])]])
    asked = ["simulate", f"recording:file={tmp_path},lanes=1", "--model", "full", "--blocks", "90", "--format", "json"]
    ended = CliRunner().invoke(app, asked, catch_exceptions=False)
    (result,) = results_of(from_json(ended.stdout, "out"), "out")
    assert (0, 64) == (ended.exit_code, result.hit_tokens)


def test_what_was_lost_is_said(tmp_path: Path) -> None:
    """A checkpoint after a gap has all of a request; parts that are missing, and a cut end, are named."""
    salting = Salting(16, (16,), b"a salt")
    whole = [*FIRST, *ANSWER, *range(500, 520)]
    salted = salting.salted([arriving(0, whole)])
    (later,) = salted
    assert isinstance(later, Arrived)
    before = Arrived(0, 40, 40, True, later.digests[:2])
    at_gap = Checkpoint([0, 0, 0, 0], [1, 2, 3], {}, [], [], {}, [Arrived(0, 70, 40, True, later.digests[:4])])
    steps: list[list[Stored]] = [
        [before],
        [Restart(3, "the ring was full"), at_gap],
        [Grew(0, 90, later.digests[4:])],
        [Arrived(1, 90, 90, True, later.digests)],
    ]
    first = Writer(tmp_path / "a.kvrec", HEADER)
    for step in steps:
        first.append(encoded(step))
    first.close()
    last = Writer(tmp_path / "b.kvrec", Header(HEADER.settings, "stock", "0.20.2", "Scheduler", 2, "engine-1"))
    last.append(encoded([Arrived(2, 20, 20, True, [])]))
    last.append(encoded([End()]))
    last.close()
    workload = recorded(str(tmp_path))
    turns = [session.turns[0] for session in workload.sessions]
    assert [50, 1, 1] == [turn.answers.length for turn in turns]
    assert 80 == common_tokens((*turns[0].prompt, turns[0].answers), turns[1].prompt)
    for each in ("3 calls or more were lost", "it was not closed", "1 parts are not here"):
        assert each in workload.about
    with pytest.raises(UsageError, match="requests must be at least 0"):
        recorded(str(tmp_path), requests=-1)


def test_what_is_not_a_recording(tmp_path: Path) -> None:
    """An empty folder, one without requests, two engines, and a file that is none."""
    with pytest.raises(UsageError, match="no recording in it"):
        recorded(str(tmp_path))
    recording(tmp_path / "a.kvrec", [])
    with pytest.raises(UsageError, match="no request in it"):
        recorded(str(tmp_path))
    other = Header(HEADER.settings, "stock", "0.20.2", "Scheduler", 0, "engine-2")
    recording(tmp_path / "b.kvrec", [[arriving(0, FIRST)]], other)
    with pytest.raises(UsageError, match="recordings of several engines"):
        recorded(str(tmp_path))
    with pytest.raises(UsageError, match="no recording"):
        recorded(log(tmp_path, {}))


def test_runs_are_cut_and_joined() -> None:
    """Every cut of some runs is the tokens between, and joining changes none."""
    runs = (Run(10, 3), Run(50, 2), Run(52, 1))
    tokens = [10, 11, 12, 50, 51, 52]
    assert (Run(10, 3), Run(50, 3)) == joined(runs)
    for start in range(7):
        for length in range(7 - start):
            found = [run.first + place for run in cut(runs, start, length) for place in range(run.length)]
            assert tokens[start : start + length] == found
