"""Another vLLM than the one that is installed, in this process: its folder goes first on the path.

Whatever of vLLM is imported stays imported, so a process has one vLLM for good.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from kvgate.kernel.errors import SystemUnavailableError


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
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    # What it finds out about models once, no other release has to throw away.
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / ".vllm-cache"))
    # The gate provokes what vLLM warns of, thousands of times a second.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
