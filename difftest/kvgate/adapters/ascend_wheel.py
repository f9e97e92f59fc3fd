"""vLLM-Ascend's own KV-cache modules, from its published wheel, on a machine without an NPU.

The wheel is fetched once into a cache, and only its Python files are kept; it is never installed, for then vLLM would
choose the NPU as its platform. The packages around the KV cache are entered as empty ones with a path, so their
``__init__``, which imports torch_npu, does not run. The modules themselves are the published ones.

Importing them changes vLLM in this process for good: a process that has done so has no stock vLLM any more.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import ASCEND
from kvgate.adapters.releases.description import Published, Release
from kvgate.kernel.errors import SystemUnavailableError

PACKAGE = ASCEND.package
WHERE = "KVGATE_ASCEND"
"""The variable with a folder that holds the unpacked wheel; without it, it is fetched."""
WORKER = (
    *("attention.attention_v1", "attention.dsa_v1", "attention.mla_v1", "attention.sfa_v1"),
    *("worker.block_table", "worker.model_runner_v1", "worker.npu_input_batch"),
)
"""The modules on the way of a step, from the scheduler's output to the kernels that read and write the cache."""
SPECS, LATER = ("patch.platform.patch_kv_cache_interface",), ("worker.utils", "core.kv_cache_interface")
"""What else the worker of 0.20.2rc1 needs, and what those of later releases do."""
_EMPTY = ("", ".core", ".patch", ".patch.platform", ".patch.worker")


class AscendUnavailableError(RuntimeError):
    """vLLM-Ascend's wheel cannot be had."""


def ascend_folder(release: Published = ASCEND, report: Callable[[str], None] = lambda _text: None) -> Path:
    """The folder that holds ``vllm_ascend`` of a release, or the one that this process has imported from its place.

    Raises:
        AscendUnavailableError: it can neither be found nor fetched.
    """
    installed = getattr(sys.modules.get(PACKAGE), "__file__", None)
    if installed:
        # On an NPU it is imported as a server does; here its packages are entered, and have no file.
        return Path(installed).parents[1]
    given = os.environ.get(WHERE)
    if given:
        if not (Path(given) / PACKAGE).is_dir():
            raise AscendUnavailableError(f"{WHERE}={given!r}: it holds no {PACKAGE}")
        return Path(given)
    try:
        return fetch(release, report)
    except SystemUnavailableError as error:
        raise AscendUnavailableError(f"{error}; unpack it, and say where in {WHERE}") from error


def check_folder(folder: Path, release: Release) -> None:
    """Reject a folder that holds another version, or one that lacks a module.

    Raises:
        AscendUnavailableError: it is not what is wanted.
    """
    found = re.search(r"^__version__ .*= '(.*)'$", _text(folder, "_version"), re.MULTILINE)
    if found is None or found[1] != release.version:
        version = found[1] if found else "of no version"
        raise AscendUnavailableError(f"{folder} holds {PACKAGE} {version}, and not {release.version}")
    for module in (*release.patches, *(SPECS if release.below is None else LATER), *WORKER):
        _text(folder, module)


def _text(folder: Path, module: str) -> str:
    path = folder.joinpath(PACKAGE, *module.split(".")).with_suffix(".py")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AscendUnavailableError(f"{folder} lacks the module {PACKAGE}.{module}, or it cannot be read") from error


def import_patches(release: Release) -> None:
    """Import what changes vLLM's block manager, and have vLLM know the specs."""
    # Its modules import each other in a circle, which has to be entered here.
    importlib.import_module(f"{PACKAGE}.ops")
    for module in release.patches:
        importlib.import_module(f"{PACKAGE}.{module}")
    # As its engine does; the managers that the patches put in place are registered.
    importlib.import_module("vllm.v1.core.single_type_kv_cache_manager").register_all_kvcache_specs(None)
    importlib.import_module(f"{PACKAGE}.core.kv_cache_interface").register_ascend_kv_cache_specs()


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
