"""What the adapter for vLLM relies on.

Goal: a vLLM that is not the one the adapter was written for is told by its first symbol that differs. Method: the
installed vLLM as it is, which is the control, and pins that are wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.adapters.signatures import PINNED, drift

CLASS = f"{__name__}:Pinned"


class Pinned:
    """Something to pin."""

    def method(self, first: int, *, second: int) -> None:
        """Takes two things."""


PACKAGE = __name__.partition(".")[0]
FITTING = {f"{CLASS}.method": ("self", "first", "second"), CLASS: ()}


def test_the_installed_vllm_is_the_pinned_one() -> None:
    """Every symbol is there, with its parameters; a pin that is wrong would be seen."""
    assert [] == drift()
    path, parameters = next((path, found) for path, found in PINNED.items() if found)
    wrong = drift({**PINNED, path: parameters[:-1]})
    assert [f"{path} takes ({', '.join(parameters)}), pinned is ({', '.join(parameters[:-1])})"] == wrong


def test_what_fits_is_no_drift() -> None:
    """The control of all that follows: a method, and a class as it is called."""
    assert [] == drift(FITTING)


DRIFTED = {
    "a parameter more": ({f"{CLASS}.method": ("self", "first")}, ".method takes (self, first, second), pinned is "),
    "another order": ({f"{CLASS}.method": ("self", "second", "first")}, ".method takes (self, first, second), "),
    "no such method": ({f"{CLASS}.absent": ("self",)}, ".absent is not there"),
    "no such class": ({f"{__name__}:Absent.method": ("self",)}, "Absent.method is not there"),
    "no such module": ({f"{PACKAGE}.no_such_module:Pinned": ()}, ".no_such_module:Pinned is not there"),
}


@pytest.mark.parametrize(("pinned", "told"), DRIFTED.values(), ids=DRIFTED)
def test_what_does_not_fit_is_told(pinned: dict[str, tuple[str, ...]], told: str) -> None:
    """A sentence for each symbol, and none for those that fit."""
    (found,) = drift({**FITTING, **pinned} if told.endswith("there") else pinned)
    assert told in found


def test_a_package_that_is_not_there_at_all_does_not_drift() -> None:
    """Metadata may say that it is: then it cannot be imported, and no list of what it lacks is told."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        drift({"no_such_package.inside:Pinned": ()})


@pytest.mark.parametrize("line", ["import no_such_module", "from os import no_such_name", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_another_matter(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there: what is missing is something that it needs."""
    (tmp_path / "pinned_and_broken.py").write_text(line, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((ImportError, ZeroDivisionError)):
        drift({"pinned_and_broken:Pinned": ()})
