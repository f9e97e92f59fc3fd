"""Trace files of engines: a run of a scheduler that can be stored, sent, read and run again.

JSON lines, as with the traces of block managers (``kvgate.gate.trace_codec``). The first line is the header: format and
version, the settings, the stage, where the run came from, and what it violates. Every further line is one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from kvgate.gate.trace_codec import Violated
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.trace_lines import TOKENS_MAX, TraceFormat, check_prompts, read_document, read_lines
from kvgate.levels.scheduler.case import EngineCase, Stage
from kvgate.levels.scheduler.detectors import GATE
from kvgate.levels.scheduler.operations import OPERATIONS, Operation, Reply, Step, Submit
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


_FILES = TraceFormat[EngineHeader, Operation](
    FORMAT, "the trace of an engine", (VERSION,), GATE, EngineHeader, {kind.__name__: kind for kind in OPERATIONS}
)


def engine_trace_of(
    case: EngineCase, divergence: Divergence | None, system: str, version: str, detectors: tuple[str, ...]
) -> EngineTrace:
    """The trace of a run, and of what it shows."""
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
        None if divergence is None else Violated.by(divergence),
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
    _FILES.write(path, trace.header, ((operation, {}) for operation in trace.operations))


def read_engine(path: Path) -> EngineTrace:
    """Read the trace of an engine.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _FILES.read_header(path, lines)
    check_stage(path, header.stage)
    operations: list[Operation] = []
    tokens = 0
    for number, text in enumerate(lines[1:], start=2):
        operation, _ = _FILES.read_line(path, number, text)
        if isinstance(operation, Submit):
            tokens += operation.prompt_tokens
            check_prompts(path, number, tokens, header.settings)
            if max(operation.answers_max, operation.external_tokens) > TOKENS_MAX:
                raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} tokens in answers, or from elsewhere")
        if isinstance(operation, Step):
            check_replies(path, number, operation.replies)
        operations.append(operation)
    return EngineTrace(header, tuple(operations))


def check_stage(path: Path, stage: Stage) -> None:
    """Refuse a stage that nobody should build a scheduler for."""
    if max(stage.running_max, stage.in_flight_max, stage.long_prefill_tokens or 0) > PLACES_MAX:
        raise UsageError(
            f"{path}: line 1: at most {PLACES_MAX} requests run, steps are in flight and tokens of one prompt are "
            "computed at once"
        )


def check_replies(path: Path, number: int, replies: Sequence[Reply]) -> None:
    """Refuse replies that nobody should give."""
    if len(replies) > REPLIES_MAX:
        raise UsageError(f"{path}: line {number}: more than {REPLIES_MAX} replies")
    if max(max(reply.token, reply.accepted, reply.drafts) for reply in replies) > TOKEN_MAX:
        raise UsageError(f"{path}: line {number}: a number above {TOKEN_MAX} in a reply")
