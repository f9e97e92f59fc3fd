"""Which functions of the reference each obligation executes while it is proved.

An obligation that executes none is about a model that stands next to the reference, and not about the code that runs:
its tier is M. So is one that executes a transcription: a method of ``kvspec.progress`` that stands in the place of the
reference's own. The trace names it, too, as ``kvspec.module:name``. What answers with numbers of which only proved
facts are assumed is none: ``kvspec.progress.promised`` names the proof of each fact.

``python -m kvspec.executed`` writes the trace to ``executed.json``, for all obligations or for those that are named. A
test compares the two.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Any

import kvreference
from kvspec import progress
from kvspec.functions import Function, functions, names_by_line
from kvspec.obligation import EXECUTED_FILE, Obligation, executed, is_transcription


@cache
def transcriptions() -> Mapping[CodeType, str]:
    """The methods of ``kvspec.progress`` that redefine one of a class of the reference, makers left out."""
    names = [each.name for each in pkgutil.iter_modules(progress.__path__, f"{progress.__name__}.")]
    classes = {each for name in names for each in vars(import_module(name)).values() if isinstance(each, type)}
    return {
        method.__code__: f"{owner.__module__}:{owner.__name__}.{name}"
        for owner in classes
        if owner.__module__ in names
        for name, method in vars(owner).items()
        if isinstance(method, FunctionType) and not name.startswith("__") and _is_of_the_reference(owner, name)
    }


def _is_of_the_reference(owner: type, name: str) -> bool:
    """Whether a class of the reference, above ``owner``, defines a method ``name``."""
    package = kvreference.__name__
    return any(name in vars(each) for each in owner.__mro__[1:] if each.__module__.partition(".")[0] == package)


@contextmanager
def traced() -> Iterator[set[str]]:
    """The functions of the reference that are called within, lambdas and comprehensions by the function around them.

    Transcriptions are among them.
    """
    lines, found, seen = names_by_line(), set[str](), dict[Any, str | None](transcriptions())

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in seen:
            seen[code] = lines.get(code.co_filename, {}).get(code.co_firstlineno)
        name = seen[code]
        if name is not None:
            found.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def functions_executed(obligation: Obligation, ways: int | None = None) -> tuple[str, ...]:
    """The functions that ``obligation`` executes while it is proved: on all paths, or on the first ``ways``.

    Transcriptions are among them.
    """
    from kvspec.prover import run

    with traced() as found:
        run(obligation, ways)
    return tuple(sorted(found))


def _of(name: str) -> tuple[str, tuple[str, ...]]:
    from kvspec.registry import obligations

    return name, functions_executed(obligations()[name])


def trace(names: Sequence[str], jobs: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each of these obligations, its id and what it executes, in ``jobs`` processes."""
    from kvspec.proof_result import in_processes

    yield from in_processes(_of, names, jobs)


_READS = "it reads and writes nothing: what it calls has the name of something that writes"
_COPIES = "it is a proved operation on a copy; tests compare the given state before and after"
NOT_EXECUTED: Mapping[str, str] = MappingProxyType(
    {
        "manager:Manager.snapshot": _READS,
        "manager:step": _COPIES,
        "scheduler.scheduler:Scheduler.resolve": _READS,
        "scheduler.scheduler:step": _COPIES,
        "state:State.__init_subclass__": "it runs when a class is defined",
    }
)
"""Why no obligation executes a function that counts as one that changes state."""


def never_executed(by_obligation: Mapping[str, Sequence[str]]) -> list[Function]:
    """The functions that no obligation executes, those that change state first."""
    known = {name for names in by_obligation.values() for name in names}
    left = [each for each in functions() if each.name not in known]
    return sorted(left, key=lambda each: (not each.changes_state, each.name))


def stored() -> Mapping[str, Sequence[str]]:
    """The trace in ``executed.json``, transcriptions among it."""
    return MappingProxyType(executed())


def of_the_reference(names: Sequence[str]) -> list[str]:
    """Those that are functions of the reference, and no transcriptions."""
    return [each for each in names if not is_transcription(each)]


def written(by_obligation: Mapping[str, Sequence[str]]) -> str:
    """The text of ``executed.json``, an obligation a line."""
    rows = [f"{json.dumps(name)}: {json.dumps(list(names))}" for name, names in sorted(by_obligation.items())]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    from kvspec.registry import obligations

    wanted = [name for name in obligations() if name in sys.argv[1:] or not sys.argv[1:]]
    kept = {name: names for name, names in stored().items() if name in obligations()}
    EXECUTED_FILE.write_text(written({**kept, **dict(trace(wanted, os.cpu_count() or 1))}), encoding="utf-8")
