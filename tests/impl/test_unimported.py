"""Patches for modules that are not imported yet.

Goal: such a module is not imported for the patch. The patch is checked against its file, and put in place after its
first import, also for code that imported a name from it. Method: a package of our own in a temporary folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import evolve

from swa_retention.fingerprint import digest
from swa_retention.register import IncompatibleError, Patch, State, apply, look, remove
from swa_retention.unimported import source_of

SIZE = "    def size(self):\n        return 1\n"
SOURCE = f'''"""What is patched."""

import functools
import late_pool.other

class Pool:
{SIZE}
    @functools.cache
    def decorated(self):
        return 2


def count():
    return 3


late_pool.other.count = count
'''


@pytest.fixture
def package(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a module that puts something into another one when it is imported."""
    folder = tmp_path / "late_pool"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "other.py").write_text("count = None\n")
    (folder / "patched.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "late_pool"]:
        sys.modules.pop(name)


def patch(name: str, written_for: str | None, by: Callable[..., Any]) -> Patch:
    """A patch for the module that is not imported."""
    target = f"late_pool.patched:{name}"
    return Patch(target, "why", "how", "upstream", "until", written_for, lambda _original: by, only_where="late_pool")


COUNT = digest("def count():\n    return 3\n")
PATCHES = (patch("Pool.size", digest(SIZE), lambda self: 10), patch("count", COUNT, lambda: 30))


@pytest.mark.usefixtures("package")
def test_it_is_patched_when_it_is_imported() -> None:
    """Not before, and looking it up does not patch it; code that has a name from it has the new one."""
    assert [State.WAITING] * 2 == [found.state for found in apply(PATCHES)]
    assert "late_pool.patched" not in sys.modules
    assert importlib.util.find_spec("late_pool.patched") is not None
    module = importlib.import_module("late_pool.patched")
    assert (10, 30, 30) == (module.Pool().size(), module.count(), sys.modules["late_pool.other"].count())
    assert [State.PATCHED] * 2 == [look(each).state for each in PATCHES]
    remove(PATCHES)
    assert (1, 3, 3) == (module.Pool().size(), module.count(), sys.modules["late_pool.other"].count())


@pytest.mark.usefixtures("package")
def test_looking_for_another_may_import_it() -> None:
    """Then the module is there before anything waits for it, and is patched at once."""
    size, count = PATCHES
    assert [State.WAITING, State.FITS] == [found.state for found in apply((size, evolve(count, only_where=None)))]
    module = importlib.import_module("late_pool.patched")
    assert (10, 30) == (module.Pool().size(), module.count())
    remove(PATCHES)


@pytest.mark.usefixtures("package")
def test_what_is_taken_back_waits_no_more() -> None:
    """The module is imported as it is."""
    apply(PATCHES)
    remove(PATCHES)
    assert 1 == importlib.import_module("late_pool.patched").Pool().size()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "state"), [("Pool.size", State.DIFFERS), ("Pool.gone", State.MISSING), ("Gone.size", State.MISSING)]
)
def test_what_does_not_fit_is_rejected_before_it_is_imported(name: str, state: State) -> None:
    """The file says so."""
    with pytest.raises(IncompatibleError, match=f"{name}: {state.value}"):
        apply((patch(name, COUNT, lambda: 0), *PATCHES))
    assert 1 == importlib.import_module("late_pool.patched").Pool().size()


@pytest.mark.usefixtures("package")
def test_what_a_decorator_hides_is_rejected_at_the_import() -> None:
    """The file does not tell what becomes of it: then the import says so."""
    wanted = patch("Pool.decorated", COUNT, lambda self: 0)
    assert State.WAITING is apply((wanted,))[0].state
    with pytest.raises(IncompatibleError, match=r"Pool\.decorated: differs"):
        importlib.import_module("late_pool.patched")


@pytest.mark.usefixtures("package")
def test_what_would_be_added_may_be_there() -> None:
    """Then it belongs to other code; where it is not, it is added at the import."""
    assert State.DIFFERS is look(patch("Pool.size", None, lambda self: 0)).state
    added = patch("Pool.added", None, lambda self: 40)
    assert State.WAITING is apply((added,))[0].state
    assert 40 == importlib.import_module("late_pool.patched").Pool().added()


@pytest.mark.usefixtures("package")
def test_sources_are_read_from_the_file() -> None:
    """With their decorators, and without an import."""
    assert (SIZE, False) == source_of("late_pool.patched:Pool.size")
    decorated = source_of("late_pool.patched:Pool.decorated")
    assert decorated is not None
    assert decorated[0].startswith("    @functools.cache\n")
    assert decorated[1]
    assert None is source_of("late_pool.gone:count")
    assert None is source_of("no_such_package.gone:count")
    assert "late_pool" not in sys.modules
