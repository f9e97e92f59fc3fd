"""Recordings: what a live block manager did, in a file that survives the process that writes it.

A file begins with eight bytes that name the format and its version. Then come frames, each with its length, the
CRC-32 of these four bytes, that of its payload, and the payload: the header as JSON, then the calls of one step each,
in msgpack. A frame is written with one call; a process that is killed leaves all frames but maybe the last. The
first calls are a checkpoint, so that a file can be checked without those before it. Files are untrusted: every limit is
checked before memory is spent, and nothing is unpickled.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from attrs import define, field, frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvgate.kernel.trace_lines import check_size
from kvgate.shadow.calls import ENCODER, STORED, WRITTEN, Stored, Written, expanded
from kvreference.settings import Settings

MAGIC = b"KVGATER9"
"""The format and its version."""
WITHOUT_NUMBERS = b"2"
VERSIONS_READ = (WITHOUT_NUMBERS, b"3", b"4", b"6", MAGIC[-1:])
"""What version 2 lacks: record numbers, the time of the start, and what an engine's call raised. What version 3 lacks:
what newer releases of vLLM pass to a call for slots. Version 4 says of every call what left the windows. Version 6
holds each call by itself, and no ``Decoded``. No other version exists."""
SUFFIX = ".kvrec"
FRAME_BYTES_MAX = 192 * 2**20
"""What a checkpoint of as many blocks as are checked needs, about 80 bytes each, and the live requests."""
HEADER_BYTES_MAX = 2**20
FILE_BYTES_MAX = 16 * 2**30
FRAMES_MAX = 50_000_000
NAME_CHARACTERS_MAX = 200
"""The longest name in a header: of an engine, a system, its version, a scheduler."""
_RANGES = {"segment": 2**31, "first_record": 2**62, "started_unix_ms": 2**48, "engine_index": 2**31}
"""The largest value of a number in a header."""
_LENGTH = struct.Struct("<I")
_FRAME = struct.Struct("<III")
FRAME_OVERHEAD_BYTES = _FRAME.size
_CONVERTER = strict_converter()


@frozen
class Header:
    """The first frame."""

    settings: Settings
    system: str
    system_version: str
    scheduler: str
    """The name of the scheduler's class: whether its steps are asynchronous."""
    segment: int
    """Which part of an engine's recording this is, from 0."""
    engine: str
    """What all parts of one recording share."""
    first_record: int | None = None
    """How many records of the engine came before this part; None if that is not known."""
    started_unix_ms: int | None = None
    """When the engine's shadow began, by the clock of its host."""
    engine_index: int = 0
    """Which engine of the server it is, as vLLM's own metrics count them."""


class CutOffError(UsageError):
    """A file that ends before its header does: nothing of it can be read."""


class Writer:
    """Appends frames to a new file.

    Raises:
        OSError: the disk is full, or anything else that a disk does. What was written before can be read.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.bytes = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            self.write(beginning(header))
        except BaseException:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def append(self, payload: bytes) -> None:
        """Write the encoded calls of one step."""
        self.write(framed(payload))

    def write(self, data: bytes) -> None:
        """Write whole frames, or nothing."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            # Half a frame is useless.
            os.ftruncate(self._file, self.bytes)
            raise
        self.bytes += len(data)

    def close(self) -> None:
        """Nothing follows."""
        os.close(self._file)


def beginning(header: Header) -> bytes:
    """What a file begins with."""
    return MAGIC + framed(msgspec.json.encode(_CONVERTER.unstructure(header)))


def framed(payload: bytes) -> bytes:
    """A payload as it stands in a file.

    Raises:
        OSError: it is larger than what is read.
    """
    length = len(payload)
    if length > FRAME_BYTES_MAX:
        raise OSError(errno.EFBIG, f"a record of {length} bytes, at most {FRAME_BYTES_MAX} are read")
    return _FRAME.pack(length, zlib.crc32(_LENGTH.pack(length)), zlib.crc32(payload)) + payload


def encoded(records: Sequence[Written]) -> bytes:
    """The payload of one frame of calls."""
    return ENCODER.encode(list(records))


@define
class Recording:
    """A file that is read from its beginning."""

    path: Path
    header: Header
    frames: int = 0
    """How many frames of calls were read so far."""
    ended: str = ""
    """How the file ends, once it was read: empty where nothing is missing."""
    is_cut: bool = False
    """Whether its last record is cut off."""
    holds_together: bool = True
    """Whether it may hold a ``Decoded``."""
    _file: BinaryIO | None = field(default=None, repr=False)
    _size: int = 0
    _start: int = 0

    def records(self) -> Iterator[Stored]:
        """The calls, in order. A frame that is cut off at the end of the file is left out, and reported in ``ended``.

        Raises:
            UsageError: a frame is corrupted, too long, or holds no calls; says which one, and where.
        """
        file = self._file
        assert file is not None, "a recording is read once"
        self._file, last = None, None
        with file:
            while (payload := self._next(file)) is not None:
                try:
                    records: Sequence[Written] = (WRITTEN if self.holds_together else STORED).decode(payload)
                # Invalid text in it raises an error of its own, which is not msgspec's.
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise UsageError(f"{self.path}: record {self.frames}, at byte {self._start}: {error}") from error
                number, self.frames = self.frames, self.frames + 1
                if self.frames > FRAMES_MAX:
                    raise UsageError(f"{self.path}: more than {FRAMES_MAX} records")
                try:
                    yield from expanded(records)
                except ValueError as error:
                    raise UsageError(f"{self.path}: record {number}, at byte {self._start}: {error}") from error
                last = records[-1] if records else last
        if not self.ended and type(last).__name__ != "End":
            self.ended = "it was not closed: the process that wrote it ended first, or could not write"

    def _next(self, file: BinaryIO) -> bytes | None:
        start = self._start = file.tell()
        head = file.read(_FRAME.size)
        if not head:
            return None
        if len(head) < _FRAME.size:
            self._cut(start)
            return None
        length, crc_of_length, crc = _FRAME.unpack(head)
        if zlib.crc32(_LENGTH.pack(length)) != crc_of_length:
            # A length that is wrong would hide all that follows, as if the file were cut off here.
            raise self._corrupted(start, "the checksum of its length is wrong")
        if length > FRAME_BYTES_MAX:
            raise UsageError(
                f"{self.path}: record {self.frames}, at byte {start}: announces {length} bytes, at most "
                f"{FRAME_BYTES_MAX} are read: the file is corrupted there"
            )
        if start + _FRAME.size + length > self._size:
            self._cut(start)
            return None
        payload = file.read(length)
        if len(payload) < length:
            self._cut(start)
            return None
        if zlib.crc32(payload) != crc:
            if file.tell() == self._size:
                self._cut(start)
                return None
            raise self._corrupted(start, "its checksum is wrong")
        return payload

    def _corrupted(self, start: int, why: str) -> UsageError:
        return UsageError(
            f"{self.path}: record {self.frames}, at byte {start}: {why}: the file is corrupted there; the "
            f"{self.frames} records before it are sound"
        )

    def _cut(self, start: int) -> None:
        self.is_cut = True
        self.ended = f"its last record is cut off, at byte {start}: all but that one were read"


def is_recording(path: Path) -> bool:
    """Whether ``path`` is a file that begins as a recording does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))[:-1] == MAGIC[:-1]
    except OSError:
        return False


def open_recording(path: Path) -> Recording:
    """Open a recording, and read its header.

    Raises:
        UsageError: no such file, too large, or no recording of a version that is understood.
    """
    try:
        size = path.stat().st_size
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return _opened(path, file, size)
    except BaseException:
        file.close()
        raise


def _opened(path: Path, file: BinaryIO, size: int) -> Recording:
    if size > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    magic = file.read(len(MAGIC))
    if len(magic) < len(MAGIC) and MAGIC.startswith(magic):
        raise CutOffError(f"{path}: no recording: it ends after {len(magic)} bytes")
    if magic[:-1] != MAGIC[:-1]:
        raise UsageError(f"{path}: no recording: it does not begin with {MAGIC[:-1].decode()}")
    if magic[-1:] not in VERSIONS_READ:
        read = " and ".join(map(repr, VERSIONS_READ))
        raise UsageError(f"{path}: a recording of version {magic[-1:]!r}; this kvgate reads {read}")
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        raise CutOffError(f"{path}: cut off before its header")
    length, crc_of_length, crc = _FRAME.unpack(head)
    if zlib.crc32(_LENGTH.pack(length)) != crc_of_length:
        raise UsageError(f"{path}: its header is corrupted: the checksum of its length is wrong")
    if length > HEADER_BYTES_MAX:
        raise UsageError(f"{path}: announces a header of {length} bytes, at most {HEADER_BYTES_MAX} are read")
    document = file.read(length)
    if len(document) < length:
        raise CutOffError(f"{path}: its header is cut off")
    if zlib.crc32(document) != crc:
        raise UsageError(f"{path}: its header is corrupted")
    try:
        described = msgspec.json.decode(document)
        if (magic[-1:] == WITHOUT_NUMBERS) == ("first_record" in described):
            raise UsageError(f"{path}: its version, {magic[-1:]!r}, is not that of its header: it is corrupted")
        header: Header = _CONVERTER.structure(described, Header)
    except (msgspec.DecodeError, *DOCUMENT_ERRORS) as error:
        raise UsageError(f"{path}: header: {explain(error)}") from error
    _check_ranges(path, header)
    check_size(f"{path}: header", header.settings)
    return Recording(path, header, holds_together=magic == MAGIC, file=file, size=size)


def _check_ranges(path: Path, header: Header) -> None:
    for name, most in _RANGES.items():
        value = getattr(header, name)
        if value is not None and not 0 <= value <= most:
            raise UsageError(f"{path}: header: {name} is not between 0 and {most}")
    for name in ("system", "system_version", "scheduler", "engine"):
        if len(getattr(header, name)) > NAME_CHARACTERS_MAX:
            raise UsageError(f"{path}: header: {name} has more than {NAME_CHARACTERS_MAX} characters")
