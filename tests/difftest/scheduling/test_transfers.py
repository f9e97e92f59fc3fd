"""Other nodes, with a connector that transfers nothing.

Goal: blocks that other nodes write or read are held as long as they do, and what a load does not bring is computed.
Method: vLLM's scheduler followed by the reference at every decision; its known findings, shown; and the scheduler
broken, one thing at a time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from tests.published import published

from kvgate.adapters.releases import release_named
from kvgate.gate.trace_codec import trace_of, write
from kvgate.levels.scheduler.adapter.connector import FakeConnector
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.nodes import OtherNodes
from kvgate.levels.scheduler.operations import Lost, Operation, Serve, Stage
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Rewind, Run, Sample, Transferred
from kvreference.settings import Settings

from .stage import HYBRID, found, full, serve, steps, undeclared

CONNECTED = Stage(connector=True)
WINDOWS = Settings(HYBRID, blocks=200, tokens_max=1024, chunk_tokens=512)
EXTERNAL = {"external_tokens": 96}

FOLLOWED: dict[str, tuple[Operation, ...]] = {
    "loaded within the step": (serve(0, 200, **EXTERNAL), *steps(6)),
    "loaded while waiting": (serve(0, 200, loads=True, **EXTERNAL), *steps(3), Transferred(0), *steps(6)),
    "a whole prompt": (serve(0, 96, loads=True, **EXTERNAL), *steps(1), Transferred(0), *steps(6)),
    "behind a hit": (
        serve(0, 100),
        *steps(6),
        serve(1, 300, family=0, loads=True, **EXTERNAL),
        *steps(2),
        Transferred(1),
        *steps(6),
    ),
    "nothing of it came": (serve(0, 200, loads=True, **EXTERNAL), *steps(1), Transferred(0, False), *steps(6)),
    "undecided at first": (serve(0, 200, undecided=3, **EXTERNAL), serve(1, 40), *steps(9)),
    "read at the end": (serve(0, 200, 2, sends=True), *steps(6), Transferred(0), *steps(2)),
    "read for long": (serve(0, 200, 2, sends=True), *steps(4), serve(1, 200, family=0), *steps(6), Transferred(0)),
    "aborted while it loads": (
        serve(0, 200, loads=True, **EXTERNAL),
        *steps(1),
        Abort(0),
        *steps(2),
        Transferred(0),
        *steps(2),
    ),
    "aborted when it has loaded": (serve(0, 200, loads=True, **EXTERNAL), *steps(1), Transferred(0), Abort(0)),
    "aborted before anybody looks": (
        serve(0, 200, loads=True, **EXTERNAL),
        *steps(1),
        Transferred(0),
        *steps(1),
        Abort(0),
        *steps(2),
    ),
}


# With several groups, vLLM 0.20.2 cannot be notified of a failed load: see below.
RUNS = [(full(60), name) for name in FOLLOWED] + [(WINDOWS, name) for name in FOLLOWED if name != "nothing of it came"]


@pytest.mark.parametrize(("settings", "name"), RUNS)
def test_the_reference_follows(settings: Settings, name: str) -> None:
    """To the end of the run, and nothing differs that is not declared."""
    engine = Engine(settings, CONNECTED)
    assert [] == undeclared(engine, FOLLOWED[name])
    assert engine.lockstep.reference is not None


@pytest.mark.parametrize("loads", [True, False], ids=["while waiting", "within the step"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "computes"])
def test_what_a_load_does_not_bring_is_computed(loads: bool, ends: bool) -> None:
    """Or the request ends with an error. The reference follows either."""
    engine = Engine(full(60), Stage(connector=True, failed_loads_end=ends))
    operations: tuple[Operation, ...] = (
        serve(0, 200, loads=loads, fails_from_block=2, **EXTERNAL),
        *steps(1),
        Transferred(0),
        *steps(9),
    )
    assert [] == undeclared(engine, operations)
    assert engine.lockstep.reference is not None
    answered = [each for each in engine.lockstep.performed if type(each).__name__ == "Sample"]
    assert (0 if ends else 4) == len(answered)


FAILS = serve(0, 200, fails_from_block=2, **EXTERNAL)
KNOWN: dict[str, tuple[Settings, Stage, tuple[Operation, ...], tuple[str, str], str | None]] = {
    # vllm-project/vllm#46283: the blocks of an aborted load are never reclaimed if its end is never reported.
    "an abandoned load leaks": (
        full(65),
        CONNECTED,
        (serve(0, 800, external_tokens=368, loads=True), *steps(1), Lost(0), Abort(0), *steps(5)),
        ("leak", "KV-LEAK-01"),
        None,
    ),
    # vllm-project/vllm#50388: the tables of several groups are taken for one.
    "a failed load with several groups raises": (
        WINDOWS,
        CONNECTED,
        (FAILS, *steps(3)),
        ("scheduler", "KV-SYS-01"),
        None,
    ),
    "what is computed again is hit before": (
        full(60, chunk_tokens=64),
        Stage(connector=True, long_prefill_tokens=32),
        (FAILS, *steps(1), serve(1, 200, family=0), *steps(4)),
        ("ghost", "KV-MEM-01"),
        "021-behind-a-failed-load-stays-cached",
    ),
    "what is never computed again is hit": (
        full(60),
        CONNECTED,
        (FAILS, *steps(1), Abort(0), serve(1, 200, family=0), *steps(4)),
        ("ghost", "KV-MEM-01"),
        "021-behind-a-failed-load-stays-cached",
    ),
    "a window before what failed was never loaded": (
        Settings(Geometry((Group("sliding_window", 16, 64),)), blocks=60, tokens_max=512, chunk_tokens=512),
        CONNECTED,
        (
            serve(0, 200, external_tokens=160, loads=True, fails_from_block=8),
            *steps(1),
            Transferred(0),
            *steps(4),
        ),
        ("ghost", "KV-MEM-01"),
        "034-window-released-before-a-failed-load",
    ),
}


AHEAD = Stage(running_max=2, asynchronous=True, connector=True)


def test_a_load_that_fails_ahead_ends_its_request_alone() -> None:
    """Goal: the reference follows steps in flight after a failed load. Method: two requests run, and the load of one
    fails while a later step of both is in flight; it ends with an error, and the other one is answered.
    """
    settings = full(60, chunk_tokens=64)
    engine = Engine(settings, evolve(AHEAD, failed_loads_end=True, long_prefill_tokens=20))
    operations = serve(0, 40, 3, family=1), serve(1, 200, fails_from_block=2, **EXTERNAL)
    assert [] == undeclared(engine, (*operations, *steps(12)))
    assert engine.lockstep.reference is not None
    samples = [each for each in engine.lockstep.performed if type(each).__name__ == "Sample"]
    assert {0} == {each.request for each in samples if isinstance(each, Sample)}
    assert 3 == len(samples)


def test_a_load_that_fails_ahead_is_computed_again() -> None:
    """Goal: the same where the request is computed again. Method: the steps in flight compute chunks of its prompt."""
    engine = Engine(full(60, chunk_tokens=64), evolve(AHEAD, long_prefill_tokens=20))
    assert [] == undeclared(engine, (serve(0, 200, fails_from_block=2, **EXTERNAL), *steps(20)))
    done = engine.lockstep.performed
    assert [32] == [each.tokens for each in done if isinstance(each, Rewind)]
    assert 4 == sum(isinstance(each, Sample) for each in done)


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_of_published_code_is_found(name: str) -> None:
    """Each by the monitor meant for it; a modelled finding is counted, and the run continues."""
    settings, stage, operations, what, known = KNOWN[name]
    engine = Engine(settings, stage)
    found = undeclared(engine, operations)
    if known is None:
        assert what == (found[0].detector, found[0].difference.statement)
    else:
        assert [] == found
        assert engine.lockstep.known.times[known] > 0


def frees_at_once(original: Any, scheduler: Any, request: Any, **_delay: Any) -> Any:
    """The blocks of a finished request are freed, even while another node writes them."""
    return original(scheduler, request)


def forgets_what_was_sent(original: Any, scheduler: Any, output: Any) -> None:
    """The connector learns that another node has read, but the scheduler does not."""
    connector = scheduler.connector
    connector.update_connector_output(output)
    output.finished_sending = scheduler.connector = None
    original(scheduler, output)
    scheduler.connector = connector


def believes_at_once(original: Any, scheduler: Any, request: Any) -> bool:
    """A request that is still loading counts as loaded."""
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    return bool(original(scheduler, request))


def ignores_failures(_original: Any, _scheduler: Any, _blocks: Any, _tokens: Any) -> set[str]:
    """Tokens that a load failed to bring count as loaded."""
    return set()


def hears_nothing_of_delays(original: Any, scheduler: Any, request: Any) -> Any:
    """The connector asks to hold the blocks, in vain."""
    _, parameters = original(scheduler, request)
    return False, parameters


LOADS, SENDS = FOLLOWED["loaded while waiting"], FOLLOWED["read at the end"]
PARTLY: tuple[Operation, ...] = (
    serve(0, 200, loads=True, fails_from_block=2, **EXTERNAL),
    *steps(1),
    Transferred(0),
    *steps(5),
)
BROKEN: dict[str, tuple[str, Any, tuple[Operation, ...], tuple[str, str]]] = {
    "frees at once": (
        "_free_request",
        frees_at_once,
        FOLLOWED["aborted while it loads"],
        ("scheduler", "KV-OP-25"),
    ),
    "forgets what was sent": (
        "_update_from_kv_xfer_finished",
        forgets_what_was_sent,
        SENDS,
        ("leak", "KV-LEAK-01"),
    ),
    "believes at once": (
        "_try_promote_blocked_waiting_request",
        believes_at_once,
        LOADS,
        ("scheduler", "KV-OP-25"),
    ),
    "ignores failures": ("_handle_invalid_blocks", ignores_failures, PARTLY, ("scheduler", "KV-SYS-02")),
    "hears nothing of delays": (
        "_connector_finished",
        hears_nothing_of_delays,
        SENDS,
        ("scheduler", "KV-OP-25"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_it_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thing at a time, in runs in which nothing is wrong otherwise."""
    from vllm.v1.core.sched.scheduler import Scheduler

    method, replacement, operations, expected = BROKEN[name]
    assert found(full(60), CONNECTED, operations) is None
    original = getattr(Scheduler, method)
    monkeypatch.setattr(Scheduler, method, lambda *them, **more: replacement(original, *them, **more))
    assert expected == found(full(60), CONNECTED, operations)


@pytest.mark.parametrize("ends", [False, True])
def test_a_load_on_top_of_a_block_that_failed_is_set_back(ends: bool) -> None:
    """Goal: no false alarm. Method: a block fails in the step in which another request hits it."""
    first = serve(0, 16, 1, family=0, external_tokens=1, fails_from_block=0)
    second = serve(1, 17, 1, family=0, external_tokens=1, loads=True)
    stage = Stage(running_max=2, connector=True, failed_loads_end=ends)
    assert found(full(60), stage, [first, second, *steps(2), Transferred(1), *steps(6)]) is None


@pytest.mark.parametrize(("external", "second_external", "shared"), [(1, 1, 16), (20, 1, 32)])
def test_what_is_loaded_next_to_a_failed_block_is_valid(external: int, second_external: int, shared: int) -> None:
    """Goal: no false alarm. Method: in one step a load fails, and another request hits the failed block and loads the
    next token, which is the first of a block of its own.
    """
    first = Serve(Arrive(0, (Run(0, 65),)), external_tokens=external, fails_from_block=(external - 1) // 16)
    second = Serve(Arrive(1, (Run(0, shared), Run(1000, 33))), external_tokens=second_external)
    assert found(full(60), CONNECTED, [first, second, *steps(4)]) is None


# A request that may not read the cache


def unread(number: int, tokens: int, answers: int, **more: Any) -> Serve:
    """A request that may not read the cache."""
    submit = serve(number, tokens, answers, **more)
    return evolve(submit, arrival=evolve(submit.arrival, reads_cache=False))


@pytest.mark.parametrize(
    ("for_readers_only", "reads_cache", "waits"),
    [(False, True, True), (False, False, True), (True, True, True), (True, False, False)],
)
def test_a_request_that_waits_for_an_undecided_connector(
    for_readers_only: bool, reads_cache: bool, waits: bool
) -> None:
    """Every request; or, where the release makes offers to readers only, every request that may read the cache."""
    nodes, heard = OtherNodes(16, for_readers_only), list[int]()
    nodes.expect(0, serve(0, 40, undecided=1) if reads_cache else unread(0, 40, 1, undecided=1))
    connector = FakeConnector.__new__(FakeConnector)
    connector.pools = []
    listener: Any = SimpleNamespace(asked=lambda *_asked: None, undecided=heard.append)
    connector.attach(nodes, False, listener)
    request: Any = SimpleNamespace(request_id=name_of(0), num_tokens=40)
    assert (None, False) == connector.get_num_new_matched_tokens(request, 0)
    assert [0] * waits == heard


@pytest.mark.deep
def test_on_0_33_0_it_waits_for_room_and_not_for_its_connector(tmp_path: Path) -> None:
    """For want of blocks it stays where it is in the queue, and is not counted as skipped: in a process of its own."""
    published(release_named("native@0.33.0"))
    path = tmp_path / "unread.jsonl"
    operations = (serve(0, 60, 2), unread(1, 40, 1, undecided=2, **EXTERNAL), *steps(4))
    case = SCHEDULER.case(full(6, scratch_first=True, tokens_max=64), operations, CONNECTED, model="full", seed="0")
    write(trace_of(case, None, "native@0.33.0", "0.33.0", SCHEDULER.gate), path)
    command = [sys.executable, "-m", "kvgate.cli", "replay", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    assert "no divergence in " in ended.stdout
