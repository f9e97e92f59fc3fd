"""``kvgate fuzz``: shards on the cores of this machine, found, stopped, and gone on with."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.merging import merge
from kvgate.campaigns.workers import Answered, LocalWorkers, Lost

from .stage import Ended, environment

Kvgate = Callable[..., Ended]
CHANCE = """
import os
from attrs import evolve
from kvgate.adapters.reference import Reference

class ByChance(Reference):
    def snapshot(self):
        seen = super().snapshot()
        return evolve(seen, free=list(seen.free)[::-1]) if os.urandom(1)[0] < 32 else seen
"""
SMALL = ("--model", "full", "--shard-operations", "500", "--jobs", "2")


def test_a_system_in_order(kvgate: Kvgate, here: Path) -> None:
    """Goal: exit 0, and all reports. Method: three shards of the reference."""
    ended = kvgate("fuzz", "--sut", "reference", "--shards", "3", "--out", "run", *SMALL)
    assert 0 == ended.code, ended.err
    assert "no divergence in" in ended.out
    assert "profile fuzz, 3 shards, " in ended.out
    assert "- twice: the cases that were run a second time" in ended.out
    assert {"report.txt", "verdict.json", "junit.xml", "summary.md"} <= {
        path.name for path in (here / "run" / "report").iterdir()
    }
    assert 3 == len(list((here / "run" / "shards").iterdir()))


def test_a_defect(kvgate: Kvgate, here: Path) -> None:
    """Goal: exit 1, each defect once, with a trace that shows it. Method: inject a fault, then replay the trace."""
    ended = kvgate("fuzz", "--sut", "faulty:HeadFirst", "--shards", "3", "--out", "run", *SMALL)
    assert 1 == ended.code, ended.err
    assert "KV-OP-07" in ended.out
    (corpus,) = (here / "run" / "corpus").iterdir()
    assert "kvgate replay run/report/divergence-1.jsonl --sut faulty:HeadFirst" in ended.out
    assert (here / "run" / "report" / "index.html").is_file()
    page = (here / "run" / "report" / "divergence-1.html").read_text(encoding="utf-8")
    assert "KV-OP-07" in page
    assert "kvgate replay run/report/divergence-1.jsonl --sut faulty:HeadFirst" in page
    assert 1 == kvgate("replay", str(corpus), "--sut", "faulty:HeadFirst").code
    refused = kvgate("fuzz", "--resume", "run", "--jobs", "1")
    assert (2, True) == (refused.code, "say so: --sut faulty:HeadFirst" in refused.message)
    again = kvgate("fuzz", "--resume", "run", "--jobs", "1", "--sut", "faulty:HeadFirst")
    assert (1, untimed(ended.out)) == (again.code, untimed(again.out))


def untimed(out: str) -> str:
    """The output without durations."""
    return re.sub(r"[\d.]+ s, completed", "completed", out)


def test_a_system_that_looks_at_chance(kvgate: Kvgate, here: Path) -> None:
    """Goal: another outcome is a finding, and can be seen again. Method: a free queue that turns round."""
    (here / "chance.py").write_text(CHANCE)
    ended = kvgate(
        "fuzz", "--sut", "chance:ByChance", "--shards", "1", "--out", "run", "--twice", "60", *SMALL, "--monitors-only"
    )
    assert 1 == ended.code, ended.err
    assert "KV-SYS-04: The same operations on a fresh system give the same answers and the same states." in ended.out
    (corpus,) = (here / "run" / "corpus").glob("KV-SYS-04-*")
    assert 1 == kvgate("replay", str(corpus), "--sut", "chance:ByChance").code
    assert 0 == kvgate("replay", str(corpus), "--sut", "reference").code


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--sut", "nobody"), 2, "unknown system 'nobody'"),
        (("--sut", "faulty:nobody"), 3, "has no callable 'nobody'"),
        (("--sut", "faulty:refuses"), 2, "does not support the settings"),
        (("--model", "nothing"), 2, "unknown model 'nothing'"),
        (("--resume", "nowhere"), 2, "the folder has no manifest.json"),
        (("--time-budget", "soon"), 2, "not a time"),
        (("--sut", "reference", "--ray", "local"), 3, "pip install 'PATH-OF-A-CLONE[ray]'"),
    ],
)
def test_what_cannot_be_run(
    arguments: tuple[str, ...], code: int, message: str, kvgate: Kvgate, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one message and the right code, from a worker too. Method: one mistake each."""
    monkeypatch.setitem(sys.modules, "ray", None)
    ended = kvgate("fuzz", "--shards", "1", "--jobs", "1", *arguments)
    assert code == ended.code
    assert message in ended.message
    assert not (here / "kvgate-fuzz" / "manifest.json").exists()


def test_two_nodes_are_not_offered(kvgate: Kvgate) -> None:
    """Goal: everything in the help can be run. Method: the words of ``--level``, and the one that is left out."""
    shown = kvgate("fuzz", "--help").out
    assert "--level <blocks|scheduler|both>\n" in shown
    ended = kvgate("fuzz", "--level", "pair")
    assert (2, True) == (ended.code, "kvgate check --level pair" in ended.message)


def test_a_run_is_not_begun_twice(kvgate: Kvgate) -> None:
    """Goal: no run is lost by a repeated command. Method: begin it twice."""
    arguments = ("fuzz", "--sut", "reference", "--shards", "1", "--out", "run", *SMALL)
    assert 0 == kvgate(*arguments).code
    ended = kvgate(*arguments)
    assert 2 == ended.code
    assert "continue it with --resume run" in ended.message


def test_standard_output_is_for_the_verdict(kvgate: Kvgate, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a program reads one document from standard output. Method: workers whose library prints, as Ray does when
    workers die.
    """
    wait = LocalWorkers.wait

    def chatty(workers: LocalWorkers, seconds: float) -> Sequence[Answered | Lost]:
        print("(raylet) a worker died")
        return wait(workers, seconds)

    monkeypatch.setattr(LocalWorkers, "wait", chatty)
    ended = kvgate("fuzz", "--sut", "reference", "--shards", "1", "--out", "run", "--format", "json", *SMALL)
    assert (0, True) == (ended.code, json.loads(ended.out)["agrees"])
    assert "(raylet) a worker died" in ended.err
    assert here.exists()


@pytest.mark.ci
def test_an_interrupt_leaves_what_was_done(kvgate: Kvgate, here: Path) -> None:
    """Goal: exit 130, and nothing that was done is done again. Method: a real signal after the first shard; resume."""
    command = [sys.executable, "-m", "kvgate.cli", "fuzz", "--sut", "reference", "--shards", "8", *SMALL]
    with subprocess.Popen(
        [*command, "--out", "run"],
        cwd=here,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        shards = here / "run" / "shards"
        patience = time.monotonic() + 60
        while not (shards.is_dir() and list(shards.glob("*.jsonl"))) and time.monotonic() < patience:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert 130 == process.returncode, err
    assert "kvgate: to continue: kvgate fuzz --resume run" in err
    assert "no divergence in" in out
    done = sorted(shards.glob("*.jsonl"))
    times = [path.stat().st_mtime_ns for path in done]
    assert 0 == kvgate("fuzz", "--resume", "run", "--jobs", "2").code
    assert times == [path.stat().st_mtime_ns for path in done]
    assert set(range(8)) == merge(RunFolder(here / "run").results()).shards
