"""The stored tables of mutants.

Goal: a reader can rely on them. Method: compare their names with the existing mutants, and look for a reason next to
each survivor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvgate.kernel.data_file import csv_text, data_name, read_csv
from kvgate_mutants import independent, layers
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

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def rows(page: str) -> list[dict[str, str]]:
    """The rows of a page's data file."""
    return read_csv((ROOT / data_name(Path(page))).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_mutant(name: str) -> None:
    """And no other, and each once."""
    assert sorted(each.name for each in TABLES[name]) == sorted(row["mutant"] for row in rows(name))


@pytest.mark.parametrize("name", TABLES)
def test_every_survivor_has_a_reason(name: str) -> None:
    """And nothing is argued that was killed when the table was written."""
    argued = {each.name for each in TABLES[name] if each.survives}
    assert argued == survivors(rows(name))


def survivors(table: list[dict[str, str]]) -> set[str]:
    """The mutants that a table says survived."""
    return {row["mutant"] for row in table if row.get("survives") or row.get("killed by") == "SURVIVED"}


@pytest.mark.parametrize("name", TABLES)
def test_a_page_sums_up_its_rows(name: str) -> None:
    """Goal: no figure of a page is stale. Method: count the rows of its data file again."""
    table, page = rows(name), (ROOT / name).read_text(encoding="utf-8")
    if "set" not in table[0]:
        assert re.search(rf"^\d+ of {len(table)} mutants of the ", page, re.MULTILINE)
        return
    for title in {row["set"] for row in table}:
        verdicts = [row["killed by"] for row in table if row["set"] == title]
        equivalent = verdicts.count("equivalent")
        expected = len(verdicts) - equivalent
        killed = expected - verdicts.count("SURVIVED")
        assert f"- {title}: nothing found. {killed} of {expected} killed, {equivalent} equivalent;" in page


def test_independent_mutants_are_listed_and_survivors_argued() -> None:
    """Goal: only survivors have an argument, and each has. Method: the table's verdicts against the arguments."""
    table = rows(layers.PROVED)
    assert sorted(each.name for each in INDEPENDENT_MUTANTS) == sorted(row["mutant"] for row in table)
    left = {row["mutant"] for row in table if row["proofs"] != "killed"}
    assert left == survivors(table) == {each.name for each in INDEPENDENT_MUTANTS if each.survives}


def test_the_page_says_what_unseen_mutants_were() -> None:
    """Goal: the proofs are not judged by mutants that they were written for. Method: count the first runs again."""
    first = [each.before for each in INDEPENDENT_MUTANTS if each.before]
    assert {"killed", "survived", "stopped"} == set(first)
    counts = ", ".join(f"{first.count(verdict)} {verdict}" for verdict in sorted(set(first)))
    page = (ROOT / layers.PROVED).read_text(encoding="utf-8")
    assert f"Of the {len(first)} that were written later, when they were first run: {counts}." in page


def test_only_kills_are_kept() -> None:
    """Goal: ``--keep`` keeps no verdict that may have changed. Method: rows that do not say what is there now."""
    data = rows(layers.PROVED)
    executes = independent.traces()
    killed = [row for row in data if row["proofs"] == "killed"]
    names = list(data[0])

    def kept(changed: dict[str, str]) -> Mapping[str, independent.Proofs]:
        row = {**killed[0], **changed}
        return independent.killed_before(csv_text(names, [[row[name] for name in names]]), executes)

    assert [killed[0]["mutant"]] == list(kept({}))
    for name, other in (("obligation", "a.b"), ("function", "a:b"), ("proofs", "survived"), ("mutant", "no-mutant")):
        assert {} == kept({name: other})


def test_every_layer_says_what_it_kills() -> None:
    """Goal: no layer is left out of a mutant. Method: the page's rows, and the proofs' own table."""
    page = ROOT / "mutants-layers.md"
    data = page.with_name(data_name(page)).read_text(encoding="utf-8")
    verdicts = layers.stored(data)
    assert layers.page(verdicts) == (page.read_text(encoding="utf-8"), data)
    assert {each.name for each in INDEPENDENT_MUTANTS} == set(verdicts)
    assert all(len(layers.LAYERS) == len(cells) for cells in verdicts.values())
    proved = ROOT / data_name(Path(layers.PROVED))
    others = layers.independent(proved.read_text(encoding="utf-8"))
    # What the proofs kill is run by the layers' own page, the rest by the proofs' table.
    said = {name: [cells[0], *cells[2:]] for name, cells in verdicts.items()}
    for name, cells in others.items():
        same = [said[name][place] for place, cell in enumerate(cells) if cell != layers.NOT_RUN]
        assert same == [cell for cell in cells if cell != layers.NOT_RUN], (
            "run: python -m kvgate_mutants.layers --keep --write difftest/mutants-layers.md"
        )


def test_an_argument_is_a_sentence() -> None:
    """It says what is missing."""
    both: tuple[Mutant, ...] = (*FEATURE_MUTANTS, *REFERENCE_MUTANTS, *INDEPENDENT_MUTANTS, *CHECKER_MUTANTS)
    assert not [
        each.name for each in both if each.survives and not (len(each.survives) > 20 and each.survives[-1] == ".")
    ]
    assert not [each.name for each in both if each.survives and each.equivalent]
