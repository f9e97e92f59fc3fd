"""The symbols that the adapter for vLLM relies on.

Goal: if vLLM is not the version the adapter was written for, the message names the first symbol that differs. Method:
the installed vLLM as it is, which is the control, and pins that are wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.fetching import is_fetched
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.adapters.signatures import draft, drift, missing_from

CLASS = f"{__name__}:Pinned"


class Pinned:
    """Something to pin."""

    def method(self, first: int, *, second: int) -> None:
        """Takes two things."""


PACKAGE = __name__.partition(".")[0]
FITTING = {f"{CLASS}.method": "self, first, second", CLASS: ""}


def test_the_installed_vllm_is_the_pinned_one() -> None:
    """Every symbol is there, with its parameters; a pin that is wrong would be seen."""
    assert [] == drift(INSTALLED.signatures)
    path, parameters = next((path, found) for path, found in INSTALLED.signatures.items() if found)
    wrong = drift({**INSTALLED.signatures, path: "self"})
    assert [f"{path} takes ({parameters}), and the description says (self)"] == wrong


def test_the_file_of_the_installed_release_lacks_only_wheels() -> None:
    """Its scheduler's symbols included. The message names what is missing: a symbol, the scheduler."""
    assert ["wheels: the sha256 of each published wheel"] == list(missing_from(INSTALLED))
    assert INSTALLED.scheduler is not None
    (path, names), *_ = INSTALLED.scheduler.signatures.items()
    wrong = evolve(
        INSTALLED,
        wheels={"any": "0"},
        signatures={f"{CLASS}.absent": "self"},
        scheduler=evolve(INSTALLED.scheduler, signatures={path: "self"}),
    )
    assert [
        f"signatures: {CLASS}.absent is not there",
        f"scheduler signatures: {path} takes ({names}), and the description says (self)",
    ] == list(missing_from(wrong))
    (without,) = missing_from(evolve(wrong, signatures={}, scheduler=None))
    assert without.startswith("scheduler: rules for its scheduler")


def test_a_draft_of_an_unknown_release_says_what_changed() -> None:
    """Goal: the file of a new release begins with what a machine can find out. Method: the installed vLLM, drafted as
    the successor of a release that it is not; read as a file, the draft describes it."""
    older = RELEASES["native@0.19.1"]
    text = draft("0.20.2", older)
    assert {path for path, names in INSTALLED.signatures.items() if older.signatures[path] != names} == {
        path for path in older.signatures if f"        {path!r}: " in text
    }
    made: dict[str, Any] = {}
    exec(compile(text, "v0_20_2.py", "exec"), made)
    release = made["RELEASE"]
    assert ("0.20.2", []) == (release.version, drift({**release.signatures, **release.scheduler.signatures}))


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name, each in RELEASES.items() if each.system == "native"])
def test_every_release_that_is_fetched_is_as_described(name: str) -> None:
    """In a process of its own; the message says what the release's file lacks."""
    release = RELEASES[name]
    if not is_fetched(release):
        pytest.skip(f"{name} is not fetched: kvgate fetch {name}")
    command = [sys.executable, "-m", "kvgate.adapters.signatures", name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    lacks_rules = [line for line in lines if line.startswith("scheduler: ")]
    assert bool(lacks_rules) == (release.scheduler is None)
    assert [] == [line for line in lines if line not in lacks_rules and "nothing is missing" not in line]


def test_what_fits_is_not_a_drift() -> None:
    """The control of all that follows: a method, and a class as it is called."""
    assert [] == drift(FITTING)


DRIFTED = {
    "a parameter more": ({f"{CLASS}.method": "self, first"}, ".method takes (self, first, second), and the "),
    "another order": ({f"{CLASS}.method": "self, second, first"}, ".method takes (self, first, second), "),
    "no such method": ({f"{CLASS}.absent": "self"}, ".absent is not there"),
    "no such class": ({f"{__name__}:Absent.method": "self"}, "Absent.method is not there"),
    "no such module": ({f"{PACKAGE}.no_such_module:Pinned": ""}, ".no_such_module:Pinned is not there"),
}


@pytest.mark.parametrize(("pinned", "message"), DRIFTED.values(), ids=DRIFTED)
def test_what_does_not_fit_is_reported(pinned: dict[str, str], message: str) -> None:
    """A sentence for each symbol, and none for those that fit."""
    (found,) = drift({**FITTING, **pinned} if message.endswith("there") else pinned)
    assert message in found


def test_a_package_that_is_not_there_at_all_does_not_drift() -> None:
    """Its metadata may claim otherwise: then it cannot be imported, and the message does not list missing symbols."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        drift({"no_such_package.inside:Pinned": ""})


@pytest.mark.parametrize("line", ["import no_such_module", "from os import no_such_name", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_another_matter(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there: what is missing is something that it needs."""
    (tmp_path / "pinned_and_broken.py").write_text(line, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((ImportError, ZeroDivisionError)):
        drift({"pinned_and_broken:Pinned": ""})
