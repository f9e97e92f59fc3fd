"""The disk budget of a folder, which includes the files of engines that have ended.

A server that is started again and again writes into one folder. Recordings are deleted, the oldest first. The
recording of a difference is never deleted; once these use up the budget, only the text of a difference is written.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from kvgate.shadow.recording import SUFFIX
from kvgate.shadow.status import FILES_MAX, path_of, read

RECORDING, DIFFERENCE = "recording-", "difference-"
"""What files are called, before the name of the engine."""
STALE_SECONDS = 60.0
"""The status of an engine that is followed is written twice a second: if it is so much older than one's own, and its
process is gone, it has ended."""
STALE_ELSEWHERE_SECONDS = 86_400.0
"""The same for a process on another host, which cannot be asked whether it has ended."""
_ENGINE = r"\d{8}T\d{6}-\d+(?:-\d+)?"
_RECORDING = re.compile(rf"{RECORDING}({_ENGINE})-\d{{6,}}{re.escape(SUFFIX)}", re.ASCII)
_OTHER = re.compile(rf"(?:{RECORDING}|{DIFFERENCE})({_ENGINE})-", re.ASCII)
_STATUS = re.compile(rf"status-({_ENGINE})\.json", re.ASCII)


def remaining_recordings(folder: Path, engine: str) -> dict[Path, int]:
    """The recordings of all engines but ``engine`` that have ended, oldest first, and how many bytes each has.

    Only files with a shadow's own names are listed: other files belong to others.
    """
    parts = [
        (part, match[1])
        for part in sorted(folder.glob(f"{RECORDING}*{SUFFIX}"))
        if (match := _RECORDING.fullmatch(part.name)) and match[1] != engine
    ]
    over = {name: _has_ended(folder, name, engine) for name in {name for _, name in parts}}
    return {part: _bytes(part) for part, name in parts if over[name]}


def differences_bytes(folder: Path) -> int:
    """How many bytes the recordings of differences of all engines take."""
    return sum(_bytes(path) for path in folder.glob(f"{DIFFERENCE}*{SUFFIX}"))


def delete_old_statuses(folder: Path, engine: str) -> None:
    """Delete the status of engines that have ended, left nothing else, and are too old to be reported.

    Raises:
        OSError: one cannot be deleted.
    """
    others = {match[1] for path in folder.iterdir() if (match := _OTHER.match(path.name))}
    for path in sorted(folder.glob("status-*.json"))[:-FILES_MAX]:
        match = _STATUS.fullmatch(path.name)
        if match and match[1] not in others | {engine} and _has_ended(folder, match[1], engine):
            path.unlink(missing_ok=True)


def _has_ended(folder: Path, engine: str, own: str) -> bool:
    """Whether an engine has certainly ended; ``own`` is the caller's engine."""
    path = path_of(folder, engine)
    try:
        written = path.stat().st_mtime
    except FileNotFoundError:
        return True
    except OSError:
        return False
    status = read(path)
    if status is None or status.state == "ended":
        return status is not None
    try:
        # By the clock of the file server, which need not be this host's.
        silent_seconds = path_of(folder, own).stat().st_mtime - written
    except OSError:
        return False
    if status.host != socket.gethostname():
        return silent_seconds > STALE_ELSEWHERE_SECONDS
    return silent_seconds > STALE_SECONDS and not _runs(status.pid)


def _runs(process: int) -> bool:
    """Whether there is such a process. This one is not meant: it writes another status."""
    if process <= 0 or process == os.getpid():
        return process <= 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Another engine has deleted it.
        return 0
