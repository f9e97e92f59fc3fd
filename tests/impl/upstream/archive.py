"""Other releases of vLLM: their own tests, and their code; fetched once into a cache, never stored in the repository.

Tests are in the published source archive. pip cannot build vLLM's metadata here and stops, but leaves the unpacked
archive if it is told to. Of that only ``tests`` is kept, so that the vLLM that is installed is the one that is tested.

Both lie in the cache of ``kvgate fetch``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kvgate.adapters.fetching import cache, download, fetch
from kvgate.adapters.releases import release_named

ARCHIVES = {
    "0.20.2": "58809377798c5335c6e2fe30092abda54d9200b5b8a717b3735a63f5daa0e383",
    "0.23.0": "760269db3d9611e12e524681df1bca0977d5d2f5fcb4481cc34d33efc4ae7ff5",
    "0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
}
"""The sha256 of each source archive, as it was published."""


def archive_of(version: str) -> Path:
    """A folder that holds ``tests`` of vLLM ``version``.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = cache() / "vllm-tests" / version
    if (kept / "tests").is_dir():
        return kept
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text(f"vllm=={version} --hash=sha256:{ARCHIVES[version]}\n", encoding="utf-8")
        as_source = ("--no-clean", "--no-build-isolation", "--no-binary", "vllm", "--require-hashes", "-r", str(wanted))
        said = download(f"vllm=={version}", as_source, Path(scratch))
        found = next(Path(scratch).glob("pip-*/vllm_*/tests"), None)
        if found is None:
            raise RuntimeError(f"the source archive of vLLM {version} cannot be fetched: {said}")
        # Its fixtures are for machines with accelerators, and the tests of the block manager use none of them.
        (found / "conftest.py").unlink()
        half = _half(kept)
        shutil.move(str(found), half / "tests")
        half.rename(kept)
    return kept


def wheel_of(version: str) -> Path:
    """A folder that holds ``vllm`` of ``version``, and what names its version.

    Raises:
        SystemUnavailableError: the wheel cannot be fetched.
    """
    return fetch(release_named(f"native@{version}"))


def _half(kept: Path) -> Path:
    """An empty folder beside ``kept``, to be renamed when it is complete."""
    half = kept.with_name(f"{kept.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    return half
