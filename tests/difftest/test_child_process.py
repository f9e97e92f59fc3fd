"""Child processes with a time limit.

Goal: however a child ends, all that it started is gone, and its output is there. Method: real processes that start
others, and that end, hang, are killed, or lose their parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from kvgate.kernel.child_process import Workers, describe_end, run, started

PATIENCE_SECONDS = 60.0
STARTS_ANOTHER = """
import pathlib, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(other.pid))
path.with_suffix(".new").rename(path)
{then}
"""


def start_another(path: str, then: str) -> None:
    """In a worker: start a process, say which, and go on."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path + ".new").write_text(str(other.pid))
    Path(path + ".new").rename(path)
    exec(then)


def pid_in(path: Path) -> int:
    """The process that a file names, once it does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, "no process was started"
        time.sleep(0.02)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    """Whether a process ends in time; one that was not waited for is gone, too."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_command_that_ends_is_reported() -> None:
    """Goal: its exit code and the end of what it prints, both streams."""
    code = "import sys; print('out', flush=True); sys.stderr.write('err'); sys.exit(7)"
    ended = run([sys.executable, "-c", code], PATIENCE_SECONDS)
    assert (7, "out\nerr") == (ended.code, ended.output)
    long = run([sys.executable, "-c", "print('x' * 10**6)"], PATIENCE_SECONDS)
    assert 0 == long.code
    assert len(long.output) < 10**6


@pytest.mark.ci
@pytest.mark.parametrize("then", ["time.sleep(600)", "sys.exit(0)", "import os; os.abort()"])
def test_no_process_that_a_command_started_is_left(tmp_path: Path, then: str) -> None:
    """If it takes too long, ends or crashes."""
    path = tmp_path / "pid"
    ended = run([sys.executable, "-c", STARTS_ANOTHER.format(then=then), str(path)], 5.0 if "sleep" in then else None)
    assert is_gone(pid_in(path))
    assert {"time.sleep(600)": None, "sys.exit(0)": 0}.get(then, -signal.SIGABRT) == ended.code


def test_an_interrupt_ends_a_command(tmp_path: Path) -> None:
    """Goal: Ctrl-C leaves nothing. Method: raised while it is waited for."""
    path = tmp_path / "pid"

    def interrupted() -> None:
        if path.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", STARTS_ANOTHER.format(then="time.sleep(600)"), str(path)], None, interrupted)
    assert is_gone(pid_in(path))


def test_a_command_that_is_talked_to_is_ended() -> None:
    """Goal: nothing is left when the block ends, not even an error for what it did not read."""
    with started(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.process.stdin is not None
        assert child.process.stdout is not None
        child.process.stdin.write(b"said\n")
        child.process.stdin.flush()
        assert b"said\n" == child.process.stdout.readline()
        assert not child.has_ended()
        child.process.stdin.write(b"not read by anyone\n")
        child.process.kill()
    assert (-9, True) == (child.code, child.has_ended())


@pytest.mark.parametrize(
    ("then", "how"), [("import os; os._exit(7)", "exit code 7"), ("import time; time.sleep(600)", "killed by SIGKILL")]
)
def test_no_process_that_a_worker_started_is_left(tmp_path: Path, then: str, how: str) -> None:
    """If it dies by itself, and if it is killed; the error says how it ended."""
    workers = Workers(1)
    future = workers.submit(start_another, str(tmp_path / "pid"), then)
    other = pid_in(tmp_path / "pid")
    if "_exit" in then:
        with pytest.raises(BrokenProcessPool):
            future.result(PATIENCE_SECONDS)
    assert how == describe_end(workers.end())
    with pytest.raises(BrokenProcessPool):
        future.result(PATIENCE_SECONDS)
    assert is_gone(other)


def test_a_killed_worker_leaves_nothing(tmp_path: Path) -> None:
    """Goal: the same where the system ends it, for want of memory."""
    with Workers(1) as workers:
        future = workers.submit(start_another, str(tmp_path / "pid"), "import time; time.sleep(600)")
        other = pid_in(tmp_path / "pid")
        os.kill(workers.pids[0], signal.SIGKILL)
        assert isinstance(future.exception(PATIENCE_SECONDS), BrokenProcessPool)
    assert is_gone(other)


PARENT = """
import sys
from pathlib import Path
from kvgate.kernel.child_process import Workers

def sleep(path):
    import os, time
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    try:
        with Workers(1) as workers:
            workers.submit(sleep, sys.argv[1]).result()
    except KeyboardInterrupt:
        print("interrupted")
"""


def outputs_of(parent: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output until its end; if it does not end in time, it is killed."""
    try:
        return parent.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(parent.pid, signal.SIGKILL)
        raise


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    """Goal: no worker outlives its parent, and none prints a traceback. Method: end the parent by each signal."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "pid")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        worker = int((tmp_path / "pid").read_text())
        # As a terminal does, to all that are in the foreground.
        os.killpg(parent.pid, number)
        out, err = outputs_of(parent)
    assert is_gone(worker)
    assert ("interrupted\n" if number == signal.SIGINT else "", "") == (out, err)


def test_an_interrupt_while_a_worker_starts_is_not_its_own(tmp_path: Path) -> None:
    """Goal: no traceback of an import. Method: Ctrl-C for the whole group at several moments of its start."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT.replace("    try:", "    try:\n        print('starts', flush=True)"))
    for seconds in (0.0, 0.02, 0.05, 0.1, 0.2):
        with subprocess.Popen(
            [sys.executable, str(program), str(tmp_path / "pid")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as parent:
            assert parent.stdout is not None
            assert "starts\n" == parent.stdout.readline()
            time.sleep(seconds)
            os.killpg(parent.pid, signal.SIGINT)
            out, err = outputs_of(parent)
        assert ("interrupted\n", "") == (out, err)
