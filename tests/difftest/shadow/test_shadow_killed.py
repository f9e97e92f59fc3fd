"""A writer is killed, or has no room left: what was written until then is sound."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvgate.shadow.recording import Writer, encoded
from kvgate.shadow.rotation import Rotation

from .test_shadow_recording import CHECKPOINT, HEADER, LIFE, read

KILLED = """
import os, sys
from pathlib import Path
from tests.difftest.shadow.test_shadow_recording import HEADER, LIFE
from kvgate.shadow.recording import Writer, encoded
writer = Writer(Path(sys.argv[1]), HEADER)
writer.append(encoded(LIFE[0]))
while True:
    writer.append(encoded(LIFE[1]))
    print("written", flush=True)
"""


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Goal: SIGKILL costs one record at most. Method: kill a writer, and count the records that it reported."""
    path = tmp_path / "a.kvrec"
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, text=True) as process:
        assert process.stdout is not None
        said = sum(1 for _, _line in zip(range(1000), process.stdout, strict=False))
        process.send_signal(signal.SIGKILL)
    records, ended = read(path)
    assert len(records) >= 1 + said * len(LIFE[1])
    assert "not closed" in ended or "cut off" in ended


def _unwritable(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """From now on so many bytes fit on the disk."""
    write, left = os.write, [room]

    def full(file: int, data: Any) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(file, bytes(data)[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)


def test_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: it is reported once, nothing is raised, and what was written is sound. Method: a disk with little room."""
    said: list[str] = []
    rotation = Rotation(tmp_path, HEADER, 2**20, said.append)
    with monkeypatch.context() as patch:
        _unwritable(patch, 1000)
        rotation.append(LIFE[0])
        for _ in range(100):
            rotation.append(LIFE[1])
        rotation.append([CHECKPOINT])
        rotation.append(LIFE[1])
    (path,) = rotation.written
    assert 1 == len(said)
    assert "No space left on device" in said[0]
    records, ended = read(path)
    assert len(records) > 1
    assert "not closed" in ended
    # Once there is room again, a part begins with the next checkpoint.
    rotation.append([CHECKPOINT])
    rotation.append(LIFE[1])
    rotation.close()
    assert [CHECKPOINT, *LIFE[1]] == read(rotation.written[-1])[0]
    assert 2 * 100 + 3 == len(records) - 1 + rotation.lost


def test_a_file_may_not_grow(tmp_path: Path) -> None:
    """Goal: the same for the kernel's own refusal. Method: a limit on the size of files, in a process of its own."""
    path = tmp_path / "a.kvrec"
    if not (child := os.fork()):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        writer = Writer(path, HEADER)
        try:
            while True:
                writer.append(encoded(LIFE[1]))
        except OSError as error:
            os._exit(error.errno or 1)
        finally:
            os._exit(99)
    assert errno.EFBIG == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    records, ended = read(path)
    assert len(records) > 1
    assert "not closed" in ended
