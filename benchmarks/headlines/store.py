"""What was simulated, kept as it comes: whoever interrupts goes on where it ended.

A line tells by which code it was computed. What other code computed is simulated again, unless it is to be kept.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from attrs import frozen
from benchmarks.headlines.origin import UNTOLD, Origin, origin_of

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import read_bytes
from kvgate.simulation.document import from_document, to_document
from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job

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
            key, document = entry["key"], json.dumps(entry["document"])
            code, vllm = entry.get("code", UNTOLD), entry.get("vllm")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{where}: not a line of results: {error}") from error
        if not isinstance(key, str) or not isinstance(code, str) or not isinstance(vllm, str | None):
            raise UsageError(f'{where}: "key" and "code" are strings, and "vllm" is one or null')
        (result,) = from_document(document, where)
        self.kept[key] = Kept(result, Origin(code, vllm))

    def put(self, job: Job, result: Result) -> None:
        """Keep one result of the code as it is now."""
        key, origin = key_of(job), origin_of(job.arm)
        self.kept[key] = Kept(result, origin)
        if self.path is not None:
            entry = {"key": key, "code": origin.code, "vllm": origin.vllm, "document": to_document([result])}
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
