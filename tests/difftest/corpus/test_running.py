"""The corpus itself: all defects are there, those that need no other release are caught, and nothing passes unrun.

Goal: the page is true. Method: the register against its own numbers. Every trial on vLLM 0.20.2 and on the plug-in,
each system in a process of its own as ``kvgate corpus`` has it. The same trials without their mutants.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from kvgate.adapters.registry import Loaded, is_built_in, load_system
from kvgate.kernel.data_file import read_csv
from kvgate.kernel.errors import UsageError
from kvgate_mutants.corpus.bug import Bug, Contrast, Kind, Sort, Trial
from kvgate_mutants.corpus.probe import Result, State, tried
from kvgate_mutants.corpus.register import BUGS, chosen
from kvgate_mutants.corpus.running import run, state_of
from kvgate_mutants.corpus.scenario import Blocks, ended, full, of, tokens
from kvgate_mutants.corpus.tables import sort_of
from kvreference.settings import Settings

TABLE = Path(__file__).parents[3] / "difftest" / "corpus" / "corpus.csv"
HERE = ("stock", "retention")
"""The systems that need nothing but what is installed."""
IDLE = Blocks(Settings(of(full()), 20, tokens_max=128, chunk_tokens=64), tuple(ended(0, tokens(0, 50), 64)))


@cache
def results() -> tuple[Result, ...]:
    """The results of all trials that need no other release."""
    return tuple(run(list(BUGS.values()), only=HERE))


def places() -> list[tuple[str, int]]:
    return [(bug.id, index) for bug in BUGS.values() for index, trial in enumerate(bug.trials) if trial.system in HERE]


def test_all_defects_are_there() -> None:
    """Goal: no defect is missing. Method: their numbers, and their public threads."""
    assert list(range(1, 58)) == [bug.number for bug in BUGS.values()]
    assert len(BUGS) == len({bug.link for bug in BUGS.values()})


def test_every_system_is_one_that_kvgate_has() -> None:
    """Goal: no trial is never run because of a name. Method: look them up."""
    assert not [trial.system for bug in BUGS.values() for trial in bug.trials if not is_built_in(trial.system)]


def test_the_page_has_every_defect() -> None:
    """Goal: the table is that of this corpus. Method: look for the code of each case, and for each reason."""
    text = TABLE.read_text(encoding="utf-8")
    codes = {(row["defect"], row["code that was run"]) for row in read_csv(text)}
    assert {(bug.id, trial.code) for bug in BUGS.values() for trial in bug.trials} <= codes
    assert not [bug.id for bug in BUGS.values() if bug.not_caught not in text.replace('""', '"')]


@pytest.mark.ci
@pytest.mark.parametrize(("bug", "index"), places())
def test_a_defect_is_caught(bug: str, index: int) -> None:
    """Goal: each is caught here and now. Method: run it, and its control."""
    pytest.importorskip("vllm")
    result = next(result for result in results() if (result.bug, result.trial) == (bug, index))
    assert (State.CAUGHT, "nothing found") == (result.state, result.control.rpartition(": ")[2]), result.says


@pytest.mark.ci
@pytest.mark.parametrize(
    ("bug", "index"), [place for place in places() if BUGS[place[0]].trials[place[1]].mutants], ids=str
)
def test_nothing_is_caught_without_the_mutant(bug: str, index: int) -> None:
    """Goal: a catch is due to the mutant. Method: the same trial without a mutant."""
    pytest.importorskip("vllm")
    result = tried(bug, index, BUGS[bug].trials[index].without_mutants(), loaded)
    assert State.NOT_CAUGHT is result.state
    assert result.says.endswith("nothing was found")


@cache
def loaded(name: str) -> Loaded:
    return load_system(name)


def test_what_cannot_be_had_is_not_run() -> None:
    """Goal: a trial that was not run never counts as caught. Method: a system that does not exist."""
    link = "https://github.com/vllm-project/vllm/issues/1"
    bug = Bug(1, "a-defect", Kind.HANG, link, "It hangs.", "all", (Trial("nowhere_at_all:build", IDLE, ("KV-OP-01",)),))
    found = list(run([bug]))
    assert [State.NOT_RUN] == [result.state for result in found]
    assert "cannot import nowhere_at_all" in found[0].says
    assert State.NOT_RUN is state_of(bug, found)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((State.CAUGHT, State.CAUGHT), State.CAUGHT),
        ((State.CAUGHT, State.NOT_RUN), State.PARTLY_RUN),
        ((State.CAUGHT,), State.PARTLY_RUN),
        ((State.CAUGHT, State.NOT_CAUGHT), State.NOT_CAUGHT),
        ((State.NOT_RUN,), State.NOT_RUN),
    ],
)
def test_one_trial_that_is_not_caught_or_not_run_is_enough(states: tuple[State, ...], expected: State) -> None:
    """Goal: a defect is not counted for one trial of several. Method: mixtures, and a result that never came."""
    bug = BUGS["eagle-drop-fixed-point-spiral"]
    found = [Result(bug.id, index, state, "stock") for index, state in enumerate(states)]
    assert expected is state_of(bug, found)


def test_at_least_25_are_shown_by_what_was_reported() -> None:
    """Goal: analogues and calls by hand do not make up the corpus. Method: count the others."""
    sorts = [sort_of(bug) for bug in BUGS.values() if bug.trials]
    assert sorts.count(Sort.PUBLISHED) + sorts.count(Sort.REINTRODUCED) >= 25


def test_a_control_is_what_it_is_called() -> None:
    """Goal: no control claims too much. Method: each against what it runs."""
    for trial in (trial for bug in BUGS.values() for trial in bug.trials):
        control = trial.control
        repaired = bool(control.mutants) and control.scenario == trial.scenario and control.system == trial.system
        assert (control.contrast is Contrast.REPAIR) == repaired
        assert (control.contrast is Contrast.REFERENCE) == (control.system == "reference")
        assert (control.contrast is Contrast.OTHER_SETTINGS) == (control.scenario != trial.scenario)


def test_defects_are_chosen_by_id_or_number() -> None:
    """Goal: ids and numbers both work, and other names are rejected. Method: ask for some."""
    assert [9, 21] == [bug.number for bug in chosen(["9", "oversize-request-blocks-queue", "9"])]
    assert list(BUGS.values()) == list(chosen([]))
    with pytest.raises(UsageError, match="no defect 'nothing'"):
        chosen(["nothing"])
