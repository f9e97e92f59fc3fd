"""What was simulated, kept as it comes: whoever interrupts goes on where it ended."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kvgate.errors import UsageError
from kvgate.simulation.document import from_document, to_document
from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job
from kvgate.structure import read_bytes

BYTES_MAX = 500_000_000


def key_of(job: Job) -> str:
    """What a job is called in the file: equal for equal jobs."""
    return hashlib.sha256(repr(job).encode()).hexdigest()[:16]


class Store:
    """Results by job; a line of the file each.

    Raises:
        UsageError: the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if path is not None and path.exists():
            for number, line in enumerate(read_bytes(path, BYTES_MAX).splitlines(), 1):
                self._take(line, f"{path}, line {number}")

    def _take(self, line: bytes, where: str) -> None:
        try:
            entry = json.loads(line)
            key, document = entry["key"], json.dumps(entry["document"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{where}: not a line of results: {error}") from error
        if not isinstance(key, str):
            raise UsageError(f'{where}: "key" is a string')
        (self.results[key],) = from_document(document, where)

    def put(self, job: Job, result: Result) -> None:
        """Keep one result."""
        self.results[key_of(job)] = result
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key_of(job), "document": to_document([result])}) + "\n")

    def get(self, job: Job) -> Result | None:
        """The result of a job, if it was run."""
        return self.results.get(key_of(job))
