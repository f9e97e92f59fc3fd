"""The status of a shadow: a small file that reports what was observed so far, replaced as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict, define, field

from kvgate.kernel.structure import DOCUMENT_ERRORS, strict_converter

FORMAT = "kvgate-shadow-status"
VERSION = 2
VERSIONS_READ = (1, 2)
"""What version 1 may lack: everything after ``dumps``."""
FILE_BYTES_MAX = 2**20
FRESH_SECONDS = 10.0
"""The status is written twice a second."""
FILES_MAX = 32
"""How many engines are reported, the latest ones: old files cost a scrape no time."""
_CONVERTER = strict_converter()


@define
class Status:
    """What a shadow has seen. Counts go up only."""

    engine: str
    """Which engine: when it started, and its process id."""
    mode: str
    pid: int
    """The sidecar process. If it is ended, the engine continues without a shadow."""
    host: str = ""
    """Where that process is."""
    format: str = FORMAT
    version: int = VERSION
    state: str = "watching"
    """``watching``, ``waiting`` for a checkpoint, or ``ended``."""
    steps: int = 0
    calls: int = 0
    judged: int = 0
    checkpoints: int = 0
    lost: int = 0
    """Calls that were not taken, because this process was too slow."""
    unwritten: int = 0
    """Calls that could not be written to disk."""
    bytes_written: int = 0
    differences: int = 0
    """Differences that no finding explains."""
    declared: dict[str, int] = field(factory=dict)
    """How often each known finding of vLLM acted."""
    unjudged: dict[str, int] = field(factory=dict)
    """Calls that were not checked, by why."""
    first: str = ""
    """The first difference, in a line."""
    dumps: list[str] = field(factory=list)
    """The files with reports of differences."""
    engine_index: int | None = None
    """Which engine of the server it is, as vLLM's own metrics count them; None for a worker."""
    started: str = ""
    """When it began, in UTC."""
    written: str = ""
    """When this was written, in UTC."""
    first_at: str = ""
    """When the first difference was, in UTC."""
    reason: str = ""
    """Why it has ended."""
    raised: str = ""
    """What a call of the engine raised last."""
    lost_blocks: list[str] = field(factory=list)
    """Which blocks are lost, and whose they were: the first ones."""
    stalled: list[str] = field(factory=list)
    """The requests that make no progress now, and what they wait for."""
    blocks_lost: int = 0
    """How many blocks were found to be lost."""
    clocks_ended: str = ""
    """Why the stall clocks ended; nothing as long as they run."""


def path_of(folder: Path, engine: str) -> Path:
    """Where the status of an engine is."""
    return folder / f"status-{engine}.json"


def write(folder: Path, status: Status) -> None:
    """Replace the file.

    Raises:
        OSError: it cannot be written.
    """
    path = path_of(folder, status.engine)
    fresh = path.with_suffix(".new")
    # As recordings are: readable only by the user who serves.
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(asdict(status)) + b"\n")
    fresh.replace(path)


def is_fresh(folder: Path, status: Status) -> bool:
    """Whether a status was written just now: one that is older is written by no process any more."""
    try:
        age_seconds = time.time() - path_of(folder, status.engine).stat().st_mtime
    except OSError:
        return False
    # A clock that was set back makes an old file one of the future.
    return abs(age_seconds) < FRESH_SECONDS


def read_all(folder: Path) -> Iterator[Status]:
    """The status of every engine in a folder, oldest first; other files are skipped."""
    for path in sorted(folder.glob("status-*.json"))[-FILES_MAX:]:
        status = read(path)
        if status is not None:
            yield status


def read(path: Path) -> Status | None:
    """A status; None if there is none at ``path``, or one of another version."""
    try:
        # Opening a named pipe blocks until its other end is open.
        if not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            return None
        document: Any = msgspec.json.decode(path.read_bytes())
        # A later version may have other fields.
        if document.get("format") != FORMAT or document.get("version") not in VERSIONS_READ:
            return None
        status: Status = _CONVERTER.structure(document, Status)
    except (OSError, AttributeError, msgspec.DecodeError, *DOCUMENT_ERRORS):
        return None
    return status
