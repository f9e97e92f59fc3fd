"""The page of the guarantees: complete, current, and without a dead end."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from kvgate.cli.app import app
from kvgate.gate.case_runner import DETECTORS
from kvreference.statements import STATEMENTS
from kvspec.chapters import read_all
from kvspec.implemented_by import IMPLEMENTED_BY
from kvspec.statements_page import FAMILIES, page

SPEC = Path(__file__).parents[3] / "spec"


def test_the_page_is_current() -> None:
    """Goal: what is read is what is checked. Method: print the page as its head says, and compare."""
    printed = subprocess.run([sys.executable, "-m", "kvspec"], capture_output=True, text=True, check=True, timeout=60)
    assert (SPEC / "statements.md").read_text() == printed.stdout, "run: python -m kvspec > spec/statements.md"


def test_every_guarantee_is_on_the_page_once() -> None:
    """Goal: none is left out, whatever family it belongs to. Method: look for the row of each."""
    rows = [line for line in page().splitlines() if line.startswith("| <a")]
    expected = [f'| <a id="{statement.lower()}"></a>{statement} | {STATEMENTS[statement]}' for statement in STATEMENTS]
    assert expected == [row.rsplit(" | ", 3)[0] for row in rows]


def test_every_row_leads_to_its_chapter() -> None:
    """Goal: from an id to its mechanism in one step. Method: look where a row leads; without chapters, nowhere."""
    rows = {line.split("</a>")[1][:9].rstrip(" |"): line for line in page().splitlines() if line.startswith("| <a")}
    assert "| [10](10-pinned-tier.md#statements) |" in rows["KV-INV-07"]
    assert "| [05](05-hit-lookup.md#statements) |" in rows["KV-OP-01"]
    assert [] == [statement for statement in rows if "#statements) |" not in rows[statement]]
    assert "#statements" not in page(chapters=[])


def test_evidence_is_that_of_the_chapters() -> None:
    """Goal: two pages do not claim different things. Method: compare with the rows of all chapters."""
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| <a")]
    told = {line[0].rpartition(">")[2]: line[3] for line in rows}
    assert {row.statement: row.evidence for chapter in read_all() for row in chapter.rows} == told


def test_every_guarantee_says_where_the_reference_says_it() -> None:
    """Goal: neither a guarantee without an entry, nor an entry without a guarantee. Method: compare ids, in order."""
    assert list(STATEMENTS) == list(IMPLEMENTED_BY)


@pytest.mark.parametrize(
    "function", sorted({function for functions in IMPLEMENTED_BY.values() for function in functions})
)
def test_what_says_it_is_there(function: str) -> None:
    """Goal: no link leads nowhere. Method: import the module, and walk to the function."""
    module, _, path = function.partition(":")
    found: object = import_module(f"kvreference.{module}")
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)


def dead_links(text: str) -> list[str]:
    """The files that a page links to, from where it stands, and that are not there."""
    targets = re.findall(r"\]\(([^)]+)\)", text)
    return [target for target in targets if not (SPEC / target.partition("#")[0]).is_file()]


def test_every_link_leads_to_a_file() -> None:
    """Goal: whoever follows a link reads code. Method: every link of the page, and one that leads nowhere."""
    assert [] == dead_links(page())
    assert ["../reference/kvreference/scheduler.queues.py"] == dead_links(
        "[`a`](../reference/kvreference/manager.py) [`b`](../reference/kvreference/scheduler.queues.py)"
    )


def test_only_monitors_watch_what_the_reference_does_not_say() -> None:
    """Goal: a guarantee without a function is not an oversight. Method: its family is one that a monitor watches."""
    silent = {statement.rpartition("-")[0] for statement, functions in IMPLEMENTED_BY.items() if not functions}
    assert {"KV-MEM", "KV-LEAK", "KV-SYS", "KV-WORK"} == silent


def test_every_family_is_introduced() -> None:
    """Goal: a family without a section would hide its guarantees. Method: compare with the ids, in order."""
    assert list(dict.fromkeys(statement.rpartition("-")[0] for statement in STATEMENTS)) == list(FAMILIES)


def quoted() -> set[str]:
    """What the introductions of the families quote: monitors, and commands of several words."""
    return {word for text in FAMILIES.values() for word in text.split("`")[1::2]}


def test_the_monitors_on_the_page_exist() -> None:
    """Goal: the page names no monitor that the gate has not. Method: look every quoted name up, and find them all."""
    named = {name for name in quoted() if " " not in name}
    assert {detector for detector in DETECTORS if detector != "lockstep"} == named


def test_the_commands_on_the_page_exist() -> None:
    """Goal: the page names no command that there is not. Method: look up what follows ``kvgate`` among its commands."""
    named = {tuple(name.split()) for name in quoted() if " " in name}
    offered = {("kvgate", name) for name in vars(typer.main.get_command(app))["commands"]}
    assert set() < named <= offered
