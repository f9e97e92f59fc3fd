"""The mutants of two nodes: the description of each is true, and the gate kills every one of them.

Goal: a scheduler that passes wrong blocks to a connector, or a connector that forgets a request, is seen. Method:
inject the mutants one by one, and drive two nodes with generated runs; also check what one engine alone would show.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Trials, run_case
from kvgate.gate.level import LevelChoice
from kvgate.kernel.models import load
from kvgate.levels.pair.level import PAIR
from kvgate.levels.registry import not_tested, prepare
from kvgate.levels.scheduler.connector_check import ConnectorCheck
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate_mutants.cli.mutants import SCHEDULED
from kvgate_mutants.mutants.mutant import Mutant, locate
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, PAIR_MUTANTS, SCHEDULER_MUTANTS
from kvgate_mutants.mutation_run import run_mutant, run_until_killed

OPERATIONS, BASELINE_OPERATIONS = 20_000, 4_000
MODELS = [load(name) for name in SCHEDULED]
CONNECTOR_MUTANTS = [mutant for mutant in PAIR_MUTANTS if mutant.name.startswith("told-")]
assert CONNECTOR_MUTANTS, "no mutant has such a name any more"


def trials(detectors: tuple[str, ...] = PAIR.gate) -> Trials:
    """Runs of two nodes."""
    return Trials(PAIR.bench_named(load_system("stock").name, detectors))


def test_there_are_enough_and_each_says_what_it_violates() -> None:
    """At least six, with names of their own, each broken in one sentence."""
    assert len(PAIR_MUTANTS) >= 6
    names = [mutant.name for mutant in (*PAIR_MUTANTS, *SCHEDULER_MUTANTS, *BLOCK_MANAGER_MUTANTS)]
    assert len(set(names)) == len(names)
    assert not [mutant.name for mutant in PAIR_MUTANTS if not re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)]
    assert not [mutant.name for mutant in PAIR_MUTANTS if mutant.statement is None]


@pytest.mark.ci
def test_without_a_mutant_nothing_is_found() -> None:
    """The control of all that follows; without the reference, which alone explains some operations, those are not
    generated.
    """
    assert run_until_killed(trials(), MODELS, 0, BASELINE_OPERATIONS, math.inf) is None
    assert (
        run_until_killed(trials(PAIR.monitors), [load("full"), load("full+eagle")], 0, BASELINE_OPERATIONS, math.inf)
        is None
    )


def test_a_case_is_cut_short_where_the_time_is_up() -> None:
    """After the operations that have begun; what remains is still checked."""
    case = PAIR.draw(load("full"), "tiny", "0")
    assert (1, ()) == ((run := run_case(trials().bench, case, until=0.0)).performed, run.divergences)
    assert run_case(trials().bench, case).performed > 1


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", PAIR_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    """And undone."""
    before = [vars(owner)[name] for owner, name in map(locate, mutant.targets)]
    kill = run_mutant(trials(), mutant, MODELS, seed=0, operations=OPERATIONS, seconds=math.inf).kills["gate"]
    assert kill is not None, mutant.sentence
    assert before == [vars(owner)[name] for owner, name in map(locate, mutant.targets)]


@pytest.mark.parametrize(
    "mutant", [each for each in CONNECTOR_MUTANTS if "write" in each.name], ids=lambda mutant: mutant.name
)
def test_one_engine_sees_it_first_by_what_the_connector_receives(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that check, two nodes see it. One node sees it later or never: when a block is read that was never
    written, or when a load fails and other blocks are taken for those that failed.
    """
    engines: Any = Trials(SCHEDULER.bench_named("stock", PAIR.gate[:-1])).towards(("transfers",))
    with mutant.applied():
        kill = run_until_killed(engines, [load("full")], 0, 1_000, math.inf)
        assert kill is not None
        assert "connector" == kill.by
        monkeypatch.setattr(ConnectorCheck, "_compare", lambda *_: None)
        later = run_until_killed(engines, [load("full")], 0, 1_000, math.inf)
        assert later is None or (later.by in ("ghost", "scheduler") and later.operations > kill.operations)


def test_the_level_is_one_of_the_gate() -> None:
    """It is prepared like the others, and says what it leaves out."""
    (prepared,) = prepare(LevelChoice.PAIR, load_system("stock"), [load("full")], "quick", seconds=10.0)
    assert (PAIR, PAIR.gate) == (prepared.level, prepared.trials.bench.checkers)
    assert any("no product's is run" in sentence for sentence in not_tested(LevelChoice.PAIR, "stock"))


@pytest.mark.ci
def test_a_kill_is_made_small() -> None:
    """The rest shows the same, in a handful of operations on both nodes."""
    mutant = next(each for each in PAIR_MUTANTS if each.name == "told-to-write-in-another-order")
    kill = run_mutant(
        trials(), mutant, [load("full")], seed=0, operations=OPERATIONS, seconds=60.0, shrinks=True
    ).kills["gate"]
    assert kill is not None
    assert kill.smallest is not None
    assert "KV-OP-24" == kill.smallest.divergence.difference.statement
    assert kill.operations_left is not None
    assert 0 < kill.operations_left <= 12
