"""The folder in which mutmut works: the reference and its tests, laid out as mutmut wants them.

mutmut names a module by its path from where it runs, so `kvreference` must lie at the top. What is there already is
written only when it changed: by a file's time mutmut knows what it need not mutate again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (("reference/kvreference", "kvreference"), ("tests/reference", "tests/reference"))
SETTINGS = "[tool.mutmut]"

PYTEST = """
[tool.pytest.ini_options]
testpaths = ["tests/reference"]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio"]
"""

CONFTEST = '''"""The quick tests first, so that mutants are noticed early. Written by benchmarks.mutation."""

import json
from pathlib import Path


def pytest_collection_modifyitems(items):
    """By what they took when mutmut timed them."""
    stats = Path("mutmut-stats.json")
    seconds = json.loads(stats.read_text()).get("duration_by_test", {}) if stats.exists() else {}
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
'''


@frozen
class Tree:
    """A folder laid out for mutmut."""

    folder: Path

    @property
    def mutants(self) -> Path:
        """Where mutmut writes what it makes, and what became of it."""
        return self.folder / "mutants"

    def lay_out(self) -> None:
        """Make the folder what the checkout is now."""
        for source, target in PACKAGES:
            wanted = {file.relative_to(ROOT / source): file for file in sorted((ROOT / source).rglob("*.py"))}
            for file in (self.folder / target).rglob("*.py"):
                if file.relative_to(self.folder / target) not in wanted:
                    file.unlink()
            for name, file in wanted.items():
                _write(self.folder / target / name, file.read_text(encoding="utf-8"))
        _write(self.folder / "tests" / "conftest.py", CONFTEST)
        _write(self.folder / "pyproject.toml", settings_of(ROOT) + PYTEST)

    def command(self, mutants: tuple[str, ...], processes: int) -> list[str]:
        """What runs mutmut here: all that has no verdict yet, or the mutants that are named, anew."""
        return [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *mutants]


def settings_of(root: Path) -> str:
    """The section of the checkout's `pyproject.toml` that is mutmut's.

    Raises:
        ValueError: it has none.
    """
    lines = (root / "pyproject.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.strip() == SETTINGS]
    if not starts:
        raise ValueError(f"{root / 'pyproject.toml'} has no section {SETTINGS}")
    rest = lines[starts[0] + 1 :]
    length = next((number for number, line in enumerate(rest) if line.startswith("[")), len(rest))
    return "".join([lines[starts[0]], *rest[:length]])


def _write(path: Path, text: str) -> None:
    """Write a file if it says something else."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
