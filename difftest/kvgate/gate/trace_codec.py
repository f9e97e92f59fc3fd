"""Trace files of every level: a case that can be stored, sent, read and run again.

JSON lines. The first line is the header: format and version, the settings, the stage if there is one, where the case
came from, and what it violates. Every further line is one operation. For a block manager it also has the reference's
answer in words and a digest of its state, which show whether today's reference still does the same. Which operations
there are, and how large they may be, the level says; ``kvgate.kernel.trace_lines`` reads the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from attrs import evolve, field, fields, frozen

from kvgate.adapters.release_variants import NewReference
from kvgate.findings.modelled import reference_named
from kvgate.gate.level import Case, Level, Operation
from kvgate.gate.story import describe_answer
from kvgate.kernel import trace_lines
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvgate.kernel.trace_lines import check_prompts, check_size, read_document, read_lines
from kvreference.manager import Manager
from kvreference.settings import Settings

FORMAT = "kvgate-trace"
VERSION = 5
"""Each version added settings and operations, each with a default, and this one the level: older traces keep their
meaning."""

_CONVERTER = strict_converter()


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
    """The first line of a trace, less its format and version."""

    settings: Settings
    model: str
    preset: str
    seed: Any
    """That of the campaign for a block manager, else that of the case."""
    system: str
    system_version: str
    detectors: tuple[str, ...]
    violates: Violated | None = None
    stage: Any = None


@frozen
class Line:
    """One operation of a trace, what the reference answered, and the digest of its state after it."""

    operation: Operation
    answer: str = ""
    digest: str = ""


@frozen
class Trace:
    """A whole trace."""

    level: Level
    header: Header
    lines: tuple[Line, ...] = field(repr=False)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations alone."""
        return tuple(line.operation for line in self.lines)

    @property
    def case(self) -> Case:
        """The case that it stores."""
        header = self.header
        where_from = {"model": header.model, "preset": header.preset, "seed": header.seed}
        return self.level.case(header.settings, self.operations, header.stage, **where_from)


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
    """The trace of a case, and of what it shows; of the ``detectors`` those of its level."""
    header = Header(
        case.settings,
        case.model,
        case.preset,
        case.seed,
        system,
        version,
        tuple(each for each in detectors if each in case.level.detectors),
        None if divergence is None else Violated.by(divergence),
        case.stage,
    )
    if not case.level.trace_annotated:
        return Trace(case.level, header, tuple(map(Line, case.operations)))
    return Trace(case.level, header, tuple(annotated(case.settings, case.operations, reference_named(system))))


def write(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(trace), encoding="utf-8")


def render(trace: Trace) -> str:
    """The text of a trace file."""
    level = trace.level
    header = _CONVERTER.unstructure(trace.header)
    stage = {} if level.stage_type is None else {"stage": header["stage"]}
    del header["stage"]
    for name in ("keeps_junctions", "steps_in_flight_max", "loads_out_of_turn"):
        if getattr(trace.header.settings, name) == getattr(fields(Settings), name).default:
            # Without it, a trace is what it was, and is read by what came before.
            del header["settings"][name]
    head = {"format": FORMAT, "version": VERSION, "level": level.name, "settings": header["settings"], **stage}
    documents = [head | header]
    for line in trace.lines:
        document = {"operation": type(line.operation).__name__, **_CONVERTER.unstructure(line.operation)}
        notes = {"answer": line.answer, "digest": line.digest} if level.trace_annotated else {}
        documents.append(document | notes)
    return "".join(f"{json.dumps(document)}\n" for document in documents)


def level_of(path: Path, levels: Iterable[Level]) -> Level | None:
    """Of these levels the one of which a file says that it is a trace; whether it is that, is seen when it is read.

    Raises:
        UsageError: no such file, or nothing that any trace begins with.
    """
    header = read_document(path, 1, read_lines(path)[0])
    return next((level for level in levels if _names(header, level)), None)


def _names(header: Mapping[str, Any], level: Level) -> bool:
    if "level" in header:
        return bool(header.get("format") == FORMAT and header["level"] == level.name)
    return bool(header.get("format") == level.trace_formerly)


def read(path: Path, level: Level) -> Trace:
    """Read a trace of a level.

    Raises:
        UsageError: no such file, too large, or not a trace of a version that is understood; says which line and why.
    """
    lines = read_lines(path)
    header = _header(path, read_document(path, 1, lines[0]), level, len(lines))
    found: list[Line] = []
    tokens = 0
    kinds = {kind.__name__: kind for kind in level.alphabet}
    for number, text in enumerate(lines[1:], start=2):
        where = f"{path}: line {number}"
        line = _line(where, read_document(path, number, text), kinds, level.trace_annotated)
        brought = level.prompt_tokens(line.operation)
        if brought:
            tokens += brought
            check_prompts(path, number, tokens, header.settings)
        _check_limits(where, line.operation, level.limits)
        found.append(line)
    return Trace(level, header, tuple(found))


def _header(path: Path, document: dict[str, Any], level: Level, lines: int) -> Header:
    where = f"{path}: line 1"
    if not _names(document, level):
        raise UsageError(
            f'{where}: not {level.trace_called}: "format" has to be "{FORMAT}", and "level" "{level.name}"'
        )
    del document["format"]
    version, names_level = document.pop("version", None), document.pop("level", None) is not None
    if type(version) is not int or not 1 <= version <= VERSION or names_level != (version == VERSION):
        raise UsageError(f"{where}: version {version!r:.40}; this kvgate reads 1 to {VERSION}")
    header: Header = _structured(where, document, Header)
    stage = _structured(where, header.stage, level.stage_type, " @ $.stage") if level.stage_type else None
    if stage is None and header.stage is not None:
        raise UsageError(f"{where}: extra fields found (stage)")
    header = evolve(header, seed=_structured(where, header.seed, level.seed_type, " @ $.seed"), stage=stage)
    if not header.detectors or not set(header.detectors) <= set(level.detectors):
        raise UsageError(f'{where}: "detectors" are one or more of {", ".join(level.detectors)}')
    check_size(where, header.settings)
    _check_limits(where, header.stage, level.limits)
    blocks = level.blocks_of(header.settings, header.stage)
    if blocks * lines > trace_lines.WORK_MAX:
        raise UsageError(
            f"{path}: {lines - 1} operations on {blocks} blocks: all blocks are compared "
            f"after each, and at most {trace_lines.WORK_MAX} are in all; replay a part of it"
        )
    try:
        level.check_stage(header.settings, header.stage)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    return header


def _line(where: str, document: dict[str, Any], kinds: Mapping[str, type], is_annotated: bool) -> Line:
    kind = document.pop("operation", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise UsageError(f"{where}: unknown operation {kind!r:.80}")
    names = ("answer", "digest") if is_annotated else ()
    notes = {name: _structured(where, document.pop(name, ""), str) for name in names}
    return Line(_structured(where, document, kinds[kind]), **notes)


def _structured(where: str, document: object, kind: type, part: str = "") -> Any:
    try:
        return _CONVERTER.structure(document, kind)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{where}: {explain(error)}{part}") from error


def _check_limits(where: str, value: Any, limits: Mapping[type, Mapping[str, int]]) -> None:
    """Reject what is too large to perform; the values inside are checked too."""
    for name, most in limits.get(type(value), {}).items():
        item = getattr(value, name)
        size = len(item) if isinstance(item, tuple) else item
        if size is not None and size > most:
            raise UsageError(f"{where}: {type(value).__name__}.{name}: {size}, at most {most}")
    for inner in getattr(type(value), "__attrs_attrs__", ()):
        item = getattr(value, inner.name)
        for each in item if isinstance(item, tuple) else (item,):
            _check_limits(where, each, limits)
