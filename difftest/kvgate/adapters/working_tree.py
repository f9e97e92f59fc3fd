"""A working tree of vLLM over a release: the Python files of the one, and what is compiled from the other.

Nothing is installed or copied: an importer that comes before all others looks in the tree first.
"""

from __future__ import annotations

import ast
import filecmp
import os
import subprocess
import sys
import tokenize
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from attrs import define, field, frozen

from kvgate.kernel.errors import SystemUnavailableError, UsageError

PACKAGE = "vllm"
SCRATCH = "kvgate-diff-"
"""How the folder begins to which a diff is applied."""
COMPILED = (".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".so")


@frozen
class Changes:
    """What is new in a system, or in a patch: in functions, because what is outside of them runs at once."""

    lines: Mapping[Path, Collection[int]] = field(factory=dict)
    """By file, the first line of each statement."""

    def __bool__(self) -> bool:
        return any(self.lines.values())


@define
class Tree:
    """What a user wants to run instead of a release's own files."""

    path: Path | None = None
    """A checkout."""
    diff: Path | None = None
    """Changes to the release, instead of a checkout."""
    base: str | None = None
    """The revision of the checkout since which lines count as changed; without one, what differs from the release."""
    changes: Changes = Changes()
    """What is new in it, once it is laid over a release."""
    _scratch: TemporaryDirectory[str] | None = None

    def over(self, release: Path) -> None:
        """Let its modules come before those of the package ``release``.

        Raises:
            UsageError: it is not a checkout of vLLM, or the diff does not apply; says why.
            SystemUnavailableError: this process has a vLLM already.
        """
        folder = (self.path or Path()).resolve()
        if self.diff is not None:
            self._scratch = TemporaryDirectory(prefix=SCRATCH)
            folder = apply(self.diff, release, Path(self._scratch.name).resolve())
        lay_over(folder, release)
        if self.base is None:
            self.changes = changes_between(release, folder / PACKAGE)
            return
        options = ("--name-only", "--no-renames", "--diff-filter=D", "--relative", "--end-of-options")
        removed = _git("diff", *options, self.base, "--", PACKAGE, at=folder).splitlines()
        _refuse_removed(removed, folder, release, f"--vllm-path {folder}")
        self.changes = changes_since(folder, self.base)

    @property
    def options(self) -> tuple[str, ...]:
        """How it is given to a command once more."""
        given = {"--vllm-path": self.path, "--diff": self.diff}
        return tuple(part for name, path in given.items() if path is not None for part in (name, str(path)))


def tree_of(path: Path | None, diff: Path | None, base: str | None = None) -> Tree | None:
    """What these options ask for; None if nothing.

    Raises:
        UsageError: they do not go together.
    """
    if (path is not None and diff is not None) or (base is not None and path is None):
        raise UsageError("give --vllm-path with or without --base, or --diff alone")
    return None if path is None and diff is None else Tree(path, diff, base)


def functions_of(paths: Iterable[Path]) -> Changes:
    """All that is in functions of these files."""
    return Changes({path.resolve(): set(_statements(_read(path), path).values()) for path in paths})


def changes_between(before: Path, after: Path) -> Changes:
    """What is new in the Python files of a folder."""
    found = {}
    for path in sorted(after.rglob("*.py")):
        old = before / path.relative_to(after)
        if old.is_file() and filecmp.cmp(path, old, shallow=False):
            continue
        text, former = _read(path), _read(old) if old.is_file() else ""
        matcher = SequenceMatcher(a=former.splitlines(), b=text.splitlines(), autojunk=False)
        blocks = ((low + 1, high - low) for tag, _, _, low, high in matcher.get_opcodes() if tag != "equal")
        found[path.resolve()] = _of_statements(text, path, [line for block in blocks for line in _lines(*block)])
    return Changes(found)


def changes_since(tree: Path, revision: str) -> Changes:
    """What is new in a working tree since a revision of its repository.

    Raises:
        UsageError: it is not a working tree of git, or has no such revision.
    """
    options = ("--unified=0", "--no-color", "--no-ext-diff", "--relative", "--src-prefix=a/", "--dst-prefix=b/")
    diff = _git("diff", *options, "--end-of-options", revision, "--", at=tree)
    named = [line.partition("/")[2] for line in diff.splitlines() if line.startswith("+++ ")]
    _refuse_compiled(named, f"--vllm-path {tree}")
    found: dict[Path, set[int]] = {}
    path = tree
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = tree / line[4:].partition("/")[2]
        elif line.startswith("@@") and path.suffix == ".py" and path.is_relative_to(tree / PACKAGE):
            start, _, length = line.split("+")[1].split()[0].partition(",")
            # Of lines that are gone git names the one before.
            found.setdefault(path, set()).update(_lines(int(start) + (length == "0"), int(length or 1)))
    # What git does not know yet is new, too.
    for name in _git("ls-files", "--others", "--exclude-standard", "--", f"{PACKAGE}/*.py", at=tree).splitlines():
        found[tree / name] = set(range(1, len(_read(tree / name).splitlines()) + 1))
    return Changes({path.resolve(): _of_statements(_read(path), path, lines) for path, lines in found.items()})


def apply(diff: Path, release: Path, scratch: Path) -> Path:
    """The files that a diff changes, with the changes, in the folder ``scratch``.

    Raises:
        UsageError: it cannot be read, changes no file of vLLM, or does not apply.
    """
    try:
        text = diff.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--diff {diff}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    named = [line.split("\t")[0].split(" ", 1)[1] for line in text.splitlines() if line.startswith(("--- ", "+++ "))]
    _refuse_compiled((name.partition("/")[2] for name in named), f"--diff {diff}")
    touched = {name.partition("/")[2] for name in named if name.partition("/")[2].startswith(f"{PACKAGE}/")}
    if not touched:
        raise UsageError(f"--diff {diff}: changes no file of vLLM; write paths as git does, as in a/{PACKAGE}/v1/…")
    for name in touched:
        if (release.parent / name).is_file():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes((release.parent / name).read_bytes())
    try:
        _git("apply", "--whitespace=nowarn", f"--include={PACKAGE}/*", str(diff.resolve()), at=scratch)
    except UsageError as error:
        raise UsageError(f"--diff {diff}: does not apply to this vLLM: {error}") from error
    _refuse_removed(touched, scratch, release, f"--diff {diff}")
    return scratch


def lay_over(tree: Path, release: Path) -> None:
    """Let modules of vLLM come from ``tree`` where it has them, and from the package ``release`` where it has not.

    Raises:
        UsageError: the tree has no vLLM.
        SystemUnavailableError: this process has a vLLM already.
    """
    if not any((tree / PACKAGE).glob("**/*.py")):
        raise UsageError(f"--vllm-path {tree}: {tree / PACKAGE} has no Python file; give a checkout of vLLM")
    if PACKAGE in sys.modules:
        raise SystemUnavailableError("a vLLM is loaded already, and a process has one for good: start another process")
    sys.meta_path.insert(0, _Overlay(tree, release))


class _Overlay:
    """Finds the modules of vLLM."""

    def __init__(self, tree: Path, release: Path) -> None:
        self.tree, self.release = tree, release

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module in the tree; None if the tree has none, or it is not a module of vLLM."""
        del target
        if name.partition(".")[0] != PACKAGE:
            return None
        place = Path(*name.split("."))
        folders = [str(root / place) for root in (self.tree, self.release.parent) if (root / place).is_dir()]
        for file in (self.tree / place / "__init__.py", (self.tree / place).with_suffix(".py")):
            if file.is_file():
                return spec_from_file_location(name, file, submodule_search_locations=folders or None)
        found = PathFinder.find_spec(name, [str(self.release.parent)] if path is None else path)
        if found is not None and found.submodule_search_locations is not None:
            found.submodule_search_locations = folders
        return found


def _lines(start: int, length: int) -> range:
    """Lines that are new; where lines are gone, those around the place."""
    return range(start, start + length) if length else range(start - 1, start + 1)


def _refuse_compiled(names: Iterable[str], option: str) -> None:
    """Reject changes of compiled parts: the release's own would run."""
    for name in names:
        if name.startswith("csrc/") or Path(name).suffix in COMPILED:
            raise UsageError(f"{option}: changes {name}, which is compiled: kvgate runs Python files alone")


def _refuse_removed(names: Iterable[str], tree: Path, release: Path, option: str) -> None:
    """Reject the removal of a file that the release has."""
    for name in names:
        if (release.parent / name).is_file() and not (tree / name).is_file():
            raise UsageError(f"{option}: removes {name}, which the release has: its file would be run")


def _read(path: Path) -> str:
    """The text of a Python file, in the encoding that it says."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as Python: {error}") from error


def _of_statements(text: str, path: Path, lines: Iterable[int]) -> set[int]:
    """The first lines of the statements in functions that have one of these lines."""
    first = _statements(text, path)
    return {first[line] for line in lines if line in first}


def _statements(text: str, path: Path) -> dict[int, int]:
    """By line, the first line of the statement in a function that it is of: of the innermost one."""
    first: dict[int, int] = {}
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not valid Python: {error}") from error
    for function in ast.walk(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Outer statements come before those that they contain.
            for node in (each for statement in function.body for each in ast.walk(statement)):
                if isinstance(node, ast.match_case):
                    first[node.pattern.lineno] = node.pattern.lineno
                elif isinstance(node, (ast.stmt, ast.ExceptHandler)):
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    first.update(dict.fromkeys(lines, node.lineno))
    return first


def _git(*arguments: str, at: Path) -> str:
    try:
        # A repository around the folder is not the tree's own: git apply would do nothing there.
        around = {"GIT_CEILING_DIRECTORIES": str(at.parent)} if arguments[0] == "apply" else {}
        environment = {**os.environ, **around}
        done = subprocess.run(["git", *arguments], cwd=at, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}") from error
    if done.returncode:
        raise UsageError(f"git {arguments[0]}: {' '.join((done.stderr or done.stdout).split())[:300]}")
    return done.stdout
