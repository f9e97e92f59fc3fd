"""Which function did it: those that stand in for a function of the system's own, on the path of what diverged.

A patch that is preloaded, a plug-in and an injected fault put a function where vLLM's own was. A working tree of vLLM,
or a diff, changes functions in place. Both are recorded when a case is run again, deepest first.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from attrs import frozen

import kvgate
from kvgate.adapters.working_tree import SCRATCH, Changes

SYSTEMS = ("vllm", "vllm_ascend")
"""The packages whose functions are looked at."""
PARTS = ("v1", "distributed", "core", "patch", "worker", "attention")
"""Their parts: the whole of vLLM has thousands of modules."""
EDITED = ", edited>"
"""How the file of a function ends that was edited where it is."""


@frozen
class Suspect:
    """A function that was replaced or changed, and that ran."""

    function: str
    """The function of the system that it stands in for, as ``module:Class.name``."""
    file: str
    line: int
    """Where its code begins."""

    def __str__(self) -> str:
        # A diff is applied to a copy that is gone afterwards.
        file = self.file.rpartition("/vllm/")[2] if SCRATCH in self.file else self.file
        return self.function if self.file.endswith(EDITED) else f"{self.function}, defined in {file}:{self.line}"


def suspects_among(changes: Changes | None = None) -> dict[CodeType, Suspect]:
    """The functions of the systems that are loaded that others stand in for, or that were changed, by their code."""
    found: dict[CodeType, Suspect] = {}
    for name, module in sorted(sys.modules.items()):
        package, _, rest = name.partition(".")
        if package not in SYSTEMS or rest.partition(".")[0] not in PARTS:
            continue
        roots = sys.modules[package].__path__
        for path, code, libraries in _functions_of(module):
            if _is_patch(code.co_filename, (*roots, *libraries)) or (
                changes is not None and _is_changed(code, changes)
            ):
                suspect = Suspect(f"{name}:{path}", code.co_filename, code.co_firstlineno)
                for each in (code, *_within(code)):
                    found.setdefault(each, suspect)
    return found


def _functions_of(module: ModuleType) -> Iterator[tuple[str, CodeType, Sequence[str]]]:
    """The functions of a module and of its classes, and the folders of what it only has imported or inherited."""
    for name, value in [*vars(module).items()]:
        if isinstance(value, type) and (value.__module__ == module.__name__ or _is_foreign(value)):
            for attribute, member in [*vars(value).items()]:
                inner = (getattr(member, name, None) for name in ("__func__", "fget", "func"))
                function = next((each for each in inner if isinstance(each, FunctionType)), member)
                if isinstance(function, FunctionType):
                    yield f"{name}.{attribute}", function.__code__, _STANDARD
        elif isinstance(value, FunctionType):
            yield name, value.__code__, _LIBRARIES


def _is_foreign(value: type) -> bool:
    """Whether a class stands in a system's module, and was written for a patch."""
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    is_system = value.__module__.partition(".")[0] in SYSTEMS
    return file is not None and not is_system and _is_patch(file, _LIBRARIES)


def _within(code: CodeType) -> Iterator[CodeType]:
    """The functions in a function."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _within(each)


def _is_patch(file: str, others: Sequence[str]) -> bool:
    """Whether the code in a file is of a patch: neither the system's own, nor a library's, nor the gate's."""
    return file.endswith(EDITED) or (file[:1] != "<" and not file.startswith((*others, str(_OURS))))


def _is_changed(code: CodeType, changes: Changes) -> bool:
    changed = changes.lines.get(_resolved(code.co_filename))
    lines = (line for each in (code, *_within(code)) for _, _, line in each.co_lines() if line)
    return changed is not None and any(line in changed for line in lines)


@cache
def _resolved(file: str) -> Path:
    return Path(file).resolve()


_INSTALLED = sysconfig.get_path("purelib")
_STANDARD = (str(Path(contextlib.__file__).parent), f"{_INSTALLED}/typing_extensions", f"{_INSTALLED}/torch/")
_LIBRARIES = (*_STANDARD, _INSTALLED, sysconfig.get_path("platlib"))
_OURS = Path(kvgate.__file__).parent


@frozen
class Call:
    """One call of a suspect."""

    operation: int
    """During which operation of the run."""
    depth: int
    """How many calls were open."""
    code: CodeType


class Recorder:
    """Notes the calls of some functions while operations are performed."""

    def __init__(self, codes: Collection[CodeType]) -> None:
        self.calls: list[Call] = []
        self.operation = 0
        self._codes = frozenset(codes)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note calls until the context is left."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code in self._codes:
            depth, at = 0, frame.f_back
            while at is not None:
                depth, at = depth + 1, at.f_back
            self.calls.append(Call(self.operation, depth, frame.f_code))

    def ranked(self) -> list[CodeType]:
        """The functions that were called: of the last operation first, the deepest of each first."""
        order = sorted(self.calls, key=lambda call: (-call.operation, -call.depth))
        return list(dict.fromkeys(call.code for call in order))
