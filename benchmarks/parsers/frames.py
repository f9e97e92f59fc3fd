"""Recordings taken apart and put together: so that what is behind right checksums is reached."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kvgate.shadow.recording import FRAME_OVERHEAD_BYTES, MAGIC, framed

_LENGTH = struct.Struct("<I")


def apart(data: bytes) -> list[bytes]:
    """The payloads of all whole frames, the header's first."""
    parts: list[bytes] = []
    place = len(MAGIC)
    while place + FRAME_OVERHEAD_BYTES <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        begin = place + FRAME_OVERHEAD_BYTES
        if begin + length > len(data):
            break
        parts.append(data[begin : begin + length])
        place = begin + length
    return parts


def together(parts: Sequence[bytes]) -> bytes:
    """A recording of these payloads."""
    return MAGIC + b"".join(map(framed, parts))
