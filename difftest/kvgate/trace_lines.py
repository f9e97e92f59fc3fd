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

from kvgate.errors import UsageError
from kvgate.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter
from kvreference.settings import Settings

FILE_BYTES_MAX = 64 * 2**20
LINE_BYTES_MAX = 2**20
OPERATIONS_MAX = 200_000
TOKENS_MAX = 20_000_000
"""The most prompt tokens in one trace, and the longest request."""
BLOCKS_MAX = 2_000_000
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

    def read_header(self, path: Path, text: bytes) -> HeaderT:
        """The header in the first line.

        Raises:
            UsageError: not of this kind, or of a version that is not understood; says why.
        """
        document = read_document(path, 1, text)
        if document.get("format") != self.name:
            raise UsageError(f'{path}: line 1: not {self.called}: "format" is not "{self.name}"')
        version = document.get("version")
        if type(version) is not int or version not in self.versions_read:
            readable = ", ".join(map(str, self.versions_read))
            raise UsageError(f"{path}: line 1: version {version!r:.40}; this kvgate reads {readable}")
        header: HeaderT = _structured(path, 1, document, self.header)
        if not header.detectors or not set(header.detectors) <= set(self.detectors):
            raise UsageError(f'{path}: line 1: "detectors" are one or more of {", ".join(self.detectors)}')
        _check_size(path, header.settings)
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


def _check_size(path: Path, settings: Settings) -> None:
    """Refuse settings that nobody should build a system for."""
    largest = max(max(group.block_size_tokens, group.draft_states) for group in settings.geometry.groups)
    if settings.blocks > BLOCKS_MAX or max(settings.tokens_max, settings.drafts_max, largest) > TOKENS_MAX:
        raise UsageError(
            f"{path}: line 1: at most {BLOCKS_MAX} blocks and requests, drafts and blocks of {TOKENS_MAX} tokens are "
            "replayed"
        )
