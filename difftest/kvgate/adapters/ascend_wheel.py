"""vLLM-Ascend's own KV-cache modules, from its published wheel, on a machine without an NPU.

The wheel is fetched once into a cache, and only its Python files are kept; it is never installed, for then vLLM would
choose the NPU as its platform. Of its packages the ones around the KV cache are entered as empty ones with a path, so
that what their ``__init__`` imports, torch_npu above all, is left out; the modules themselves are the published ones.

Importing them changes vLLM in this process for good: a process that has done so has no stock vLLM any more.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

ASCEND_VERSION = "0.20.2rc1"
PACKAGE = "vllm_ascend"
WHERE = "KVGATE_ASCEND"
"""The variable with a folder that holds the unpacked wheel; without it, it is fetched."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kvgate" / "vllm-ascend"
FETCH_SECONDS_MAX = 600
_EMPTY = ("", ".core", ".patch", ".patch.platform")
_FOR = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
_MACHINE = ("--platform", "manylinux_2_24_x86_64", "--only-binary", ":all:")


class AscendUnavailableError(RuntimeError):
    """vLLM-Ascend's wheel cannot be had."""


def ascend_folder() -> Path:
    """The folder that holds ``vllm_ascend``.

    Raises:
        AscendUnavailableError: it can neither be found nor fetched.
    """
    given = os.environ.get(WHERE)
    if given:
        if not (Path(given) / PACKAGE).is_dir():
            raise AscendUnavailableError(f"{WHERE}={given!r}: there is no {PACKAGE} in it")
        return Path(given)
    kept = CACHE / ASCEND_VERSION
    if not (kept / PACKAGE).is_dir():
        _fetch(kept)
    return kept


def _fetch(kept: Path) -> None:
    requirement = f"vllm-ascend=={ASCEND_VERSION}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that it can be moved there at once, whoever else fetches it at the same time.
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        try:
            fetched = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--no-deps", "--pre"),
                    *(*_FOR, *_MACHINE, "--dest", scratch, requirement),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=FETCH_SECONDS_MAX,
            )
            said = fetched.stderr
        except subprocess.TimeoutExpired:
            said = f"no answer within {FETCH_SECONDS_MAX} s"
        wheel = next(Path(scratch).glob("*.whl"), None)
        if wheel is None:
            raise AscendUnavailableError(
                f"{requirement} cannot be fetched ({said.strip()[-500:]}); unpack it, and say where in {WHERE}"
            )
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(".py")])
        try:
            unpacked.rename(kept)
        except OSError:
            if not (kept / PACKAGE).is_dir():
                raise


def enter(folder: Path) -> None:
    """Let vLLM-Ascend's KV-cache modules be importable from ``folder``, without what its packages import themselves."""
    for suffix in _EMPTY:
        name = f"{PACKAGE}{suffix}"
        if name in sys.modules:
            continue
        module = ModuleType(name)
        module.__path__ = [str(folder.joinpath(PACKAGE, *suffix.split(".")[1:]))]
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def import_managers(folder: Path) -> Any:
    """Import vLLM-Ascend's specs, managers and coordinator, as it does where DeepSeek-V4 is served.

    From then on vLLM's block manager in this process is vLLM-Ascend's.
    """
    enter(folder)
    specs = importlib.import_module(f"{PACKAGE}.patch.platform.patch_kv_cache_interface")
    managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    kinds: dict[type, type] = managers.spec_manager_map
    # As it is where vLLM's managers are imported after vLLM-Ascend's specs.
    kinds[specs.AscendMLAAttentionSpec] = managers.FullAttentionManager
    kinds[specs.AscendSlidingWindowMLASpec] = managers.SlidingWindowManager
    return importlib.import_module(f"{PACKAGE}.patch.platform.patch_kv_cache_coordinator")
