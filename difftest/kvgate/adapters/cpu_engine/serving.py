"""``vllm serve`` with a tiny model, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field, fields, frozen

from kvgate.adapters.cpu_engine.engine import ENVIRONMENT, SMALL
from kvgate.adapters.cpu_engine.plugged import NAME, mutants_named, write_plug_in
from kvgate.kernel.child_process import run
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.shadow_switch import VARIABLE, Switch, variable_of

START_SECONDS_MAX = 900.0
STOP_SECONDS_MAX = 20.0
_TAIL_CHARACTERS = 12000


@frozen
class Serving:
    """What is served, and how."""

    model: str = "gemma-3"
    environment: Mapping[str, str] = field(factory=dict)
    plug_ins: tuple[str, ...] = ("swa_retention", "kvgate_shadow")
    mutants: tuple[str, ...] = ()
    preloads: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()
    """More options of ``vllm serve``."""
    port: int | None = None
    """None for one that is free."""


@define(eq=False)
class Served:
    """A server that is up."""

    url: str
    process: subprocess.Popen[bytes]
    folder: Path
    """Its model, its log, and its working directory. Gone when it has ended."""
    shadow: Path | None
    """Where its shadow writes, which stays; None if it has none."""

    @property
    def log(self) -> str:
        """What it has printed."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def command(folder: Path, port: int, options: Sequence[str] = ()) -> list[str]:
    """``vllm serve`` for a tiny model, so that it is up in seconds."""
    small = {name.replace("_", "-"): value for name, value in SMALL.items()}
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in small.items()]
    return [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder)),
        *("--host=127.0.0.1", f"--port={port}", "--enable-prompt-tokens-details"),
        # In the engine's own process: on CPUs vLLM would start one more.
        "--distributed-executor-backend=vllm.v1.executor.uniproc_executor.UniProcExecutor",
        *flags,
        *options,
    ]


@contextmanager
def served(serving: Serving, report: Callable[[str], None] = lambda _text: None) -> Iterator[Served]:
    """Start a server on this machine, and end it.

    Raises:
        UsageError: a mutant that is not there.
        SystemUnavailableError: it did not come up.
    """
    mutants_named(serving.mutants)
    folder = Path(tempfile.mkdtemp(prefix="kvgate-served-"))
    try:
        report(f"making {serving.model} …")
        _run([sys.executable, "-m", "kvgate.adapters.cpu_engine.checkpoint", serving.model, str(folder / "model")])
        write_plug_in(folder / "plug-in", serving.mutants, serving.preloads)
        port = serving.port or _free_port()
        environment = _environment(serving, folder)
        process: subprocess.Popen[bytes] | None = None
        try:
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    command(folder / "model", port, serving.options),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                    start_new_session=True,
                )
            server = Served(f"http://127.0.0.1:{port}", process, folder, _shadow_in(environment))
            _wait_until_up(server, report)
            yield server
        finally:
            if process is not None:
                _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(arguments: list[str]) -> None:
    ended = run(arguments)
    if ended.code:
        raise SystemUnavailableError(f"no model could be made: {ended.output[-_TAIL_CHARACTERS:]}")


def _environment(serving: Serving, folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PROMETHEUS_"))}
    path = os.pathsep.join(filter(None, [str(folder / "plug-in"), os.environ.get("PYTHONPATH", "")]))
    plug_ins = ",".join([NAME, *serving.plug_ins])
    given = {**kept, **ENVIRONMENT, "PYTHONPATH": path, "VLLM_PLUGINS": plug_ins, **serving.environment}
    if given.get(VARIABLE):
        # Where the caller means, and not in the server's own folder, which goes when the server does.
        given[variable_of("dir")] = str(
            Path(given.get(variable_of("dir")) or str(fields(Switch).dir.default)).resolve()
        )
    return given


def _shadow_in(environment: Mapping[str, str]) -> Path | None:
    return Path(environment[variable_of("dir")]) if environment.get(VARIABLE) else None


def _wait_until_up(server: Served, report: Callable[[str], None]) -> None:
    began = time.monotonic()
    while not server.is_up:
        waited = time.monotonic() - began
        code = server.process.poll()
        if code is not None or waited > START_SECONDS_MAX:
            ended = f"ended with {code}" if code is not None else f"was not up after {waited:.0f} s"
            raise SystemUnavailableError(f"vllm serve {ended}. Its last words:\n{server.log[-_TAIL_CHARACTERS:]}")
        report(f"waiting for vllm serve, {waited:.0f} s …")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with the processes that it started, with SIGTERM first; an interrupt ends it at once."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
