"""Salting: what a recording stores of tokens, without the tokens themselves.

Per grain of a request there is one digest, of the salt, of the digest before it, and of the grain's tokens and items.
The salt is generated once for a recording and stored nowhere. Digests are chained because one per token, or per grain,
would be a cipher that keeps frequencies: here equal digests mean equal prefixes and nothing else. What remains visible
is the shape: lengths, times, and who shares how long a prefix with whom.
"""

from __future__ import annotations

import secrets
import struct
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat

import msgspec
from attrs import define, field

from kvgate.findings.modelled import key_sizes_tokens
from kvgate.shadow.calls import (
    Allocated,
    Appended,
    Arrived,
    Arriving,
    Cached,
    Checkpoint,
    Decoded,
    Decoding,
    EventRun,
    Forgotten,
    Freed,
    Grew,
    Media,
    Published,
    Raw,
    Registered,
    Reset,
    Restart,
    Sent,
    SentAsGiven,
    Stalls,
    Stored,
    Written,
)
from kvreference.settings import Settings

DIGEST_BYTES = 16
SALT_BYTES = 32
TOKEN = "I"
"""How token ids are passed: as array('I'), four bytes each."""


def new_salt() -> bytes:
    """A random, secret salt."""
    return secrets.token_bytes(SALT_BYTES)


@define
class _Request:
    parent: bytes
    """The digest of the last complete grain, or of what applies to all."""
    media: list[Media]
    tokens: int = 0
    begun: list[int] = field(factory=list)
    """The tokens after the last complete grain."""
    digests: list[bytes] = field(factory=list)
    prompt_tokens: int = 0
    reads_cache: bool = True


class Salting:
    """Turns the engine's records into what may be stored. Keeps only the digests of a request.

    It follows which digest each block holds, from the cached blocks that the engine reports, for use in checkpoints.
    """

    def __init__(
        self, grain_tokens: int, key_sizes_tokens: Sequence[int], salt: bytes | None = None, ahead_tokens: int = 0
    ) -> None:
        self.grain_tokens = grain_tokens
        self._ahead_tokens = ahead_tokens
        """How many tokens after a grain its digest depends on as well: it has no digest before they are known."""
        self._grains = [size // grain_tokens for size in key_sizes_tokens]
        self._key = salt or new_salt()
        self._requests: dict[int, _Request] = {}
        self._contents: dict[int, tuple[int, bytes]] = {}
        self._content_by_identity: dict[bytes, tuple[int, bytes]] = {}
        """The content of a block, by its identity at the last checkpoint."""

    @classmethod
    def of(cls, settings: Settings, system: str, version: str, salt: bytes | None = None) -> Salting:
        """For an engine with these settings."""
        geometry, sizes = settings.geometry, key_sizes_tokens(settings, system, version)
        return cls(geometry.grain_tokens, sizes, salt, geometry.hashed_ahead_tokens)

    def salted(self, records: Sequence[Raw]) -> list[Written]:
        """The records as they may be stored."""
        return list(self._each(records))

    def _each(self, records: Sequence[Raw]) -> Iterator[Written]:
        for record in records:
            if isinstance(record, Arriving):
                yield self._salt_arrival(record)
            elif isinstance(record, Appended):
                yield self._salt_growth(record)
            elif isinstance(record, Decoding):
                yield self._decoding(record)
            elif isinstance(record, SentAsGiven):
                yield from (Sent(number, False, [], True) for number in record.numbers)
            elif isinstance(record, Checkpoint):
                yield self._checkpoint(record)
            elif isinstance(record, Published):
                runs = [
                    EventRun(run.kind, run.group, [self._digest(b"event", each) for each in run.hashes])
                    for run in record.runs
                ]
                yield Published(runs)
            elif isinstance(record, Stalls):
                # What stalls now is reported at once, and is not part of what happened.
                continue
            else:
                self._follow(record)
                yield record

    def _salt_arrival(self, record: Arriving) -> Arrived:
        about = msgspec.json.encode([record.salt, record.lora])
        request = _Request(
            self._digest(b"", about), record.media, prompt_tokens=record.prompt_tokens, reads_cache=record.reads_cache
        )
        self._requests[record.number] = request
        self._append(request, array(TOKEN, record.tokens))
        return _as_arrival(record.number, request)

    def _salt_growth(self, record: Appended) -> Grew:
        request = self._requests[record.number]
        before = len(request.digests)
        self._append(request, record.tokens)
        return Grew(record.number, request.tokens, request.digests[before:])

    def _decoding(self, record: Decoding) -> Decoded:
        requests, start = self._requests, 0
        tokens, digests = list[int](), list[tuple[int, list[bytes]]]()
        for index, (number, gained) in enumerate(
            zip(record.numbers, record.appended or repeat(1, len(record.numbers)), strict=True)
        ):
            request = requests[number]
            known = len(request.digests)
            self._append(request, record.tokens[start : start + gained])
            start += gained
            tokens.append(request.tokens)
            if len(request.digests) > known:
                digests.append((index, request.digests[known:]))
        for index, _, _, runs, _ in record.changing:
            self._register(record.numbers[index], [Registered(*run) for run in runs])
        called = record.lookahead_tokens, record.numbers, record.computed, record.slots, record.unsure, record.appended
        return Decoded(len(self._grains), *called, tokens, digests, record.after, record.changing)

    def _append(self, request: _Request, tokens: Sequence[int]) -> None:
        grain, ahead = self.grain_tokens, self._ahead_tokens
        pending = request.begun
        pending += tokens
        request.tokens += len(tokens)
        if len(pending) < grain + ahead:
            return
        start_tokens = request.tokens - len(pending)
        whole = max(0, len(pending) - ahead) // grain * grain
        for first in range(0, whole, grain):
            piece = struct.pack(f"<{grain + ahead}q", *pending[first : first + grain + ahead])
            items = _within(request.media, start_tokens + first, grain + ahead)
            request.parent = self._digest(request.parent, piece + items)
            request.digests.append(request.parent)
        del pending[:whole]

    def _digest(self, parent: bytes, piece: bytes) -> bytes:
        return blake2b(parent + piece, key=self._key, digest_size=DIGEST_BYTES).digest()

    # Which block holds what

    def _follow(self, record: Stored) -> None:
        # What is forgotten need not be followed: at a checkpoint such a block is not known by anything.
        if isinstance(record, (Allocated, Cached)):
            self._register(record.number, record.registered)
        elif isinstance(record, Forgotten) or (isinstance(record, Freed) and record.is_over):
            self._requests.pop(record.number, None)
        elif isinstance(record, Reset) and record.succeeded:
            self._contents.clear()
        elif isinstance(record, Restart):
            self._requests.clear()
            self._contents.clear()

    def _register(self, number: int, registered: Sequence[Registered]) -> None:
        request = self._requests[number]
        for run in registered:
            grains = self._grains[run.group]
            for position, block in enumerate(run.blocks, start=run.first):
                if block:
                    self._contents[block] = run.group, request.digests[(position + 1) * grains - 1]

    def _checkpoint(self, record: Checkpoint) -> Checkpoint:
        identities = {block: self._digest(b"identity", identity) for block, identity in record.identities.items()}
        contents = {}
        for block, identity in identities.items():
            content = self._contents.get(block) or self._content_by_identity.get(identity)
            if content is not None:
                contents[block] = content
        self._contents = dict(contents)
        self._content_by_identity = {identities[block]: content for block, content in contents.items()}
        arrivals = [_as_arrival(number, request) for number, request in self._requests.items()]
        return msgspec.structs.replace(record, identities=identities, contents=contents, arrivals=arrivals)


def _as_arrival(number: int, request: _Request) -> Arrived:
    return Arrived(number, request.tokens, request.prompt_tokens, request.reads_cache, list(request.digests))


def _within(media: Sequence[Media], start_tokens: int, length_tokens: int) -> bytes:
    """What items reach into a grain, and where they start there."""
    inside = [
        (item.identifier, item.offset_tokens - start_tokens)
        for item in media
        if item.offset_tokens < start_tokens + length_tokens and start_tokens < item.offset_tokens + item.length_tokens
    ]
    return msgspec.json.encode(inside) if inside else b""
