"""The lines of trace files, of whatever kind: a header, and then one operation a line.

JSON lines. Files are untrusted: every limit is checked before memory is spent, and every error names the line. What a
header and the operations of a kind may say beyond that, whoever reads the kind checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from attrs import field, frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter
from kvreference.settings import Settings

FILE_BYTES_MAX = 64 * 2**20
LINE_BYTES_MAX = 2**20
OPERATIONS_MAX = 200_000
TOKENS_MAX = 20_000_000
"""The most prompt tokens in one trace, and the longest request."""
GRAINS_MAX = 2_000_000
"""The most pieces of content in one trace: each is remembered for itself."""
BLOCKS_MAX = 2_000_000
GROUPS_MAX = 256
DRAFTS_MAX = 10_000
"""The most drafts behind a sampled token, and states for them."""
WORK_MAX = 2_000_000_000
"""Blocks by operations: after each operation every block is compared, a million of them in about half a second."""
_CONVERTER = strict_converter()


class Head(Protocol):
    """What the header of every kind says."""

    @property
    def settings(self) -> Settings: ...

    @property
    def detectors(self) -> tuple[str, ...]: ...


HeaderT = TypeVar("HeaderT", bound=Head)
OperationT = TypeVar("OperationT")


@frozen
class TraceFormat(Generic[HeaderT, OperationT]):
    """One kind of trace file, read and written."""

    name: str
    """What its header says that it is."""
    called: str
    """The kind in words: "a trace"."""
    versions_read: tuple[int, ...]
    detectors: Sequence[str]
    """Who may have found what is in it."""
    header: type[HeaderT]
    operations: Mapping[str, type] = field(repr=False)
    """Every kind of operation, by its name."""
    texts: tuple[str, ...] = ()
    """What a line says besides its operation; nothing, where it does not say it."""

    def write(self, path: Path, header: HeaderT, lines: Iterable[tuple[OperationT, Mapping[str, str]]]) -> None:
        """Write a trace to ``path``, replacing what was there; each operation with its texts."""
        told = [json.dumps(_CONVERTER.unstructure(header))]
        for operation, texts in lines:
            document = {"operation": type(operation).__name__, **_CONVERTER.unstructure(operation)}
            told.append(json.dumps({**document, **texts}))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(told) + "\n", encoding="utf-8")

    def read_header(self, path: Path, lines: Sequence[bytes]) -> HeaderT:
        """The header in the first of all lines.

        Raises:
            UsageError: not of this kind, of a version that is not understood, or of something too large; says why.
        """
        document = read_document(path, 1, lines[0])
        if document.get("format") != self.name:
            raise UsageError(f'{path}: line 1: not {self.called}: "format" is not "{self.name}"')
        version = document.get("version")
        if type(version) is not int or version not in self.versions_read:
            readable = ", ".join(map(str, self.versions_read))
            raise UsageError(f"{path}: line 1: version {version!r:.40}; this kvgate reads {readable}")
        header: HeaderT = _structured(path, 1, document, self.header)
        if not header.detectors or not set(header.detectors) <= set(self.detectors):
            raise UsageError(f'{path}: line 1: "detectors" are one or more of {", ".join(self.detectors)}')
        check_size(f"{path}: line 1", header.settings)
        if header.settings.blocks * len(lines) > WORK_MAX:
            raise UsageError(
                f"{path}: {len(lines) - 1} operations on {header.settings.blocks} blocks: all blocks are compared "
                f"after each, and at most {WORK_MAX} are in all; replay a part of it"
            )
        return header

    def read_line(self, path: Path, number: int, text: bytes) -> tuple[OperationT, list[str]]:
        """The operation in a line, and its texts in their order.

        Raises:
            UsageError: there is none that is known; says why.
        """
        document = read_document(path, number, text)
        kind = document.pop("operation", None)
        if not isinstance(kind, str) or kind not in self.operations:
            raise UsageError(f"{path}: line {number}: unknown operation {kind!r:.80}")
        texts: list[str] = [_structured(path, number, document.pop(name, ""), str) for name in self.texts]
        operation: OperationT = _structured(path, number, document, self.operations[kind])
        return operation, texts


def read_lines(path: Path) -> list[bytes]:
    """The lines of a trace file of any kind, the header first; at least that, and no more than are read.

    Raises:
        UsageError: no such file, too large, or not whole.
    """
    raw = read_bytes(path, FILE_BYTES_MAX)
    if raw.count(b"\n") > OPERATIONS_MAX + 1:
        raise UsageError(f"{path}: more than {OPERATIONS_MAX} operations")
    lines = raw.split(b"\n")
    if lines.pop() != b"":
        raise UsageError(f"{path}: line {len(lines) + 1}: cut off; the last line of a trace ends with a newline")
    if not lines:
        raise UsageError(f"{path}: empty; a trace starts with a header")
    return lines


def read_document(path: Path, number: int, text: bytes) -> dict[str, Any]:
    """One line of a trace file, as JSON.

    Raises:
        UsageError: too long, or no JSON object.
    """
    if len(text) > LINE_BYTES_MAX:
        raise UsageError(f"{path}: line {number}: {len(text)} bytes, at most {LINE_BYTES_MAX} are read")
    try:
        return json_object(text)
    except ValueError as error:
        raise UsageError(f"{path}: line {number}: {error}") from error


def _structured(path: Path, number: int, document: object, kind: type) -> Any:
    try:
        return _CONVERTER.structure(document, kind)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: line {number}: {explain(error)}") from error


def check_size(where: str, settings: Settings) -> None:
    """Refuse settings that nobody should build a system for.

    Raises:
        UsageError: they are; begins with ``where`` they stand.
    """
    groups = settings.geometry.groups
    if len(groups) > GROUPS_MAX:
        raise UsageError(f"{where}: {len(groups)} groups, at most {GROUPS_MAX} are followed")
    if max(settings.drafts_max, *(group.draft_states for group in groups)) > DRAFTS_MAX:
        raise UsageError(f"{where}: at most {DRAFTS_MAX} drafts, and states for them, are followed")
    largest = max(group.block_size_tokens for group in groups)
    if settings.blocks > BLOCKS_MAX or max(settings.tokens_max, largest) > TOKENS_MAX:
        raise UsageError(
            f"{where}: at most {BLOCKS_MAX} blocks, and requests and blocks of {TOKENS_MAX} tokens, are followed"
        )


def check_prompts(path: Path, number: int, tokens: int, settings: Settings) -> None:
    """Refuse prompts that nobody should keep; ``tokens`` are in all of them up to this line.

    Raises:
        UsageError: there are more tokens, or pieces of content, than are kept.
    """
    if tokens > TOKENS_MAX:
        raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} prompt tokens in all")
    grain = settings.geometry.grain_tokens
    if tokens // grain > GRAINS_MAX:
        raise UsageError(
            f"{path}: line {number}: {tokens} prompt tokens in pieces of {grain}: at most {GRAINS_MAX} pieces are kept"
        )
