"""Ctrl-C.

Goal: an interrupted command prints what is known so far and ends with exit code 130. Method: a real signal to a real
process, sent when a file says that the process has come far enough.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvgate.cli import app as command

from .stage import environment, stored

SIGNALS_WHEN_BUSY = """
from pathlib import Path
from kvgate.adapters.reference import Reference

original, performed = Reference.apply, [0]

def apply(self, operation):
    performed[0] += 1
    if performed[0] == {operations}:
        Path("busy").touch()
    return original(self, operation)

Reference.apply = apply
"""

HANGS = """
import time
from pathlib import Path
Path("busy").touch()
time.sleep(100)
"""


def interrupt(directory: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command, and interrupt it once the file is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kvgate.cli", *arguments],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (directory / "busy").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


@pytest.mark.ci
def test_a_check_that_is_interrupted_reports_what_was_run(tmp_path: Path) -> None:
    """In the format asked for; the report says that the run ended early, and is not an agreement."""
    (tmp_path / "signals.py").write_text(SIGNALS_WHEN_BUSY.format(operations=2000), encoding="utf-8")
    code, out, err = interrupt(
        tmp_path, "check", "--sut", "reference", "--profile", "deep", "--preload", "signals.py", "--format", "json"
    )
    assert (130, "") == (code, err)
    verdict = json.loads(out)
    assert "interrupted" == verdict["ended"]
    assert 1000 < verdict["tested"][0]["total"][3] < 20_000_000
    assert "The run ended early (interrupted); the remaining cases were not run." in verdict["not_tested"]


@pytest.mark.ci
def test_a_divergence_that_was_found_before_is_not_lost(tmp_path: Path) -> None:
    """The exit code reports the divergence."""
    faulty = SIGNALS_WHEN_BUSY.format(operations=4000).replace(
        "    performed[0] += 1\n",
        "    performed[0] += 1\n"
        "    if type(operation).__name__ == 'Finish':\n"
        "        self.tables[operation.request][0].blocks.reverse()\n",
    )
    (tmp_path / "signals.py").write_text(faulty, encoding="utf-8")
    code, out, err = interrupt(tmp_path, "check", "--sut", "reference", "--profile", "deep", "--preload", "signals.py")
    # The first finding is printed at once.
    assert (1, True) == (code, "KV-OP-07" in err)
    assert ", interrupted\n" in out
    assert "KV-OP-07" in out
    assert (tmp_path / "kvgate-report" / "divergence-1.jsonl").exists()


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_interrupt_at_any_other_time_is_one_line(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the command line is read, after the report is printed, or while a class is made."""

    class Attribute:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def interrupted() -> None:
        if wrapped:
            # Python 3.11 raises RuntimeError for anything raised here.
            type("Owner", (), {"attribute": Attribute()})
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert (130, "kvgate: interrupted\n") == (ended.value.code, capsys.readouterr().err)


def test_out_of_memory_is_not_a_divergence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a memory limit, which SECURITY.md recommends for files from others."""

    def too_large() -> None:
        raise MemoryError

    monkeypatch.setattr(command, "app", too_large)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert (4, True) == (ended.value.code, capsys.readouterr().err.startswith("kvgate: not enough memory"))


def test_before_there_is_anything_to_report_nothing_is(tmp_path: Path) -> None:
    """While the system is loaded, by either subcommand."""
    (tmp_path / "hangs.py").write_text(HANGS, encoding="utf-8")
    trace = str(stored(tmp_path))
    for arguments in (("check", "--sut", "reference"), ("replay", trace)):
        code, out, err = interrupt(tmp_path, *arguments, "--preload", "hangs.py")
        assert (130, "") == (code, out)
        assert "Traceback" not in err
        (tmp_path / "busy").unlink()
