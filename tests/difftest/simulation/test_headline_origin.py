"""By which code a headline was computed.

Goal: a change of code that runs makes its results stale, and nothing else does. Method: a package that is written,
changed and renamed; the digests of the arms when one package changes.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from benchmarks.headlines import store


def test_the_digest_is_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: any change of what runs is seen, and no other. Method: a package that is changed, and is not there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    digest = store.package_digest.__wrapped__
    digests = [digest("digested_package")]
    (tmp_path / "digested_package").mkdir()
    importlib.invalidate_caches()
    for name, text in (
        ("__init__.py", ""),
        ("one.py", "x = 1"),
        ("one.py", "x = 2"),
        ("one.py", "x = '2'"),
        ("two.py", "def f(): return 2"),
    ):
        (tmp_path / "digested_package" / name).write_text(text)
        digests.append(digest("digested_package"))
    assert len(digests) == len(set(digests))
    two = tmp_path / "digested_package" / "two.py"
    two.write_text('"""Of a module."""\n\n\ndef f():  # as before\n    """Of a function."""\n    return 2\n')
    assert digests[-1] == digest("digested_package")
    two.rename(two.with_name("three.py"))
    assert digest("digested_package") not in digests


def test_an_arm_is_of_its_own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a change of the plug-in changes no result of the reference. Method: one package's digest changes."""
    arms = ("ranges", "reference", "infinite", "stock", "retention")
    before = {arm: store.code_digest(arm) for arm in arms}
    found = store.package_digest
    for package, expected in (
        ("kvreference", set(arms)),
        ("kvgate.simulation", set(arms)),
        ("kvgate.levels.scheduler.adapter", {"stock", "retention"}),
        ("kvgate.simulation.adapter", {"stock", "retention"}),
        ("swa_retention", {"retention"}),
    ):
        monkeypatch.setattr(store, "package_digest", lambda each, other=package: found(each) + "x" * (each == other))
        assert expected == {arm for arm in arms if store.code_digest(arm) != before[arm]}
