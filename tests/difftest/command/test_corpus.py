"""``kvgate corpus``.

Goal: the exit code and every format say what became of the defects. Method: results made up, and the register as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvgate.kernel.data_file import read_csv
from kvgate_mutants.corpus import running
from kvgate_mutants.corpus.probe import Result, State
from kvgate_mutants.corpus.register import BUGS

from .stage import Ended, rows_of

Kvgate = Callable[..., Ended]
OVERSIZE = BUGS["oversize-request-blocks-queue"]


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> Callable[[State], None]:
    """Let every trial end in this state."""

    def of_all(state: State) -> None:
        def run(bugs: object, say: object, draw_seconds: float) -> Iterator[Result]:
            del bugs, say, draw_seconds
            yield Result(
                OVERSIZE.id, 0, state, "stock", "0.20.2", "progress", "KV-LIVE-03", says="[it] waits", operations=4
            )

        monkeypatch.setattr(running, "run", run)

    return of_all


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [
        (State.CAUGHT, 0, "1 of 1 defects caught: 1 in published code, 0 by a mutant"),
        (State.NOT_CAUGHT, 1, "1 not caught that should be"),
        (State.NOT_RUN, 4, "1 not run"),
        (State.FAULT, 5, "1 not run"),
    ],
)
def test_the_exit_code_says_what_became_of_them(
    kvgate: Kvgate, became: Callable[[State], None], state: State, code: int, message: str
) -> None:
    """Goal: a script can rely on it. Method: each state."""
    became(state)
    ended = kvgate("corpus", "21")
    assert code == ended.code
    assert message in ended.out
    assert "[it] waits" in ended.out


def test_a_defect_of_which_a_trial_was_not_run_is_not_counted(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a trial that was not run is never passed over. Method: a defect of three trials, the first of which is not
    run.
    """
    several = BUGS["swa-admission-budgets-full-sequence"]

    def run(bugs: object, say: object, draw_seconds: float) -> Iterator[Result]:
        del bugs, say, draw_seconds
        for index, trial in enumerate(several.trials):
            yield Result(several.id, index, State.NOT_RUN if index == 0 else State.CAUGHT, trial.code, says="it waits")

    monkeypatch.setattr(running, "run", run)
    ended = kvgate("corpus", several.id)
    assert 4 == ended.code
    assert "0 of 1 defects caught" in ended.out
    assert "1 partly run, and not counted as caught" in ended.out


@pytest.mark.parametrize(
    ("bug", "message"),
    [
        ("mamba-hash-published-before-state-written", "1 by an analogue alone, 0 by a contract"),
        ("duplicate-block-in-one-free-call", "0 by an analogue alone, 1 by a contract"),
        ("admission-cap-leaks-into-step-predictor", "1 of 1 defects caught: 0 in published code, 1 by a mutant"),
    ],
)
def test_what_stands_for_a_defect_is_counted_apart(
    kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch, bug: str, message: str
) -> None:
    """Goal: an analogue does not count as published code. Method: one defect of each sort, caught."""

    def run(bugs: object, say: object, draw_seconds: float) -> Iterator[Result]:
        del bugs, say, draw_seconds
        yield Result(bug, 0, State.CAUGHT, "stock", says="it waits")

    monkeypatch.setattr(running, "run", run)
    assert message in kvgate("corpus", bug).out


def test_as_json(kvgate: Kvgate, became: Callable[[State], None]) -> None:
    """Goal: programs get everything. Method: read it."""
    became(State.CAUGHT)
    out = kvgate("corpus", OVERSIZE.id, "--format", "json").out
    (record,) = rows_of(out, "defects")
    assert (OVERSIZE.link, "caught", f"kvgate corpus {OVERSIZE.id}") == (
        record["link"],
        record["state"],
        record["command"],
    )
    assert ("KV-LIVE-03", 4) == tuple(rows_of(out)[0]["detail"][name] for name in ("statement", "operations"))


def test_as_a_page(kvgate: Kvgate, became: Callable[[State], None], tmp_path: Path) -> None:
    """Goal: the page in difftest/corpus and its rows can be generated again. Method: generate those of a defect."""
    became(State.CAUGHT)
    text = kvgate("corpus", "21", "--page", "--write", str(tmp_path / "c.md")).out
    assert text.startswith("# The corpus\n")
    assert text == (tmp_path / "c.md").read_text(encoding="utf-8")
    (row,) = read_csv((tmp_path / "c.csv").read_text(encoding="utf-8"))
    assert ("21", OVERSIZE.id, "KV-LIVE-03", "4") == tuple(row[n] for n in ("#", "defect", "guarantee", "operations"))


def test_an_interrupt_loses_nothing(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the command reports what was found before an interrupt. Method: one result, then an interrupt."""

    def run(bugs: object, say: object, draw_seconds: float) -> Iterator[Result]:
        del bugs, say, draw_seconds
        yield Result(OVERSIZE.id, 0, State.CAUGHT, "stock", says="it waits")
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run", run)
    ended = kvgate("corpus", "9", "21")
    assert 130 == ended.code
    assert "it waits" in ended.out


def test_the_list_runs_nothing(kvgate: Kvgate) -> None:
    """Goal: the list appears at once. Method: ask for it."""
    ended = kvgate("corpus", "--list", "--format", "json")
    rows = {row["id"]: row for row in rows_of(ended.out)}
    assert (0, set(BUGS)) == (ended.code, set(rows))
    row = rows["oversize-request-blocks-queue"]
    assert (21, "hang", ["stock"], "vllm#35570") == tuple(row[name] for name in ("number", "class", "code", "thread"))


def test_an_unknown_defect_is_rejected(kvgate: Kvgate) -> None:
    """Goal: a misspelt name is reported. Method: an unknown name."""
    ended = kvgate("corpus", "nothing")
    assert 2 == ended.code
    assert "kvgate corpus --list" in ended.err
