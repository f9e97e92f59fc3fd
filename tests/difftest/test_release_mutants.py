"""The mutants of later releases of vLLM: each edits a passage that its release has, and is found on that release.

Goal: a fault in a feature that vLLM 0.20.2 lacks is noticed. Method: read the release's files without importing it, and
apply every edit to their text. Run a few mutants in a process of their own, for a process has one vLLM.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.published import published

from kvgate.adapters.releases import LMCACHE, release_named
from kvgate.kernel.models import load
from kvgate.report.document import from_json
from kvgate_mutants.cli.mutants import OF_RELEASES, SCHEDULED_IN_RELEASES
from kvgate_mutants.mutants.mutant import Edit, Mutant
from kvgate_mutants.mutants.registry import RELEASE_MUTANTS

VERSION = "0.33.0"
MUTANTS = RELEASE_MUTANTS[f"native@{VERSION}"]
EVERY = [mutant for mutants in MUTANTS.values() for mutant in mutants]
FEW = {
    "blocks": ("look-ahead-token-is-the-last-of-its-block", "look-ahead-is-subtracted-twice", "scratch-reversed"),
    "scheduler": ("freed-a-step-early", "a-step-too-many-at-the-end"),
}
"""Those that are found soonest, of different mechanisms."""


def source_of(folder: Path, target: str) -> str:
    """The source of a function in the file of a release."""
    module, _, path = target.partition(":")
    text = folder.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for name in path.split("."):
        node = next(each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name)
    source = ast.get_source_segment(text, node, padded=True)
    assert source is not None
    return source


OF_ASCEND_STORE = RELEASE_MUTANTS["ascend@0.23.0"]["tiers"]


@pytest.mark.ci
@pytest.mark.parametrize("mutant", [*EVERY, *OF_ASCEND_STORE], ids=lambda mutant: mutant.name)
def test_its_passage_is_there(mutant: Mutant) -> None:
    """Once in its function, and its replacement is Python."""
    assert isinstance(mutant.broken, Edit)
    (target,) = mutant.targets
    release = release_named("ascend@0.23.0" if mutant in OF_ASCEND_STORE else f"native@{VERSION}")
    folder = published(LMCACHE if target.startswith("lmcache.") else release)
    ast.parse(mutant.broken.of(source_of(folder, target)))


def test_connectors_of_others_have_several_mutants() -> None:
    """Goal: what their checks find is measured. Method: count them by what they need."""
    needs = Counter(need for mutant in (*EVERY, *OF_ASCEND_STORE) for need in mutant.needs)
    assert needs["connector=lmcache"] >= 5
    assert needs["connector=ascend-store"] >= 5


def test_each_says_what_it_is() -> None:
    """At least forty in all, of different names; a sentence each; on models that there are."""
    assert len([mutant for mutant in EVERY if not (mutant.equivalent or mutant.survives)]) >= 40
    assert {1} == set(Counter(mutant.name for mutant in EVERY).values())
    assert not [mutant.name for mutant in EVERY if not re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)]
    assert all(load(name) for name in (*OF_RELEASES, *SCHEDULED_IN_RELEASES))
    assert all(load(name) for mutant in EVERY for name in mutant.models or ())


def test_an_argument_is_a_sentence() -> None:
    """Of each that is equivalent or survives, and of none both."""
    argued = [mutant.equivalent or mutant.survives for mutant in EVERY if mutant.equivalent or mutant.survives]
    assert not [reason for reason in argued if not re.fullmatch(r"[A-Z].{40,}\.", reason or "")]
    assert not [mutant.name for mutant in EVERY if mutant.equivalent and mutant.survives]


PROGRAM = """
import sys
from kvgate_mutants.cli.mutants import SETS
from kvgate_mutants.mutation_run import run_mutant

sut, level, *names = sys.argv[1:]
(of_level,) = (each for each in SETS if (each.code.value, each.level.value) == (sut, level))
gate, _ = of_level.benches(False)
for mutant in of_level.mutants:
    if mutant.name in names:
        print(mutant.name, run_mutant(gate, mutant, of_level.models, seed=0, operations=20_000, seconds=60).survived)
"""


@pytest.mark.ci
@pytest.mark.parametrize("level", FEW)
def test_a_few_are_killed(level: str) -> None:
    """The soonest found, without the run of the release as it is, which takes a minute."""
    published(release_named(f"native@{VERSION}"))
    command = [sys.executable, "-c", PROGRAM, f"native@{VERSION}", level, *FEW[level]]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert set(printed.splitlines()) == {f"{name} False" for name in FEW[level]}


@pytest.mark.deep
@pytest.mark.parametrize("level", MUTANTS)
def test_all_are_killed(level: str) -> None:
    """Except those of which it is argued why not."""
    published(release_named(f"native@{VERSION}"))
    arguments = ["mutants", "--sut", f"native@{VERSION}", "--level", level, "--format", "json"]
    command = [sys.executable, "-m", "kvgate.cli", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7200)
    report = from_json(ended.stdout, "the table")
    survivors = {story.headline.split()[0] for story in report.found}
    assert {mutant.name for mutant in MUTANTS[level] if mutant.survives} == survivors
