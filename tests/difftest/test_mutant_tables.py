"""The stored tables of mutants.

Goal: a reader can rely on them. Method: compare their names with the existing mutants, and look for a reason next to
each survivor.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate_mutants import layers
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import (
    BLOCK_MANAGER_MUTANTS,
    CHECKER_MUTANTS,
    FEATURE_MUTANTS,
    INDEPENDENT_MUTANTS,
    LATER_WORKER_MUTANTS,
    PAIR_MUTANTS,
    PLUGIN_MUTANTS,
    REFERENCE_MUTANTS,
    RELEASE_MUTANTS,
    SCHEDULER_MUTANTS,
    WORKER_MUTANTS,
)

ROOT = Path(__file__).parents[2] / "difftest"
TABLES = {
    "mutants.md": (
        *BLOCK_MANAGER_MUTANTS,
        *SCHEDULER_MUTANTS,
        *PAIR_MUTANTS,
        *FEATURE_MUTANTS,
        *PLUGIN_MUTANTS,
    ),
    "mutants-of-checkers.md": CHECKER_MUTANTS,
    "mutants-of-reference.md": REFERENCE_MUTANTS,
    "mutants-ascend-worker.md": WORKER_MUTANTS,
    **{f"mutants-ascend-worker@{version}.md": mutants for version, mutants in LATER_WORKER_MUTANTS.items()},
    **{
        f"mutants-{system}.md": tuple(mutant for level in mutants.values() for mutant in level)
        for system, mutants in RELEASE_MUTANTS.items()
    },
}


def rows(page: str) -> dict[str, list[str]]:
    """The rows of a page's tables, by name."""
    table = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    named = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in table}
    return {name: cells for name, cells in named.items() if name != "mutant" and not name.startswith("---")}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_mutant(name: str) -> None:
    """And no other."""
    assert {each.name for each in TABLES[name]} == rows((ROOT / name).read_text(encoding="utf-8")).keys()


@pytest.mark.parametrize("name", TABLES)
def test_every_survivor_has_a_reason(name: str) -> None:
    """And nothing is argued that was killed when the table was written."""
    page = (ROOT / name).read_text(encoding="utf-8")
    argued = {each.name for each in TABLES[name] if each.survives}
    assert argued == survivors(page)


def survivors(page: str) -> set[str]:
    """The mutants that a page says survived."""
    listed = page.partition("\nSurvivors:\n")[2]
    in_list = {line.split("`")[1] for line in listed.splitlines() if line.startswith("- `")}
    return in_list | {name for name, cells in rows(page).items() if cells[0] == "SURVIVED"}


def test_independent_mutants_are_listed_and_survivors_argued() -> None:
    """Goal: every survivor has an argument, and nothing else has. Method: the table's verdicts against the
    arguments.
    """
    page = (ROOT / "mutants-independent.md").read_text(encoding="utf-8")
    proofs = rows(page.partition("\nNot killed by the proofs:\n")[0])
    left = {each.name for each in INDEPENDENT_MUTANTS if proofs[each.name][1] != "killed"}
    assert left == survivors(page) == {each.name for each in INDEPENDENT_MUTANTS if each.survives}


def test_every_layer_says_what_it_kills() -> None:
    """Goal: no layer is left out of a mutant. Method: the page's rows, and the proofs' own page."""
    text = (ROOT / "mutants-layers.md").read_text(encoding="utf-8")
    verdicts = layers.stored(text)
    assert layers.page(verdicts) == text
    assert {each.name for each in INDEPENDENT_MUTANTS} == set(verdicts)
    assert all(len(layers.LAYERS) == len(cells) for cells in verdicts.values())
    others = layers.independent((ROOT / layers.PROVED).read_text(encoding="utf-8"))
    assert others == {name: [cells[0], *cells[2:]] for name, cells in verdicts.items()}, (
        "run: python -m kvgate_mutants.layers --keep --write difftest/mutants-layers.md"
    )


def test_an_argument_is_a_sentence() -> None:
    """It says what is missing."""
    both: tuple[Mutant, ...] = (*FEATURE_MUTANTS, *REFERENCE_MUTANTS, *INDEPENDENT_MUTANTS, *CHECKER_MUTANTS)
    assert not [
        each.name for each in both if each.survives and not (len(each.survives) > 20 and each.survives[-1] == ".")
    ]
    assert not [each.name for each in both if each.survives and each.equivalent]
