"""The face: what README and the pages that it leads to promise works as written, and what they quote is current."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest
import typer

from kvgate.cli.app import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "difftest" / "COMMANDS.md").read_text(encoding="utf-8")
CORPUS = (ROOT / "difftest" / "corpus" / "README.md").read_text(encoding="utf-8")
MUTANTS = (ROOT / "difftest" / "mutants.md").read_text(encoding="utf-8")
HEADLINES = (ROOT / "benchmarks" / "headlines" / "TABLE.md").read_text(encoding="utf-8")
FINDINGS = ROOT / "difftest" / "kvgate" / "findings"
PAGES = {
    path.relative_to(ROOT).as_posix(): path for room in ("", "difftest/", "impl/") for path in ROOT.glob(f"{room}*.md")
}

RECIPE_LINES_MAX = 6
README_LINES_MAX = 250
"""README is read at one sitting: what is looked up in has a page of its own."""
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# At the beginning of a line, behind variables of the environment, or behind uv.
_CALL = re.compile(r"(?m)^ *(?:[A-Z_]+=\S+ +)*(?:uv run (?:--no-sync )?)?kvgate (\S+)(.*)$")


def called(text: str) -> list[tuple[str, str]]:
    """The subcommands that the code blocks of a page call, each with its arguments."""
    return [found for block in _BLOCK.findall(text) for found in _CALL.findall(block.replace("\\\n", " "))]


def unknown(calls: Sequence[tuple[str, str]]) -> list[str]:
    """The calls of a subcommand, or with an option, that there is not."""
    commands = vars(typer.main.get_command(app))["commands"]
    wrong = []
    for name, arguments in calls:
        if name.startswith("--"):
            continue
        known = {option for parameter in commands[name].params for option in parameter.opts} if name in commands else {}
        # What is behind a bare -- is somebody else's command; what is behind a pipe too.
        own = takewhile(lambda word: word not in ("--", "|", "&"), shlex.split(arguments, comments=True))
        given = {word.partition("=")[0] for word in own if word.startswith("--")}
        if name not in commands or not given <= {*known, "--help"}:
            wrong.append(f"{name}{arguments}")
    return wrong


def test_the_commands_on_the_pages_exist() -> None:
    """Goal: what a page says works as written. Method: look up every subcommand and option of all code blocks."""
    found = {name: unknown(called(path.read_text(encoding="utf-8"))) for name, path in PAGES.items()}
    assert {} == {name: wrong for name, wrong in found.items() if wrong}
    assert {"README.md", "INSTALL.md", "difftest/COMMANDS.md", "difftest/LIVE.md", "impl/README.md"} <= set(found)


def test_the_page_of_commands_names_every_one() -> None:
    """Goal: nothing is left out that can be asked. Method: compare with what the command knows."""
    assert set(vars(typer.main.get_command(app))["commands"]) == {name for name, _ in called(COMMANDS)}


@pytest.mark.parametrize(
    ("block", "wrong"),
    [
        ("kvgate check --seeds 1", ["check --seeds 1"]),
        ("kvgate chek", ["chek"]),
        ("KVGATE_CACHE=a kvgate check --model a \\\n  --nothing", ["check --model a    --nothing"]),
        ("uv run --no-sync kvgate check --seed 1 # --seeds", []),
        ("kvgate record --dir a -- vllm serve --model b", []),
        ("kvgate --help", []),
    ],
)
def test_a_command_that_does_not_exist_would_be_found(block: str, wrong: list[str]) -> None:
    """Goal: the search can fail, and does not without a reason. Method: pages of one block."""
    assert wrong == unknown(called(f"Text:\n\n```sh\n{block}\n```\n"))


def recipes(readme: str) -> dict[str, list[str]]:
    """README's recipes: the lines of code of each, by its title."""
    part = readme.partition("## Four recipes\n")[2].partition("\n## ")[0]
    return {
        title: block.splitlines()
        for title, block in re.findall(r"^\*\*(.+?)\*\*.*?^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    }


def test_each_recipe_is_short() -> None:
    """Goal: four things that one comes for, each in at most six lines. Method: count them."""
    found = recipes(README)
    expected = ["Gate a pull request", "Test a patch", "Check a live worker.", "Ask why the hit rate is zero"]
    assert expected == list(found)
    assert {} == {title: lines for title, lines in found.items() if not 0 < len(lines) <= RECIPE_LINES_MAX}
    assert len(README.splitlines()) <= README_LINES_MAX


def cells(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def rows_of(text: str, heading: str) -> Iterator[list[str]]:
    """The rows of the first table below a heading, its first two lines left out."""
    lines = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    first = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    return map(cells, list(first)[2:])


def misquoted_record(readme: str) -> list[str]:
    """The rows of README's track record that the page of the corpus, or a finding's own trace, does not bear out."""
    wrong = []
    for _, _, _, caught, command in rows_of(readme, "What it catches"):
        operations = int(caught.partition(" operations")[0])
        words = command.strip("`").split()
        if words[:2] == ["kvgate", "corpus"]:
            told = [row for row in map(cells, CORPUS.splitlines()) if row[0] == words[2] and row[5] == "published code"]
            if not any(f"{row[9]} operations, {row[10]} s" == caught for row in told):
                wrong.append(caught)
        # A trace has a header, and then a line for each operation.
        elif operations != len((ROOT / words[2]).read_text(encoding="utf-8").splitlines()) - 1:
            wrong.append(caught)
    return wrong


def test_the_track_record_is_what_was_seen() -> None:
    """Goal: README's few rows are those of the whole tables. Method: look each up, and the sums."""
    assert 7 == len(list(rows_of(README, "What it catches")))
    assert [] == misquoted_record(README)
    caught, of = re.findall(r"(?m)^(\d+) of (\d+) defects caught: (?:\d+) in published code", CORPUS)[0]
    published = re.findall(r"(?m)^\d+ of \d+ defects caught: (\d+) in published code", CORPUS)[0]
    findings = len([*FINDINGS.glob("f[0-9]*")])
    text = " ".join(README.split())
    assert f"Of {of} reported defects" in text
    assert f"{caught} are caught, {published} of them in published code" in text
    assert f"{findings} differences found in published code" in text
    killed = [tuple(map(int, each)) for each in re.findall(r"(\d+) of (\d+) killed", MUTANTS)]
    assert f"{sum(one for one, _ in killed)} of {sum(all_ for _, all_ in killed)} are found" in text


def test_a_misquoted_record_would_be_found() -> None:
    """Goal: the comparison can fail. Method: a wrong time of a reported defect, a wrong length of a finding."""
    for true, false in (("5 operations, 0.013 s", "5 operations, 0.001 s"), ("| 7 operations |", "| 3 operations |")):
        assert [false.strip("| ")] == misquoted_record(README.replace(true, false, 1))


def headlines() -> Iterator[dict[str, str]]:
    """The rows of the table of headlines, by the names of its columns."""
    names: list[str] = []
    for row in map(cells, HEADLINES.splitlines()):
        if row[:3] == ["#", "figure", "published"]:
            names = row
        elif names and len(row) == len(names):
            yield dict(zip(names, row, strict=True))


def misquoted_headlines(readme: str) -> list[str]:
    """The rows of README's figures that the table of headlines does not bear out."""
    wrong = []
    for figure, *rates in rows_of(readme, "Figures"):
        name = figure.partition(": ")[0]
        if not any(
            name in (row["figure"], f"{row['figure'].partition(', block size')[0]}, {row['case']}")
            and rates[0].removesuffix(" %") in row["published"]
            and rates[1:] == [row[arm].removesuffix(" †") for arm in ("reference", "vLLM's scheduler")]
            for row in headlines()
        ):
            wrong.append(figure)
    return wrong


def test_the_headlines_are_what_was_simulated() -> None:
    """Goal: README's few rates are those of the whole table. Method: look each up by its name and its case."""
    assert 5 <= len(list(rows_of(README, "Figures")))
    assert [] == misquoted_headlines(README)


def test_a_misquoted_headline_would_be_found() -> None:
    """Goal: the comparison can fail. Method: another rate, and one that was never published."""
    row = "| 8k x 32, block size 32 | 48.80 % | 48.80 % | 48.80 % |"
    assert row in README
    for false in (row.replace("| 48.80 % |", "| 48.81 % |", 1), f"{row[:-9]} 48.90 % |"):
        assert ["8k x 32, block size 32"] == misquoted_headlines(README.replace(row, false))
