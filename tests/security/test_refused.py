"""Input that once ended in a traceback, a hang, or a wrong answer.

Goal: each is rejected in one message that says what was wrong. Method: the input as it was found, by fuzzing or by
reading, and a similar one that is accepted.
"""

from __future__ import annotations

import json
import stat
import tracemalloc
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.plan import FuzzPlan, manifest
from kvgate.cli.fuzz import refuse_foreign_code
from kvgate.explain.explanation import case_of, explain
from kvgate.explain.load import TOKENS_MAX, load
from kvgate.explain.plot import draw
from kvgate.explain.serving import Serving, speculation_of
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.kernel.trace_lines import TOKENS_MAX as TRACE_TOKENS_MAX
from kvgate.live.sample import Sample
from kvgate.live.server import ANSWER_BYTES_MAX, Asked, Server, first_model
from kvgate.live.shadow_metrics import shadows_of
from kvgate.shadow import status
from kvgate.shadow.adapter.sinks import sink_for
from kvgate.shadow.calls import After, Allocated, Arrived, Checkpoint, LookedUp, Restart
from kvgate.shadow.recording import Header, Writer, encoded, open_recording
from kvgate.shadow.shadow_checker import ShadowChecker
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.workload import LANES_MAX
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=4)
HEADER = Header(SETTINGS, "stock", "0.20.2", "Scheduler", 0, "engine")
GROUP = {"kind": "full", "block_size_tokens": 16}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64}
GEMMA = {**LLAMA, "model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 2}
DUMP = {"format": "kvgate-kv-cache-config", "version": 1, "groups": [GROUP]}
COMPLETION: dict[str, Any] = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 9}}


def recording(path: Path, text: bytes) -> list[object]:
    """The result of reading a recording with the bytes ``text``, which need not be text."""
    writer = Writer(path, HEADER)
    payload = encoded([Restart(1, "because")])
    assert b"\xa7because" in payload
    writer.append(payload.replace(b"because", text))
    writer.close()
    return list(open_recording(path).records())


def test_text_in_a_recording_that_is_none(tmp_path: Path) -> None:
    """Goal: the decoder's own errors do not escape. Method: bytes that are not UTF-8, after correct checksums."""
    assert [Restart(1, "anyhows")] == recording(tmp_path / "a", b"anyhows")
    with pytest.raises(UsageError, match="record 0, at byte"):
        recording(tmp_path / "b", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9")
    assert issubclass(msgspec.ValidationError, msgspec.DecodeError)


def test_a_request_of_no_tokens_is_a_difference() -> None:
    """Goal: an operation that the reference cannot follow ends no check. Method: a look-up for a request without a
    token.
    """
    check = ShadowChecker(SETTINGS)
    for record in (Checkpoint([0] * 4, [1, 2, 3], {}, [], []), Arrived(0, 0, 0, True, [])):
        assert [] == check.follow(record)
    (found,) = check.follow(LookedUp(0, 0, [[]], False))
    assert ("KV-SYS-02", "StopIteration: ") == (found.difference.statement, found.difference.got)


def test_a_call_for_more_than_there_is_takes_no_memory() -> None:
    """Goal: a few bytes of a recording do not become gigabytes. Method: a call for two thousand million tokens."""
    check = ShadowChecker(SETTINGS)
    for record in (Checkpoint([0] * 4, [1, 2, 3], {}, [], []), Arrived(0, 20, 20, True, [])):
        assert [] == check.follow(record)
    after = After(1, 0, (3,))
    (found,) = check.follow(Allocated(0, 0, 2**31, 0, 0, 0, False, True, [[1, 2]], False, (), [], after))
    assert "tables of 134217728 entries" in found.difference.got


def test_a_model_without_groups_can_be_checked() -> None:
    """Goal: a header without groups, as of a model that attends within a step, ends no checker. Method: one request."""
    checker = ShadowChecker(Settings(Geometry(()), blocks=4))
    for record in (Checkpoint([0] * 4, [1, 2, 3], {}, [], []), Arrived(0, 20, 20, True, [])):
        assert [] == checker.follow(record)
    assert checker.is_following


def test_a_large_block_next_to_a_small_one_takes_no_memory() -> None:
    """Goal: a header of some bytes does not become gigabytes. Method: blocks of 1 and of 20 million tokens."""
    sizes = (1, TRACE_TOKENS_MAX)
    tracemalloc.start()
    try:
        ShadowChecker(Settings(Geometry(tuple(Group("full", size) for size in sizes)), blocks=4))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_speculative_config_that_nests_without_end() -> None:
    """Goal: no recursion error. Method: a hundred thousand brackets."""
    assert speculation_of('{"method": "mtp"}') is not None
    with pytest.raises(UsageError, match="is not valid JSON"):
        speculation_of("[" * 100_000)


EXPLAINED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "heads of no size": (GEMMA, {**GEMMA, "hidden_size": 1}, "keeps blocks of no bytes"),
    "a window of nothing": (GEMMA, {**GEMMA, "sliding_window": 0}, "window_tokens of at least 2"),
    "a window without end": (GEMMA, {**GEMMA, "sliding_window": 2**30}, "a block, a window, or their"),
    "requests without end": (LLAMA, {**LLAMA, "max_position_embeddings": 2**30}, "requests of 1073741824 tokens"),
    "blocks without end": (DUMP, {**DUMP, "groups": [{**GROUP, "block_size_tokens": 2**40}]}, "common multiple"),
    "blocks that never meet": (
        DUMP,
        {**DUMP, "groups": [GROUP, {**GROUP, "block_size_tokens": 99_991}, {**GROUP, "block_size_tokens": 99_989}]},
        "common multiple",
    ),
    "states of two sizes": (
        DUMP,
        {**DUMP, "groups": [{"kind": "mamba", "states": "align", "block_size_tokens": size} for size in (16, 32)]},
        "blocks of the same size",
    ),
}


@pytest.mark.parametrize(("sound", "bad", "message"), EXPLAINED.values(), ids=EXPLAINED)
def test_a_model_that_cannot_be_explained(
    sound: dict[str, Any], bad: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Goal: neither a traceback nor hours. Method: each together with a model that differs in it alone."""
    path = tmp_path / "config.json"

    def explained(document: dict[str, Any]) -> object:
        path.write_text(json.dumps(document))
        return explain(case_of(lambda serving: load(str(path), serving), Serving()))

    assert explained(sound)
    with pytest.raises(UsageError, match=message):
        explained(bad)
    assert TOKENS_MAX > 10_485_760, "the longest published context"


@pytest.mark.parametrize("name", ["version", "retention", "kv_cache_dtype", "enable_prefix_caching", "dtype_bytes"])
def test_flags_of_a_report_are_of_their_kind(name: str) -> None:
    """Goal: a file's flags have the right type. Method: a list for each of them."""
    assert Serving()
    with pytest.raises((TypeError, UsageError)):
        Serving(**cast("dict[str, Any]", {name: []}))


def test_a_file_called_like_a_formula_can_be_drawn(tmp_path: Path) -> None:
    """Goal: a name is text. Method: a name that is bad mathematics."""
    path, plot = tmp_path / "$\\frac{$x.json", tmp_path / "plot.svg"
    path.write_text(json.dumps({"groups": [GROUP]}))
    draw(explain(case_of(lambda serving: load(str(path), serving), Serving())), plot)
    assert "$\\frac{$x" in plot.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        "replays:others=100000000",
        "prefixes:rounds=100000000",
        "repeat-rate:prompts=100000000",
        "repeat-rate:lanes=100000000",
        "fractions:prompts=100000000",
        "agents:sessions=100000000",
    ],
)
def test_a_workload_without_end(words: str) -> None:
    """Goal: a slip of the keyboard costs no memory. Method: many requests; a few of the same are the control."""
    assert workload_of(f"{words.partition(':')[0]}:lanes=2")
    with pytest.raises(UsageError, match="requests: at most 200,000 are made"):
        workload_of(words)


@pytest.mark.parametrize("name", ["agents", "replays", "repeat-rate:prompts=4", "prefixes", "fractions"])
def test_lanes_without_end(name: str) -> None:
    """Goal: the same where it is clients that are many. Method: as many as there may be, and one more."""
    words = f"{name}{',' if ':' in name else ':'}lanes="
    assert LANES_MAX == workload_of(f"{words}{LANES_MAX}").lanes
    with pytest.raises(UsageError, match=f"lanes.*{LANES_MAX}"):
        workload_of(f"{words}{LANES_MAX + 1}")


def test_a_talk_without_end() -> None:
    """Goal: the same where few requests are long. Method: one session of many turns, rejected by its specification."""
    assert workload_of("agents:sessions=1,turns=1000")
    with pytest.raises(UsageError, match="1 sessions of 5,000 turns: every turn repeats all before it"):
        workload_of("agents:sessions=1,turns=5000")


def server(content: bytes) -> Server:
    """A server that always says the same."""
    http = httpx.Client(
        base_url="http://a", transport=httpx.MockTransport(lambda _: httpx.Response(200, content=content))
    )
    return Server("http://a", http, "a", 600)


def said(**changes: Any) -> bytes:
    """A completion, with something else in it."""
    return json.dumps({**COMPLETION, **changes}).encode()


ANSWERS: dict[str, bytes] = {
    "no JSON": b"<html>",
    "too deep": b"[" * 100_000,
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "usage that is a list": said(usage=[1]),
    "details that are a list": said(usage={"prompt_tokens": 9, "prompt_tokens_details": [1]}),
    "cached in words": said(usage={"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": "8"}}),
    "no prompt": said(usage={"prompt_tokens": 0}),
    "an infinite prompt": b'{"choices": [{"text": "a"}], "usage": {"prompt_tokens": 1e999}}',
    "log-probabilities that are a list": said(choices=[{"text": "a", "logprobs": [1]}]),
    "a log-probability that is none": said(
        choices=[{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [0]}}]
    ).replace(b"[0]", b"[NaN]"),
    "an answer without end": b" " * (ANSWER_BYTES_MAX + 1),
}


@pytest.mark.parametrize("content", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_none(content: bytes) -> None:
    """Goal: exit 3 and a message, and never a difference that is not seen. Method: one flaw each; none as a control."""
    assert 9 == server(said()).complete(Asked("a", "s", 1)).prompt_tokens
    with pytest.raises(SystemUnavailableError, match=r"http://a/|not a completion"):
        server(content).complete(Asked("a", "s", 1))


def test_models_and_metrics_that_are_none() -> None:
    """Goal: the same for what else a server says. Method: numbers that are none, and lines that are none."""
    assert ("a", 7, ()) == first_model(server(b'{"data": [{"id": "a", "max_model_len": 7}]}'))
    for content in (b'{"data": [{"id": "a", "max_model_len": Infinity}]}', b'{"data": [[]]}', b"{}"):
        with pytest.raises(SystemUnavailableError, match="no list of models"):
            first_model(server(content))
    assert (Sample("a", {}, 1.0),) == server(b"a 1\n").metrics()
    for content in (b'a{b="c 1\n', b"a b c d\n", b"\xff 1\n"):
        with pytest.raises(SystemUnavailableError, match="no metrics"):
            server(content).metrics()
    with pytest.raises(SystemUnavailableError, match="no count"):
        shadows_of([Sample("kvgate_shadow_calls_total", {}, float("nan"))])


def test_a_folder_names_no_code_of_its_own(tmp_path: Path) -> None:
    """Goal: continuing a run in a folder from others runs no code of theirs. Method: plans that name some, and none."""
    patched = FuzzPlan("stock", preloads=("/a/patch.py",))
    for plan, sut, preloads, message in (
        (FuzzPlan("stock"), "stock", (), ""),
        (FuzzPlan("mine:build"), "stock", (), "say so: --sut mine:build"),
        (FuzzPlan("mine:build"), "mine:build", (), ""),
        (patched, "stock", (), "say so: --preload /a/patch.py"),
        (
            FuzzPlan("stock", preloads=("/a/patch.py",)),
            "stock",
            (Path("/b/patch.py"),),
            "say so: --preload /a/patch.py",
        ),
        (patched, "stock", (Path("/a/patch.py"),), ""),
    ):
        folder = RunFolder(tmp_path)
        (tmp_path / "manifest.json").write_text(manifest(plan))
        if message:
            with pytest.raises(UsageError, match=message):
                refuse_foreign_code(folder, sut, preloads)
        else:
            refuse_foreign_code(folder, sut, preloads)


def test_a_shadow_is_for_its_owner(tmp_path: Path) -> None:
    """Goal: only the owner can read what a shadow writes. Method: a folder that is new, a status, and a recording."""
    folder = tmp_path / "shadow"
    sink_for(Switch(Mode.RECORD, dir=folder), SETTINGS, "stock", "Scheduler").close()
    status.write(folder, status.Status("engine", "record", 1))
    Writer(folder / "a.kvrec", HEADER).close()
    assert 0o700 == mode_of(folder)
    assert (0o600, 0o600) == (mode_of(folder / "a.kvrec"), mode_of(status.path_of(folder, "engine")))


def mode_of(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)
