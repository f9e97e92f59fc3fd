"""What a release adds to vLLM's block manager, its coordinator, its scheduler and their configuration.

Names are read from the source, which is not imported. Each name that the release before did not have belongs to one
mechanism of the release's description: compared with the reference, called but not compared, or not driven.

    python -m kvgate.adapters.releases.surface [FOLDER]

prints the mechanisms of every release whose additions are described, and the names that are gone; with the ``FOLDER``
of another vLLM's package, what is new there since the newest of them, and what is gone.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import INSTALLED, OF_VLLM
from kvgate.adapters.releases.description import Mechanism, Release
from kvgate.kernel.errors import SystemUnavailableError, UsageError

CODE = "v1/core"
"""The folder of which every module is read."""
FOLDERS = (CODE, "v1/core/sched")
"""The folders that must have modules, or the code has moved."""
OPTIONS = ("config/cache.py", "config/scheduler.py")

Place: TypeAlias = tuple[str, int]
"""A file in ``CODE``, and the line where a function begins, with its decorators."""


def described() -> list[tuple[Release, Release]]:
    """The releases whose additions are described, the oldest first, each after the one that it is compared with."""
    by_version = {release.version: release for release in OF_VLLM}
    return [(by_version[since], release) for release in OF_VLLM if (since := release.additions.since) is not None]


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


def names_in(package: Path) -> Mapping[str, frozenset[Place]]:
    """The classes, methods, functions and options in the source of a package, with the places of their code.

    A class and an option have no code of their own; a property that can be set has two functions of one name.

    Raises:
        UsageError: a folder or a file is not there, so names would be missed.
    """
    for each in (*FOLDERS, *OPTIONS):
        if not any((package / each).glob("*.py")) and not (package / each).is_file():
            raise UsageError(f"{package}: {each} is missing or empty; if vLLM moved it, kvgate must read its new place")
    names: dict[str, frozenset[Place]] = {}
    for path in sorted((package / CODE).rglob("*.py")):
        for name, line in _defined(_parsed(path)):
            place = frozenset({(str(path.relative_to(package / CODE)), line)} if line else ())
            names[name] = names.get(name, frozenset()) | place
    options = (name for each in OPTIONS for name in _declared(_parsed(package / each)))
    return {**names, **dict.fromkeys(options, frozenset())}


def _parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def _defined(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Names, each with the line where its code begins; 0 for a class."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, 0
            yield from _defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, min(each.lineno for each in (node, *node.decorator_list))
        elif isinstance(node, (ast.If, ast.Try)):
            handled = [each for handler in getattr(node, "handlers", ()) for each in handler.body]
            yield from _defined([*node.body, *handled, *node.orelse], prefix)


def _declared(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            targets = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield from (f"{node.name}.{target.id}" for target in targets if isinstance(target, ast.Name))


def unexplained(new: Iterable[str], mechanisms: Iterable[Mechanism]) -> list[str]:
    """Of the names that are new, those of no mechanism."""
    return sorted(set(new).difference(*(mechanism.names for mechanism in mechanisms)))


def main(folder: str | None) -> int:
    """Print; the exit code is 1 if a name is of no mechanism, and 2 if ``folder`` holds no vLLM."""
    missing, pairs = 0, described()
    if folder is not None:
        try:
            names_in(Path(folder))
        except UsageError as error:
            print(f"surface: {error}", file=sys.stderr)
            return 2
    for older, release in pairs:
        additions = release.additions
        missing += _print(release.version, source_of(release), older, additions.mechanisms)
        if additions.reason:
            print(f"  {additions.reason}")
    if folder is not None:
        missing += _print(folder, Path(folder), pairs[-1][1], ())
    return 1 if missing else 0


def _print(name: str, package: Path, older: Release, mechanisms: Iterable[Mechanism]) -> int:
    """Print what is new and what is gone in a package; returns how many names are of no mechanism."""
    names, before = names_in(package), names_in(source_of(older))
    new, gone = names.keys() - before.keys(), sorted(before.keys() - names.keys())
    counts = Counter({"compared": 0, "called but not compared": 0, "not driven": 0})
    for each in mechanisms:
        counts[each.kind] += len(each.names)
    missing = unexplained(new, mechanisms)
    print(f"{name}: {len(new)} names that {older.version} does not have, and {len(gone)} of its names are gone")
    print(f"  {', '.join(f'{count} {kind}' for kind, count in counts.items())}, {len(missing)} of no mechanism")
    for each in mechanisms:
        print(f"  {', '.join(each.names)}\n    {each.kind}: {each.text}")
    for text, names_left in (("of no mechanism: say what the gate makes of it", missing), ("gone", gone)):
        for each_name in names_left:
            print(f"  {each_name}\n    {text}")
    return len(missing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="the package of another vLLM")
    sys.exit(main(parser.parse_args().folder))
