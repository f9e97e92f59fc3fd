"""``kvgate record``: a command whose engines have a shadow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import INTERRUPTED


def record(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The command to run, after --.", show_default=False)
    ],
    folder: Annotated[
        Path, typer.Option("--out", "--dir", metavar="DIR", help="Where recordings, what was found and the status go.")
    ] = Path("kvgate-shadow"),
    checks: Annotated[
        bool, typer.Option("--check", help="Do not write what happens to disk: let the reference follow at once.")
    ] = False,
    max_mib: Annotated[
        int, typer.Option("--max-mib", metavar="N", min=1, max=2**24, help="How much recordings take on disk.")
    ] = 1024,
    sample: Annotated[
        float,
        typer.Option(
            "--sample",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="The share of the engine's steps that is observed, more than 0.",
        ),
    ] = 1.0,
) -> None:
    """Run a command, and record what the block managers of its vLLM engines do.

    The same as setting KVGATE_SHADOW and KVGATE_SHADOW_* in the command's environment; see difftest/LIVE.md. Signals
    that ask for an end are passed on to it. Token ids are not stored.

    Exit with the command's own code, even if something was found: that is printed at the end, and written to DIR.

    Examples:

      kvgate record -- vllm serve my-model

      kvgate record --check --out shadow -- python my_offline_script.py

      kvgate replay shadow
    """
    import os

    from kvgate.cli.writable import make_writable
    from kvgate.kernel.shadow_switch import VARIABLE, Mode, read

    if not sample > 0:
        raise UsageError(f"--sample {sample:g}: a share is more than 0 and at most 1")
    # What was seen is for its owner alone.
    make_writable(folder, "--out", mode=0o700)
    wanted = {
        VARIABLE: (Mode.CHECK if checks else Mode.RECORD).value,
        f"{VARIABLE}_DIR": str(folder.resolve()),
        f"{VARIABLE}_MAX_BYTES": str(max_mib * 2**20),
        f"{VARIABLE}_SAMPLE": str(sample),
    }
    read(wanted)
    before = _engines(folder)
    code, was_interrupted = _run(command, {**os.environ, **wanted})
    _tell(folder, before)
    raise typer.Exit(INTERRUPTED if was_interrupted else code if code >= 0 else 128 - code)


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, bool]:
    """The command's exit code, and whether Ctrl-C came. Signals that ask this process to end are passed on to the
    command."""
    import signal
    import subprocess

    came_early: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process is None:
            # The command has not started yet.
            came_early.append(number)
        else:
            process.send_signal(number)

    with _passed_on((signal.SIGTERM, signal.SIGHUP), pass_on):
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be run: {error.strerror}") from error
        for number in came_early:
            process.send_signal(number)
        was_interrupted = False
        while True:
            try:
                return process.wait(), was_interrupted
            except KeyboardInterrupt:
                # It was interrupted as well, and ends in its own time; who insists ends it.
                if was_interrupted:
                    process.send_signal(signal.SIGTERM)
                was_interrupted = True


@contextmanager
def _passed_on(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have ``handler`` called for signals, except for those that this process ignores."""
    import signal

    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number in numbers if before[number] is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


def _engines(folder: Path) -> set[str]:
    from kvgate.shadow.status import read_all

    return {status.engine for status in read_all(folder)}


def _tell(folder: Path, before: set[str]) -> None:
    """What the shadows of the command saw, on standard error: standard output is the command's."""
    import time

    from kvgate.kernel.text import counted, printable
    from kvgate.shadow.status import read_all

    end = time.monotonic() + 5.0
    while any(each.state != "ended" for each in read_all(folder) if each.engine not in before):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    found = [status for status in read_all(folder) if status.engine not in before]
    if not found:
        typer.echo(
            "kvgate: no engine of vLLM had a shadow: is kvgate installed where the command's vLLM is, and does "
            "VLLM_PLUGINS, if it is set, name kvgate_shadow?",
            err=True,
        )
    for status in found:
        seen = f"{counted(status.calls, 'call')}, {counted(status.bytes_written, 'byte')} written"
        if status.mode == "check":
            seen = f"{counted(status.judged, 'call')} checked, {counted(status.differences, 'difference')}"
        lost = f", {counted(status.lost + status.unwritten, 'call')} left out" if status.lost + status.unwritten else ""
        first = f"; the first: {status.first}" if status.first else ""
        typer.echo(printable(f"kvgate: engine {status.engine}: {seen}{lost}{first}", 2000), err=True)
