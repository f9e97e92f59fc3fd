"""Inputs for a fuzz test: valid documents with a few changes, and raw junk.

A change is one of bytes, of values, or of what is in frames, whose checksums are made right again. Hypothesis draws
every number, or the seed of all of them, so a failing input can be made again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from kvgate.shadow.recording import FRAME_OVERHEAD_BYTES, MAGIC, framed

from . import hostile
from .parsers import Form

BYTES_MAX = 400_000
"""The largest input."""
_COPIES_MAX = 200


@st.composite
def inputs(draw: st.DrawFn, seeds: Sequence[bytes], form: Form) -> bytes:
    """Mostly one of ``seeds`` with one to four changes; one in eight is junk."""
    kind = draw(st.integers(0, 7))
    if kind == 7:
        return draw(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(_utf8), st.sampled_from(_TOKENS)))
    # Hypothesis shrinks numbers that it draws itself; numbers from a seed that it draws are spread more evenly.
    return changed(draw(st.randoms(use_true_random=kind > 1)), seeds, form)


_TOKENS = hostile.TOKENS + hostile.PACKED


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def changed(chance: Random, seeds: Sequence[bytes], form: Form) -> bytes:
    """One of ``seeds``, with one to four changes."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        if form is Form.BYTES or chance.random() < 0.25:
            data = _of_bytes(chance, data, seeds)
        else:
            data = _INSIDE[form](chance, data, seeds)
    return data[:BYTES_MAX]


def _of_bytes(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    begin = chance.randrange(len(data) + 1)
    end = min(len(data), begin + chance.choice((1, 2, 8, 64, 1024)))
    kind = chance.randrange(8)
    if kind == 0:
        return data[:begin]
    if kind == 1:
        return data[:begin] + data[end:]
    if kind == 2:
        return data[:end] + data[begin:end] * chance.randrange(1, _COPIES_MAX) + data[end:]
    if kind == 3:
        other = chance.choice(seeds)
        return data[:begin] + other[chance.randrange(len(other) + 1) :]
    if kind == 4:
        return data[:begin] + chance.choice(hostile.TOKENS) + data[begin if chance.random() < 0.5 else end :]
    if kind == 5 and begin < end:
        return data[:begin] + bytes([data[begin] ^ (1 << chance.randrange(8))]) + data[begin + 1 :]
    if kind == 6:
        return data[:begin] + chance.randbytes(end - begin) + data[end:]
    return data[:begin] + bytes([chance.randrange(256)]) + data[begin + 1 :]


def _of_json(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return _of_bytes(chance, data, seeds)
    return hostile.spelt(in_values(chance, document, hostile.value))


def _of_lines(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    place = chance.randrange(len(lines))
    kind = chance.randrange(10)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines[place:place] = [lines[place]] * chance.choice((1, 2, _COPIES_MAX))
    elif kind == 2:
        other = chance.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines[place] = _of_json(chance, lines[place], seeds)
    return b"\n".join(lines)


def _of_frames(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    parts = _payloads(data)
    if not parts:
        return _of_bytes(chance, data, seeds)
    place = chance.randrange(len(parts))
    kind = chance.randrange(8)
    if kind == 0:
        parts[place:place] = [parts[place]] * chance.choice((1, 2, 50))
    elif kind == 1:
        del parts[place]
    elif kind == 2:
        parts[place] = chance.choice(hostile.PACKED)
    elif kind == 3:
        parts[place] = _of_bytes(chance, parts[place], parts)
    elif place == 0:
        parts[0] = _of_json(chance, parts[0], parts)
    else:
        parts[place] = _of_packed(chance, parts[place], parts)
    return MAGIC + b"".join(map(framed, parts))


def _of_packed(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    try:
        document = msgspec.msgpack.decode(data, strict=False)
        return msgspec.msgpack.encode(in_values(chance, document, _packable))
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return _of_bytes(chance, data, seeds)


def _packable(chance: Random) -> Any:
    found = hostile.value(chance)
    return chance.randbytes(16) if isinstance(found, hostile.Verbatim) else found


def _of_words(chance: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Signs of the kind that separate words, and words of other inputs."""
    text = data.decode("utf-8", "replace")
    place = chance.randrange(len(text) + 1)
    new = str(chance.randrange(100))
    kind = chance.randrange(6)
    if kind == 0:
        new = chance.choice("+=,:@/.-")
    elif kind == 1:
        new = chance.choice(hostile.TEXTS)
    elif kind == 2:
        new = str(chance.choice(hostile.NUMBERS))
    elif kind == 3:
        new = chance.choice(chance.choice(seeds).decode("utf-8", "replace").replace("=", "+").split("+"))
    end = place + chance.choice((0, 0, 1, 3))
    return (text[:place] + new + text[end:]).encode("utf-8", "surrogatepass")


def in_values(chance: Random, document: Any, drawn: Callable[[Random], Any]) -> Any:
    """The document with one value replaced, left out, repeated, renamed, moved or added."""
    places = list(_places(document, ()))
    if not places:
        return drawn(chance)
    *outer, last = chance.choice(places)
    holder = document
    for key in outer:
        holder = holder[key]
    kind = chance.randrange(12)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, list):
        holder[last:last] = [holder[last]] * chance.choice((1, 2, _COPIES_MAX))
    elif kind == 1:
        holder[str(drawn(chance))[:50]] = holder.pop(last)
    elif kind == 2:
        *path, other = chance.choice(places)
        source = document
        for key in path:
            source = source[key]
        # A copy: a document that holds itself cannot be spelt.
        holder[last] = json.loads(json.dumps(source[other], default=str))
    elif kind == 3 and isinstance(holder, dict):
        holder[chance.choice(("extra", "format", "__class__", "kind", "\ud800", "a\nb"))] = drawn(chance)
    elif kind == 4 and type(holder[last]) is int:
        holder[last] += chance.choice((-1, 1, 2, -2, 2**31, -(2**40)))
    else:
        holder[last] = drawn(chance)
    return document


def _places(document: Any, place: tuple[Any, ...]) -> Any:
    """Where something stands in a document."""
    if place:
        yield place
    if isinstance(document, dict):
        for key in document:
            yield from _places(document[key], (*place, key))
    elif isinstance(document, list):
        for index, each in enumerate(document[:200]):
            yield from _places(each, (*place, index))


_INSIDE: dict[Form, Callable[[Random, bytes, Sequence[bytes]], bytes]] = {
    Form.JSON: _of_json,
    Form.LINES: _of_lines,
    Form.FRAMES: _of_frames,
    Form.WORDS: _of_words,
}


_LENGTH = struct.Struct("<I")


def _payloads(data: bytes) -> list[bytes]:
    """The payloads of all whole frames of a recording, the header's first."""
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
