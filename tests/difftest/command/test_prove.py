"""``kvgate prove``.

Goal: the exit code says whether everything is proved, and a vacuous proof is never reported as a proof. Method: the
command in this process on a few obligations, sound ones and broken ones.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvreference import attention
from kvspec import proof_result as checking
from kvspec.obligation import Count, Obligation, only
from kvspec.proof_result import Task
from kvspec.refuted.designs import DESIGNS

from .stage import Ended, rows_of

Kvgate = Callable[..., Ended]

SKIPPED = "kvreference.attention:tokens_skipped"
SOUND = Obligation(
    "retention.skipped",
    ("KV-OP-06",),
    "No more is freed than is computed.",
    {"computed": Count(), "window": Count(2)},
    lambda u: attention.tokens_skipped(u.computed, u.window) <= u.computed,
    {"something is freed": lambda u: attention.tokens_skipped(u.computed, u.window) > 0},
    (only("longer", "More is freed than there is.", SKIPPED, lambda computed, window: computed + 1),),
    binds=lambda geometry, group: {"window": group.window_tokens} if group.window_tokens else None,
)
FALSE = evolve(SOUND, id="eagle.false", claim=lambda u: u.computed < 7)
EMPTY = evolve(SOUND, id="eagle.empty", witnesses={"never": lambda u: u.computed < 0})
UNKNOWN = evolve(SOUND, id="eagle.unknown", claim=lambda u: u.window // u.computed >= 0, mutants=(), witnesses={})
ANYWAY = evolve(SOUND, id="eagle.anyway", mutants=(only("none", "", SKIPPED, lambda computed, window: 0),))
BOUNDED = evolve(SOUND, id="eagle.bounded", bound="up to 3 blocks")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Obligation]:
    """The registry: one sound obligation, and those that a test adds. Pool processes would not see them."""
    found = {SOUND.id: SOUND}

    def registry() -> Mapping[str, Obligation]:
        return found

    for module in (
        "kvspec.proof_result",
        "kvgate.explore.proving.tasks",
        "kvgate.report.proofs",
    ):
        monkeypatch.setattr(f"{module}.obligations", registry)
    monkeypatch.setattr(checking, "in_processes", lambda work, given, jobs: map(work, given))
    return found


def test_everything_is_proved(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """A row for each with its tier, and the sums."""
    registered[BOUNDED.id] = BOUNDED
    ended = kvgate("prove", "--full", "--jobs", "1")
    assert 0 == ended.code
    lines = ended.out.splitlines()
    assert "2 of 2 proved: 1 for all sizes (P), 1 within a bound (B); 2 witnesses, 2 mutants" == lines[0]
    first, second = (line.split() for line in lines if line.startswith((" P", " B")))
    assert ["P", "retention.skipped", "proved"] == first[:3]
    assert ["2", "execution", "paths,", "1", "witness,", "1", "mutant", "refuted"] == first[4:]
    assert ["B", "eagle.bounded", "proved"] == second[:3]
    assert ["bounds of tier B:", "  eagle.bounded: up to 3 blocks"] == lines[lines.index("bounds of tier B:") :][:2]


def test_without_mutants(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """By default they are not tried, and the first line says so; what holds for any code is found only with them."""
    registered[ANYWAY.id] = ANYWAY
    ended = kvgate("prove", "--jobs", "1")
    assert 0 == ended.code
    assert (
        "2 of 2 proved: 2 for all sizes (P), 0 within a bound (B); 2 witnesses; mutants not tried: --full" in ended.out
    )
    assert 1 == ended.out.count("mutants not tried")
    assert 0 == kvgate("prove", "--seeds", "2", "--jobs", "1").code
    ended = kvgate("prove", "--full", "--jobs", "1")
    assert 1 == ended.code
    assert "with the mutant none it is proved" in ended.out


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        (FALSE, 1, "fails for computed = 7, window = 2"),
        (EMPTY, 1, "no values show: never"),
        (UNKNOWN, 4, "the divisor computed may be zero or negative"),
    ],
    ids=["refuted", "empty", "unknown"],
)
def test_what_is_not_proved_is_reported(
    kvgate: Kvgate, registered: dict[str, Obligation], wrong: Obligation, code: int, message: str
) -> None:
    """With its own exit code, its details, and in the sums."""
    registered[wrong.id] = wrong
    ended = kvgate("prove", "--jobs", "1")
    assert code == ended.code
    assert message in ended.out
    assert "1 of 2 proved" in ended.out
    assert f"NOT PROVED: 1 {wrong.id.partition('.')[2].replace('false', 'refuted')}" in ended.out
    assert f"{wrong.id}: {wrong.title}" in ended.out


def test_a_refutation_goes_before_what_is_unknown(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """A script that gates on the exit code must not take a refutation for a solver that gave up."""
    registered |= {UNKNOWN.id: UNKNOWN, FALSE.id: FALSE}
    assert 1 == kvgate("prove", "--jobs", "1").code


def test_some_are_asked_for(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """By id or by chapter; the output has details of what was asked for."""
    registered[FALSE.id] = FALSE
    for name in ("retention.skipped", "retention"):
        ended = kvgate("prove", "--full", "--obligation", name, "--jobs", "1")
        assert 0 == ended.code
        assert "  supports KV-OP-06: A block that no later token reads" in ended.out
        assert "  mutant longer: More is freed than there is. Refuted for computed = 0, window = 2" in ended.out
        assert "eagle" not in ended.out
    assert 1 == kvgate("prove", "--obligation", "eagle.false", "--jobs", "1").code


def test_what_runs_is_reported(kvgate: Kvgate) -> None:
    """Which functions no obligation executes, and how many each executes, in its tier: without transcriptions if P."""
    ended = kvgate("prove", "--functions", "--format", "json")
    assert 0 == ended.code
    without, executes = json.loads(ended.out)["tested"]
    assert without["rows"]
    assert {("P", True), ("M", False)} == {
        (row["tier"], row["functions"] > 0 and row["transcribed"] == 0)
        for row in executes["rows"]
        if row["tier"] in ("P", "M")
    }
    assert any(row["transcribed"] for row in executes["rows"])


def test_without_witnesses_and_mutants(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """The proof alone is quicker, and the line omits what was not checked."""
    registered[EMPTY.id] = EMPTY
    ended = kvgate("prove", "--proof-only", "--jobs", "1")
    assert 0 == ended.code
    assert "0 witnesses; mutants not tried: --full" in ended.out


def test_a_second_solver(kvgate: Kvgate, registered: dict[str, Obligation], monkeypatch: pytest.MonkeyPatch) -> None:
    """What cvc5 answers for each obligation, and in all; exit code 4 if it does not decide one, 1 if it disagrees."""
    pytest.importorskip("cvc5")
    registered[BOUNDED.id] = BOUNDED
    ended = kvgate("prove", "--second", "--full", "--jobs", "1")
    assert 0 == ended.code
    assert "the same on every question of 2 of 2 proofs: 1 of 1 of tier P, 1 of 1 of tier B" in ended.out
    assert "cvc5, refutations of mutants: 2 of 2 agreed" in ended.out
    for answer, code, reported in (
        ("unknown", 4, "2 not decided"),
        ("", 4, "2 not expressible"),
        ("sat", 1, "DISAGREED"),
    ):
        monkeypatch.setattr("kvspec.second_solver.answer_of_cvc5", lambda text, answer=answer: answer)
        ended = kvgate("prove", "--second", "--proof-only", "--obligation", SOUND.id, "--jobs", "1")
        assert code == ended.code
        assert reported in ended.out
        assert "the same on every question of 0 of 1 proofs" in ended.out
        assert (code == 1) == ("(check-sat)" in ended.out)


def test_seeds(kvgate: Kvgate, registered: dict[str, Obligation], monkeypatch: pytest.MonkeyPatch) -> None:
    """All are tried; what one of them refutes is refuted."""
    ended = kvgate("prove", "--seeds", "3", "--jobs", "1")
    assert 0 == ended.code
    assert "with 3 seeds of z3: 1 of 1 come to the same with each" in ended.out
    check_task = checking._check_task
    monkeypatch.setattr(
        checking, "_check_task", lambda work: check_task((Task(FALSE.id), *work[1:]) if work[2] == 2 else work)
    )
    registered[FALSE.id] = FALSE
    ended = kvgate("prove", "--seeds", "3", "--obligation", SOUND.id, "--jobs", "1")
    assert 1 == ended.code
    assert "refuted" in ended.out.partition("Tested")[2]
    assert "with the seed 2 of z3 it is refuted" in ended.out
    assert "0 of 1 come to the same with each" in ended.out


@pytest.mark.ci
def test_stored_cores(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of each; exit code 1 if a solver does not confirm one."""
    pytest.importorskip("cvc5")
    monkeypatch.setattr("kvspec.cores.CENTRAL", ("attention-kinds.window-dead-is-unread",))
    ended = kvgate("prove", "--cores", "--jobs", "1")
    assert (0, True) == (ended.code, "1 of 1 proofs rest on stored cores alone" in ended.out)
    monkeypatch.setattr("kvspec.cores.in_processes", lambda work, given, jobs: map(work, given))
    monkeypatch.setattr("kvspec.cores.answer_of_cvc5", lambda text: "unknown")
    ended = kvgate("prove", "--cores", "--jobs", "1")
    assert (1, True) == (ended.code, "0 of 1 proofs rest on stored cores alone" in ended.out)


@pytest.mark.usefixtures("registered")
def test_a_model(kvgate: Kvgate, tmp_path: Path) -> None:
    """The output describes its groups, groups of one shape together; also for a model without a preset."""
    ended = kvgate("prove", "--model", "gemma-hybrid", "--jobs", "1")
    assert 0 == ended.code
    assert "groups 0, 1, 2, 3, 4 (window 64)" in ended.out
    path = tmp_path / "mine.json"
    groups = [{"kind": "sliding_window", "block_size_tokens": 48, "window_tokens": window} for window in (7, 96, 7)]
    path.write_text(json.dumps({"groups": groups}))
    ended = kvgate("prove", "--model", str(path), "--jobs", "1")
    assert 0 == ended.code
    assert "groups 0, 2 (window 7)" in ended.out
    assert "group 1 (window 96)" in ended.out
    assert "2 of 2 proved" in ended.out


def test_as_json(kvgate: Kvgate, registered: dict[str, Obligation]) -> None:
    """Everything, with a version."""
    registered[FALSE.id] = FALSE
    ended = kvgate("prove", "--format", "json", "--jobs", "1")
    assert "mutants not tried: --full" in json.loads(ended.out)["outcome"]
    assert [{}, {}] == [row["mutants"] for row in rows_of(ended.out)]
    ended = kvgate("prove", "--full", "--format", "json", "--jobs", "1")
    assert 1 == ended.code
    assert "mutants not tried" not in ended.out
    sound, false = rows_of(ended.out)
    assert ("proved", "P", None, 2) == (sound["outcome"], sound["tier"], sound["bound"], sound["ways"])
    assert {"longer": "refuted"} == {name: each["verdict"] for name, each in sound["mutants"].items()}
    assert ("refuted", {"computed": 7, "window": 2}, True) == (
        false["outcome"],
        false["counterexample"],
        false["confirmed"],
    )


@pytest.mark.usefixtures("registered")
def test_what_there_is_is_listed(kvgate: Kvgate) -> None:
    """Obligations and designs, or those that are named, and nothing is proved."""
    assert 2 == kvgate("prove", "--list", "--obligation", "nonsense").code
    assert 2 == kvgate("prove", "--list", "--design", "nonsense").code
    assert "designs" not in kvgate("prove", "--list", "--obligation", "retention").out
    out = kvgate("prove", "--list", "--format", "json").out
    assert ["retention.skipped"] == [each["id"] for each in rows_of(out, "obligations:")]
    assert set(DESIGNS) == {each["design"] for each in rows_of(out, "designs that do not work:")}
    ended = kvgate("prove", "--list")
    assert 0 == ended.code
    (line,) = (line.split() for line in ended.out.splitlines() if "retention.skipped" in line)
    assert ["P", "retention.skipped", "KV-OP-06", *SOUND.title.split()] == line
    assert all(f" {name} " in ended.out for name in DESIGNS)


def test_a_design_is_refuted(kvgate: Kvgate) -> None:
    """As it should be, with exit code 1: z3's values, the trace, and the answers of both."""
    ended = kvgate("prove", "--design", "mask-without-shift")
    assert 1 == ended.code
    assert "  z3: refuted in " in ended.out
    assert "  1. Request 0 arrives, prompt of 5 tokens: 0..4\n" in ended.out
    assert "  the design: a hit of 0 tokens\n  the reference: a hit of 3 tokens\n" in ended.out
    (row,) = rows_of(kvgate("prove", "--design", "mask-without-shift", "--format", "json").out)
    assert (True, "a hit of 0 tokens") == (row["refuted"], row["design_says"])
    assert 5 == len(row["operations"])


def test_a_design_that_is_not_refuted_is_reported(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether z3 proves what should fail, or the trace does not show it."""
    sound = DESIGNS["mask-without-shift"]
    proved = evolve(sound, obligation=SOUND)
    unseen = evolve(sound, replay=lambda values: evolve(sound.replay(values), design_fails=False))
    monkeypatch.setattr("kvgate.explore.proving.designs.in_processes", lambda work, given, jobs: map(work, given))
    for wrong in (proved, unseen):
        for module in ("explore.proving.designs", "report.proofs"):
            monkeypatch.setattr(f"kvgate.{module}.DESIGNS", {wrong.name: wrong})
        ended = kvgate("prove", "--design", "all")
        assert 0 == ended.code
        assert "NOT REFUTED" in ended.out
        assert "0 of 1 refuted" in ended.out


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--obligation", "nothing"), "unknown obligation 'nothing': give an id, or a chapter of retention"),
        (("--model", "nothing"), "unknown model 'nothing'"),
        (("--model", "full"), "nothing of what was asked speaks of a group of the model full"),
        (("--design", "nothing"), "unknown design 'nothing': give one of mask-without-shift"),
        (("--design", "all", "--model", "full"), "--design stands alone"),
        (("--design", "all", "--proof-only"), "--design stands alone"),
        (("--design", "all", "--second"), "--design stands alone"),
        (("--design", "all", "--full"), "--design stands alone"),
        (("--proof-only", "--full"), "give one of them"),
        (("--design", "all", "--seeds", "2"), "--design stands alone"),
        (("--cores", "--obligation", "retention"), "--cores stands alone"),
        (("--cores", "--model", "full"), "--cores stands alone"),
        (("--cores", "--seeds", "2"), "--cores stands alone"),
        (("--cores", "--full"), "--cores stands alone"),
        (("--cores", "--design", "all"), "--cores stands alone"),
    ],
)
def test_bad_usage(kvgate: Kvgate, arguments: tuple[str, ...], message: str) -> None:
    """One message that says what was wrong and what to do."""
    ended = kvgate("prove", *arguments)
    assert 2 == ended.code
    assert message in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.ci
@pytest.mark.parametrize("arguments", [("--obligation", "hit-lookup"), ("--design", "all"), ("--jobs", "1")], ids=str)
def test_an_interrupt_ends_it(arguments: tuple[str, ...]) -> None:
    """For real: z3 works in processes of its own, because it loses interrupts; nothing is left running."""
    running = subprocess.Popen(
        [sys.executable, "-m", "kvgate.cli", "prove", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    # With little to do, it may have been done.
    assert running.returncode in (130, 1) if "all" in arguments else 130 == running.returncode, err.decode()
    assert b"Traceback" not in err


def test_an_interrupt_leaves_what_is_there(
    kvgate: Kvgate, registered: dict[str, Obligation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output lists what was proved, and says that it was not all."""
    check_all = checking.check_all

    def interrupted(*arguments: Any) -> Iterator[Any]:
        yield next(check_all(*arguments))
        raise KeyboardInterrupt

    registered[FALSE.id] = FALSE
    monkeypatch.setattr(checking, "check_all", interrupted)
    ended = kvgate("prove", "--jobs", "1")
    assert 130 == ended.code
    assert "1 of 2 proved" in ended.out
    assert " s, interrupted\n" in ended.out
