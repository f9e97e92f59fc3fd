"""No cycle of imports: neither between files nor between packages, imports inside functions included.

``lint-imports`` checks which layer may import which. This test counts cycles within the layers too, and between the
files of one package. ``python tests/test_import_cycles.py`` prints both counts, and the members of each cycle.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

Graph: TypeAlias = dict[str, set[str]]

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "kvreference": "reference",
    "kvspec": "spec",
    "swa_retention": "impl",
    "kvgate": "difftest",
    "kvgate_mutants": "mutants",
}


def modules(root: Path = ROOT) -> Mapping[str, Path]:
    """Every module of the five packages, with its file."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules among ``known`` that a file imports anywhere, for type checkers too.

    ``from package import module`` is an import of the module, and not of the package.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            for each in node.names:
                module = f"{base}.{each.name}"
                if module in known or base in known:
                    yield module if module in known else base


def imports(root: Path = ROOT) -> Graph:
    """Which file imports which."""
    known = modules(root)
    return {name: {*imported(name, path, known)} - {name} for name, path in known.items()}


def between_packages(graph: Graph) -> Graph:
    """Which package imports which; a package is what the first two parts of a module's name say."""
    packages: Graph = {}
    for name, others in graph.items():
        package = _package(name)
        packages.setdefault(package, set()).update({_package(other) for other in others} - {package})
    return packages


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of nodes that all reach each other, each sorted."""
    core = graph
    before = -1
    while before != len(core):
        before = len(core)
        # A node that imports nothing of the rest is in no cycle.
        core = {name: others & core.keys() for name, others in core.items() if others & core.keys()}
    core = {name: others & core.keys() for name, others in core.items()}
    reached = {name: _reached(core, name) for name in core}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in core
        if name in reached[name]
    }
    return sorted(map(list, groups))


def _reached(graph: Graph, start: str) -> set[str]:
    """The nodes that one or more imports lead to."""
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def test_no_file_imports_itself_through_others() -> None:
    """Goal: every file can be read after those that it imports. Method: cycles of the import graph of all files."""
    graph = imports()
    assert len(graph) > 300
    assert "kvspec.symbolic" in graph["kvspec.prover"]
    assert [] == cycles(graph)


def test_no_package_imports_itself_through_others() -> None:
    """Goal: every package can be read after those that it imports. Method: cycles of the graph of the packages."""
    assert [] == cycles(between_packages(imports()))


def test_a_cycle_would_be_found(tmp_path: Path) -> None:
    """Goal: both checks can fail. Method: files that import each other within functions, relatively, and for types."""
    files = {
        "kvspec/__init__.py": "",
        "kvspec/one/__init__.py": "from . import first",
        "kvspec/one/first.py": "def late():\n    from kvspec.two import second",
        "kvspec/two/__init__.py": "",
        "kvspec/two/second.py": "import kvspec.two.third\nfrom ..one.fourth import name",
        "kvspec/two/third.py": "if TYPE_CHECKING:\n    from .second import Name",
        "kvspec/one/fourth.py": "import os",
    }
    for name, text in files.items():
        path = tmp_path / "spec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = imports(tmp_path)
    assert [["kvspec.two.second", "kvspec.two.third"]] == cycles(graph)
    assert [["kvspec.one", "kvspec.two"]] == cycles(between_packages(graph))


if __name__ == "__main__":
    found = imports()
    for what, among in (("files", cycles(found)), ("packages", cycles(between_packages(found)))):
        print(f"cycles between {what}: {len(among)}")
        for group in among:
            print(f"  {', '.join(group)}")
    sys.exit(1 if cycles(found) or cycles(between_packages(found)) else 0)
