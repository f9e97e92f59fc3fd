"""The result of a shard: what was run, and what was found, as JSON lines of the format of a fuzzing run.

The first line names the shard, and how much was run. Every further line is one thing that was found. The last one has
the number of lines, so that a truncated file is rejected. A result is written once and never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from kvgate.campaigns.plan import FORMAT, VERSION
from kvgate.gate.verdict import Tally
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter
from kvreference.statements import STATEMENTS

FORMERLY = "kvgate-fuzz-shard"
"""The format's name in results that are already written."""
BYTES_MAX = 256 * 2**20
TEXT_CHARACTERS_MAX = 10_000
"""How much is kept of what was expected, and of what was seen."""


@frozen
class Record:
    """One thing that a shard found: what it violates and which check saw it."""

    detector: str
    statement: str
    subject: str
    kind: tuple[str, ...]
    """What makes two records the same defect."""
    expected: str
    got: str
    step: int
    at_rest: bool
    operations: int
    """How many operations its trace has: what leads there, or at the scheduler's level what is done to it."""
    times: int
    finding: str | None = None
    trace: str | None = None
    """The trace file that shows it; None if enough other shards had shown it."""
    asked: str | None = None
    """At the scheduler's level, also the trace of what it asked of its block manager."""


@frozen
class ShardResult:
    """What came of one shard."""

    shard: int
    system_version: str
    detectors: tuple[str, ...]
    seconds: float
    twice: int
    """How many cases were run a second time."""
    tallies: tuple[Tally, ...]
    records: tuple[Record, ...] = ()

    @property
    def operations(self) -> int:
        """How many operations were performed."""
        return sum(tally.operations for tally in self.tallies)


_CONVERTER = strict_converter()


def render(result: ShardResult) -> str:
    """The result as a document."""
    header = {"format": FORMAT, "version": VERSION, **asdict(result)}
    records = header.pop("records")
    lines = [header, *({"found": record} for record in records)]
    return "".join(f"{json.dumps(line)}\n" for line in (*lines, {"lines": len(lines) + 1}))


def understood(text: str) -> ShardResult:
    """The result that a document holds.

    Raises:
        ValueError: it holds none, or was cut off; says which line and why.
    """
    lines = list(_lines(text))
    if not lines or lines[-1] != {"lines": len(lines)}:
        raise ValueError("cut off: the last line does not say how many lines there are")
    header, *found = lines[:-1]
    if header.pop("format", None) not in (FORMAT, FORMERLY) or "shard" not in header:
        raise ValueError(f'line 1: not a result of a shard: "format" is not "{FORMAT}"')
    version = header.pop("version", None)
    if version != VERSION:
        raise ValueError(f"line 1: version {version!r:.40}; this kvgate reads {VERSION}")
    try:
        records = tuple(_CONVERTER.structure(line["found"], Record) for line in found)
        result: ShardResult = _CONVERTER.structure({**header, "records": ()}, ShardResult)
    except DOCUMENT_ERRORS as error:
        raise ValueError(explain(error)) from error
    unknown = {record.statement for record in records} - set(STATEMENTS)
    if unknown:
        raise ValueError(f"no guarantee has the id {min(unknown)!r:.40}")
    return ShardResult(**{**asdict(result, recurse=False), "records": records})


def read(path: Path) -> ShardResult:
    """Read the result of a shard.

    Raises:
        UsageError: it is not a result; says why.
    """
    raw = read_bytes(path, BYTES_MAX)
    try:
        return understood(raw.decode())
    except ValueError as error:
        raise UsageError(f"{path}: {error}; remove it, and the shard is run again") from error


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            document = json_object(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        yield document
