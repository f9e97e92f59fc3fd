"""Trace files: a case that can be stored, sent, read and run again.

JSON lines. The first line is the header: format and version, the settings, where the case came from, and what it
violates. Every further line is one operation, with the reference's answer in words and a digest of its state, so that
a reader sees whether the reference of today still walks the same way. ``kvgate.kernel.trace_lines`` reads the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from attrs import field, frozen

from kvgate.adapters.release_variants import NewReference, reference_named
from kvgate.gate.case_runner import DETECTORS
from kvgate.gate.story import describe_answer
from kvgate.kernel.case import Case
from kvgate.kernel.difference import Divergence
from kvgate.kernel.trace_lines import TraceFormat, check_prompts, read_lines
from kvreference.manager import Manager
from kvreference.operations import Arrive, Operation
from kvreference.settings import Settings

FORMAT = "kvgate-trace"
VERSION = 3
VERSIONS_READ = (1, 2, 3)
"""Versions 2 and 3 added settings and operations, each with a default: what an older one says, a newer one means."""


@frozen
class Violated:
    """What a trace shows: who found it, which statement, and where."""

    detector: str
    statement: str
    subject: str

    @classmethod
    def by(cls, divergence: Divergence) -> Violated:
        """What a divergence violates."""
        return cls(*divergence.kind)


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


_FILES = TraceFormat[Header, Operation](
    FORMAT,
    "a trace",
    VERSIONS_READ,
    DETECTORS,
    Header,
    {kind.__name__: kind for kind in get_args(Operation)},
    texts=("answer", "digest"),
)


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


def annotated(
    settings: Settings, operations: Iterable[Operation], new_reference: NewReference = Manager
) -> Iterator[Line]:
    """The operations as lines of a trace, with what the reference does; illegal ones are left out."""
    manager, digests = new_reference(settings), Digests()
    for operation in operations:
        resolved = manager.population.resolve(operation)
        if resolved is not None:
            answer = manager.apply(resolved)
            yield Line(resolved, describe_answer(answer), digests.of(manager))


def trace_of(case: Case, divergence: Divergence | None, system: str, version: str, detectors: tuple[str, ...]) -> Trace:
    """The trace of a case, and of what it shows."""
    violates = None if divergence is None else Violated.by(divergence)
    header = Header(
        FORMAT, VERSION, case.settings, case.model, case.preset, case.seed, system, version, detectors, violates
    )
    return Trace(header, tuple(annotated(case.settings, case.operations, reference_named(system))))


def write(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what was there."""
    told = ((line.operation, {"answer": line.answer, "digest": line.digest}) for line in trace.lines)
    _FILES.write(path, trace.header, told)


def read(path: Path) -> Trace:
    """Read a trace.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _FILES.read_header(path, lines)
    found: list[Line] = []
    tokens = 0
    for number, text in enumerate(lines[1:], start=2):
        operation, texts = _FILES.read_line(path, number, text)
        if isinstance(operation, Arrive):
            tokens += sum(run.length for run in operation.prompt)
            check_prompts(path, number, tokens, header.settings)
        found.append(Line(operation, *texts))
    return Trace(header, tuple(found))
