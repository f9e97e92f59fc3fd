"""Recorded traces become workloads.

Goal: two prompts of a workload share exactly as many tokens as their trace says, and a file that is not a trace is
rejected with its line. Method: small files of both formats, compared with prompts that were written out; junk of every
kind; and the public files themselves.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from kvgate.kernel.errors import UsageError
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.traces.mooncake import mooncake
from kvgate.simulation.traces.weka import weka
from kvgate.simulation.workload import Workload, common_tokens

PUBLIC = Path(__file__).parents[3] / "difftest" / "traces"
CHATS = [
    {"timestamp": 0, "input_length": 1000, "output_length": 7, "hash_ids": [4, 5]},
    {"timestamp": 9, "input_length": 1536, "output_length": 0, "hash_ids": [4, 5, 9]},
    {"timestamp": 9, "input_length": 600, "output_length": 2, "hash_ids": [4, 6]},
]
SESSION: dict[str, Any] = {
    "id": "a",
    "bs": 64,
    "requests": [
        {"t": 0.0, "i": 130, "o": 5, "h": [[1, 2]]},
        {"t": 1.0, "type": "subagent", "requests": []},
        {"t": 2.0, "i": 256, "o": 9, "h": [[1, 2], [7, 2]]},
        {"t": 3.0, "i": 192, "o": 9, "h": [[1, 1], [7, 2]]},
    ],
}


def written(folder: Path, documents: list[Any], packed: bool = False) -> str:
    """A trace file."""
    raw = "\n".join(map(json.dumps, documents)).encode() + b"\n\n"
    path = folder / ("trace.jsonl.xz" if packed else "trace.jsonl")
    path.write_bytes(lzma.compress(raw) if packed else raw)
    return str(path)


def shared(workload: Workload, one: tuple[int, int], other: tuple[int, int]) -> int:
    """How many tokens two prompts share, each named by session and turn."""
    first, second = (workload.sessions[session].turns[turn].prompt for session, turn in (one, other))
    return common_tokens(first, second)


@pytest.mark.parametrize("packed", [False, True])
def test_chats_share_what_their_ids_say(tmp_path: Path, packed: bool) -> None:
    """Goal: equal ids are equal tokens. Method: three prompts; the second continues after the first one's
    last block.
    """
    workload = mooncake(written(tmp_path, CHATS, packed), lanes=2)
    assert [1000, 1536, 600] == [session.turns[0].prompt_tokens for session in workload.sessions]
    assert [7, 1, 2] == [session.turns[0].answers.length for session in workload.sessions]
    assert 1000 == shared(workload, (0, 0), (1, 0))
    assert 512 == shared(workload, (0, 0), (2, 0))
    assert 2 == workload.lanes


def test_pauses_are_as_recorded(tmp_path: Path) -> None:
    """Goal: a pause in steps, rounded up, if asked for. Method: steps of 300 ms; a value that is not a time
    is rejected.
    """
    thought = [{**each, "th": 0.7} for each in SESSION["requests"]]
    path = written(tmp_path, [{**SESSION, "requests": thought}])
    assert [0, 0, 0] == [turn.pause_steps for turn in weka(path).sessions[0].turns]
    workload = weka(path, step_ms=300)
    assert [3, 3, 3] == [turn.pause_steps for turn in workload.sessions[0].turns]
    assert "pauses as recorded, if a step takes 300 ms" in workload.about
    unknown = [{**each, "th": None} for each in thought]
    assert [0] == [
        turn.pause_steps
        for turn in weka(written(tmp_path, [{**SESSION, "requests": unknown[:1]}]), step_ms=1).sessions[0].turns
    ]
    for wrong in (-1, "1", True, float("nan"), 1e99):
        path = written(tmp_path, [{**SESSION, "requests": [{**thought[0], "th": wrong}]}])
        with pytest.raises(UsageError, match="line 1: 'th' must be the seconds before a request"):
            weka(path, step_ms=300)
    assert [0, 0, 0] == [turn.pause_steps for turn in weka(written(tmp_path, [SESSION]), step_ms=300).sessions[0].turns]


def test_turns_share_what_their_ids_say(tmp_path: Path) -> None:
    """Goal: ids count from the first on, within a session. Method: a middle block is left out; a second session."""
    workload = weka(written(tmp_path, [SESSION, SESSION]))
    assert [130, 256, 192] == [turn.prompt_tokens for turn in workload.sessions[0].turns]
    assert 128 == shared(workload, (0, 0), (0, 1))
    assert 64 == shared(workload, (0, 1), (0, 2))
    assert 0 == shared(workload, (0, 0), (1, 0))


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    """Goal: as much is taken as was asked for. Method: every limit of both readers."""
    chats, agents = written(tmp_path, CHATS), Path(tmp_path, "agents.jsonl")
    agents.write_text("\n".join([json.dumps(SESSION)] * 3))
    assert 2 == workload_of(f"mooncake:file={chats},requests=2").requests
    assert 4 == workload_of(f"weka:file={agents},sessions=2,turns=2,lanes=1").requests
    assert 3 == workload_of(f"weka:file={agents},skip=2").requests
    some = workload_of(f"weka:file={agents},skip=1,requests=4")
    assert (4, 6, 4) == (some.requests, sum(len(each.turns) for each in some.sessions), some.requests_max)
    # The second turn would be longer, and so the session ends before it.
    assert 3 == workload_of(f"weka:file={agents},tokens_max=200").requests
    with pytest.raises(UsageError, match="no session in it of at least 4 turns"):
        workload_of(f"weka:file={agents},turns_min=4")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_length": 0}, "'input_length' must be a whole number from 1"),
        ({"input_length": True}, "'input_length' must be"),
        ({"input_length": 1025}, "2 blocks of 512 tokens do not hold a prompt of 1025 tokens"),
        ({"output_length": -1}, "'output_length' must be"),
        ({"hash_ids": [4, -5]}, "'hash_ids' must be a list"),
        ({"hash_ids": [4, 1 << 60]}, "'hash_ids' must be a list"),
        ({"hash_ids": "45"}, "'hash_ids' must be a list"),
    ],
)
def test_what_is_not_a_chat_is_rejected(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """Goal: one message that names the line. Method: the second line changed in one place."""
    with pytest.raises(UsageError, match="line 2: ") as caught:
        mooncake(written(tmp_path, [CHATS[0], {**CHATS[0], **change}]))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"i": 130, "o": 1, "h": [[1, 3]]}, "3 blocks of 64 tokens for a prompt of 130 tokens"),
        ({"i": 130, "o": 1, "h": [[1]]}, "'h' must be a list of [first, count]"),
        ({"i": 130, "o": 1, "h": [[-1, 2]]}, "ids must be from 0"),
        ({"i": 130, "o": 1}, "'h' must be a list"),
        ({"i": "130", "o": 1, "h": [[1, 2]]}, "'i' must be a whole number"),
        (7, "'requests' must be a list of objects"),
    ],
)
def test_what_is_not_a_session_is_rejected(tmp_path: Path, request_: object, said: str) -> None:
    """Goal: one message that names the line. Method: one request that is not what it should be."""
    with pytest.raises(UsageError, match="line 1: ") as caught:
        weka(written(tmp_path, [{**SESSION, "requests": [request_]}]))
    assert said in str(caught.value)


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    """Goal: no traceback. Method: no file, an empty one, no JSON, a list, and xz that ends early."""
    path = tmp_path / "trace"
    with pytest.raises(UsageError, match="cannot be read"):
        mooncake(str(path))
    for raw, said in (
        (b"", "no request in it"),
        (b"{", "line 1: not JSON"),
        (b"[]", "line 1: not an object"),
        (lzma.compress(b"{}\n" * 1000)[:-20], "cannot be unpacked"),
    ):
        path.write_bytes(raw)
        with pytest.raises(UsageError, match=said):
            mooncake(str(path))


def test_a_trace_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a small file cannot fill the memory. Method: a limit that the unpacked trace exceeds, the file does not."""
    monkeypatch.setattr("kvgate.simulation.traces.lines.BYTES_MAX", 10_000)
    file = written(tmp_path, [CHATS[0]] * 1000, packed=True)
    with pytest.raises(UsageError, match="unpacks to more than 10000 bytes"):
        mooncake(file)


def test_the_public_files_are_the_published_ones() -> None:
    """Goal: the replayed files are those of the README. Method: the digests it names, and that each can be read."""
    for line in (PUBLIC / "README.md").read_text().split("```")[1].split("\n"):
        if line:
            digest, name = line.split()
            assert digest == hashlib.sha256((PUBLIC / name).read_bytes()).hexdigest()
    assert 300 == mooncake(str(PUBLIC / "mooncake_fast25_conversation_trace.jsonl.xz"), 300).requests
    assert 300 == mooncake(str(PUBLIC / "mooncake_fast25_synthetic_trace.jsonl.xz"), 300).requests
    assert 20 == weka(str(PUBLIC / "weka_kv-cache-tester_710traces.rle.jsonl.xz"), 4, 5).requests
