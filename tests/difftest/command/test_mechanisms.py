"""``kvgate mechanisms``.

Goal: the exit code says whether the reference is in order, mechanism by mechanism, and a mechanism that was not tested
is never told as one that is. Method: the command in this process on small mechanisms, with the reference and with
broken ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.explore import drive as driving
from kvgate.explore.canonical import Prompt
from kvgate.explore.designs import DESIGNS, Design
from kvgate.explore.drive import Driven, drive
from kvgate.explore.exploration import INTERRUPTED
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.mechanisms import MECHANISMS, Mechanism
from kvgate.explore.scope import Menu, Scope
from kvgate.explore.search import Search
from kvgate.explore.tiny_models import MODELS, Tiny
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Finish, Operation
from kvreference.settings import Settings

from .stage import Ended

Kvgate = Callable[..., Ended]

SCOPE = Scope(
    Settings(Geometry((Group(Kind.FULL, 2),)), blocks=3, tokens_max=4, requests_max=1, tells_events=False),
    Menu((Prompt(3),)),
)
SMALL = {
    "sharing": Mechanism("sharing", ("full", "swa"), ("smallest",), ("hits", "shared blocks")),
    "windows": Mechanism("windows", ("swa+eagle",), ("smallest", "smallest"), ("drafts accepted",)),
}
NEVER = {"nothing": Mechanism("nothing", ("full",), (), ("hits", "copies", "loads"))}


class LosesBlocks(Reference):
    """Forgets whose blocks those of a request are that finishes."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            self.tables.pop(operation.request)
        return super().apply(operation)


class Wrong(Tiny):
    """The scope of a model in which a design is explored as if it were the reference."""

    def world(self, deep: bool = False, design: Design | None = None) -> ManagerWorld:
        assert design is None
        return super().world(deep, DESIGNS["released-early"])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mechanisms, with a model that is explored in no time."""
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", SMALL)
    tiny = MODELS["tiny-swa"]
    assert isinstance(tiny, Tiny)
    wrong = Wrong("wrong", "a design", tiny.shallow, tiny.deep)
    models = {"smallest": Tiny("smallest", "one request", SCOPE, SCOPE), "tiny-swa": tiny, "wrong": wrong}
    monkeypatch.setattr("kvgate.explore.tiny_models.MODELS", models)


def test_what_there_is_is_listed(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each, or for those that are named; nothing is driven."""
    monkeypatch.setattr("kvgate.explore.drive.drive", None)
    ended = kvgate("mechanisms", "--list")
    assert (0, "") == (ended.code, ended.err)
    windows = "windows: driven on swa+eagle; explored on smallest, smallest"
    assert ["sharing: driven on full, swa; explored on smallest", windows] == ended.out.splitlines()
    assert [windows] == kvgate("mechanisms", "--list", "windows").out.splitlines()
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", MECHANISMS)
    listed = kvgate("mechanisms", "--list").out.splitlines()
    assert list(MECHANISMS) == [line.partition(":")[0] for line in listed]


def test_whatever_is_explored_is_a_tiny_model() -> None:
    """What is driven is a model: see the tests of variants."""
    assert {name for mechanism in MECHANISMS.values() for name in mechanism.tiny} <= set(MODELS)


def test_a_reference_in_order_is_exit_code_0(kvgate: Kvgate) -> None:
    """With what was driven, how much, and what happened on the way."""
    ended = kvgate("mechanisms", "--operations", "500")
    assert (0, "") == (ended.code, ended.err)
    first, on, second, _ = ended.out.splitlines()
    assert first.startswith("sharing: ")
    assert first.endswith("shared blocks; nothing wrong")
    assert "  on full, swa" == on
    assert second.startswith("windows: ")


def test_the_mechanisms_that_are_named_are_driven(kvgate: Kvgate) -> None:
    """And no others; the seed is passed on."""
    runs = [
        json.loads(kvgate("mechanisms", "sharing", "--operations", "300", "--seed", seed, "--format", "json").out)
        for seed in ("0", "0", "1")
    ]
    assert ["sharing"] == [row["mechanism"] for row in runs[0]["mechanisms"]]
    assert runs[0] == runs[1] != runs[2]


def test_a_program_reads_the_same(kvgate: Kvgate) -> None:
    """Every key is there, with numbers as numbers."""
    ended = kvgate("mechanisms", "--operations", "500", "--explore", "--format", "json")
    assert 0 == ended.code
    document = json.loads(ended.out)
    assert ("completed", ["sharing", "windows"]) == (
        document["ended"],
        [row["mechanism"] for row in document["mechanisms"]],
    )
    sharing, windows = document["mechanisms"]
    assert ["mechanism", "models", "operations", "cases", "seen", "wrong", "explored"] == list(sharing)
    assert (["full", "swa"], [], {"hits", "shared blocks"}) == (
        sharing["models"],
        sharing["wrong"],
        set(sharing["seen"]),
    )
    assert min(sharing["operations"], 500) == 500
    (smallest,) = sharing["explored"]
    assert ("smallest", 12, None, []) == tuple(smallest[key] for key in ("model", "states", "stopped", "wrong"))
    assert "requests" in smallest["bounds"]
    assert 2 == len(windows["explored"])


def test_what_was_explored_is_told_with_its_bounds(kvgate: Kvgate) -> None:
    """All states, or the exploration says that it is not all of them."""
    lines = kvgate("mechanisms", "sharing", "--operations", "500", "--explore").out.splitlines()
    assert lines[2].startswith("  smallest: 12 states, ")
    assert lines[2].endswith("exhaustive")
    assert "bounds of what was explored:" == lines[3]
    assert "requests: at most 1 at once, of at most 4 tokens" in lines[4]


def test_an_exploration_that_stopped_is_exit_code_4(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong, and not all was seen."""
    monkeypatch.setattr("kvgate.cli.mechanisms.EXPLORE_SECONDS", 0.0)
    ended = kvgate("mechanisms", "sharing", "--operations", "500", "--explore")
    assert 4 == ended.code
    assert "STOPPED, not exhaustive: " in ended.out.splitlines()[2]


def test_a_broken_reference_is_exit_code_1(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the model, the step, the operation and the guarantee; also where what is explored stopped."""
    monkeypatch.setattr("kvgate.explore.drive.drive", partial(drive, factory=LosesBlocks))
    ended = kvgate("mechanisms", "sharing", "--operations", "5000")
    assert 1 == ended.code
    (line, _) = ended.out.splitlines()
    assert "; WRONG: full, step " in line
    assert ", Finish request " in line
    assert ": KV-INV-01, expected the statement holds, got block " in line
    monkeypatch.setattr("kvgate.cli.mechanisms.EXPLORE_SECONDS", 0.0)
    assert 1 == kvgate("mechanisms", "sharing", "--operations", "5000", "--explore").code


def test_a_state_that_should_not_be_is_exit_code_1(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explored, not driven: here a design in the reference's place."""
    monkeypatch.setitem(SMALL, "wrong", Mechanism("wrong", ("full",), ("wrong",), ("hits",)))
    assert 0 == kvgate("mechanisms", "wrong", "--operations", "500").code
    ended = kvgate("mechanisms", "wrong", "--operations", "500", "--explore")
    assert 1 == ended.code
    assert "; WRONG: " in ended.out.splitlines()[2]
    assert "KV-MEM-01" in ended.out.splitlines()[2]


def test_a_mechanism_that_never_acts_is_exit_code_1(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was wrong with it, and nothing was tested."""
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", NEVER)
    ended = kvgate("mechanisms", "--operations", "500")
    assert 1 == ended.code
    assert ended.out.splitlines()[0].endswith("; WRONG: never seen: copies; never seen: loads")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense",), "unknown mechanism 'nonsense': give one of sharing, windows"),
        (("sharing", "Sharing"), "unknown mechanism 'Sharing': give one of sharing, windows"),
        (("--list", "nonsense"), "unknown mechanism 'nonsense': give one of sharing, windows"),
    ],
)
def test_an_unknown_mechanism_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...], message: str) -> None:
    """In one line that says what there is."""
    ended = kvgate("mechanisms", *arguments)
    assert (2, message) == (ended.code, ended.message)


@pytest.mark.parametrize("arguments", [("--operations", "0"), ("--operations", "many"), ("--format", "xml"), ("--x",)])
def test_bad_usage_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...]) -> None:
    """Before anything is driven."""
    ended = kvgate("mechanisms", *arguments)
    assert (2, "") == (ended.code, ended.out)


def test_an_interrupt_ends_with_what_was_driven(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, unless something was wrong; the mechanism that was under way is not told."""

    def interrupted(*arguments: Any, **named: Any) -> Driven:
        monkeypatch.setattr(driving, "drive", stopped)
        return drive(*arguments, **named)

    def stopped(*_arguments: object, **_named: object) -> Driven:
        raise KeyboardInterrupt

    monkeypatch.setattr(driving, "drive", interrupted)
    ended = kvgate("mechanisms", "--operations", "500")
    assert 130 == ended.code
    assert ["sharing", "  on full, swa", "interrupted"] == [line.partition(":")[0] for line in ended.out.splitlines()]
    monkeypatch.setattr(driving, "drive", interrupted)
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", NEVER | SMALL)
    assert 1 == kvgate("mechanisms", "--operations", "500").code
    document = json.loads(kvgate("mechanisms", "--format", "json").out)
    expected = {"format": "kvgate-mechanisms", "version": 1, "ended": "interrupted", "mechanisms": []}
    assert expected == document


def test_an_interrupt_while_exploring_ends_with_what_was_seen(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search itself stops where it is; what would have followed is left out."""
    run = Search.run
    monkeypatch.setattr(Search, "run", lambda search: evolve(run(search), stopped=INTERRUPTED))
    ended = kvgate("mechanisms", "windows", "sharing", "--operations", "500", "--explore", "--format", "json")
    assert 130 == ended.code
    document = json.loads(ended.out)
    assert ("interrupted", ["windows"]) == (document["ended"], [row["mechanism"] for row in document["mechanisms"]])
    assert ["interrupted"] == [each["stopped"] for each in document["mechanisms"][0]["explored"]]
