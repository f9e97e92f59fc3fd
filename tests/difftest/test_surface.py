"""What releases add, and what the gate makes of it.

Goal: no class, method or option that a release adds goes unnoticed. Method: the sources of the driven releases; one
mechanism taken away; and a release that is not described, which is the newest one next to older ones.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from tests.published import published

from kvgate.adapters.releases import surface
from kvgate.adapters.releases.description import Mechanism, Release
from kvgate.adapters.releases.surface import described, main, names_in, source_of, unexplained

PAIRS = list(pairwise(described()))


def new_in(older: Release, release: Release) -> frozenset[str]:
    for each in (older, release):
        if each.wheels:
            published(each)
    return names_in(source_of(release)) - names_in(source_of(older))


@pytest.mark.parametrize(("older", "release"), PAIRS, ids=lambda release: release.version)
def test_every_name_that_a_release_adds_is_of_a_mechanism(older: Release, release: Release) -> None:
    """And no mechanism names what is not new."""
    new = new_in(older, release)
    assert [] == unexplained(new, release.mechanisms)
    patterns = [pattern for mechanism in release.mechanisms for pattern in mechanism.names]
    assert [] == [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in new)]


def test_what_no_mechanism_names_is_reported() -> None:
    """The newest release, without its first mechanism."""
    older, release = PAIRS[-1]
    first, *others = release.mechanisms
    missing = unexplained(new_in(older, release), others)
    assert missing
    assert all(any(fnmatchcase(name, pattern) for pattern in first.names) for name in missing)


def test_a_release_that_is_not_described_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its names, and the exit code says so. Without a folder nothing is missing."""
    *_, older, release = described()
    new = new_in(older, release)
    assert 0 == main(None)
    capsys.readouterr()
    monkeypatch.setattr(surface, "described", lambda: [older])
    assert 1 == main(str(source_of(release)))
    printed = capsys.readouterr().out
    assert f"{len(new)} names that {older.version} does not have" in printed
    assert sorted(new) == [line.strip() for line in printed.splitlines() if line.startswith("  ") and line[2] != " "]


def test_a_mechanism_is_compared_or_left_out() -> None:
    """Not both, and not neither."""
    for texts in ({}, {"compared": "in lockstep", "left_out": "no model has it"}):
        with pytest.raises(ValueError, match="either compared, or left out"):
            Mechanism(("Manager.new",), **texts)
    assert evolve(Mechanism(("Manager.new",), compared="in lockstep"), names=("Manager.old",)).compared
