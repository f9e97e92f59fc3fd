"""A sidecar of the engine: if it fails, the server runs on, and says so in one clear line."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter import attachment, counters, observer, sinks
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.adapter.counters import StatusCollector
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.recheck import recheck_recordings
from kvgate.shadow.status import Status, read_all, write
from kvgate.shadow.status import path_of as status_file

from .live import Server
from .test_shadow_following import released_early

WAIT_SECONDS = 300.0


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shadow's warnings in the engine's log."""
    lines: list[str] = []
    for module in (attachment, observer, sinks):
        monkeypatch.setattr(module, "warn", lines.append)
    return lines


class Shadowed:
    """A server with a shadow in a sidecar."""

    def __init__(self, folder: Path, mode: Mode, **more: Any) -> None:
        self.folder = folder
        self.server = Server("gpt-oss-hybrid", blocks=100)
        switch = Switch(mode, folder, checkpoint_calls=200, **more)
        observer = attach(self.server.scheduler, switch)
        assert isinstance(observer, Observer)
        self.observer, self.sink = observer, observer.sink
        observer.share_of_time = 0

    @property
    def status(self) -> Status:
        """The latest that was written."""
        wait_until(lambda: bool(list(read_all(self.folder))))
        (status,) = read_all(self.folder)
        return status

    def end(self) -> Status:
        """The engine ends; the status that its shadow leaves."""
        attachment._leave(os.getpid(), self.observer, self.sink)
        wait_until(lambda: [status.state for status in read_all(self.folder)] == ["ended"])
        return self.status


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for a process that has other things to do."""
    end = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def sidecar_of(shadowed: Shadowed) -> sinks.SidecarSink:
    """The sink through which a server feeds its sidecar."""
    assert isinstance(shadowed.sink, sinks.SidecarSink)
    return shadowed.sink


@pytest.fixture
def shadowed(tmp_path: Path) -> Iterator[Callable[..., Shadowed]]:
    """Makes servers with shadows, and ends these."""
    made: list[Shadowed] = []

    def make(mode: Mode = Mode.CHECK, **more: Any) -> Shadowed:
        made.append(Shadowed(tmp_path / "shadow", mode, **more))
        return made[-1]

    yield make
    for each in made:
        if hasattr(each, "observer"):
            each.observer.detach()
        sidecar_of(each)._process.kill()
        sidecar_of(each)._process.wait()


def test_it_is_checked(shadowed: Callable[..., Shadowed], said: list[str]) -> None:
    """Goal: the reference follows in another process, and finds nothing. Method: a life, and its status."""
    each = shadowed()
    each.server.serve(100)
    status = each.end()
    assert [0, 0, 0, ""] == [status.differences, status.lost, status.unwritten, status.first]
    assert status.judged > 400
    assert [] == said
    assert {100} == {status.steps}


def test_it_is_recorded_and_checked_later(shadowed: Callable[..., Shadowed], said: list[str]) -> None:
    """Goal: anyone with a recording can check it. Method: record, and check it here."""
    each = shadowed(Mode.RECORD)
    each.server.serve(100)
    status = each.end()
    (rejudged,) = recheck_recordings(each.folder, lambda _text: None)
    assert [0, [], 100] == [rejudged.differences, rejudged.endings, rejudged.checker.stats.steps]
    assert rejudged.checker.stats.judged > 400
    assert status.bytes_written > 10_000
    assert [] == said


def test_a_difference_is_reported_and_the_server_runs_on(
    shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Goal: found, counted, written down, and no request is harmed. Method: a mutant; its dump is checked again."""
    each = shadowed()
    each.server.serve(40)
    released_early(monkeypatch, lambda: None)
    each.server.serve(60)
    answered = each.server.answered
    each.server.serve(20)
    assert each.server.answered > answered
    status = each.end()
    assert status.differences >= 1
    assert "KV-OP-06" in status.first
    dump = each.folder / status.dumps[0]
    assert "A block that no later token reads" in dump.with_suffix(".txt").read_text()
    private = (dump, dump.with_suffix(".txt"), status_file(each.folder, status.engine))
    assert [0o600] * 3 == [path.stat().st_mode & 0o777 for path in private]
    (again,) = recheck_recordings(dump, lambda _text: None)
    assert status.first.split(":")[0] == f"KV-OP-06 at step {again.found[0].step}"
    assert [] == said


def test_the_process_dies(shadowed: Callable[..., Shadowed], said: list[str]) -> None:
    """Goal: the server runs on without its shadow. Method: SIGKILL in the middle."""
    each = shadowed()
    each.server.serve(30)
    process = sidecar_of(each)._process
    process.kill()
    process.wait()
    answered = each.server.answered
    each.server.serve(100)
    assert each.server.answered > answered
    (line,) = said
    assert f"its sidecar process, {process.pid}, was ended by signal 9" in line
    assert "continues without it" in line
    assert not each.observer.tap.placed


def test_the_process_stands_still(shadowed: Callable[..., Shadowed], said: list[str]) -> None:
    """Goal: bounded memory, nothing waits, and it is followed again. Method: SIGSTOP, more than fits, SIGCONT."""
    each = shadowed(queue_bytes=2**16)
    each.server.serve(30)
    process, channel = sidecar_of(each)._process, sidecar_of(each).channel
    wait_until(lambda: channel.bytes_waiting == 0)
    process.send_signal(signal.SIGSTOP)
    answered = each.server.answered
    begun = time.monotonic()
    while not said:
        each.server.serve(50)
        assert channel.bytes_waiting <= 2**16
        assert time.monotonic() < begun + WAIT_SECONDS
    each.server.serve(50)
    assert each.server.answered > answered
    (line,) = said
    assert "is too slow" in line
    assert "the engine does not wait" in line
    process.send_signal(signal.SIGCONT)
    wait_until(channel.flush)
    each.server.serve(50)
    status = each.end()
    assert status.lost > 0
    assert 0 == status.differences
    assert status.steps > 80
    assert 1 == len(said)


SERVED = """
import sys
from pathlib import Path
from kvgate.shadow.adapter.attachment import attach
from kvgate.kernel.shadow_switch import Mode, Switch
from tests.difftest.shadow.live import Server
server = Server("gpt-oss-hybrid", blocks=100)
attach(server.scheduler, Switch(Mode.RECORD, Path(sys.argv[1])))
while True:
    server.serve(50)
    print("served", flush=True)
"""


@pytest.mark.ci
def test_the_engine_is_killed(tmp_path: Path) -> None:
    """Goal: its calls until then can be checked. Method: SIGKILL for an engine that records; check the recording."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", SERVED, str(tmp_path)]
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True, env=environment) as process:
        assert process.stdout is not None
        steps = 50 * sum(1 for _, _line in zip(range(4), process.stdout, strict=False))
        process.kill()
    wait_until(lambda: [status.state for status in read_all(tmp_path)] == ["ended"])
    (rejudged,) = recheck_recordings(tmp_path, lambda _text: None)
    assert rejudged.checker.stats.steps >= steps - 1
    assert 0 == rejudged.differences
    (ending,) = rejudged.endings
    assert "the process that wrote it ended first" in ending


def test_it_cannot_be_put_anywhere(tmp_path: Path, said: list[str]) -> None:
    """Goal: a wrong folder costs the shadow, not the server. Method: a folder that is a file."""
    (tmp_path / "file").write_text("")
    server = Server("full")
    assert attach(server.scheduler, Switch(Mode.CHECK, tmp_path / "file")) is None
    server.serve(5)
    (line,) = said
    assert "is off for this engine, which continues without it" in line


def test_a_fault_of_the_shadow_ends_the_shadow(shadowed: Callable[..., Shadowed], said: list[str]) -> None:
    """Goal: the server runs on if the observing code fails. Method: break the code that reads a request."""
    each = shadowed()
    each.server.serve(20)
    each.observer.book.followed.clear()
    answered = each.server.answered
    each.server.serve(50)
    assert each.server.answered > answered
    (line,) = said
    assert "ended, and the engine continues without it: KeyError" in line


def test_counters_next_to_vllms_own(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: a dashboard shows it. Method: the response to a metrics request."""
    from prometheus_client import CollectorRegistry, generate_latest

    each = shadowed()
    each.server.serve(50)
    status = each.end()
    registry = CollectorRegistry()
    registry.register(StatusCollector(each.folder))
    metrics = generate_latest(registry).decode()
    label = f'{{engine="0",mode="check",shadow="{status.engine}"}}'
    assert f"kvgate_shadow_judged_total{label} {float(status.judged)}" in metrics
    assert f"kvgate_shadow_differences_total{label} 0.0" in metrics


def watching(folder: Path) -> list[float]:
    """Per shadow, whether it watches, as exported."""
    families = {family.name: family for family in StatusCollector(folder).collect()}
    return [sample.value for sample in families["kvgate_shadow_watching"].samples]


def test_a_shadow_that_stopped_does_not_look_healthy(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: an alert can distinguish them. Method: one that watches, one that was killed a while ago, and one that
    ended.
    """
    each = shadowed(Mode.RECORD)
    each.server.serve(20)
    wait_until(lambda: each.status.steps > 0)
    assert [1.0] == watching(each.folder)
    process = sidecar_of(each)._process
    process.kill()
    process.wait()
    path = status_file(each.folder, each.status.engine)
    assert "watching" == each.status.state
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert [0.0] == watching(each.folder)
    write(each.folder, Status("another", "record", 1, state="ended"))
    assert [0.0, 0.0] == watching(each.folder)


def test_what_goes_wrong_with_metrics_is_not_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a scrape is answered. Method: files that cannot be read, for an unforeseen reason."""

    def fails(_folder: Path) -> Any:
        raise MemoryError("on purpose")

    monkeypatch.setattr(counters, "read_all", fails)
    assert [] == list(StatusCollector(tmp_path).collect())


def test_a_scrape_reads_few_files(tmp_path: Path) -> None:
    """Goal: an old folder costs no time. Method: many files, of which the newest are exported."""
    for number in range(100):
        write(tmp_path, Status(f"{number:03d}", "record", 1))
    assert [f"{number:03d}" for number in range(68, 100)] == [status.engine for status in read_all(tmp_path)]


def test_a_scrape_does_not_wait(tmp_path: Path) -> None:
    """Goal: a pipe with the name of a status file blocks nothing. Method: a pipe without a writer, before a status."""
    os.mkfifo(tmp_path / "status-a.json")
    write(tmp_path, Status("b", "record", 1))
    found: list[Status] = []
    reader = threading.Thread(target=lambda: found.extend(read_all(tmp_path)), daemon=True)
    reader.start()
    reader.join(30)
    assert ["b"] == [status.engine for status in found]


@pytest.mark.parametrize("mode", [Mode.CHECK, Mode.RECORD])
def test_a_request_that_cannot_be_followed_is_said(
    shadowed: Callable[..., Shadowed], said: list[str], mode: Mode
) -> None:
    """Goal: the report does not claim that all is watched. Method: a request with a prompt of embeddings."""
    each = shadowed(mode)
    each.server.serve(20)
    request: Any = type("Request", (), {"request_id": "embedded", "resumable": False, "prompt_token_ids": None})()
    each.observer._added(None, request)
    (line,) = said
    assert "a prompt of embeddings cannot be followed" in line
    assert "until the server is started anew" in line
    # It waits as well before it has read anything.
    wait_until(lambda: each.status.steps > 0 and each.status.state == "waiting")
    each.server.serve(20)
    assert [0.0] == watching(each.folder)


# How it ends


def _engine(folder: Path) -> None:
    """A forked engine's process: it ends without Python's work at the end of a program."""
    server = Server("gpt-oss-hybrid", blocks=100)
    attach(server.scheduler, Switch(Mode.RECORD, folder))
    server.serve(30)


def test_a_forked_engine_ends_its_shadow(tmp_path: Path) -> None:
    """Goal: nothing is lost where vLLM forks its engine. Method: a forked process that ends; its recording."""
    process = multiprocessing.get_context("fork").Process(target=_engine, args=(tmp_path,))
    process.start()
    process.join(WAIT_SECONDS)
    assert 0 == process.exitcode
    wait_until(lambda: [status.state for status in read_all(tmp_path)] == ["ended"])
    (rejudged,) = recheck_recordings(tmp_path, lambda _text: None)
    assert ([], 30) == (rejudged.endings, rejudged.checker.stats.steps)


def test_a_scheduler_that_is_shut_down_ends_its_shadow(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: nothing waits for the end of the process. Method: the call that vLLM's engine makes when it ends."""
    each = shadowed(Mode.RECORD)
    each.server.serve(30)
    each.server.scheduler.shutdown()
    wait_until(lambda: each.status.state == "ended")
    assert [] == recheck_recordings(each.folder, lambda _text: None)[0].endings
    assert not each.observer.tap.placed
    assert 0 == sidecar_of(each)._process.wait(WAIT_SECONDS)


def test_a_scheduler_that_is_gone_keeps_no_process(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: building engine after engine leaves one shadow. Method: forget a server, and look for its shadow."""
    each = shadowed(Mode.RECORD)
    each.server.serve(10)
    process = sidecar_of(each)._process
    del each.server, each.observer
    gc.collect()
    assert 0 == process.wait(WAIT_SECONDS)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.19.1", ""),
        ("0.32.0+cpu", "; 0.32.0+cpu is in no description of this kvgate"),
    ],
)
def test_another_release_is_rejected_with_a_message(
    version: str, words: str, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an operator reads what is followed, and no AttributeError. Method: vLLM that calls itself otherwise."""
    import vllm

    server = Server("full")
    monkeypatch.setattr(vllm, "__version__", version)
    assert attach(server.scheduler, Switch(Mode.CHECK, tmp_path)) is None
    (line,) = said
    assert f"is off for this engine, which continues without it: vLLM {version} is not followed: 0.20.2, " in line
    assert f"0.33.0 are followed{words}" in line
    server.serve(5)
    assert [] == list(tmp_path.iterdir())


STATUS_OF_VERSION_1 = (
    '{"engine":"20261122T055729-15372","mode":"check","pid":7,"host":"here","format":"kvgate-shadow-status",'
    '"version":1,"state":"ended","steps":12,"calls":90,"judged":60,"checkpoints":1,"lost":0,"unwritten":0,'
    '"bytes_written":0,"differences":1,"declared":{"003":2},"unjudged":{},"first":"KV-OP-07","dumps":[]}'
)


def test_a_status_of_another_version(tmp_path: Path) -> None:
    """Goal: old folders are read, and later versions skipped. Method: what version 1 wrote, today's, and a later
    one."""
    old = tmp_path / "status-20261122T055729-15372.json"
    old.write_text(STATUS_OF_VERSION_1)
    write(tmp_path, Status("new", "check", 1))
    (tmp_path / "status-z.json").write_text(STATUS_OF_VERSION_1.replace('"version":1', '"version":3'))
    (tmp_path / "status-y.json").write_text("[]")
    found = [(status.version, status.engine, status.steps) for status in read_all(tmp_path)]
    assert [(1, "20261122T055729-15372", 12), (2, "new", 0)] == found


def test_stalls_and_lost_blocks_as_metrics(tmp_path: Path) -> None:
    """Goal: a shadow that is gone has no stalls, and blocks are counted, not lines. Method: a status of now, and one of
    a minute ago."""
    write(tmp_path, Status("a", "check", 1, stalled=["request 1: …"], lost_blocks=["blocks 3, 4 …"], blocks_lost=2))

    def metric(name: str) -> list[float]:
        families = {family.name: family for family in StatusCollector(tmp_path).collect()}
        return [sample.value for sample in families[name].samples]

    assert ([1.0], [2.0]) == (metric("kvgate_shadow_stalled"), metric("kvgate_shadow_lost_blocks"))
    path = status_file(tmp_path, "a")
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert ([0.0], [2.0]) == (metric("kvgate_shadow_stalled"), metric("kvgate_shadow_lost_blocks"))
