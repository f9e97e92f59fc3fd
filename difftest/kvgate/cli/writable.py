"""Whether what is asked for can be written: seen before anything is run, since later hours would be lost."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from kvgate.kernel.errors import UsageError


def make_writable(directory: Path, option: str, mode: int = 0o777) -> None:
    """Make a directory, and see that it can be written to. ``option`` is what named it; ``mode`` is for a new one.

    Raises:
        UsageError: it cannot.
    """
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise _refused(directory, option, error) from error


def see_writable(file: Path, option: str) -> None:
    """Check that a file can be written; its content stays, and a missing file stays missing.

    Raises:
        UsageError: it cannot.
    """
    try:
        was_there = file.exists()
        if was_there and not file.is_file() and not file.is_dir():
            # The reader of a pipe would take this for its end.
            return
        with file.open("ab"):
            pass
        if not was_there:
            file.unlink()
    except OSError as error:
        raise _refused(file, option, error) from error


def _refused(path: Path, option: str, error: OSError) -> UsageError:
    return UsageError(f"{option} {path}: cannot be written: {error.strerror}")
