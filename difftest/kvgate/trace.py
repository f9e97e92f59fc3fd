"""Trace files: a case that can be stored, sent, read and run again.

JSON lines. The first line is the header: format and version, the settings, where the case came from, and what it
violates. Every further line is one operation, with the reference's answer in words and a digest of its state, so that
a reader sees whether the reference of today still walks the same way. Files are untrusted: every limit is checked
before memory is spent, and every error names the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from attrs import field, frozen

from kvgate.case import Case
from kvgate.dialects import reference_named
from kvgate.difference import Divergence
from kvgate.errors import UsageError
from kvgate.runner import DETECTORS
from kvgate.story import describe_answer
from kvgate.structure import DOCUMENT_ERRORS, explain, read_bytes, strict_converter
from kvreference.manager import Manager
from kvreference.operations import Arrive, Operation
from kvreference.settings import Settings

FORMAT = "kvgate-trace"
VERSION = 3
VERSIONS_READ = (1, 2, 3)
"""Versions 2 and 3 added settings and operations, each with a default: what an older one says, a newer one means."""
FILE_BYTES_MAX = 64 * 2**20
LINE_BYTES_MAX = 2**20
OPERATIONS_MAX = 200_000
TOKENS_MAX = 20_000_000
"""The most prompt tokens in one trace, and the longest request."""
BLOCKS_MAX = 2_000_000


@frozen
class Violated:
    """What a trace shows: who found it, which statement, and where."""

    detector: str
    statement: str
    subject: str


@frozen
class Header:
    """The first line of a trace."""

    format: str
    version: int
    settings: Settings
    model: str
    preset: str
    seed: int
    system: str
    system_version: str
    detectors: tuple[str, ...]
    violates: Violated | None = None


@frozen
class Line:
    """One operation of a trace, what the reference answered, and the digest of its state after it."""

    operation: Operation
    answer: str = ""
    digest: str = ""


@frozen
class Trace:
    """A whole trace."""

    header: Header
    lines: tuple[Line, ...] = field(repr=False)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations alone."""
        return tuple(line.operation for line in self.lines)


_OPERATIONS: dict[str, type[Operation]] = {kind.__name__: kind for kind in get_args(Operation)}
_CONVERTER = strict_converter()


class Digests:
    """Digests of a reference's states, the same in every process: contents are numbered as they appear."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {None: 0}

    def of(self, manager: Manager) -> str:
        """The digest of the state that ``manager`` is in."""
        state = manager.snapshot()
        contents = [self._numbers.setdefault(content, len(self._numbers)) for content in state.contents]
        document = [sorted(state.tables.items()), state.references, state.free, contents]
        # What most systems have not is left out, so that their digests stay what they were.
        if state.pinned.blocks or state.copies or state.begun:
            copies = [(copy.group, copy.source, copy.destination, copy.tokens) for copy in state.copies]
            document += [sorted(state.pinned.blocks), state.pinned.queue, sorted(state.begun), copies]
        return blake2b(json.dumps(document).encode(), digest_size=8).hexdigest()


def annotated(settings: Settings, operations: Iterable[Operation], kind: type[Manager] = Manager) -> Iterator[Line]:
    """The operations as lines of a trace, with what the reference does; illegal ones are left out."""
    manager, digests = kind(settings), Digests()
    for operation in operations:
        resolved = manager.population.resolve(operation)
        if resolved is not None:
            answer = manager.apply(resolved)
            yield Line(resolved, describe_answer(answer), digests.of(manager))


def trace_of(case: Case, divergence: Divergence | None, system: str, version: str, detectors: tuple[str, ...]) -> Trace:
    """The trace of a case, and of what it shows."""
    violates = None
    if divergence is not None:
        violates = Violated(divergence.detector, divergence.difference.statement, divergence.difference.subject)
    header = Header(
        FORMAT, VERSION, case.settings, case.model, case.preset, case.seed, system, version, detectors, violates
    )
    return Trace(header, tuple(annotated(case.settings, case.operations, reference_named(system))))


def write(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what was there."""
    lines = [json.dumps(_CONVERTER.unstructure(trace.header))]
    for line in trace.lines:
        document = {"operation": type(line.operation).__name__, **_CONVERTER.unstructure(line.operation)}
        lines.append(json.dumps({**document, "answer": line.answer, "digest": line.digest}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> Trace:
    """Read a trace.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _read_header(path, lines[0])
    found: list[Line] = []
    tokens = 0
    for number, text in enumerate(lines[1:], start=2):
        line = _read_line(path, number, text)
        if isinstance(line.operation, Arrive):
            tokens += sum(run.length for run in line.operation.prompt)
            if tokens > TOKENS_MAX:
                raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} prompt tokens in all")
        found.append(line)
    return Trace(header, tuple(found))


def read_lines(path: Path) -> list[bytes]:
    """The lines of a trace file of either kind, the header first; at least that, and no more than are read.

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
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: line {number}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: line {number}: not an object")
    return document


def _read_header(path: Path, text: bytes) -> Header:
    document = read_document(path, 1, text)
    if document.get("format") != FORMAT:
        raise UsageError(f'{path}: line 1: not a trace: "format" is not "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version not in VERSIONS_READ:
        readable = ", ".join(map(str, VERSIONS_READ))
        raise UsageError(f"{path}: line 1: version {version!r:.40}; this kvgate reads {readable}")
    try:
        header: Header = _CONVERTER.structure(document, Header)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: line 1: {explain(error)}") from error
    if not header.detectors or not set(header.detectors) <= set(DETECTORS):
        raise UsageError(f'{path}: line 1: "detectors" are one or more of {", ".join(DETECTORS)}')
    check_size(path, header.settings)
    return header


def check_size(path: Path, settings: Settings) -> None:
    """Refuse settings that nobody should build a system for.

    Raises:
        UsageError: a pool, requests or blocks that are too large.
    """
    largest = max(max(group.block_size_tokens, group.draft_states) for group in settings.geometry.groups)
    if settings.blocks > BLOCKS_MAX or max(settings.tokens_max, settings.drafts_max, largest) > TOKENS_MAX:
        raise UsageError(
            f"{path}: line 1: at most {BLOCKS_MAX} blocks and requests, drafts and blocks of {TOKENS_MAX} tokens are "
            "replayed"
        )


def _read_line(path: Path, number: int, text: bytes) -> Line:
    document = read_document(path, number, text)
    kind = document.pop("operation", None)
    if not isinstance(kind, str) or kind not in _OPERATIONS:
        raise UsageError(f"{path}: line {number}: unknown operation {kind!r:.80}")
    try:
        answer = _CONVERTER.structure(document.pop("answer", ""), str)
        digest = _CONVERTER.structure(document.pop("digest", ""), str)
        return Line(_CONVERTER.structure(document, _OPERATIONS[kind]), answer, digest)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: line {number}: {explain(error)}") from error
