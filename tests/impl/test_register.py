"""The register.

Goal: a patch is put in place only where it fits, with all the others or not at all, and code that knows the old object
by name has the new one. Method: a module of our own, patched and inspected.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from attrs import evolve

from swa_retention import register
from swa_retention.fingerprint import fingerprint
from swa_retention.register import UNPATCHED, IncompatibleError, Patch, State, apply, look, remove

SOURCE = '''
class Pool:
    def size(self):
        """How large it is."""
        return 1

    def other(self):
        return 5

def count():
    return 2
'''


@pytest.fixture
def module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module to be patched, and another one that has imported a function of it by name."""
    (tmp_path / "patched.py").write_text(SOURCE)
    (tmp_path / "user.py").write_text("from patched import count, Pool\n")
    monkeypatch.syspath_prepend(tmp_path)
    patched: Any = import_module("patched")
    patched.user = import_module("user")
    yield patched
    for name in ("patched", "user"):
        sys.modules.pop(name)


def patch(target: str, replaced: Any, by: Callable[..., Any]) -> Patch:
    """A patch written for ``replaced``, or one that adds something."""
    written_for = None if replaced is None else fingerprint(replaced)
    return Patch(target, "why", "how", "upstream", "until", written_for, lambda _original: by)


def larger(_self: Any = None) -> int:
    """The replacement of every patched function."""
    return 10


def test_everything_that_fits_is_put_in_place(module: Any) -> None:
    """A method, a function imported by name elsewhere, and something new; and it can be undone."""
    patches = (
        patch("patched:Pool.size", module.Pool.size, larger),
        patch("patched:count", module.count, lambda: 11),
        patch("patched:Pool.added", None, lambda self: 12),
    )
    assert [State.FITS] * 3 == [found.state for found in apply(patches)]
    assert (10, 11, 11, 12) == (module.Pool().size(), module.count(), module.user.count(), module.Pool().added())
    assert [State.PATCHED] * 3 == [found.state for found in apply(patches)]
    assert 10 == module.Pool().size()
    remove(patches)
    assert (1, 2, 2) == (module.Pool().size(), module.count(), module.user.count())
    assert not hasattr(module.Pool, "added")


@pytest.mark.parametrize(
    ("target", "state"),
    [
        ("patched:Pool.gone", State.MISSING),
        ("patched:Gone.size", State.MISSING),
        ("no_such_module:Pool.size", State.MISSING),
        ("patched:Pool.other", State.DIFFERS),
    ],
)
def test_if_one_does_not_fit_nothing_is_changed(module: Any, target: str, state: State) -> None:
    """It is named, with what was found in its place."""
    patches = (
        patch("patched:Pool.size", module.Pool.size, larger),
        patch(target, module.Pool.size, larger),
    )
    with pytest.raises(IncompatibleError, match=f"{target}: {state.value}"):
        apply(patches)
    assert 1 == module.Pool().size()


def test_an_earlier_plug_in_is_named(module: Any) -> None:
    """Another plug-in has replaced the symbol: it is not overwritten."""
    wanted = patch("patched:Pool.size", module.Pool.size, larger)
    stranger = types.FunctionType(larger.__code__, globals())
    stranger.__module__ = "another_plugin"
    module.Pool.size = stranger
    assert State.DIFFERS is look(wanted).state
    with pytest.raises(IncompatibleError, match="defined in another_plugin"):
        apply((wanted,))
    assert stranger is module.Pool.size


def test_what_would_be_added_and_is_there_is_not_ours(module: Any) -> None:
    """It is rejected by its name, and stays."""
    patches = (patch("patched:Pool.other", None, larger), patch("patched:count", module.count, larger))
    with pytest.raises(IncompatibleError, match=r"patched:Pool\.other: differs \(defined in patched\)"):
        apply(patches)
    assert (5, 2) == (module.Pool().other(), module.count())


@pytest.mark.parametrize(
    ("version", "state"),
    [
        *(("0.9.0", State.ABSENT), ("0.20.2", State.ABSENT), ("0.21.0", State.FITS), ("0.22.1", State.FITS)),
        *(("0.23.0", State.DIFFERS), ("0.30.0", State.ABSENT)),
    ],
)
def test_a_fingerprint_is_that_of_a_release(
    module: Any, monkeypatch: pytest.MonkeyPatch, version: str, state: State
) -> None:
    """Each counts from its release on until the next, and where a release has none the symbol stays."""
    monkeypatch.setattr(register, "running", lambda: version)
    since = {"0.21.0": fingerprint(module.count), "0.23.0": "0" * 16, "0.30.0": UNPATCHED}
    assert state is look(evolve(patch("patched:count", module.count, larger), written_for=since)).state


def test_of_what_is_only_wrapped_the_parameters_count(module: Any) -> None:
    """Another body fits, other parameters do not."""
    signature = fingerprint(module.Pool.size, of_signature=True)
    fits = evolve(patch("patched:Pool.other", None, larger), written_for=signature, only_wraps=True)
    assert State.FITS is look(fits).state
    assert State.DIFFERS is look(evolve(fits, target="patched:count")).state


@pytest.mark.parametrize("absent", ["no_such_package", "no_such_package.deeper", "json.deeper"])
def test_what_is_not_installed_is_left_out(module: Any, absent: str) -> None:
    """A patch for a package that is not there has nothing to do, and the others are put in place without it."""
    optional = evolve(patch("no_such_package:Pool.size", module.Pool.size, larger), only_where=absent)
    patches = (patch("patched:Pool.size", module.Pool.size, larger), optional)
    assert [State.FITS, State.ABSENT] == [found.state for found in apply(patches)]
    assert 10 == module.Pool().size()
    assert f"{absent} is not installed" == look(optional).detail
    remove(patches)
    assert 1 == module.Pool().size()


def test_where_it_is_installed_the_patch_must_fit(module: Any) -> None:
    """Then it is a patch like the others: put in place, or rejected."""
    there = evolve(patch("patched:Pool.size", module.Pool.size, larger), only_where="patched")
    other = evolve(patch("patched:Pool.other", module.Pool.size, larger), only_where="patched")
    gone = evolve(patch("patched:Gone.size", module.Pool.size, larger), only_where="json")
    assert [State.FITS, State.DIFFERS, State.MISSING] == [look(each).state for each in (there, other, gone)]
    with pytest.raises(IncompatibleError, match=r"patched:Gone\.size: missing"):
        apply((there, gone))
    apply((there,))
    assert 10 == module.Pool().size()


def test_a_subclass_in_its_place_is_looked_through(module: Any) -> None:
    """The patch changes the class that it was written for, for all that derive from it."""

    class Balanced(module.Pool):  # type: ignore[misc]  # of a module that mypy does not see
        def size(self) -> int:
            return 1 + int(super().size())

    wanted, original = patch("patched:Pool.size", module.Pool.size, larger), module.Pool
    module.Pool = Balanced
    apply((wanted,))
    assert (11, 10) == (module.Pool().size(), original().size())
    remove((wanted,))
    assert (2, 1) == (module.Pool().size(), original().size())


def test_two_features_may_patch_the_same(module: Any) -> None:
    """The second is put on top of the first, both once; the one on top is undone first."""

    def adds(number: int) -> Callable[..., Any]:
        return lambda original: lambda self: original(self) + number

    by = fingerprint(module.Pool.size)
    one, other = (
        evolve(patch("patched:Pool.size", None, larger), written_for=by, replacement=adds(n)) for n in (10, 100)
    )
    apply((one,))
    assert [State.PATCHED, State.FITS] == [look(each).state for each in (one, other)]
    apply((one, other))
    apply((other, one))
    assert 111 == module.Pool().size()
    assert [State.PATCHED] * 2 == [look(each).state for each in (one, other)]
    with pytest.raises(ValueError, match="patched again since"):
        remove((one,))
    remove((one, other))
    assert 1 == module.Pool().size()


def test_a_source_that_cannot_be_read_does_not_fit(module: Any) -> None:
    """It might be anything."""
    wanted = patch("patched:count", module.count, larger)
    exec("def count(): return 2", module.__dict__)
    found = look(wanted)
    assert State.DIFFERS is found.state
    assert "its source cannot be read" in found.detail


def test_fingerprints_are_of_what_the_code_says(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, docstrings and layout do not count; anything else does."""
    variants = {
        "plain": "def f(a):\n    return a + 1\n",
        "documented": 'def f(a):\n    """Words."""\n\n    # why\n    return (a +\n        1)\n',
        "other": "def f(a):\n    return a + 2\n",
        "renamed": "def f(b):\n    return b + 1\n",
    }
    monkeypatch.syspath_prepend(tmp_path)
    seen = {}
    for name, source in variants.items():
        (tmp_path / f"variant_{name}.py").write_text(source)
        seen[name] = fingerprint(__import__(f"variant_{name}").f)
    assert seen["plain"] == seen["documented"]
    assert 3 == len(set(seen.values()))
