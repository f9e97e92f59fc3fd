"""A stored case as a plain pytest file, which says everything that happens and needs no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import fields

from kvgate.gate.trace_codec import Trace
from kvgate.kernel.text import printable

Imports = dict[str, str]
"""The module of every name that is used."""


def regression_test(trace: Trace, system: str, preloads: Sequence[Path] = ()) -> str:
    """The source of a test that fails as long as the case diverges in a way that no finding explains.

    ``preloads`` are run before the system is built.
    """
    header, subject = trace.header, trace.level.subject
    used: Imports = {
        "LEVELS": "kvgate.levels.registry",
        "load_system": "kvgate.adapters.registry",
        "run_case": "kvgate.gate.case_runner",
    }
    files = f", [{', '.join(f'Path({str(path)!r})' for path in preloads)}]" if preloads else ""
    has_stage = trace.level.stage_type is not None
    body = [
        f"    level = LEVELS[{trace.level.name!r}]",
        f"    settings = {_spell(header.settings, used)}",
        *([f"    stage = {_spell(header.stage, used)}"] if has_stage else []),
        "    operations = [",
        *(f"        {_spell(operation, used)}," for operation in trace.operations),
        "    ]",
        f"    bench = level.bench(load_system({system!r}{files}), {header.detectors!r})",
        f"    run = run_case(bench, level.case(settings, operations{', stage' if has_stage else ''}))",
        "    assert [each for each in run.found() if each.finding is None] == []",
    ]
    about = f"{header.system} {header.system_version}{f' with {subject}' if has_stage else ''} on {header.model}"
    violated = header.violates
    claim = "the system and the reference agree" if violated is None else f"{violated.statement} holds"
    lines = [
        f'"""{_in_docstring(f"{about}: {claim}")}."""',
        "",
        *(("from pathlib import Path", "") if preloads else ()),
        *_imports(used),
        "",
        "",
        "def test_replay() -> None:",
        f'    """Goal: {_in_docstring(claim)}. Method: the operations that once showed otherwise."""',
        *body,
        "",
    ]
    return "\n".join(lines)


def _imports(used: Imports) -> list[str]:
    modules: dict[str, list[str]] = {}
    for name, module in sorted(used.items()):
        modules.setdefault(module, []).append(name)
    return [f"from {module} import {', '.join(names)}" for module, names in sorted(modules.items())]


def _in_docstring(text: str) -> str:
    """``text`` on one line; a trace comes from outside, and nothing in it ends the docstring."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _spell(value: Any, used: Imports) -> str:
    """An expression that builds ``value``; what stands at its default is left out."""
    if isinstance(value, tuple):
        return f"({''.join(f'{_spell(item, used)}, ' for item in value).rstrip()})"
    kind = type(value)
    if not isinstance(value, Enum) and not hasattr(kind, "__attrs_attrs__"):
        return repr(value)
    used[kind.__name__] = kind.__module__
    if isinstance(value, Enum):
        return f"{kind.__name__}.{value.name}"
    return f"{kind.__name__}({', '.join(_arguments(value, used))})"


def _arguments(value: Any, used: Imports) -> Iterator[str]:
    for attribute in fields(type(value)):
        item = getattr(value, attribute.name)
        default = attribute.default
        if getattr(default, "factory", None) is not None:
            default = default.factory()
        if item != default:
            yield f"{attribute.name}={_spell(item, used)}"
