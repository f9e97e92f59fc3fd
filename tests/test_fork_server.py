"""The fork server: a child behaves as a new interpreter, and finds an unchanged vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .fork_server import ForkServer

PROGRAM = """
import os, sys
print(sys.argv, os.environ["COLOUR"], os.getcwd(), __name__, "vllm" in sys.modules, sep="|")
print("warned", file=sys.stderr)
raise SystemExit({code})
"""


@pytest.mark.ci
@pytest.mark.parametrize(("code", "expected"), [("3", 3), ("None", 0), ("'out of memory'", 1)])
def test_a_child_is_what_an_interpreter_is(code: str, expected: int, fork_server: ForkServer, tmp_path: Path) -> None:
    """Goal: a test need not know which of the two it starts. Method: both, with the same program."""
    program, environment = PROGRAM.format(code=code), {**os.environ, "COLOUR": "blue"}
    forked = fork_server.run("-c", program, "first", env=environment, cwd=tmp_path)
    real = subprocess.run(
        [sys.executable, "-c", program, "first"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert expected == forked.returncode == real.returncode
    assert real.stdout.replace("|False", "|True") == forked.stdout
    assert real.stderr == forked.stderr


def test_a_file_is_a_program_too(fork_server: ForkServer, tmp_path: Path) -> None:
    """With its folder first on the path."""
    (tmp_path / "neighbour.py").write_text("NAME = 'adjacent'")
    (tmp_path / "program.py").write_text("import sys, neighbour; print(sys.argv[1:], neighbour.NAME, __name__)")
    assert "['a'] adjacent __main__\n" == fork_server.run(str(tmp_path / "program.py"), "a").stdout


def test_an_exception_is_exit_code_1(fork_server: ForkServer) -> None:
    """With its traceback."""
    ended = fork_server.run("-c", "1 / 0")
    assert (1, "ZeroDivisionError: division by zero") == (ended.returncode, ended.stderr.splitlines()[-1])
    with pytest.raises(subprocess.CalledProcessError):
        fork_server.run("-c", "1 / 0", check=True)


def test_a_module_is_run_as_main(fork_server: ForkServer) -> None:
    """With the working directory first on its path, as ``python -m`` does."""
    ended = fork_server.run("-m", "kvgate.cli", "check", "--sut", "nowhere_at_all:build")
    assert 3 == ended.returncode
    assert "nowhere_at_all" in ended.stderr


def test_an_interrupt_reaches_the_child(fork_server: ForkServer) -> None:
    """And ends it as it ends an interpreter."""
    with fork_server.start("-c", "import time; print('ready', flush=True); time.sleep(60)") as child:
        assert "ready\n" == child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert -signal.SIGINT == child.wait(30)


@pytest.mark.ci
def test_what_takes_too_long_is_killed_with_all_it_started(fork_server: ForkServer) -> None:
    """Goal: no process is left. Method: a child that starts another, and prints its id."""
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        fork_server.run("-c", program, timeout=2)
    started = int(str(expired.value.output))
    status = Path(f"/proc/{started}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_what_a_child_changes_no_other_child_sees(fork_server: ForkServer) -> None:
    """Goal: a fault injected in one test is not found by another. Method: break vLLM in a child, look in the next."""
    broken = "from vllm.v1.core.block_pool import BlockPool; BlockPool.touch = None; print(BlockPool.touch)"
    looked = "from vllm.v1.core.block_pool import BlockPool; print(BlockPool.touch.__module__)"
    assert "None\n" == fork_server.run("-c", broken).stdout
    assert "vllm.v1.core.block_pool\n" == fork_server.run("-c", looked).stdout


def test_no_plug_in_is_in_place(fork_server: ForkServer) -> None:
    """Goal: a child has stock vLLM. Method: nothing that changes it is imported, and the fork loses no thread."""
    program = (
        "import os, sys; print([name for name in sys.modules if name.partition('.')[0] in "
        "('swa_retention', 'kvgate_mutants', 'vllm_ascend')], len(os.listdir('/proc/self/task')))"
    )
    assert "[] 1\n" == fork_server.run("-c", program).stdout


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHASHSEED"])
def test_what_only_a_start_can_set_is_rejected(name: str, fork_server: ForkServer) -> None:
    """Goal: no test passes because its variable was ignored. Method: a value that the server does not have."""
    with pytest.raises(ValueError, match=f"{name}=7 needs an interpreter of its own"):
        fork_server.run("-c", "pass", env={**os.environ, name: "7"})
