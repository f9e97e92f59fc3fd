"""The plug-in's mutants: the description of each is true, and the gate kills every one of them.

Goal: a patch that does the wrong thing, or is left out, is seen. Method: inject the mutants one by one, on the models
that they name, until the lockstep with the reference, or a mutant's own check, sees it.
"""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pytest
from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import VLLM_VERSION
from kvgate.gate.case_runner import Trials
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench
from kvgate_mutants.mutants.mutant import Edit, Mutant, locate
from kvgate_mutants.mutants.plugin import checks
from kvgate_mutants.mutants.registry import PLUGIN_MUTANTS
from kvgate_mutants.mutation_run import run_mutant
from swa_retention.features import FEATURES
from swa_retention.register import Patch

OPERATIONS, SECONDS = 100_000, math.inf
CHECKS = sorted(
    {mutant.shown_by for mutant in PLUGIN_MUTANTS if mutant.shown_by is not None}, key=lambda check: check.__name__
)


def test_there_are_enough() -> None:
    """At least thirty, of different names, each broken in one sentence."""
    assert len(PLUGIN_MUTANTS) >= 30
    assert not [name for name, times in Counter(mutant.name for mutant in PLUGIN_MUTANTS).items() if times > 1]
    assert not [mutant.name for mutant in PLUGIN_MUTANTS if not re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)]
    assert not [mutant.name for mutant in PLUGIN_MUTANTS if not re.fullmatch(r"[a-z]+(-[a-z]+)+", mutant.name)]


def test_all_say_where_they_show() -> None:
    """On models, with the guarantee that is violated, or by a check."""
    assert not [mutant.name for mutant in PLUGIN_MUTANTS if (mutant.models is None) == (mutant.shown_by is None)]
    assert not [name for mutant in PLUGIN_MUTANTS for name in mutant.models or () if load(name).name != name]


def names_of(patch: Patch) -> set[str]:
    """How a mutant can name a patch: what is replaced, or what replaces it where vLLM-Ascend is not at hand."""
    by = inspect.unwrap(patch.replacement)
    return {patch.target, f"{by.__module__}:{by.__qualname__}"}


def never_broken(mutants: Iterable[Mutant]) -> set[str]:
    """The patches that the installed vLLM gets, of all features, and that no mutant of ``mutants`` breaks."""
    targets = {target for mutant in mutants for target in mutant.targets}
    patches = {
        patch.target: patch
        for feature in FEATURES
        for patch in feature.patches
        # Mutants are injected into the installed vLLM, where a patch of another release is not applied.
        if not isinstance(patch.written_for, Mapping) or VLLM_VERSION in patch.written_for
    }
    return {target for target, patch in patches.items() if not names_of(patch) & targets}


def test_every_patch_has_a_mutant() -> None:
    """Of every feature; a patch without one is reported."""
    assert set() == never_broken(PLUGIN_MUTANTS)
    touch = "vllm.v1.core.block_pool:BlockPool.touch"
    assert {touch} == never_broken(mutant for mutant in PLUGIN_MUTANTS if touch not in mutant.targets)


def can_be_called(mutant: Mutant, target: str) -> bool:
    """Whether it takes what its target requires, or all that its target takes."""
    owner, attribute = locate(target)
    member = vars(owner)[attribute]
    parameters = inspect.signature(getattr(member, "__func__", member)).parameters.values()
    takes = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    assert not isinstance(mutant.broken, Edit)
    for given in ([each for each in takes if each.default is each.empty], takes):
        by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
        try:
            inspect.signature(mutant.broken).bind("original", *given[: len(given) - len(by_name)], **by_name)
        except TypeError:
            continue
        return True
    return False


def test_each_can_be_called_as_its_target_is() -> None:
    """Goal: a parameter more leaves no mutant that only raises a TypeError. Method: bind; and one that lacks one."""
    pytest.importorskip("vllm")
    load_system("retention")
    assert [] == [
        (mutant.name, target)
        for mutant in PLUGIN_MUTANTS
        for target in mutant.targets
        if not can_be_called(mutant, target)
    ]
    attach = "swa_retention.patches.attach:attach"
    mutant = next(mutant for mutant in PLUGIN_MUTANTS if attach in mutant.targets)
    assert not can_be_called(evolve(mutant, broken=lambda original, coordinator, configuration: None), attach)


def test_the_mutants_are_read_without_vllm() -> None:
    """Listing it is fast; the plug-in itself is not imported either."""
    heavy = "{'vllm', 'torch', 'swa_retention'}"
    program = f"import sys, kvgate_mutants.mutants.registry; print(*{heavy} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "" == finished.stdout.strip()


@pytest.mark.few(8)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checks_see_nothing_in_the_plug_in_as_it_is(check: Callable[[], str | None]) -> None:
    """And leave everything as it was."""
    pytest.importorskip("vllm")
    load_system("retention")
    before = dict(vars(checks.Pool)), checks.count
    assert check() is None
    assert check() is None
    assert before == (dict(vars(checks.Pool)), checks.count)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", PLUGIN_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    """And undone."""
    pytest.importorskip("vllm")
    trials = Trials(Bench(load_system("retention").factory))
    before = [vars(owner)[name] for owner, name in map(locate, mutant.targets)]
    models = [load(name) for name in mutant.models or ()]
    result = run_mutant(trials, mutant, models, seed=0, operations=OPERATIONS, seconds=SECONDS)
    assert result.kills["gate"] is not None, mutant.sentence
    assert before == [vars(owner)[name] for owner, name in map(locate, mutant.targets)]
