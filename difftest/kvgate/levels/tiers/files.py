"""Ghost memory of a tier of files below the host: what each file holds, and which jobs read and write files.

The files are real, and engines that share a folder share what is known of it: an engine that is built anew, or another
engine, reads what earlier ones wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import TypeAlias

from attrs import Factory, define, field, frozen

Key: TypeAlias = tuple[bytes, int]
"""The hash of a chunk's last block, and the group."""


@frozen
class FileJob:
    """Files are read to chunks of the host, or written from them."""

    number: int
    reads: bool
    """Whether it reads files; if not, it writes them."""
    request: str
    keys: Mapping[int, Key]
    """What each chunk stands for."""

    @property
    def words(self) -> str:
        return f"{'read' if self.reads else 'write'} job {self.number} of {self.request}"


@frozen
class Written:
    """What a file holds."""

    left_out: frozenset[int]
    """The parts that the chunk had not got."""
    by: int
    """Which engine wrote it."""


@define
class Folder:
    """A folder with files of chunks, removed with the last reference to it."""

    written: dict[Key, Written] = field(factory=dict)
    engines: int = 0
    """How many engines were built over it."""
    chunks_written: int = 0
    chunks_read: int = 0
    chunks_read_of_others: int = 0
    """How many of those that were read another engine had written, or the same before it was built anew."""
    reads_failed: int = 0
    writes_failed: int = 0
    _directory: TemporaryDirectory[str] = field(default=Factory(lambda: TemporaryDirectory(prefix="kvgate-files-")))

    @property
    def path(self) -> str:
        return self._directory.name
