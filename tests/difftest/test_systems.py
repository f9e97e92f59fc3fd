"""Systems under test by name.

Goal: a name stands for a system that can be built, or ends in one message that says what to do. Method: every system
that comes with kvgate, modules made for these tests, and machines on which vLLM is missing, another one, or broken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from kvgate.adapters import registry, signatures
from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import load_system
from kvgate.kernel import versions
from kvgate.kernel.errors import SystemUnavailableError, UsageError

SOUND = """
from kvgate.adapters.reference import Reference

__version__ = "1.2.3"

def build(settings):
    return Reference(settings)

number = 7
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_the_reference_is_a_system() -> None:
    """Of the version of kvgate itself."""
    loaded = load_system("reference")
    assert ("reference", Reference) == (loaded.name, loaded.factory)
    assert version("kvgate") == loaded.version


def test_a_reference_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on the path will do."""
    monkeypatch.setattr(registry, "installed", lambda *_names: None)
    assert "unknown" == load_system("reference").version


def test_a_module_in_the_working_directory_is_a_system(here: Path) -> None:
    """By its factory, with its own version; a folder that is on the path already is not added twice."""
    (here / "sound_system.py").write_text(SOUND, encoding="utf-8")
    loaded = load_system("sound_system:build")
    assert ("sound_system:build", "1.2.3") == (loaded.name, loaded.version)
    assert load_system("sound_system:Reference").factory is Reference
    assert 1 == sys.path.count(str(here))


def test_a_module_may_have_no_version(here: Path) -> None:
    """Any class that is built from settings is a system."""
    assert here
    assert "unknown" == load_system("kvgate.adapters.reference:Reference").version


FOREIGN = {
    "absent": ("no_such_module:build", "", "cannot import no_such_module: ModuleNotFoundError: "),
    "no module": (":build", "", "cannot import : ValueError: "),
    "no factory": ("foreign_system:absent", SOUND, "foreign_system has no callable 'absent'"),
    "no name of a factory": ("foreign_system:", SOUND, "foreign_system has no callable ''"),
    "a number": ("foreign_system:number", SOUND, "foreign_system has no callable 'number'"),
    "broken": ("foreign_system:build", "1 / 0", "cannot import foreign_system: ZeroDivisionError: division by zero"),
    "not Python": ("foreign_system:build", "def", "cannot import foreign_system: SyntaxError: "),
    "ends the process": (
        "foreign_system:build",
        "import sys; sys.exit(0)",
        "cannot import foreign_system: SystemExit: 0",
    ),
}


@pytest.mark.parametrize(("name", "source", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_module_that_is_not_a_system_is_unavailable(name: str, source: str, message: str, here: Path) -> None:
    """For anything that its import may do."""
    (here / "foreign_system.py").write_text(source, encoding="utf-8")
    with pytest.raises(SystemUnavailableError) as error:
        load_system(name)
    assert str(error.value).startswith(f"{name}: {message}")


@pytest.mark.parametrize("name", ["", "vllm", "Stock", "reference2"])
def test_an_unknown_name_is_rejected(name: str) -> None:
    """With the known names."""
    names = "installed, stock, reference, retention, ascend, ascend-retention, ascend-recompute"
    names += ", ascend-worker, ascend-worker-retention, native"
    with pytest.raises(UsageError, match=f"unknown system .*: give one of {names}, or module:factory"):
        load_system(name)


def test_without_vllm_stock_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to do about it."""
    monkeypatch.setattr(versions, "version", fail_to_find)
    with pytest.raises(
        SystemUnavailableError, match=r"vLLM is not installed, .*: pip install 'PATH-OF-A-CLONE\[vllm\]'"
    ):
        load_system("stock")


def fail_to_find(name: str) -> str:
    raise PackageNotFoundError(name)


@pytest.mark.parametrize("found", ["0.20.1", "0.20.2rc1", "0.20.20", "0.33.0+cpu", "dev"])
def test_another_vllm_is_not_stock(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and so is the one that was wanted."""
    monkeypatch.setattr(registry, "installed", lambda *_names: found)
    with pytest.raises(SystemUnavailableError) as error:
        load_system("stock")
    assert str(error.value).startswith(f"vLLM {found} is installed, and the system 'stock' is vLLM 0.20.2; others are ")


@pytest.mark.parametrize("found", ["0.20.2", "0.20.2+cpu"])
def test_a_vllm_that_fits_is_stock(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of these tests: the right version, and nothing has drifted. vLLM itself is not needed for that."""
    monkeypatch.setattr(registry, "installed", lambda *_names: found)
    monkeypatch.setattr(signatures, "drift", lambda _expected: [])
    loaded = load_system("stock")
    assert ("stock", found, "Stock") == (loaded.name, loaded.version, getattr(loaded.factory, "__name__", None))


def test_a_vllm_that_drifted_is_not_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first symbol that differs, and how many more there are."""
    monkeypatch.setattr(registry, "installed", lambda *_names: "0.20.2")
    monkeypatch.setattr(signatures, "drift", lambda _expected: ["a is not there"])
    with pytest.raises(SystemUnavailableError, match=r"not what the adapter was written for: a is not there$"):
        load_system("stock")
    monkeypatch.setattr(signatures, "drift", lambda _expected: ["a is not there", "b", "c"])
    with pytest.raises(SystemUnavailableError, match=r"a is not there \(and 2 more\)$"):
        load_system("stock")


def test_a_vllm_that_cannot_be_imported_is_not_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it raised."""

    def raises(_expected: object) -> list[str]:
        raise ImportError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(registry, "installed", lambda *_names: "0.20.2")
    monkeypatch.setattr(signatures, "drift", raises)
    with pytest.raises(SystemUnavailableError, match="installed and cannot be imported: ImportError: libcuda"):
        load_system("stock")


def test_preloads_are_run_in_their_order_and_stay(here: Path) -> None:
    """Each as a module of its own: what it patches keeps its globals, and later ones see what earlier ones did."""
    (here / "one.py").write_text("found = ['one']", encoding="utf-8")
    (here / "two.py").write_text("import kvgate_preload_0 as one; one.found.append('two')", encoding="utf-8")
    load_system("reference", [here / "one.py", here / "two.py"])
    assert ["one", "two"] == sys.modules["kvgate_preload_0"].found
    assert "kvgate_preload_1" in sys.modules


PRELOADS = {
    "raises": ("patch.py", "raise ValueError('no')", "raised ValueError: no"),
    "not Python": ("patch.py", "def", "raised SyntaxError: invalid syntax"),
    "not UTF-8": ("patch.py", "\x00", "raised "),
    "imports what is not there": ("patch.py", "import no_such_module", "raised ModuleNotFoundError: "),
    "ends the process": ("patch.py", "import sys; sys.exit(0)", "raised SystemExit: 0"),
    "not a Python file": ("patch.txt", "", "not a Python file"),
}


@pytest.mark.parametrize(("name", "source", "message"), PRELOADS.values(), ids=PRELOADS)
def test_a_preload_that_fails_is_reported(name: str, source: str, message: str, here: Path) -> None:
    """A patch that was not applied must not pass for one that was."""
    (here / name).write_text(source, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load_system("reference", [Path(name)])
    assert str(error.value).startswith(f"--preload {name}: {message}")


UNREADABLE = {
    "absent": ("absent.py", None, "no such file"),
    "a directory": (".", None, "no such file"),
    "not text": ("patch.py", b"\xff\xfe", "raised SyntaxError: "),
    "not Python": ("patch.py", b"def", "raised SyntaxError: "),
}


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_preload_that_cannot_be_read_is_reported_before_anything_is_loaded(
    name: str, content: bytes | None, message: str, here: Path
) -> None:
    """Useless imports cost no time; a preload before it is not run either."""
    (here / "late_system.py").write_text("raise AssertionError('loaded')", encoding="utf-8")
    (here / "first.py").write_text("raise AssertionError('run')", encoding="utf-8")
    if content is not None:
        (here / name).write_bytes(content)
    with pytest.raises(UsageError) as error:
        load_system("late_system:build", [Path("first.py"), Path(name)])
    assert str(error.value).startswith(f"--preload {name}: {message}")


def test_a_preload_that_is_not_a_file_is_reported(here: Path) -> None:
    """Absent, a directory, a name that no file can have."""
    for path in (here / "absent.py", here):
        with pytest.raises(UsageError, match="no such file"):
            load_system("reference", [path])
    with pytest.raises(UsageError, match="File name too long"):
        load_system("reference", [Path("x" * 10_000)])
