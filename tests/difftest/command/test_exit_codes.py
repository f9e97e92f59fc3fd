"""Exit codes, command by command.

Goal: 0 and 1 are verdicts about the system under test, and nothing else ends with them; if kvgate itself fails, that is
exit code 5, with a report of what failed. Method: a table of every command that runs cases, each with a run that ends
with each of its codes. A fault is a system whose adapter raises where no operation is performed, or a part of the gate,
its own adapters among them, that is replaced by one that raises.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from xml.etree import ElementTree

import pytest

from kvgate.cli.app import COMMANDS

from .stage import Ended, stored

Kvgate = Callable[..., Ended]

SHORT = ("--model", "full", "--time-budget", "0.3s")
SHARD = ("--model", "full", "--shard-operations", "300", "--jobs", "1", "--shards", "1")
DRAWS = "kvgate.gate.generator.Generator.settings"
"""The beginning of every generated case."""

TABLE: Mapping[str, tuple[tuple[int, tuple[str, ...], str | None], ...]] = {
    # The exit code, the arguments, and what is replaced by something that raises.
    "check": (
        (0, ("--sut", "reference", *SHORT), None),
        (1, ("--sut", "faulty:HeadFirst", *SHORT), None),
        (2, ("--sut", "reference", "--model", "llama"), None),
        (3, ("--sut", "nowhere:build", *SHORT), None),
        (5, ("--sut", "faulty:Rootless", *SHORT), None),
        (5, ("--sut", "reference", *SHORT), DRAWS),
        (5, ("--sut", "reference", *SHORT), "kvreference.manager.Manager.apply"),
        (5, ("--sut", "reference", *SHORT), "kvgate.adapters.reference.Reference.apply"),
        (5, ("--sut", "reference", *SHORT), "kvgate.adapters.reference.Reference.snapshot"),
    ),
    "replay": (
        (0, ("trace.jsonl",), None),
        (1, ("trace.jsonl", "--sut", "faulty:HeadFirst"), None),
        (2, ("nothing.jsonl",), None),
        (3, ("trace.jsonl", "--sut", "nowhere:build"), None),
        (5, ("trace.jsonl", "--sut", "faulty:Rootless"), None),
    ),
    "shrink": (
        (0, ("trace.jsonl", "--sut", "faulty:HeadFirst"), None),
        (2, ("trace.jsonl",), None),
        (3, ("trace.jsonl", "--sut", "nowhere:build"), None),
        (5, ("trace.jsonl", "--sut", "faulty:Rootless"), None),
    ),
    "fuzz": (
        (0, ("--sut", "reference", *SHARD), None),
        (1, ("--sut", "faulty:HeadFirst", *SHARD), None),
        (2, ("--sut", "reference", "--model", "llama"), None),
        (3, ("--sut", "nowhere:build", *SHARD), None),
        (5, ("--sut", "faulty:Rootless", *SHARD), None),
    ),
    "conform": (
        (0, ("sharing", "--operations", "100"), None),
        (1, ("sharing", "--operations", "100"), "kvreference.manager.Manager.apply"),
        (2, ("nothing",), None),
        (5, ("sharing", "--operations", "100"), DRAWS),
    ),
    "mechanisms": (
        (1, ("sharing", "--operations", "100"), "kvreference.manager.Manager.apply"),
        (2, ("nothing",), None),
        (5, ("sharing", "--operations", "100"), DRAWS),
    ),
    "explore": (
        (2, ("nothing",), None),
        (5, ("--model", "tiny-swa"), "kvgate.explore.search.Search.run"),
    ),
    "mutants": (
        (2, ("nothing",), None),
        (5, (), "kvgate_mutants.cli.mutants.MutantSet.benches"),
    ),
    "corpus": (
        (2, ("nothing",), None),
        (5, (), "kvgate_mutants.corpus.running.run"),
    ),
}
ROWS = [
    pytest.param(command, *row, id=f"{command} {row[0]} {place}")
    for command, rows in TABLE.items()
    for place, row in enumerate(rows)
]


def _raises(*_arguments: object, **_named: object) -> None:
    raise KeyError("no such thing")


@pytest.mark.few(12)
@pytest.mark.parametrize(("command", "code", "arguments", "replaced"), ROWS)
def test_the_exit_code_is_the_one_in_the_table(
    command: str,
    code: int,
    arguments: tuple[str, ...],
    replaced: str | None,
    here: Path,
    kvgate: Kvgate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault, and nothing else, is reported as one, with a file to send."""
    stored(here)
    if replaced is not None:
        # As if it stood where what it replaces stands.
        home = {"__name__": replaced.rpartition(".")[0], "__builtins__": builtins}
        monkeypatch.setattr(replaced, FunctionType(_raises.__code__, home))
    ended = kvgate(command, *arguments)
    assert code == ended.code, ended.err
    assert (code == 5) == ("kvgate itself failed" in ended.err)
    assert (code == 5) == bool([*here.rglob("fault*.txt")])
    assert "Traceback" not in ended.err


def test_every_command_that_runs_cases_is_in_the_table() -> None:
    """Goal: a new command is not forgotten. Method: those that run none are named here."""
    run_none = {"rule", "record", "status", "diff", "explain", "simulate", "prove", "doctor", "fetch"}
    assert set(COMMANDS) - run_none == set(TABLE)
    assert all(rows[-1][0] == 5 for rows in TABLE.values())


def test_any_other_command_ends_in_the_same_way(here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no traceback and no exit code 1. Method: every call of a command raises."""
    monkeypatch.setattr("kvgate.cli.app.app", _raises)
    ended = kvgate("doctor")
    assert (5, "") == (ended.code, ended.out)
    assert "kvgate: kvgate itself failed, running the command: KeyError: 'no such thing'\n" in ended.err
    assert "kvgate: to run all of it again: kvgate doctor\n" in ended.err
    sent = (here / "kvgate-report" / "fault.txt").read_text(encoding="utf-8")
    assert "Traceback" in sent
    assert "kvgate doctor" in sent


def test_the_report_of_a_fault_has_the_case(here: Path, kvgate: Kvgate) -> None:
    """Goal: a bug report shows the fault again. Method: run the printed command; the report for programs agrees."""
    ended = kvgate("check", "--sut", "faulty:Rootless", *SHORT, "--report", "out", "--format", "json")
    document = json.loads(ended.out)
    assert (5, True, "kvgate itself failed") == tuple(document[name] for name in ("exit_code", "agrees", "ended"))
    assert "kvgate: to run the case again: kvgate replay out/fault.jsonl\n" in ended.err
    assert {"fault.txt", "fault.jsonl"} <= {path.name for path in (here / "out").iterdir()}
    again = kvgate("replay", "out/fault.jsonl", "--sut", "faulty:Rootless")
    assert (5, True) == (again.code, "KeyError: 'roots'" in again.err)
    suites = ElementTree.fromstring((here / "out" / "junit.xml").read_text(encoding="utf-8"))
    assert "1" == suites.get("errors")


def test_what_was_found_before_a_fault_is_reported(here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a fault hides no divergence. Method: the gate fails when it makes the first divergence smaller."""
    assert here.exists()
    monkeypatch.setattr("kvgate.gate.case_runner.shrink_case", _raises)
    ended = kvgate("check", "--sut", "faulty:HeadFirst", *SHORT)
    assert 1 == ended.code
    assert "KV-OP-07" in ended.out
    assert "kvgate itself failed" in ended.err
