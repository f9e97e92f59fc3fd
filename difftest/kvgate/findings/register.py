"""The findings, discovered by their folders: adding or deleting a folder changes nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from kvgate.findings.finding import Finding

FOLDER = Path(__file__).parent


@cache
def folders() -> tuple[str, ...]:
    """The names of the findings' folders."""
    return tuple(module.name for module in iter_modules([str(FOLDER)]) if module.ispkg)


def all_findings() -> list[Finding]:
    """Every finding, in the order in which they are tried."""
    return sorted(map(_load, folders()), key=lambda finding: finding.rank)


def with_ids(ids: Iterable[str]) -> list[Finding]:
    """The findings with these ids, as far as their folders exist."""
    there = set(folders())
    return [_load(folder) for folder in map(folder_of, ids) if folder in there]


@cache
def _load(folder: str) -> Finding:
    finding = import_module(f"kvgate.findings.{folder}").FINDING
    assert isinstance(finding, Finding), f"{folder} defines no finding"
    return finding


def folder_of(finding: str) -> str:
    """The name of the folder of the finding with that id."""
    return f"f{finding.replace('-', '_')}"


def id_of(folder: str) -> str:
    """The id of the finding in a folder of that name."""
    return folder.removeprefix("f").replace("_", "-")
