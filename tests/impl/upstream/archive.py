"""vLLM's own tests, from its published source archive: fetched once into a cache, never stored in the repository.

pip cannot build vLLM's metadata here and stops, but leaves the unpacked archive if it is told to. Of that only
``tests`` is kept, so that the vLLM that is installed is the one that is tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FETCH_SECONDS_MAX = 600
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kvgate" / "vllm-tests"


def archive_of(version: str) -> Path:
    """A folder that holds ``tests`` of vLLM ``version``.

    Raises:
        RuntimeError: the archive cannot be fetched.
    """
    kept = CACHE / version
    if (kept / "tests").is_dir():
        return kept
    with tempfile.TemporaryDirectory() as scratch:
        fetched = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--no-clean", "--no-deps", "--no-build-isolation"),
                *("--no-binary", "vllm", "--dest", scratch, f"vllm=={version}"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS_MAX,
            env={**os.environ, "TMPDIR": scratch},
        )
        found = next(Path(scratch).glob("pip-*/vllm_*/tests"), None)
        if found is None:
            raise RuntimeError(f"the source archive of vLLM {version} cannot be fetched:\n{fetched.stderr[-2000:]}")
        # Its fixtures are for machines with accelerators, and the tests of the block manager use none of them.
        (found / "conftest.py").unlink()
        half = kept.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        shutil.move(str(found), half / "tests")
        half.rename(kept)
    return kept
