"""``kvgate mechanisms``.

Goal: the exit code says whether the reference is in order, mechanism by mechanism, and a mechanism that was not tested
is never reported as one that is. Method: the command in this process on small mechanisms, with the reference and with
broken ones.
"""

from __future__ import annotations

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
from kvgate.report.document import from_json
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Finish, Operation
from kvreference.settings import Settings

from .stage import Ended, rows_of

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
    """Forgets which blocks a finished request holds."""

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
    assert "windows" in ended.out
    sharing, windows = rows_of(kvgate("mechanisms", "--list", "--format", "json").out)
    assert {"mechanism": "sharing", "driven on": ["full", "swa"], "explored on": ["smallest"]} == sharing
    assert [windows] == rows_of(kvgate("mechanisms", "--list", "windows", "--format", "json").out)
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", MECHANISMS)
    listed = rows_of(kvgate("mechanisms", "--list", "--format", "json").out)
    assert list(MECHANISMS) == [row["mechanism"] for row in listed]


def test_all_explored_models_are_tiny() -> None:
    """Every driven name is a model: see the tests of variants."""
    assert {name for mechanism in MECHANISMS.values() for name in mechanism.tiny} <= set(MODELS)


def test_a_reference_in_order_is_exit_code_0(kvgate: Kvgate) -> None:
    """With what was driven, how much, and what happened on the way."""
    ended = kvgate("mechanisms", "--operations", "500")
    assert (0, "") == (ended.code, ended.err)
    first, second = (line.split() for line in ended.out.splitlines() if line.startswith((" sharing ", " windows ")))
    assert ["sharing", "full,", "swa"] == [first[0], *first[-2:]]
    assert "shared blocks: " in ended.out
    assert "windows" == second[0]


def test_the_mechanisms_that_are_named_are_driven(kvgate: Kvgate) -> None:
    """And no others; the seed is passed on."""
    runs = [
        rows_of(kvgate("mechanisms", "sharing", "--operations", "300", "--seed", seed, "--format", "json").out)
        for seed in ("0", "0", "1")
    ]
    assert ["sharing"] == [row["mechanism"] for row in runs[0]]
    assert runs[0] == runs[1] != runs[2]


def test_a_program_reads_the_same(kvgate: Kvgate) -> None:
    """Every key is there, with numbers as numbers."""
    ended = kvgate("mechanisms", "--operations", "500", "--explore", "--format", "json")
    assert 0 == ended.code
    sharing, windows = rows_of(ended.out)
    assert ("completed", "windows") == (from_json(ended.out, "out").ended, windows["mechanism"])
    assert (["full", "swa"], [], {"hits", "shared blocks"}) == (
        sharing["models"],
        sharing["wrong"],
        set(sharing["seen"]),
    )
    assert sharing["operations"] >= 500
    smallest, *others = rows_of(ended.out, "Explored")
    assert ("smallest", 12, None, []) == tuple(smallest[key] for key in ("model", "states", "stopped", "wrong"))
    assert "requests" in smallest["bounds"]
    assert ["windows"] * 2 == [row["mechanism"] for row in others]


def test_what_was_explored_is_reported_with_its_bounds(kvgate: Kvgate) -> None:
    """All states, or the exploration says that it is not all of them."""
    lines = kvgate("mechanisms", "sharing", "--operations", "500", "--explore").out.splitlines()
    (row,) = (line.split() for line in lines if line.startswith(" smallest"))
    assert ["sharing", "12", "yes"] == [row[1], row[2], row[6]]
    assert "requests: at most 1 at once, of at most 4 tokens" in lines[lines.index("Bounds of what was explored") + 1]


def test_an_exploration_that_stopped_is_exit_code_4(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong, and not all was seen."""
    monkeypatch.setattr("kvgate.cli.mechanisms.EXPLORE_SECONDS", 0.0)
    ended = kvgate("mechanisms", "sharing", "--operations", "500", "--explore")
    assert 4 == ended.code
    assert ended.out.splitlines()[0].endswith("; not exhaustive: smallest")


def test_a_broken_reference_is_exit_code_1(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the model, the step, the operation and the guarantee; also where what is explored stopped."""
    monkeypatch.setattr("kvgate.explore.drive.drive", partial(drive, factory=LosesBlocks))
    ended = kvgate("mechanisms", "sharing", "--operations", "5000")
    assert 1 == ended.code
    line = next(line for line in ended.out.splitlines() if line.startswith("["))
    assert "] sharing: full, step " in line
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
    (line,) = (line for line in ended.out.splitlines() if line.startswith("[1 of 1] wrong: "))
    assert "KV-MEM-01" in line


def test_a_mechanism_that_never_acts_is_exit_code_1(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was wrong with it, and nothing was tested."""
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", NEVER)
    ended = kvgate("mechanisms", "--operations", "500")
    assert 1 == ended.code
    assert "[1 of 2] nothing: never seen: copies\n" in ended.out
    assert "[2 of 2] nothing: never seen: loads\n" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense",), "unknown mechanism 'nonsense': give one of sharing, windows"),
        (("sharing", "Sharing"), "unknown mechanism 'Sharing': give one of sharing, windows"),
        (("--list", "nonsense"), "unknown mechanism 'nonsense': give one of sharing, windows"),
    ],
)
def test_an_unknown_mechanism_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...], message: str) -> None:
    """One line lists the known ones."""
    ended = kvgate("mechanisms", *arguments)
    assert (2, message) == (ended.code, ended.message)


@pytest.mark.parametrize("arguments", [("--operations", "0"), ("--operations", "many"), ("--format", "xml"), ("--x",)])
def test_bad_usage_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...]) -> None:
    """Before anything is driven."""
    ended = kvgate("mechanisms", *arguments)
    assert (2, "") == (ended.code, ended.out)


def test_an_interrupt_ends_with_what_was_driven(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, unless something was wrong; the unfinished mechanism is not reported."""

    def interrupted(*arguments: Any, **named: Any) -> Driven:
        monkeypatch.setattr(driving, "drive", stopped)
        return drive(*arguments, **named)

    def stopped(*_arguments: object, **_named: object) -> Driven:
        raise KeyboardInterrupt

    monkeypatch.setattr(driving, "drive", interrupted)
    ended = kvgate("mechanisms", "--operations", "500")
    assert 130 == ended.code
    assert "seed 0, interrupted" in ended.out
    assert " sharing " in ended.out
    assert "windows" not in ended.out
    monkeypatch.setattr(driving, "drive", interrupted)
    monkeypatch.setattr("kvgate.explore.mechanisms.MECHANISMS", NEVER | SMALL)
    assert 1 == kvgate("mechanisms", "--operations", "500").code
    report = from_json(kvgate("mechanisms", "--format", "json").out, "out")
    assert ("interrupted", 130, ()) == (report.ended, report.exit_code, report.tested[0].rows)


def test_an_interrupt_while_exploring_ends_with_what_was_seen(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search stops where it is; later models are left out."""
    run = Search.run
    monkeypatch.setattr(Search, "run", lambda search: evolve(run(search), stopped=INTERRUPTED))
    ended = kvgate("mechanisms", "windows", "sharing", "--operations", "500", "--explore", "--format", "json")
    assert 130 == ended.code
    assert ("interrupted", ["windows"]) == (
        from_json(ended.out, "out").ended,
        [row["mechanism"] for row in rows_of(ended.out)],
    )
    assert ["interrupted"] == [each["stopped"] for each in rows_of(ended.out, "Explored")]
