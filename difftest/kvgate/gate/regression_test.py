"""A stored case as a plain pytest file, which says everything that happens and needs no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import fields

from kvgate.gate.trace_codec import Trace, Violated
from kvgate.kernel.text import printable
from kvgate.levels.pair.trace_codec import PairTrace
from kvgate.levels.scheduler.operations import OPERATIONS
from kvgate.levels.scheduler.trace_codec import EngineTrace

_NAMES = {
    "Arrive": "kvreference.operations",
    "Geometry": "kvreference.geometry",
    "Group": "kvreference.geometry",
    "Keys": "kvreference.content",
    "Kind": "kvreference.attention",
    "Media": "kvreference.content",
    "Settings": "kvreference.settings",
    "Stage": "kvgate.levels.scheduler.case",
    "EngineCase": "kvgate.levels.scheduler.case",
    "StateMode": "kvreference.mamba",
    "PairStage": "kvgate.levels.pair.case",
    "PairCase": "kvgate.levels.pair.case",
    "Node": "kvgate.levels.pair.operations",
    **dict.fromkeys(("Ask", "StepOn", "CollectOn", "Acknowledged"), "kvgate.levels.pair.operations"),
}
_OF_ENGINES = frozenset({"Reply", *(kind.__name__ for kind in OPERATIONS)} - {"Abort", "Transferred"})


def regression_test(trace: Trace, system: str, preloads: Sequence[Path] = ()) -> str:
    """The source of a test that fails as long as the case diverges in a way that no finding explains.

    ``preloads`` are run before the system is built.
    """
    header = trace.header
    used: set[str] = set()
    operations = [_spell(operation, used) for operation in trace.operations]
    body = [
        f"    settings = {_spell(header.settings, used)}",
        "    operations = [",
        *(f"        {operation}," for operation in operations),
        "    ]",
        f"    bench = Bench(load_system({_loaded(system, preloads)}).factory, {header.detectors!r})",
        "    lockstep, divergences = run(bench, settings, operations)",
        "    assert [found for found in divergences if explain(found, lockstep) is None] == []",
    ]
    gate = (
        "kvgate.findings import explain",
        "kvgate.gate.case_runner import Bench, run",
        "kvgate.adapters.registry import load_system",
    )
    about = f"{header.system} {header.system_version} on {header.model}"
    return _module(about, _claim(header.violates), [*gate, *_imports(used)], body, preloads)


def engine_regression_test(trace: EngineTrace, system: str, preloads: Sequence[Path] = ()) -> str:
    """The same for a run of an engine."""
    return _run_of_engines(trace, system, preloads, ("EngineCase", "engine_bench", "levels.scheduler", "its scheduler"))


def pair_regression_test(trace: PairTrace, system: str, preloads: Sequence[Path] = ()) -> str:
    """The same for a run of two nodes."""
    return _run_of_engines(trace, system, preloads, ("PairCase", "pair_bench", "levels.pair", "two schedulers"))


def _run_of_engines(
    trace: EngineTrace | PairTrace, system: str, preloads: Sequence[Path], names: tuple[str, str, str, str]
) -> str:
    header, (case, bench, package, what) = trace.header, names
    used: set[str] = set()
    operations = [_spell(operation, used) for operation in trace.operations]
    settings, stage = _spell(header.settings, used), _spell(header.stage, used)
    used.add(case)
    body = [
        f"    load_system({_loaded(system, preloads)})",
        f"    settings = {settings}",
        f"    stage = {stage}",
        "    operations = (",
        *(f"        {operation}," for operation in operations),
        "    )",
        f"    run = run_case({bench}({system!r}, {header.detectors!r}), {case}(settings, stage, operations))",
        f"    assert [found for found in found_in(run, {case}(settings, stage, operations), 0) "
        "if found.finding is None] == []",
    ]
    gate = (
        f"kvgate.levels.registry import {bench}",
        f"kvgate.{package}.case_runner import found_in, run_case",
        "kvgate.adapters.registry import load_system",
    )
    about = f"{header.system} {header.system_version} with {what} on {header.model}"
    return _module(about, _claim(header.violates), [*gate, *_imports(used)], body, preloads)


def _claim(violated: Violated | None) -> str:
    return "the system and the reference agree" if violated is None else f"{violated.statement} holds"


def _loaded(system: str, preloads: Sequence[Path]) -> str:
    files = f", [{', '.join(f'Path({str(path)!r})' for path in preloads)}]" if preloads else ""
    return repr(system) + files


def _imports(used: set[str]) -> list[str]:
    imports: dict[str, list[str]] = {}
    for name in sorted(used):
        module = "kvgate.levels.scheduler.operations" if name in _OF_ENGINES else "kvreference.operations"
        imports.setdefault(_NAMES.get(name, module), []).append(name)
    return [f"{module} import {', '.join(names)}" for module, names in sorted(imports.items())]


def _module(about: str, claim: str, imports: Sequence[str], body: Sequence[str], preloads: Sequence[Path]) -> str:
    lines = [
        f'"""{_in_docstring(f"{about}: {claim}")}."""',
        "",
        *(("from pathlib import Path", "") if preloads else ()),
        *(f"from {each}" for each in imports),
        "",
        "",
        "def test_replay() -> None:",
        f'    """Goal: {_in_docstring(claim)}. Method: the operations that once showed otherwise."""',
        *body,
        "",
    ]
    return "\n".join(lines)


def _in_docstring(text: str) -> str:
    """``text`` on one line; a trace comes from outside, and nothing in it ends the docstring."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _spell(value: Any, used: set[str]) -> str:
    """An expression that builds ``value``; what stands at its default is left out."""
    if isinstance(value, Enum):
        used.add(type(value).__name__)
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return f"({''.join(f'{_spell(item, used)}, ' for item in value).rstrip()})"
    if not hasattr(type(value), "__attrs_attrs__"):
        return repr(value)
    used.add(type(value).__name__)
    return f"{type(value).__name__}({', '.join(_arguments(value, used))})"


def _arguments(value: Any, used: set[str]) -> Iterator[str]:
    for attribute in fields(type(value)):
        item = getattr(value, attribute.name)
        default = attribute.default
        if getattr(default, "factory", None) is not None:
            default = default.factory()
        if item != default:
            yield f"{attribute.name}={_spell(item, used)}"
