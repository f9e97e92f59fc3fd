"""``vllm serve`` with a tiny model.

Goal: a server comes up, is driven, and is gone afterwards; if one does not come up, its last output is reported.
Method: the plug-in made on the fly, as Python finds it; a command that fails; and a real server, which is deep.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import distributions
from pathlib import Path

import pytest

from kvgate.adapters.cpu_engine import serving
from kvgate.adapters.cpu_engine.plugged import NAME, put_in_place, write_plug_in
from kvgate.adapters.cpu_engine.serving import Serving, command, served
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.live.check_stats import Verdict
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.server import connected
from kvgate.live.shadow_metrics import followed, shadows_of

SHADOW_SECONDS_MAX = 60.0


def test_the_plug_in_is_found(tmp_path: Path) -> None:
    """As vLLM looks for plug-ins, in a folder on the path."""
    write_plug_in(tmp_path, ["last-token-ignored"], [Path("mine.py")])
    found = {
        each.name: each.value
        for package in distributions(path=[str(tmp_path)])
        for each in package.entry_points
        if each.group == "vllm.general_plugins"
    }
    assert {NAME: f"{NAME}:register"} == found
    assert "('last-token-ignored',)" in (tmp_path / f"{NAME}.py").read_text()


def test_an_unknown_fault_is_rejected() -> None:
    """And not passed over: a server without the fault would look like one that survives it."""
    pytest.importorskip("vllm")
    with pytest.raises(UsageError, match="unknown mutant 'nothing'"):
        put_in_place(["nothing"], [])
    with pytest.raises(UsageError, match="unknown mutant 'nothing'"), served(Serving(mutants=("nothing",))):
        pass


def test_the_command_is_small() -> None:
    """It has no value where vLLM wants none, and the options that are given come last."""
    given = command(Path("model"), 8000, ["--max-num-seqs=2"])
    assert {"--enforce-eager", "--dtype=float32", "--port=8000"} <= set(given)
    assert "--max-num-seqs=2" == given[-1]


def test_a_server_that_does_not_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: its last output is reported, and no process is left. Method: a command that prints something and ends."""
    folders: list[Path] = []

    def fails(folder: Path, *_rest: object) -> list[str]:
        folders.append(folder)
        return [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"]

    monkeypatch.setattr(serving, "command", fails)
    monkeypatch.setattr(serving, "_run", lambda _arguments: None)
    with pytest.raises(SystemUnavailableError, match=r"(?s)ended with 3.*out of luck"), served(Serving()):
        pass
    assert [False] == [folder.parent.exists() for folder in folders]


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "kvgate-shadow"), ({"KVGATE_SHADOW_DIR": "mine"}, "mine")], ids=["default", "given"]
)
def test_its_shadow_writes_where_the_caller_is(
    given: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: the shadow's results outlive the server. Method: a command that is up at once and writes there."""
    program = "import os, time; open(os.environ['KVGATE_SHADOW_DIR'], 'w').close(); time.sleep(60)"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serving, "command", lambda *_rest: [sys.executable, "-c", program])
    monkeypatch.setattr(serving, "_run", lambda _arguments: None)
    monkeypatch.setattr(serving, "_wait_until_up", lambda *_given: _wait_for(tmp_path / expected))
    with served(Serving(environment={"KVGATE_SHADOW": "check", **given})) as up:
        assert tmp_path / expected == up.shadow
    assert (tmp_path / expected).exists()
    with served(Serving()) as up:
        assert None is up.shadow


def _wait_for(path: Path) -> None:
    for _ in range(500):
        if path.exists():
            return
        time.sleep(0.01)


@pytest.mark.deep
@pytest.mark.parametrize("mutants", [(), ("last-token-ignored",)], ids=["sound", "broken"])
def test_a_server(mutants: tuple[str, ...], tmp_path: Path) -> None:
    """Goal: answers and shadow agree, or both show a foreign block. Method: a server with the fault, and without."""
    shadow = {"KVGATE_SHADOW": "check", "KVGATE_SHADOW_DIR": str(tmp_path)}
    with served(Serving("gemma-3", shadow, mutants=mutants)) as up, connected(up.url) as server:
        # The server is up before its shadow, a process that starts next to it.
        until = time.monotonic() + SHADOW_SECONDS_MAX
        while not shadows_of(server.metrics()):
            assert time.monotonic() < until, "no shadow's counters"
            time.sleep(0.5)
        tally = EXERCISES["near-twins"](Exercises(server))
        seen = followed(server.metrics, {})
        assert up.is_up
        assert tmp_path == up.shadow
        assert up.folder.samefile(Path(server.model).parent)
    assert seen.has_settled
    assert (bool(mutants), bool(mutants)) == (tally.count(Verdict.DIFFERS) > 0, seen.shadow.differences > 0)
    assert up.process.poll() is not None
