"""The scheduler's mutants: the description of each is true, and the gate kills every one of them.

Goal: a scheduler that counts wrong, passes a request over, or sends its worker something else than it decided, is seen.
Method: inject the mutants one by one into vLLM's scheduler, and drive it with generated runs.
"""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Trials
from kvgate.kernel.models import MODELS, load
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate_mutants.cli.mutants import SCHEDULED
from kvgate_mutants.mutants.mutant import Edit, Mutant, locate
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, SCHEDULER_MUTANTS
from kvgate_mutants.mutants.scheduler.edited import Ask, Put, call
from kvgate_mutants.mutation_run import run_mutant, run_until_killed

OPERATIONS, SECONDS = 90_000, math.inf
BASELINE_OPERATIONS = 3_000


def test_there_are_enough() -> None:
    """At least twenty, of different names, each broken in one sentence; and none has the name of another set."""
    assert len(SCHEDULER_MUTANTS) >= 20
    names = [mutant.name for mutant in (*SCHEDULER_MUTANTS, *BLOCK_MANAGER_MUTANTS)]
    assert not [name for name, times in Counter(names).items() if times > 1]
    assert not [mutant.name for mutant in SCHEDULER_MUTANTS if not re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)]
    assert not [mutant.name for mutant in SCHEDULER_MUTANTS if not re.fullmatch(r"[a-z]+(-[a-z]+)+", mutant.name)]


def test_all_say_what_they_violate() -> None:
    """A guarantee; and models, if they name some, that the mutation run has."""
    assert not [mutant.name for mutant in SCHEDULER_MUTANTS if mutant.statement is None]
    hints = {name for mutant in SCHEDULER_MUTANTS for name in mutant.models or ()}
    assert hints <= set(MODELS)
    assert not [
        mutant.name for mutant in SCHEDULER_MUTANTS if mutant.models is not None and not {*SCHEDULED} & {*mutant.models}
    ]


def test_the_mutants_are_read_without_vllm() -> None:
    """Listing it is fast."""
    program = "import sys, kvgate_mutants.mutants.registry; print(*{'vllm', 'torch'} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "" == finished.stdout.strip()


def trials() -> Trials:
    """Runs of vLLM's scheduler, with everything that checks."""
    pytest.importorskip("vllm")
    return Trials(SCHEDULER.bench_named(load_system("stock").name, SCHEDULER.gate))


@pytest.mark.ci
def test_without_a_mutant_nothing_is_found() -> None:
    """The control of all that follows."""
    assert run_until_killed(trials(), [load(name) for name in SCHEDULED], 0, BASELINE_OPERATIONS, SECONDS) is None


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", SCHEDULER_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    """And undone."""
    models = [load(name) for name in SCHEDULED]
    bench = trials()
    before = [vars(owner)[name] for owner, name in map(locate, mutant.targets)]
    kill = run_mutant(bench, mutant, models, seed=0, operations=OPERATIONS, seconds=SECONDS).kills["gate"]
    assert kill is not None, mutant.sentence
    assert before == [vars(owner)[name] for owner, name in map(locate, mutant.targets)]


@pytest.mark.ci
def test_a_kill_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest shows the same, in a handful of operations of the engine, however long that takes."""
    monkeypatch.setattr("kvgate_mutants.mutation_run.MINIMISE_SECONDS", math.inf)
    mutant = next(each for each in SCHEDULER_MUTANTS if each.name == "first-is-preempted")
    kill = run_mutant(
        trials(), mutant, [load("full")], seed=0, operations=OPERATIONS, seconds=SECONDS, shrinks=True
    ).kills["gate"]
    assert kill is not None
    assert kill.smallest is not None
    assert "KV-LIVE-02" == kill.smallest.divergence.difference.statement
    assert kill.operations_left is not None
    assert 0 < kill.operations_left <= 12


# A statement in the middle of a method


class Counter10:
    """Something to change."""

    def up(self, least: int) -> list[int]:
        found = []
        number = 0
        while number < 10:
            number += 1
            if number < least:
                continue
            found.append(number)
        return found


def edited(change: Any, least: int = 8) -> list[int]:
    """The count with one statement changed."""
    counted: list[int] = call(Counter10.up, change, Counter10(), least)
    return counted


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Put("number +=", "number += 2"), [8, 10]),
        (Put("found", which=1), []),
        (Put("continue"), list(range(1, 11))),
        (Ask("least", instead="number != least"), [8]),
    ],
)
def test_one_statement_is_changed(change: Any, expected: list[int]) -> None:
    """Found by what it begins with, or by the names that its test reads; the method itself stays as it is."""
    assert expected == edited(change)
    assert expected == edited(change)
    assert [8, 9, 10] == Counter10().up(8)


def test_one_change_fits_several_methods() -> None:
    """Each has its own place."""
    change = Put("found", "found = [0]")
    assert [0, 8, 9, 10] == edited(change)

    class Other(Counter10):
        def up(self, least: int) -> list[int]:
            found = [least]
            # The change puts a line between these two.
            return found  # noqa: RET504

    assert [0] == call(Other.up, change, Other(), 8)


@pytest.mark.parametrize("change", [Put("absent"), Put("number +=", which=1), Ask("absent", instead="True")])
def test_a_place_that_is_not_there_is_reported(change: Any) -> None:
    """A vLLM that lacks the place is not called broken."""
    with pytest.raises(LookupError, match=r"this vLLM has no such place in Counter10\.up"):
        edited(change)


def test_every_mutant_is_about_one_thing() -> None:
    """Each is a function of few lines, so that a reader sees what is broken."""
    functions = {mutant.name: mutant.broken for mutant in SCHEDULER_MUTANTS if not isinstance(mutant.broken, Edit)}
    assert len(functions) == len(SCHEDULER_MUTANTS)
    assert not [name for name, broken in functions.items() if len(inspect.getsource(broken).splitlines()) > 16]
