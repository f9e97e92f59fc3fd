"""CONTRIBUTING tells the truth: whatever file, name or command it sends somebody to is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from kvgate.cli.app import app
from kvgate.explore.mechanisms import MECHANISMS
from kvgate.explore.tiny_models import MODELS as TINY
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate_mutants.corpus.register import BUGS
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS
from kvspec.registry import obligations

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WALK = "## An attention kind, end to end"

# Where a short path may begin: the rooms, and the packages that most of the page is about.
BEGINNINGS = ("", "difftest", "difftest/kvgate", "reference/kvreference", "spec", "spec/kvspec", "impl/swa_retention")
# What is not to be, what a command writes, and a file of vLLM.
NOT_THERE = {"utils.py", "site/", "single_type_kv_cache_manager.py"}
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:\.py|\.md|\.toml|\.json|/)")


def section(page: str, title: str = WALK) -> str:
    """What stands under a heading, up to the next of its kind."""
    return page.partition(f"\n{title}\n")[2].partition("\n## ")[0]


def quoted(text: str) -> list[str]:
    """Everything between backticks, on one line or over a line's end, outside of blocks of commands."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose)]


def missing_paths(page: str) -> list[str]:
    """The paths that lead nowhere."""
    paths = [each for each in quoted(page) if PATH.fullmatch(each)]
    return [
        each
        for each in paths
        if each not in NOT_THERE and not any((ROOT / beginning / each).exists() for beginning in BEGINNINGS)
    ]


def rows(walk: str) -> Iterator[tuple[list[str], list[str]]]:
    """Per row of the walk-through's tables of files, the files and the names that are said to be in them."""
    for line in walk.splitlines():
        cells = line.strip("|").split("|")
        files = [each for each in quoted(cells[0]) if PATH.fullmatch(each)]
        if line.startswith("|") and files and len(cells) == 2:
            yield files, quoted(cells[1])


def missing_names(walk: str) -> list[str]:
    """The names that stand in none of the files of their row; of a dotted one, each part must."""
    missing = []
    for files, names in rows(walk):
        sources = [(ROOT / file).read_text(encoding="utf-8") for file in files]
        for name in names:
            parts = [name] if re.search(r"\W(?<!\.)", name) else name.split(".")
            if not all(any(part in source for source in sources) for part in parts):
                missing.append(f"{name} in {', '.join(files)}")
    return missing


def commands(page: str) -> list[list[str]]:
    """What stands in blocks of commands: without `uv run`, and without what it prints."""
    found = []
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        lines = [line.removeprefix("$ ") for line in block.splitlines() if kind == "sh" or line.startswith("$ ")]
        found += [shlex.split(line, comments=True) for line in lines]
    return [words[2:] if words[:2] == ["uv", "run"] else words for words in found if words]


def known_options(name: str) -> set[str]:
    """The options of a subcommand of kvgate.

    Raises:
        KeyError: there is no such subcommand.
    """
    group = typer.main.get_command(app)
    return {option for parameter in group.commands[name].params for option in parameter.opts}  # type: ignore[attr-defined]  # typer's group


def value_after(words: list[str], option: str) -> str | None:
    """What an option is given; None without it."""
    return words[words.index(option) + 1] if option in words else None


def wrong_command(words: list[str]) -> str | None:
    """What does not fit a command of the page, as far as it can be told without running it."""
    if words[0] == "kvgate":
        return _wrong_kvgate(words[1], words[2:])
    if words[:2] == ["python", "-m"]:
        return None if find_spec(words[2]) else f"no module {words[2]}"
    paths = [word for word in words[1:] if "/" in word]
    gone = [path for path in paths if not path.startswith(("spec/", "difftest/")) and not (ROOT / path).exists()]
    return f"no {gone[0]}" if gone else None


def _wrong_kvgate(name: str, words: list[str]) -> str | None:
    try:
        options = known_options(name)
    except KeyError:
        return f"no subcommand {name}"
    unknown = [word for word in words if word.startswith("--") and word not in options]
    if unknown:
        return f"kvgate {name} has no {unknown[0]}"
    model, prefix = value_after(words, "--model"), value_after(words, "--obligation")
    if name == "explore":
        return None if model is None or model in TINY else f"no tiny model {model}"
    if prefix is not None and not any(each.startswith(prefix) for each in obligations()):
        return f"no obligation {prefix}"
    named = {
        "mutants": {mutant.name for mutant in BLOCK_MANAGER_MUTANTS},
        "mechanisms": set(MECHANISMS),
        "corpus": set(BUGS),
    }
    plain = [word for word in words if not word.startswith("--")]
    strangers = [word for word in plain if name in named and word not in named[name]]
    if strangers:
        return f"kvgate {name} knows no {strangers[0]}"
    try:
        load(model or "full")
    except UsageError as error:
        return str(error)
    return None


def test_every_path_leads_somewhere() -> None:
    """Goal: nobody is sent to a file that has moved. Method: every path between backticks, from the usual places."""
    assert [] == missing_paths(PAGE)


def test_the_walk_names_what_is_there() -> None:
    """Goal: the walk-through is of the code as it is. Method: every name of a row stands in a file of that row."""
    assert [] == missing_names(section(PAGE))
    assert 15 < len(list(rows(section(PAGE))))


def test_the_walk_goes_all_the_way() -> None:
    """Goal: nothing is left out from the sentence to the mutant. Method: the steps' headings, in order."""
    steps = re.findall(r"^\*\*(\d)\. (.*?)\.?\*\*", section(PAGE), flags=re.MULTILINE)
    told = [*("The statement", "The reference", "The proof", "The monitor", "The adapter"), "The mutant"]
    assert [str(number) for number in range(len(steps))] == [number for number, _ in steps]
    assert told == [name for _, name in steps if name in told]


@pytest.mark.parametrize("words", commands(PAGE), ids=lambda words: shlex.join(words)[:60])
def test_every_command_can_be_typed(words: list[str]) -> None:
    """Goal: what is typed from the page is understood. Method: names, options and paths are looked up, nothing run."""
    assert wrong_command(words) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("`tokens_before_chunk`", "`tokens_before_end`", "tokens_before_end in reference/kvreference/attention.py"),
        ("`Kind.CHUNKED_LOCAL`", "`Kind.DILATED`", "Kind.DILATED in reference/kvreference/attention.py"),
        ("the preset `local`", "the preset `locale`", "locale in difftest/kvgate/kernel/models.py"),
    ],
)
def test_a_stale_name_would_be_found(old: str, new: str, said: str) -> None:
    """Goal: the check can fail. Method: the page as it would be after a renaming that nobody told it of."""
    walk = section(PAGE)
    assert 1 <= walk.count(old)
    assert [said] == missing_names(walk.replace(old, new, 1))


def test_a_stale_path_would_be_found() -> None:
    """Goal: the check can fail. Method: a file that was renamed."""
    assert ["difftest/kvgate/monitors/places.py"] == missing_paths(
        PAGE.replace("monitors/slot_memory.py", "monitors/places.py")
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("kvgate chek", "no subcommand chek"),
        ("kvgate check --modell local", "kvgate check has no --modell"),
        ("kvgate check --model locale", "unknown model 'locale'"),
        ("kvgate explore --model tiny-locale", "no tiny model tiny-locale"),
        ("kvgate prove --obligation attention-sorts", "no obligation attention-sorts"),
        ("kvgate mutants window-open", "kvgate mutants knows no window-open"),
        ("kvgate mechanisms 'remote attention'", "kvgate mechanisms knows no remote attention"),
        ("python -m kvspec.chapters_proved", "no module kvspec.chapters_proved"),
        ("pytest tests/references", "no tests/references"),
    ],
)
def test_a_stale_command_would_be_found(command: str, said: str) -> None:
    """Goal: the check can fail. Method: commands with one thing wrong in each."""
    assert said in (wrong_command(shlex.split(command)) or "")
