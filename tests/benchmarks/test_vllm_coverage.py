"""The table of branches counts what ran, gives each its reason, and says which reasons are of no use."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from benchmarks.vllm_coverage import REASONS, read_reasons, render

from kvgate.campaigns.branches import Branches, File
from kvgate.kernel.errors import UsageError

SOURCE = """\
def some(number):
    if number > 1:
        return 2
    for each in range(number):
        number += each
    return number


def never(number):
    if number:
        if number > 1:
            return 1
    return 0
"""
REACHED = {"some": 2, "never": 0, "": 0}
UNREACHED = {"some": ((2, 3), (4, 5)), "never": ((10, 11), (10, 13), (11, 12), (11, 13)), "": ()}


@pytest.fixture
def measured(tmp_path: Path) -> File:
    """The measurement of a small module, of which one function ran once."""
    path = tmp_path / "small.py"
    path.write_text(SOURCE, encoding="utf-8")
    branches = Branches([f"{tmp_path}/*"])
    with branches.measured():
        spec = importlib.util.spec_from_file_location("small", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.some(0)
    (file,) = branches.files()
    return file


def test_branches_are_counted(measured: File) -> None:
    """Goal: the table is right. Method: a module of which every branch is known."""
    assert REACHED == {each.name: each.reached for each in measured.functions}
    assert UNREACHED == {each.name: each.unreached for each in measured.functions}
    assert (2, 8) == (measured.reached, measured.branches)


def test_what_ran_is_taken_once(measured: File, tmp_path: Path) -> None:
    """Goal: cases are distinguished. Method: two calls that take different branches, and one call after them."""
    branches = Branches([f"{tmp_path}/*"])
    space: dict[str, Any] = {}
    exec(compile(SOURCE, str(measured.path), "exec"), space)
    some = space["some"]
    taken = []
    for number in (0, 2):
        with branches.measured():
            some(number)
        taken.append({arc[1:] for arc in branches.take() if min(arc[1:]) > 0})
    assert [{(2, 4), (4, 6)}, {(2, 3)}] == taken
    assert frozenset() == branches.take()


def test_every_branch_gets_its_own_reason(measured: File) -> None:
    """Goal: a reason excuses what it is for. Method: one for a line, one for a line in one that never ran, none."""
    reasons = read_reasons("# of a test\nsmall:never: if number:\n    It is not\n    called.\n")
    text, needless = render([measured], reasons)
    assert () == needless
    assert 4 == text.count("It is not called.")
    assert 2 == text.count("NO REASON GIVEN")
    # Two of the eight branches ran; four of them have a reason.
    assert ["all", "2", "8", "25.0", "50.0"] == next(
        line for line in text.splitlines() if line.startswith("all")
    ).split()


def test_a_branch_that_is_never_driven_counts(measured: File) -> None:
    """Goal: a branch that can be reached needs more than an excuse. Method: a reason that says that it is
    not driven.
    """
    text, _ = render([measured], read_reasons("small:never:\n    Not driven: no operation calls it.\n"))
    assert ["all", "2", "8", "25.0", "25.0"] == next(
        line for line in text.splitlines() if line.startswith("all")
    ).split()


@pytest.mark.parametrize(
    "where",
    ["small:some: return number", "small:some: if number > 2", "small:other: if number", "large:some: if number"],
)
def test_a_reason_that_does_not_apply_is_shown(measured: File, where: str) -> None:
    """Goal: reasons stay true. Method: of a line without branches, of none, of another function, of another file."""
    reasons = read_reasons(f"{where}\n    It cannot happen.\n")
    assert reasons == render([measured], reasons)[1]


def test_a_reason_for_what_was_reached_is_shown(measured: File) -> None:
    """Goal: reasons stay true. Method: a reason for a function whose branches are all reached."""
    whole = File(measured.path, tuple(each for each in measured.functions if not each.unreached), frozenset())
    reasons = read_reasons("small:some:\n    It cannot happen.\n")
    assert reasons == render([whole], reasons)[1]


@pytest.mark.parametrize("text", ["small:some: if number\n", "small\n    Why.\n"])
def test_a_reason_is_complete(text: str) -> None:
    """Goal: nothing is excused by an accident. Method: no reason, no function."""
    with pytest.raises(UsageError, match="no function, or no reason"):
        read_reasons(text)


def test_the_reasons_can_be_read() -> None:
    """Goal: the file is well-formed, and no two reasons are for the same. Method: read it."""
    reasons = read_reasons(REASONS.read_text(encoding="utf-8"))
    places = [(each.file, each.function, each.passage) for each in reasons]
    assert sorted(set(places)) == sorted(places)
