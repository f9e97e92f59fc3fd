"""Trace files of two nodes: a run of a prefill and a decode node that can be stored, sent, read and run again.

JSON lines, as with the traces of engines (``kvgate.levels.scheduler.trace_codec``): a header, and then one operation a
line.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from kvgate.gate.trace_codec import Violated
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.trace_lines import BLOCKS_MAX, TOKENS_MAX, TraceFormat, check_prompts, read_document, read_lines
from kvgate.levels.pair.case import PairCase, PairStage
from kvgate.levels.pair.detectors import GATE
from kvgate.levels.pair.operations import OPERATIONS, Ask, Operation, StepOn
from kvgate.levels.scheduler.trace_codec import check_replies, check_stage
from kvreference.settings import Settings

FORMAT = "kvgate-pair-trace"
VERSION = 1


@frozen
class PairHeader:
    """The first line of a trace."""

    format: str
    version: int
    settings: Settings
    """Those of the decode node."""
    stage: PairStage
    model: str
    preset: str
    seed: str
    system: str
    system_version: str
    detectors: tuple[str, ...]
    violates: Violated | None = None


@frozen
class PairTrace:
    """A whole trace."""

    header: PairHeader
    operations: tuple[Operation, ...]

    @property
    def case(self) -> PairCase:
        """The run that it stores."""
        header = self.header
        return PairCase(header.settings, header.stage, self.operations, header.model, header.preset, header.seed)


_FILES = TraceFormat[PairHeader, Operation](
    FORMAT, "the trace of two nodes", (VERSION,), GATE, PairHeader, {kind.__name__: kind for kind in OPERATIONS}
)


def pair_trace_of(
    case: PairCase, divergence: Divergence | None, system: str, version: str, detectors: tuple[str, ...]
) -> PairTrace:
    """The trace of a run, and of what it shows."""
    header = PairHeader(
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
    return PairTrace(header, case.operations)


def is_pair_trace(path: Path) -> bool:
    """Whether a file says that it is the trace of two nodes; whether it is one, is seen when it is read.

    Raises:
        UsageError: no such file, or nothing that any trace begins with.
    """
    return read_document(path, 1, read_lines(path)[0]).get("format") == FORMAT


def write_pair(trace: PairTrace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what was there."""
    _FILES.write(path, trace.header, ((operation, {}) for operation in trace.operations))


def read_pair(path: Path) -> PairTrace:
    """Read the trace of two nodes.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _FILES.read_header(path, lines)
    _check_pair_stage(path, header)
    operations: list[Operation] = []
    tokens = 0
    for number, text in enumerate(lines[1:], start=2):
        operation, _ = _FILES.read_line(path, number, text)
        if isinstance(operation, Ask):
            tokens += operation.prompt_tokens
            check_prompts(path, number, tokens, header.settings)
            if operation.answers_max > TOKENS_MAX:
                raise UsageError(f"{path}: line {number}: more than {TOKENS_MAX} tokens in answers")
        if isinstance(operation, StepOn):
            check_replies(path, number, operation.replies)
        operations.append(operation)
    return PairTrace(header, tuple(operations))


def _check_pair_stage(path: Path, header: PairHeader) -> None:
    stage = header.stage
    check_stage(path, stage.prefill)
    check_stage(path, stage.decode)
    if stage.prefill_blocks > BLOCKS_MAX or stage.prefill_chunk_tokens > TOKENS_MAX:
        raise UsageError(
            f"{path}: line 1: at most {BLOCKS_MAX} blocks of the prefill node and {TOKENS_MAX} tokens of one of its "
            "steps are replayed"
        )
    try:
        stage.of_prefill(header.settings)
    except ValueError as error:
        raise UsageError(f"{path}: line 1: the prefill node: {error}") from error
