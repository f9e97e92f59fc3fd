"""Room on disk: what engines that have ended left in a folder is within the bound as well.

A server that is started again and again writes into one folder. Recordings give way, the oldest first; what tells a
difference is never deleted, and where it takes all the room there is, no more of it is written.
"""

from __future__ import annotations

import time
from pathlib import Path

from kvgate.shadow.recording import SUFFIX
from kvgate.shadow.status import path_of, read

RECORDING, DIFFERENCE = "recording-", "difference-"
"""What files are called, before the name of the engine."""
STALE_SECONDS = 60.0
"""The status of an engine that is followed is written twice a second: one that is older is of one that has ended."""


def left_behind(folder: Path, engine: str) -> dict[Path, int]:
    """The recordings of all engines but ``engine`` that have ended, oldest first, and how many bytes each has."""
    parts = sorted(folder.glob(f"{RECORDING}*{SUFFIX}"))
    over = {name: _is_over(folder, name) for name in {_engine_of(part) for part in parts} - {engine}}
    return {part: _bytes(part) for part in parts if over.get(_engine_of(part), False)}


def differences_bytes(folder: Path) -> int:
    """How many bytes the differences of all engines take."""
    return sum(_bytes(path) for path in folder.glob(f"{DIFFERENCE}*{SUFFIX}"))


def _engine_of(part: Path) -> str:
    return part.name.removeprefix(RECORDING).rpartition("-")[0]


def _is_over(folder: Path, engine: str) -> bool:
    path = path_of(folder, engine)
    try:
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            return True
    except OSError:
        return True
    status = read(path)
    return status is not None and status.state == "ended"


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Another engine has deleted it.
        return 0
