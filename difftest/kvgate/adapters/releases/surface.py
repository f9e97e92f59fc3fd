"""What a release adds to vLLM's block manager, its coordinator, its scheduler and their configuration.

Names are read from the source, which is not imported. Each name that the release before did not have belongs to a
mechanism of the release's description: compared with the reference, or left out for a reason.

    python -m kvgate.adapters.releases.surface [FOLDER]

prints the mechanisms of every described release; with the ``FOLDER`` of another vLLM's package, what is new there
since the newest of them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import INSTALLED, OF_VLLM
from kvgate.adapters.releases.description import Mechanism, Release
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.versions import version_of

CODE = (
    *("block_pool", "kv_cache_coordinator", "kv_cache_manager", "kv_cache_utils", "single_type_kv_cache_manager"),
    *("encoder_cache_manager", "sched/async_scheduler", "sched/interface", "sched/request_queue", "sched/scheduler"),
)
"""Modules of ``vllm.v1.core``."""
OPTIONS = ("cache", "scheduler")
"""Modules of ``vllm.config``."""


def described() -> list[Release]:
    """The releases of vLLM that the gate drives, the oldest first, from the one that is installed on."""
    driven = (release for release in OF_VLLM if release.scheduler is not None)
    return sorted(driven, key=lambda release: version_of(release.version))


def source_of(release: Release) -> Path:
    """The folder of its package, fetched if it is not there.

    Raises:
        SystemUnavailableError: it is not installed, or cannot be fetched.
    """
    if release is not INSTALLED:
        return fetch(release) / release.package
    found = find_spec(release.package)
    if found is None or not found.submodule_search_locations:
        raise SystemUnavailableError(f"{release.package} is not installed")
    return Path(found.submodule_search_locations[0])


def names_in(package: Path) -> frozenset[str]:
    """The classes, methods, functions and options in the source of a package."""
    code = (name for module in CODE for name in _defined(package / "v1" / "core" / f"{module}.py"))
    options = (name for module in OPTIONS for name in _declared(package / "config" / f"{module}.py"))
    return frozenset((*code, *options))


def _parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []


def _defined(path: Path) -> Iterator[str]:
    for node in _parsed(path):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


def _declared(path: Path) -> Iterator[str]:
    for node in _parsed(path):
        if isinstance(node, ast.ClassDef):
            targets = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield from (f"{node.name}.{target.id}" for target in targets if isinstance(target, ast.Name))


def unexplained(new: Iterable[str], mechanisms: Iterable[Mechanism]) -> list[str]:
    """Of the names that are new, those of no mechanism."""
    patterns = [pattern for mechanism in mechanisms for pattern in mechanism.names]
    return sorted(name for name in new if not any(fnmatchcase(name, pattern) for pattern in patterns))


def main(folder: str | None) -> int:
    """Print; the exit code is 1 if a name is of no mechanism."""
    releases, missing = described(), 0
    for older, release in pairwise(releases):
        new = names_in(source_of(release)) - names_in(source_of(older))
        print(f"{release.version}: {len(new)} names that {older.version} does not have")
        for mechanism in release.mechanisms:
            said = f"compared: {mechanism.compared}" if mechanism.compared else f"left out: {mechanism.left_out}"
            print(f"  {', '.join(mechanism.names)}\n    {said}")
        missing += _print_missing(unexplained(new, release.mechanisms))
    if folder is not None:
        newest = releases[-1]
        new = names_in(Path(folder)) - names_in(source_of(newest))
        print(f"{folder}: {len(new)} names that {newest.version} does not have")
        missing += _print_missing(sorted(new))
    return 1 if missing else 0


def _print_missing(names: list[str]) -> int:
    for name in names:
        print(f"  {name}\n    of no mechanism: it is neither compared nor left out for a reason")
    return len(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
