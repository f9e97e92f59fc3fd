"""The mutants of vLLM's block manager: each is described, the gate notices it, and it is undone."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.explore.designs import DESIGNS
from kvgate.gate.case_runner import Trials
from kvgate.gate.profiles import models_named
from kvgate.kernel.models import MODELS
from kvgate.levels.manager import Bench
from kvgate_mutants.mutants.mutant import Mutant, breaks, locate
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, RELEASE_MUTANTS, SCHEDULER_MUTANTS, WORKER_MUTANTS
from kvgate_mutants.mutation_run import run_mutant
from kvreference.statements import STATEMENTS

OPERATIONS = 200_000
TIER_MUTANTS = RELEASE_MUTANTS["native@0.33.0"]["tiers"]
KILLABLE = [mutant for mutant in BLOCK_MANAGER_MUTANTS if mutant.equivalent is None]
OF_DESIGNS = {
    *("KV-INV-07", "KV-INV-08", "KV-INV-09"),
    *(f"KV-OP-{number}" for number in range(15, 28)),
    *("KV-LIVE-01", "KV-LIVE-02", "KV-LIVE-03", "KV-MEM-04"),
}
"""Guarantees that designs of the explorer break: of mechanisms that vLLM 0.20.2 lacks, or that are not hunted in."""
OF_SCHEDULERS = {"KV-SYS-02", "KV-SYS-03", "KV-SYS-05", "KV-SYS-06"}
"""Guarantees of schedulers: these have mutants of their own."""
OF_WORKERS = {"KV-MEM-03"}
"""Guarantees of workers, of which vLLM-Ascend's has mutants."""
OF_TIERS = {each for each in STATEMENTS if each.startswith("KV-TIER")}
"""Guarantees of a second tier: vLLM 0.33.0 has mutants of its connector."""
OF_RUNS = {"KV-SYS-04"}
"""Guarantees about two runs of one system: tests/difftest/fuzzing breaks one."""


def test_no_name_is_given_twice() -> None:
    """Goal: a name leads to one mutant. Method: count."""
    assert not [name for name, times in Counter(mutant.name for mutant in BLOCK_MANAGER_MUTANTS).items() if times > 1]


def test_names_are_kebab_case() -> None:
    """Goal: a name can be typed in a shell, and says something. Method: match at least two words."""
    assert not [mutant.name for mutant in BLOCK_MANAGER_MUTANTS if not re.fullmatch(r"[a-z]+(-[a-z]+)+", mutant.name)]


def test_what_is_broken_is_one_sentence() -> None:
    """Goal: a report quotes it as it is. Method: a capital first, one full stop last, no line break."""
    assert not [mutant.name for mutant in BLOCK_MANAGER_MUTANTS if not re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)]


def test_each_violates_a_known_guarantee() -> None:
    """Goal: a mutant belongs to a guarantee. Method: look its id up."""
    assert not [mutant.name for mutant in BLOCK_MANAGER_MUTANTS if mutant.statement not in STATEMENTS]


def test_each_names_known_models() -> None:
    """Goal: a run picks models by these names. Method: look each up; no hint means all of them."""
    hints = {mutant.name: mutant.models for mutant in BLOCK_MANAGER_MUTANTS if mutant.models is not None}
    assert not [name for name, models in hints.items() if not models or not set(models) <= set(MODELS)]


def test_enough_mutants_exist() -> None:
    """Goal: killing all of them says something about the gate. Method: count those that can be killed."""
    assert len(KILLABLE) >= 30


def test_every_guarantee_is_broken() -> None:
    """Goal: no guarantee is checked by code that could as well be absent. Method: compare ids; each is violated by a
    mutant of vLLM, or by a design that the explorer refutes."""
    by_designs = {each for design in DESIGNS.values() for each in (design.statement, design.breaks or design.statement)}
    by_mutants = {mutant.statement for mutant in (*KILLABLE, *SCHEDULER_MUTANTS, *WORKER_MUTANTS, *TIER_MUTANTS)}
    assert set(STATEMENTS) - OF_RUNS == by_mutants | by_designs


def test_a_design_replaces_no_mutant() -> None:
    """Goal: mechanisms of vLLM are broken in vLLM. Method: compare ids; those left to designs are listed."""
    spoken_of = set(STATEMENTS) - OF_DESIGNS - OF_SCHEDULERS - OF_WORKERS - OF_RUNS - OF_TIERS
    assert spoken_of == {mutant.statement for mutant in KILLABLE}
    assert OF_WORKERS <= {mutant.statement for mutant in WORKER_MUTANTS}
    assert OF_SCHEDULERS <= {mutant.statement for mutant in SCHEDULER_MUTANTS}
    assert OF_TIERS <= {mutant.statement for mutant in TIER_MUTANTS}
    assert set(STATEMENTS) > OF_DESIGNS


def test_equivalence_is_argued() -> None:
    """Goal: no mutant is excused without a reason. Method: the reason is at least a sentence."""
    assert not [
        m.name
        for m in BLOCK_MANAGER_MUTANTS
        if m.equivalent is not None and not re.fullmatch(r"[A-Z].{40,}\.", m.equivalent)
    ]


def test_the_mutants_are_read_without_vllm() -> None:
    """Goal: listing the mutants is fast. Method: import it in a fresh interpreter and look for vLLM and torch."""
    program = "import sys, kvgate_mutants.mutants.registry; print(*{'vllm', 'torch'} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not finished.stdout.strip()


class Whole:
    """Something to break."""

    def plain(self, number: int) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> tuple[type, int]:
        return cls, number


class Part(Whole):
    """Inherits what is broken."""


def doubled(original: Any, owner: Any, number: int) -> Any:
    """Twice the number is used."""
    return original(owner, 2 * number)


def breaking(*names: str) -> Mutant:
    """A mutant of this module's own classes."""
    return breaks(*(f"{__name__}:{name}" for name in names), violates="KV-SYS-01")(doubled)


def test_a_break_is_undone() -> None:
    """Goal: nothing stays broken. Method: call inside and outside, a plain method and a class method."""
    whole = Whole()
    sound = whole.plain(3), Part.of_class(3)
    with breaking("Whole.plain", "Whole.of_class").applied():
        broken = whole.plain(3), Part.of_class(3)
    assert ((3, (Part, 3)), (6, (Part, 6))) == (sound, broken)
    assert sound == (whole.plain(3), Part.of_class(3))


def test_a_break_is_undone_after_an_exception() -> None:
    """Goal: a mutant that makes the system raise does not outlive it. Method: raise inside."""
    before = vars(Whole)["plain"]
    with pytest.raises(ZeroDivisionError), breaking("Whole.plain").applied():
        raise ZeroDivisionError
    assert before is vars(Whole)["plain"]


@pytest.mark.parametrize("missing", ["Whole.absent", "Absent.plain", "Part.plain"])
def test_a_missing_target_breaks_nothing(missing: str) -> None:
    """Goal: a mutant that does not fit is rejected as a whole. Method: a target that fits, then one that does not.

    An inherited method is missing, too: what is replaced must be what is called.
    """
    before = vars(Whole)["plain"]
    misfit = breaking("Whole.plain", missing)
    with pytest.raises(LookupError, match=f"this vLLM has no .*:{missing}"), misfit.applied():
        pass
    assert before is vars(Whole)["plain"]


@pytest.mark.ci
def test_every_mutant_breaks_vllm_and_restores_it() -> None:
    """Goal: each fits vLLM 0.20.2, and is undone completely. Method: compare all targets before and after."""
    pytest.importorskip("vllm")
    before = {target: _now(target) for mutant in BLOCK_MANAGER_MUTANTS for target in mutant.targets}
    for mutant in BLOCK_MANAGER_MUTANTS:
        with mutant.applied():
            assert not [target for target in mutant.targets if _now(target) is before[target]], mutant.name
        assert before == {target: _now(target) for target in before}, mutant.name


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", KILLABLE, ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    """Goal: each of these faults in vLLM is found. Method: inject the fault, and run cases until it shows."""
    pytest.importorskip("vllm")
    models = models_named(("two-windows+eagle",)) + models_named(())
    there = {name for model in models for name in (model.name, model.name.split("+")[0])}
    beyond = tuple(name for name in mutant.models or () if name not in there)
    models += models_named(beyond) if beyond else []
    bench = Bench(load_system("stock").factory)
    found = run_mutant(Trials(bench), mutant, models, seed=0, operations=OPERATIONS, seconds=math.inf).kills["gate"]
    assert found is not None, mutant.sentence


def _now(target: str) -> object:
    owner, attribute = locate(target)
    return vars(owner)[attribute]
