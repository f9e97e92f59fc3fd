"""vLLM-Ascend's own KV-cache modules, from its published wheel, on a machine without an NPU.

The wheel is fetched once into a cache, and only its Python files are kept; it is never installed, for then vLLM would
choose the NPU as its platform. Of its packages the ones around the KV cache are entered as empty ones with a path, so
that what their ``__init__`` imports, torch_npu above all, is left out; the modules themselves are the published ones.

Importing them changes vLLM in this process for good: a process that has done so has no stock vLLM any more.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import ASCEND
from kvgate.kernel.errors import SystemUnavailableError

PACKAGE = ASCEND.package
WHERE = "KVGATE_ASCEND"
"""The variable with a folder that holds the unpacked wheel; without it, it is fetched."""
_EMPTY = ("", ".core", ".patch", ".patch.platform", ".patch.worker")


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
    try:
        return fetch(ASCEND)
    except SystemUnavailableError as error:
        raise AscendUnavailableError(f"{error}; unpack it, and say where in {WHERE}") from error


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
