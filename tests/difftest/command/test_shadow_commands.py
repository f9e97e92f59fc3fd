"""``kvgate record``, ``kvgate replay`` of recordings, and ``kvgate diff``.

Goal: anyone with the file can check, compare and describe what a shadow recorded. Method: small recordings by hand.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kvgate.report.document import from_json
from kvgate.shadow.calls import (
    After,
    Allocated,
    Arrived,
    Checkpoint,
    End,
    Freed,
    LookedUp,
    Registered,
    Restart,
    Step,
    Stored,
)
from kvgate.shadow.recording import Header, Writer, encoded
from kvgate.shadow.status import Status
from kvgate.shadow.status import write as write_status
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

from .stage import Ended, rows_of

Kvgate = Callable[..., Ended]
SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=5)
CHECKPOINT = Checkpoint([0, 0, 0, 0, 0], [1, 2, 3, 4], {}, [], [])


def life(block: int = 1, digest: bytes = b"a", ms: int = 0) -> list[list[Stored]]:
    """A request that takes a block and a half, and ends. A manager that allocates it another first block is wrong."""
    given = [[block, 2 if block == 1 else 1]]
    taken = Registered(0, 0, [block])
    return [
        [CHECKPOINT, Arrived(0, 20, 20, True, [digest])],
        [
            Step(1, ms),
            LookedUp(0, 0, [[]], False),
            Allocated(0, 0, 20, 0, 0, 0, False, True, given, True, (), [taken], After(2, 1, (4, 3))),
        ],
        [Freed(0, True, After(4, 1, (1, 2)))],
        [End()],
    ]


def written(path: Path, steps: list[list[Stored]]) -> Path:
    """A recording with these steps."""
    path.parent.mkdir(exist_ok=True)
    writer = Writer(path, Header(SETTINGS, "stock", "0.20.2", "Scheduler", 0, path.stem))
    for step in steps:
        writer.append(encoded(step))
    writer.close()
    return path


def test_what_agrees_is_exit_code_0(here: Path, kvgate: Kvgate) -> None:
    """As text and as JSON, by its file and by its folder."""
    path = written(here / "shadow" / "recording-a-000000.kvrec", life())
    ended = kvgate("replay", str(path))
    assert (0, "") == (ended.code, ended.err)
    assert "no difference in 3 calls" in ended.out
    (engine,) = rows_of(kvgate("replay", str(path.parent), "--format", "json").out)
    assert (0, 3, 3) == (engine["differences"], engine["calls checked"], engine["tally"]["judged"])


def test_what_differs_is_exit_code_1(here: Path, kvgate: Kvgate) -> None:
    """With the guarantee, the call, both sides and the command."""
    path = written(here / "a.kvrec", life(block=3))
    ended = kvgate("replay", str(path))
    assert 1 == ended.code
    assert "KV-OP-05" in ended.out
    assert "step 1, call 4: request 0 is admitted: 20 tokens after 0 -> has [[3, 1]], 2 blocks free" in ended.out
    assert "expected: ((1, 2),)\ngot: ((3, 1),)" in ended.out
    assert f"kvgate replay {path}" in ended.out


def test_a_cut_recording_is_checked_up_to_the_cut(here: Path, kvgate: Kvgate) -> None:
    """All but the last record, and the report says so."""
    path = written(here / "a.kvrec", life())
    path.write_bytes(path.read_bytes()[:-30])
    ended = kvgate("replay", str(path))
    assert 0 == ended.code
    assert "its last record is cut off" in ended.out


def test_what_cannot_be_checked_is_exit_code_2(here: Path, kvgate: Kvgate) -> None:
    """Corrupted in the middle, declared as a system that does not exist, or together with options of a trace."""
    path = written(here / "a.kvrec", life())
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    (here / "b.kvrec").write_bytes(data)
    for arguments, message in (
        (("replay", "b.kvrec"), "its checksum is wrong"),
        (("replay", "a.kvrec", "--format", "junit"), "reported as text or json"),
        (("replay", "a.kvrec", "--as-pytest"), "takes no option but --format"),
        (("diff", "a.kvrec", "b.kvrec"), "its checksum is wrong"),
        (("diff", "a.kvrec", "none"), "cannot be read"),
    ):
        ended = kvgate(*arguments)
        assert 2 == ended.code
        assert message in ended.err


def test_the_same_life_under_two_salts(here: Path, kvgate: Kvgate) -> None:
    """Times and digests differ, what happened does not: exit code 0."""
    written(here / "a.kvrec", life())
    written(here / "b.kvrec", life(digest=b"b", ms=99))
    ended = kvgate("diff", "a.kvrec", "b.kvrec")
    assert (0, "the same, in 5 calls") == (ended.code, ended.out.splitlines()[0])


def test_where_two_lives_part(here: Path, kvgate: Kvgate) -> None:
    """Another block; another content; an end: exit code 1, and both sides."""
    written(here / "a.kvrec", life())
    written(here / "b.kvrec", life(block=3))
    ended = kvgate("diff", "a.kvrec", "b.kvrec")
    assert 1 == ended.code
    assert "the same in 3 calls; then they differ: Allocated" in ended.out
    assert "b.kvrec: request 0 is admitted: 20 tokens after 0 -> has [[3, 1]]" in ended.out
    written(here / "c.kvrec", life()[:2])
    (story,) = from_json(kvgate("diff", "a.kvrec", "c.kvrec", "--format", "json").out, "out").found
    assert "one of them ends here" == story.details["difference"]


def test_what_two_recordings_lack_is_reported(here: Path, kvgate: Kvgate) -> None:
    """Two recordings that were cut at the same place, or have the same gap, agree on what they share; the rest is
    reported.
    """
    whole = life()
    gap: list[list[Stored]] = [*whole[:2], [Restart(7, "calls were lost")], [CHECKPOINT], [End()]]
    for name in ("a.kvrec", "b.kvrec"):
        written(here / "cut" / name, whole[:-1])
        written(here / "gap" / name, gap)
    for folder, message in (
        ("cut", "it was not closed: the process that wrote it ended first"),
        ("gap", "after call 3, at least 7 calls are missing: calls were lost"),
    ):
        ended = kvgate("diff", f"{folder}/a.kvrec", f"{folder}/b.kvrec")
        assert 0 == ended.code
        assert "the same, in " in ended.out
        for name in ("a", "b"):
            assert f"- {folder}/{name}.kvrec: {message}" in ended.out
        out = kvgate("diff", f"{folder}/a.kvrec", f"{folder}/b.kvrec", "--format", "json").out
        assert 2 == len(from_json(out, "out").not_tested)


def test_a_command_is_run_with_a_shadow(here: Path, kvgate: Kvgate) -> None:
    """Its environment asks for a shadow, its exit code is kept, and the output reports what the shadow saw."""
    program = "import os, sys; print(sorted(n for n in os.environ if n.startswith('KVGATE_SHADOW'))); sys.exit(7)"
    ended = kvgate("record", "--check", "--dir", "shadow", "--", sys.executable, "-c", program)
    assert 7 == ended.code
    assert 0o700 == (here / "shadow").stat().st_mode & 0o777
    assert "no engine of vLLM had a shadow" in ended.err
    write_status(here / "shadow", Status("before", "check", 1, state="ended"))
    status = Status("e-1", "check", 1, state="ended", judged=5, differences=1, first="KV-OP-05 at step 1")
    (here / "fresh").mkdir()
    write_status(here / "fresh", status)
    program = "import os; os.replace('fresh/status-e-1.json', 'shadow/status-e-1.json')"
    ended = kvgate("record", "--check", "--dir", "shadow", "--", sys.executable, "-c", program)
    assert 0 == ended.code
    assert "kvgate: engine e-1: 5 calls checked, 1 difference; the first: KV-OP-05 at step 1\n" == ended.err


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_wrapped_command(here: Path, number: signal.Signals) -> None:
    """Goal: a wrapped server ends in its own way. Method: a command that prints its signal and exits with 5."""
    program = (
        "import signal, sys, time\n"
        "def end(number, _frame): print('got', number, flush=True); sys.exit(5)\n"
        f"signal.signal({int(number)}, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    recording = subprocess.Popen(
        [sys.executable, "-m", "kvgate.cli", "record", "--", sys.executable, "-c", program],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert recording.stdout is not None
        assert "up\n" == recording.stdout.readline()
        recording.send_signal(number)
        out, err = recording.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(recording.pid, signal.SIGKILL)
    assert (5, f"got {int(number)}\n") == (recording.returncode, out)
    assert "no engine of vLLM had a shadow" in err


def test_a_command_that_is_not_there(kvgate: Kvgate) -> None:
    """One message."""
    ended = kvgate("record", "--", "no-such-command-anywhere")
    assert 2 == ended.code
    assert "no-such-command-anywhere: cannot be run" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "/proc/x"), "kvgate: --out /proc/x: cannot be written: "),
        (("--out", "/proc"), "kvgate: --out /proc: cannot be written: "),
        (("--out", "file/below"), "kvgate: --out file/below: cannot be written: Not a directory"),
        (("--sample", "2"), "Invalid value for '--sample'"),
        (("--sample", "0"), "kvgate: --sample 0: a share is more than 0 and at most 1"),
        (("--sample", "nan"), "--sample"),
        (("--max-mib", "99999999999"), "Invalid value for '--max-mib'"),
    ],
)
def test_what_cannot_be_recorded_is_not_run(
    arguments: tuple[str, ...], message: str, here: Path, kvgate: Kvgate
) -> None:
    """The message names the options that were typed, not the variables derived from them."""
    (here / "file").touch()
    program = "from pathlib import Path; Path('ran').touch()"
    ended = kvgate("record", *arguments, "--", sys.executable, "-c", program)
    assert 2 == ended.code
    assert message in ended.err
    assert "KVGATE_SHADOW" not in ended.err
    assert not (here / "ran").exists()
