"""The sidecar of an engine: receives the engine's records, and stores or checks them.

It has the salt, so token ids end here. It is started by the engine's plug-in with a socket as its standard input, and
ends when the engine does. Nothing that happens here reaches the engine: if it ends, or hangs, the engine
continues.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from attrs import define

from kvgate.kernel.shadow_switch import Mode
from kvgate.kernel.structure import strict_converter
from kvgate.shadow.calls import (
    RAW,
    Checkpoint,
    End,
    Raised,
    Restart,
    Stalls,
    Step,
    Stored,
    Suspended,
    expanded,
    records_in,
    request_name,
)
from kvgate.shadow.channel import LENGTH
from kvgate.shadow.describe import at, format_finding, headline, utc
from kvgate.shadow.disk_budget import DIFFERENCE, delete_old_statuses, differences_bytes
from kvgate.shadow.recording import FRAME_BYTES_MAX, SUFFIX, Header
from kvgate.shadow.ring import Ring
from kvgate.shadow.rotation import Rotation
from kvgate.shadow.salting import Salting
from kvgate.shadow.shadow_checker import Finding, ShadowChecker
from kvgate.shadow.status import Status, write

_STATUS_EVERY_SECONDS = 0.5
_READ_BYTES = 2**20
_NAP_SECONDS = 0.02
"""How long it sleeps while the engine is busy. A process that waits at the socket has to be woken by the sender, and
that costs an engine several times what the sending does."""
_NAP_BYTES = 2**16
"""More than this, and there is too much to sleep."""
_IDLE_SECONDS = 1.0
"""An engine that has sent nothing for so long is idle: then it waits at the socket."""
_CONVERTER = strict_converter()


LOST_MAX = 20
"""How many lost blocks are named."""
STALLS_LOGGED_MAX = 20


@define
class Order:
    """What the engine's plug-in wants, the first frame on the socket."""

    mode: str
    folder: str
    max_bytes: int
    ring_bytes: int
    dumps: int
    header: Header


def order_frame(order: Order) -> bytes:
    """An order as it is sent."""
    return msgspec.json.encode(_CONVERTER.unstructure(order))


def log_line(text: str) -> None:
    """One line for the engine's log."""
    with contextlib.suppress(OSError):
        print(f"kvgate shadow: {text}", file=sys.stderr, flush=True)


class Sidecar:
    """One engine's recorder or checker."""

    def __init__(self, order: Order, ask: Callable[[], object] = lambda: None) -> None:
        header = order.header
        system = header.settings, header.system, header.system_version
        self.folder = Path(order.folder)
        self.header = header
        self.order = order
        self.salting = Salting.of(*system)
        self.rotation: Rotation | None = None
        self.checker: ShadowChecker | None = None
        self.ring = Ring(order.ring_bytes)
        if order.mode == Mode.RECORD.value:
            self.rotation = Rotation(self.folder, header, order.max_bytes, log_line)
        else:
            self.checker = ShadowChecker(*system)
        self.ask = ask
        """Asks the engine for a checkpoint."""
        self.status = Status(header.engine, order.mode, os.getpid(), socket.gethostname())
        self.status.engine_index, self.status.started = header.engine_index, utc(header.started_unix_ms)
        self._asked = 0
        self._stalled: set[int] = set()
        self._has_ended = False
        self._recent: list[Stored] = []
        self._text: Path | None = None
        """The report of the last difference."""
        self._could_write = True
        self._is_suspended = False
        self._was_full_disk_reported = False

    def take(self, payload: bytes) -> None:
        """The calls of a step."""
        raw = RAW.decode(payload)
        for each in raw:
            if isinstance(each, Stalls):
                self._stall(each)
        records = self.salting.salted(raw)
        self.status.calls += records_in(records)
        self.status.lost += sum(record.lost for record in records if isinstance(record, Restart))
        for record in records:
            if isinstance(record, (Restart, Suspended)):
                self._is_suspended = isinstance(record, Suspended)
            elif isinstance(record, Raised) and record.is_error:
                self._raised(record)
            elif isinstance(record, Step):
                self.status.reason = ""
            elif isinstance(record, End):
                self._has_ended = True
        if self.rotation is not None:
            self.rotation.append(records)
        if self.checker is not None:
            self.ring.append(records)
            for record in expanded(records):
                found = self.checker.follow(record)
                for finding in found:
                    self._found(finding)
                if found and not self.checker.is_following and not isinstance(record, Checkpoint):
                    self._ask_for_checkpoint()
                self._name_lost(self.checker.take_lost())
                self._recent = [*self._recent[-11:], record]
            self.status.declared = dict(self.checker.known.times)

    def _ask_for_checkpoint(self) -> None:
        """Ask as often as differences are written, and no more: a checkpoint costs the engine time."""
        if self._asked < self.order.dumps:
            self._asked += 1
            self.ask()

    def _stall(self, record: Stalls) -> None:
        """What stalls is in the status for as long as it does, and in the log once."""
        if record.ended:
            self.status.clocks_ended = record.ended
            log_line(f"the stall clocks ended: {record.ended}")
        lines = [f"{request_name(each.number)}: {each.why}" for each in record.requests]
        now = {each.number for each in record.requests}
        for each, line in zip(record.requests, lines, strict=True):
            if each.number not in self._stalled and len(self._stalled) < STALLS_LOGGED_MAX:
                log_line(f"stalled: {line}")
        self._stalled = now
        self.status.stalled = lines

    def _raised(self, record: Raised) -> None:
        if self.status.reason:
            # An exception passes several calls on its way.
            return
        self.status.raised = f"{record.headline}, at {record.where}"
        self.status.reason = record.headline
        log_line(f"raised: {self.status.raised}")

    def _name_lost(self, lost: Sequence[str]) -> None:
        """Which blocks are lost, and whose they were: in the status, the log, and the report of the last difference."""
        if not lost:
            return
        room = LOST_MAX - len(self.status.lost_blocks)
        self.status.lost_blocks += lost[:room]
        for line in lost[:room]:
            log_line(f"lost: {line}")
        if self._text is not None:
            with contextlib.suppress(OSError), self._text.open("a", encoding="utf-8") as file:
                file.writelines(f"lost: {line}\n" for line in lost[:LOST_MAX])

    def _found(self, finding: Finding) -> None:
        self.status.differences += 1
        line = headline(finding)
        self.status.first_at = self.status.first_at or at(finding, self.header.started_unix_ms)
        self.status.first = self.status.first or line
        if self.status.differences > self.order.dumps:
            self._count_only(line)
        else:
            self._write(finding, line)
        self.report()

    def _count_only(self, line: str) -> None:
        if self.status.differences == self.order.dumps + 1:
            log_line(f"{line}; the engine continues. This one and more are counted, and not written")

    def _write(self, finding: Finding, line: str) -> None:
        """Write the report of a difference and, within the disk budget, the calls before it."""
        name = f"{DIFFERENCE}{self.header.engine}-{self.status.differences}"
        text = self.folder / f"{name}.txt"
        is_recorded = False
        try:
            if self._is_over_budget():
                if not self._was_full_disk_reported:
                    log_line(
                        "the disk budget is used up: only the text of a difference is written, not the calls before it"
                    )
                self._was_full_disk_reported = True
            else:
                self.ring.dump(self.folder / f"{name}{SUFFIX}", self.header)
                self.status.dumps.append(f"{name}{SUFFIX}")
                is_recorded = True
        except OSError as error:
            log_line(
                f"{line}; the engine continues. The calls before it could not be written to {self.folder}: "
                f"{error.strerror}"
            )
        again = f"kvgate replay {name}{SUFFIX}" if is_recorded else None
        try:
            text.touch(mode=0o600)
            story = format_finding(
                finding, self._recent, again, self.ring.is_whole, started_unix_ms=self.header.started_unix_ms
            )
            text.write_text(story, encoding="utf-8")
            self._text = text
            log_line(f"{line}; the engine continues. See {text}")
        except OSError as error:
            log_line(f"{line}; the engine continues. It could not be written to {self.folder}: {error.strerror}")

    def _is_over_budget(self) -> bool:
        bytes_used = differences_bytes(self.folder) + self.ring.dump_bytes(self.header)
        return bytes_used > self.order.max_bytes

    def begin(self) -> None:
        """The engine begins; the status files of engines that ended long ago are deleted."""
        self.report()
        with contextlib.suppress(OSError):
            delete_old_statuses(self.folder, self.header.engine)

    def report(self, state: str = "watching") -> None:
        """Write the status, if that is possible."""
        checker, status = self.checker, self.status
        status.state, status.written = state, utc(int(time.time() * 1000))
        is_following = not self._is_suspended and (checker is None or checker.is_following)
        if state == "watching" and not is_following:
            status.state = "waiting"
        if checker is not None:
            stats = checker.stats
            status.steps, status.judged, status.checkpoints = stats.steps, stats.judged, stats.checkpoints
            status.unjudged, status.blocks_lost = dict(stats.unjudged), stats.blocks_lost
        if self.rotation is not None:
            rotation = self.rotation
            status.steps, status.bytes_written, status.unwritten = rotation.steps, rotation.bytes_written, rotation.lost
        try:
            write(self.folder, status)
        except OSError as error:
            if self._could_write:
                log_line(f"the status cannot be written to {self.folder}: {error.strerror}")
            self._could_write = False

    def close(self, because: str = "") -> None:
        """The engine has ended, or this process does, ``because`` of something else."""
        if self.rotation is not None:
            self.rotation.close()
        ending = "the engine was shut down" if self._has_ended else "The engine process exited without shutting down"
        self.status.reason = because or self.status.reason or ending
        self.status.stalled = []
        self.report("ended")


def _serve(sidecar: Sidecar, source: int, buffered: bytearray) -> None:
    """Take frames until the engine has ended."""
    next_report, last_received = 0.0, time.monotonic()
    while True:
        while (payload := _frame(buffered)) is not None:
            sidecar.take(payload)
            next_report = _report_when_due(sidecar, next_report)
        next_report = _report_when_due(sidecar, next_report)
        is_idle = time.monotonic() - last_received > _IDLE_SECONDS
        readable, _, _ = select.select([source], [], [], _STATUS_EVERY_SECONDS if is_idle else 0)
        data = os.read(source, _READ_BYTES) if readable else None
        if data == b"":
            return
        if data:
            last_received = time.monotonic()
            buffered += data
        if not is_idle and len(data or b"") < _NAP_BYTES:
            time.sleep(_NAP_SECONDS)


def _report_when_due(sidecar: Sidecar, due: float) -> float:
    """Write the status twice a second; when the next one is due."""
    now = time.monotonic()
    if now < due:
        return due
    sidecar.report()
    return now + _STATUS_EVERY_SECONDS


def _frame(buffered: bytearray) -> bytes | None:
    """The first whole frame, taken out."""
    if len(buffered) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffered)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes")
    end = LENGTH.size + length
    if len(buffered) < end:
        return None
    payload = bytes(buffered[LENGTH.size : end])
    del buffered[:end]
    return payload


def main() -> None:
    """Serve the engine at the other end of standard input."""
    # An interrupt of the engine reaches its process group, too: this ends when the engine has.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(OSError):
        os.nice(10)
    source = sys.stdin.fileno()
    buffered = bytearray()
    while (first := _frame(buffered)) is None:
        data = os.read(source, _READ_BYTES)
        if not data:
            return
        buffered += data
    sidecar = Sidecar(_CONVERTER.structure(msgspec.json.decode(first), Order), lambda: _ask(source))
    because = ""
    try:
        sidecar.begin()
        _serve(sidecar, source, buffered)
    except Exception as error:
        because = f"the shadow failed: {type(error).__name__}: {error}"
        log_line(f"ends, and the engine continues without it: {type(error).__name__}: {error}")
        raise SystemExit(1) from error
    except SystemExit:
        because = "the shadow's process was asked to end"
        raise
    finally:
        sidecar.close(because)


def _ask(source: int) -> None:
    """Ask the engine for a checkpoint: one byte, which it looks for at some of its steps."""
    with contextlib.suppress(OSError):
        os.write(source, b"c")


if __name__ == "__main__":
    main()
