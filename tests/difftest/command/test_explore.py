"""``kvgate explore``.

Goal: the exit code says whether all was seen and nothing is wrong, something is, or not all was seen; and no limit
makes less look like all. Method: the command in this process on tiny models, cut short where they are large.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.explore.canonical import Prompt
from kvgate.explore.designs import DESIGNS
from kvgate.explore.scope import Menu, Scope
from kvgate.explore.tiny_models import MODELS, Tiny
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

from .stage import Ended, environment, rows_of

Kvgate = Callable[..., Ended]

SCOPE = Scope(
    Settings(Geometry((Group(Kind.FULL, 2),)), blocks=3, tokens_max=4, requests_max=1, tells_events=False),
    Menu((Prompt(3),)),
)


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more model, which is visited in no time, and the one that shows what is wrong with a design."""
    models = {"tiny-swa": MODELS["tiny-swa"], "smallest": Tiny("smallest", "one request", SCOPE, SCOPE)}
    monkeypatch.setattr("kvgate.explore.tiny_models.MODELS", models)


def test_a_model_in_order_is_exit_code_0(kvgate: Kvgate) -> None:
    """With the size of what was seen, and its bounds."""
    ended = kvgate("explore", "--model", "smallest")
    assert (0, "") == (ended.code, ended.err)
    assert ended.out.startswith("nothing wrong in 12 states of 1 model, which are all that can be reached")
    assert "  requests: at most 1 at once, of at most 4 tokens" in ended.out.splitlines()
    assert 0 == kvgate("explore", "--model", "smallest", "--model", "smallest", "--deep").code


def test_a_limit_that_is_reached_is_exit_code_4(kvgate: Kvgate) -> None:
    """In states or in seconds, for any of the models."""
    for limit in (("--states-max", "5"), ("--time-budget", "0.000001s")):
        ended = kvgate("explore", "--model", "smallest", "--model", "tiny-swa", *limit)
        assert 4 == ended.code
        assert "; not exhaustive: smallest, tiny-swa" in ended.out.splitlines()[0]
    ended = kvgate("explore", "--all", "--states-max", "100", "--format", "json")
    assert 4 == ended.code
    assert [False, True] == [model["exhaustive"] for model in rows_of(ended.out)]


def test_a_refuted_design_is_exit_code_1(kvgate: Kvgate, here: Path) -> None:
    """With its story, and a trace that is written if asked for and shows the same again."""
    ended = kvgate("explore", "--design", "released-early")
    assert 1 == ended.code
    assert ended.out.startswith("tiny-swa: refuted by KV-MEM-01")
    assert "to see it again: write it to a file with --trace" in ended.out
    ended = kvgate("explore", "--design", "released-early", "--trace", "out/early.jsonl")
    command = "kvgate replay out/early.jsonl --sut kvgate.explore.designs:ReleasesEarly"
    assert f"  {command}" in ended.out.splitlines()
    assert (here / "out" / "early.jsonl").is_file()
    again = kvgate(*command.split()[1:])
    assert 1 == again.code
    assert "KV-MEM-01" in again.out


def test_a_design_that_is_not_refuted_says_so(kvgate: Kvgate) -> None:
    """It is exit code 0 where all was seen, and 4 where not."""
    ended = kvgate("explore", "--design", "released-early", "--model", "smallest", "--trace", "none.jsonl")
    assert 0 == ended.code
    assert ended.out.startswith("NOT REFUTED: ")
    assert not Path("none.jsonl").exists()
    assert 4 == kvgate("explore", "--design", "released-early", "--model", "smallest", "--states-max", "5").code


def test_what_there_is_is_listed(kvgate: Kvgate) -> None:
    """A row for each, and nothing is explored."""
    ended = kvgate("explore", "--list", "--format", "json")
    assert 0 == ended.code
    assert {"name": "smallest", "mechanism": "one request"} in rows_of(ended.out, "models:")
    designs = [(each["name"], each["statement"]) for each in rows_of(ended.out, "designs that do not work:")]
    assert [(design.name, design.statement) for design in DESIGNS.values()] == designs
    assert all(design.story in kvgate("explore", "--list").out for design in DESIGNS.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to explore: give --model NAME, --all or --design NAME; "),
        (("--model", "tiny"), "unknown tiny model 'tiny': give one of tiny-swa, smallest"),
        (("--design", "none"), "unknown design 'none': give one of released-early"),
        (("--design", "released-early", "--trace", "/proc/none/a"), "--trace /proc/none/a: cannot be written: "),
    ],
)
def test_bad_usage_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...], message: str) -> None:
    """In one line."""
    ended = kvgate("explore", *arguments)
    assert 2 == ended.code
    assert ended.message.startswith(message)


@pytest.mark.ci
def test_an_interrupt_ends_with_what_was_seen(tmp_path: Path) -> None:
    """Exit code 130, in the format asked for; the models that were left are not in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTS_ITSELF, "explore", "--all", "--format", "json"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=60)
    assert (130, "") == (process.returncode, err)
    (seen,) = rows_of(out)
    assert ("interrupted", False) == (seen["stopped"], seen["exhaustive"])
    assert 50 <= seen["states"] < 200


INTERRUPTS_ITSELF = f"""
import os
from kvgate.cli.app import main
from kvgate.explore.search import Search

keep_within = Search._keep_within

def interrupt(search, until):
    keep_within(search, until)
    if search.edges > 200:
        os.kill(os.getpid(), {int(signal.SIGINT)})

Search._keep_within = interrupt
main()
"""
