"""Trace files of engines: a run of a scheduler that can be stored, sent, read and run again.

JSON lines, as with the traces of block managers (``kvgate.trace``). The first line is the header: format and version,
the settings, the stage, where the run came from, and what it violates. Every further line is one operation. Files are
untrusted: every limit is checked before memory is spent, and every error names the line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

from kvgate.difference import Divergence
from kvgate.errors import UsageError
from kvgate.scheduling.case import EngineCase, Stage
from kvgate.scheduling.detectors import GATE
from kvgate.scheduling.operations import OPERATIONS, Operation, Step, Submit
from kvgate.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvgate.trace import TOKENS_MAX, Violated, check_size, read_document, read_lines
from kvreference.settings import Settings

FORMAT = "kvgate-engine-trace"
VERSION = 1
PLACES_MAX = 100_000
"""The most requests that run, and steps that are in flight, at once."""
REPLIES_MAX = 10_000
"""The most replies of one step."""
TOKEN_MAX = 2**31 - 1
"""The largest token id."""


@frozen
class EngineHeader:
    """The first line of a trace."""

    format: str
    version: int
    settings: Settings
    stage: Stage
    model: str
    preset: str
    seed: str
    system: str
    system_version: str
    detectors: tuple[str, ...]
    violates: Violated | None = None


@frozen
class EngineTrace:
    """A whole trace."""

    header: EngineHeader
    operations: tuple[Operation, ...]

    @property
    def case(self) -> EngineCase:
        """The run that it stores."""
        header = self.header
        return EngineCase(header.settings, header.stage, self.operations, header.model, header.preset, header.seed)


_OPERATIONS: dict[str, type] = {kind.__name__: kind for kind in OPERATIONS}
_CONVERTER = strict_converter()


def engine_trace_of(
    case: EngineCase, divergence: Divergence | None, system: str, version: str, detectors: tuple[str, ...]
) -> EngineTrace:
    """The trace of a run, and of what it shows."""
    violates = None
    if divergence is not None:
        violates = Violated(divergence.detector, divergence.difference.statement, divergence.difference.subject)
    header = EngineHeader(
        FORMAT,
        VERSION,
        case.settings,
        case.stage,
        case.model,
        case.preset,
        case.seed,
        system,
        version,
        detectors,
        violates,
    )
    return EngineTrace(header, case.operations)


def is_engine_trace(path: Path) -> bool:
    """Whether a file says that it is the trace of an engine; whether it is one, is seen when it is read.

    Raises:
        UsageError: no such file, or nothing that any trace begins with.
    """
    return read_document(path, 1, read_lines(path)[0]).get("format") == FORMAT


def write_engine(trace: EngineTrace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what was there."""
    lines = [json.dumps(_CONVERTER.unstructure(trace.header))]
    for operation in trace.operations:
        document: dict[str, Any] = _CONVERTER.unstructure(operation)
        lines.append(json.dumps({"operation": type(operation).__name__, **document}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_engine(path: Path) -> EngineTrace:
    """Read the trace of an engine.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _read_header(path, lines[0])
    operations: list[Operation] = []
    tokens = 0
    for number, text in enumerate(lines[1:], start=2):
        operation = _read_operation(path, number, text)
        if isinstance(operation, Submit):
            tokens += operation.prompt_tokens
            if max(tokens, operation.answers_max, operation.external_tokens) > TOKENS_MAX:
                raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} tokens in all prompts, or in answers")
        operations.append(operation)
    return EngineTrace(header, tuple(operations))


def _read_header(path: Path, text: bytes) -> EngineHeader:
    document = read_document(path, 1, text)
    if document.get("format") != FORMAT:
        raise UsageError(f'{path}: line 1: not the trace of an engine: "format" is not "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise UsageError(f"{path}: line 1: version {version!r:.40}; this kvgate reads {VERSION}")
    try:
        header: EngineHeader = _CONVERTER.structure(document, EngineHeader)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: line 1: {explain(error)}") from error
    if not header.detectors or not set(header.detectors) <= set(GATE):
        raise UsageError(f'{path}: line 1: "detectors" are one or more of {", ".join(GATE)}')
    check_size(path, header.settings)
    stage = header.stage
    if max(stage.running_max, stage.in_flight_max, stage.long_prefill_tokens or 0) > PLACES_MAX:
        raise UsageError(
            f"{path}: line 1: at most {PLACES_MAX} requests run, steps are in flight and tokens of one prompt are "
            "computed at once"
        )
    return header


def _read_operation(path: Path, number: int, text: bytes) -> Operation:
    document = read_document(path, number, text)
    kind = document.pop("operation", None)
    if not isinstance(kind, str) or kind not in _OPERATIONS:
        raise UsageError(f"{path}: line {number}: unknown operation {kind!r:.80}")
    try:
        operation: Operation = _CONVERTER.structure(document, _OPERATIONS[kind])
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: line {number}: {explain(error)}") from error
    if isinstance(operation, Step):
        if len(operation.replies) > REPLIES_MAX:
            raise UsageError(f"{path}: line {number}: more than {REPLIES_MAX} replies")
        if max(max(reply.token, reply.accepted, reply.drafts) for reply in operation.replies) > TOKEN_MAX:
            raise UsageError(f"{path}: line {number}: a number above {TOKEN_MAX} in a reply")
    return operation
