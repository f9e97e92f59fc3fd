"""Other releases of vLLM, and vLLM-Ascend: their own tests, and their code.

All is fetched once into a cache, and never stored in the repository.

Tests are in the published source archive. pip cannot build vLLM's metadata here and stops, but leaves the unpacked
archive if an option asks for it. Of that only ``tests`` is kept, so that the installed vLLM is the one that is tested.

Both lie in the cache of ``kvgate fetch``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kvgate.adapters.fetching import cache, download, fetch
from kvgate.adapters.releases import ASCEND, release_named

ARCHIVES = {
    "0.20.2": "58809377798c5335c6e2fe30092abda54d9200b5b8a717b3735a63f5daa0e383",
    "0.21.0": "05ff89c3e926b88b77d7878e317a659ffba678afc21c1d48952037aa5457f058",
    "0.22.1": "cd34902729f3767e3dfbb391956b2986bc638a54be9893e78bda9cc55669f15c",
    "0.23.0": "760269db3d9611e12e524681df1bca0977d5d2f5fcb4481cc34d33efc4ae7ff5",
    "0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
}
"""The sha256 of each source archive of vLLM, as it was published."""
ASCEND_ARCHIVES = {
    ASCEND.version: "8ebd5c5b2ef5009baae1c5ddee390a0fe2821ef31aa33312a0b491f5b5185797",
    "0.23.0": "a58db76eaffcf328b13b315a0db3a57d381a8947d01057ddcefe4ad02372b242",
    "0.30.0rc2": "05cb51448c0cd174ea338b16ebbfc8e215f44b373ea2a0d65f1314523a01152f",
}
"""The same of vLLM-Ascend."""
ASCEND_NEEDS = {
    "scipy==1.17.1": "43af8d1f3bea642559019edfe64e9b11192a8978efbd1539d7bc2aaa23d92de4",
    "pandas==3.1.1": "4f1602f614bb83f443381dbcbb94c4ac764b2e50c8d6c965614c5cd83e328c47",
    "python-dateutil==4.0.0": "a5e246f79eb80475e691bf93862cead98decd8a498cf53ba0516fcdc0f50dc1c",
}
"""The imports of vLLM-Ascend that vLLM does not bring, with the sha256 of the wheel for Python 3.11 on x86-64."""


def archive_of(version: str) -> Path:
    """A folder that holds ``tests`` of vLLM ``version``.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = cache() / "vllm-tests" / version
    if not (kept / "tests").is_dir():
        # Its fixtures are for machines with accelerators, and the tests of the block manager use none of them.
        _fetch_part("tests", "vllm", version, ARCHIVES[version], kept, without="conftest.py")
    return kept


def ascend_archive(version: str) -> Path:
    """A folder that holds ``tests`` of vLLM-Ascend ``version``, with its own conftest.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = cache() / "vllm-ascend-tests" / version
    if not (kept / "tests").is_dir():
        _fetch_part("tests", ASCEND.distribution, version, ASCEND_ARCHIVES[version], kept)
    return kept


def ascend_sources() -> Path:
    """A folder that holds ``csrc`` of vLLM-Ascend: the sources of its compiled operators.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = cache() / "vllm-ascend-csrc" / ASCEND.version
    if not (kept / "csrc").is_dir():
        _fetch_part("csrc", ASCEND.distribution, ASCEND.version, ASCEND_ARCHIVES[ASCEND.version], kept)
    return kept


def ascend_needs() -> Path:
    """A folder with the packages that vLLM-Ascend imports besides vLLM's, to be put on the path.

    Raises:
        RuntimeError: they cannot be fetched.
    """
    kept = cache() / "vllm-ascend-needs" / ASCEND.version
    if not kept.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            options = ("--only-binary", ":all:", *_pinned(Path(scratch), ASCEND_NEEDS))
            said = download("what vLLM-Ascend needs", options, Path(scratch))
            wheels = list(Path(scratch).glob("*.whl"))
            if len(wheels) != len(ASCEND_NEEDS):
                raise RuntimeError(f"{', '.join(ASCEND_NEEDS)} cannot be fetched: {said}")
            with _filling(kept) as folder:
                for wheel in wheels:
                    shutil.unpack_archive(wheel, folder, "zip")
    return kept


def _fetch_part(part: str, distribution: str, version: str, sha256: str, kept: Path, without: str = "") -> None:
    """Put a folder of a source archive, ``part``, into the folder ``kept``, but for its file ``without``."""
    with tempfile.TemporaryDirectory() as scratch:
        pinned = _pinned(Path(scratch), {f"{distribution}=={version}": sha256})
        as_source = ("--no-clean", "--no-build-isolation", "--no-binary", distribution, *pinned)
        said = download(f"{distribution}=={version}", as_source, Path(scratch))
        found = next(Path(scratch).glob(f"pip-*/{distribution}_*/{part}"), None)
        if found is None:
            raise RuntimeError(f"the source archive of {distribution} {version} cannot be fetched: {said}")
        with _filling(kept) as folder:
            shutil.move(str(found), folder / part)
            if without:
                (folder / part / without).unlink(missing_ok=True)


def _pinned(scratch: Path, hashes: Mapping[str, str]) -> tuple[str, ...]:
    """pip's options for exactly these."""
    wanted = scratch / "wanted.txt"
    wanted.write_text("".join(f"{name} --hash=sha256:{each}\n" for name, each in hashes.items()), encoding="utf-8")
    return "--require-hashes", "-r", str(wanted)


def wheel_of(version: str) -> Path:
    """A folder that holds ``vllm`` of ``version``, and what names its version.

    Raises:
        SystemUnavailableError: the wheel cannot be fetched.
    """
    return fetch(release_named(f"native@{version}"))


@contextmanager
def _filling(kept: Path) -> Iterator[Path]:
    """An empty folder of this process, which becomes ``kept`` when it is complete.

    If another process has completed ``kept`` by then, its folder stays, and this one is removed.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as scratch:
        folder = Path(scratch, kept.name)
        folder.mkdir()
        yield folder
        try:
            folder.rename(kept)
        except OSError:
            # A folder that is not empty cannot be replaced.
            if not kept.is_dir():
                raise
