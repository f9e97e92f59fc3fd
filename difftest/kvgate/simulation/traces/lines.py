"""The lines of a trace file, plain or xz-compressed: bounded, and each a JSON object."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import json_object, read_bytes

BYTES_MAX = 256_000_000
"""The longest trace that is read, once it is unpacked."""
TOKENS_MAX = 16_000_000
"""The longest prompt, and the longest answer."""
_XZ = b"\xfd7zXZ\x00"


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every line of a trace with its number, from 1 on; empty ones are passed over.

    Raises:
        UsageError: it cannot be read, is too long, or a line is not a JSON object.
    """
    for number, line in enumerate(_unpacked(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield number, json_object(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error


def _unpacked(path: Path) -> bytes:
    raw = read_bytes(path, BYTES_MAX)
    if not raw.startswith(_XZ):
        return raw
    try:
        with lzma.open(BytesIO(raw)) as file:
            text = file.read(BYTES_MAX + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise UsageError(f"{path}: cannot be unpacked: {error}") from error
    if len(text) > BYTES_MAX:
        raise UsageError(f"{path}: unpacks to more than {BYTES_MAX} bytes")
    return text


def whole_number(document: dict[str, Any], key: str, least: int, most: int) -> int:
    """The number under ``key``.

    Raises:
        ValueError: there is none, or it is out of bounds.
    """
    value = document.get(key)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{key!r} must be a whole number from {least} to {most}, got {value!r:.80}")
    return value
