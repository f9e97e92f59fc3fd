"""A stored case as a plain pytest file, which says everything that happens and needs no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import fields

from kvgate.reports.wording import printable
from kvgate.trace import Trace

_NAMES = {
    "Arrive": "kvreference.operations",
    "Geometry": "kvreference.geometry",
    "Group": "kvreference.geometry",
    "Keys": "kvreference.content",
    "Kind": "kvreference.attention",
    "Media": "kvreference.content",
    "Settings": "kvreference.settings",
    "StateMode": "kvreference.mamba",
}


def regression_test(trace: Trace, system: str, preloads: Sequence[Path] = ()) -> str:
    """The source of a test that fails as long as the case diverges in a way that no finding explains.

    ``preloads`` are run before the system is built.
    """
    header = trace.header
    used: set[str] = set()
    operations = [_spell(operation, used) for operation in trace.operations]
    settings = _spell(header.settings, used)
    imports: dict[str, list[str]] = {}
    for name in sorted(used):
        imports.setdefault(_NAMES.get(name, "kvreference.operations"), []).append(name)
    violated = header.violates
    claim = "the system and the reference agree" if violated is None else f"{violated.statement} holds"
    arguments = repr(system)
    if preloads:
        arguments += f", [{', '.join(f'Path({str(path)!r})' for path in preloads)}]"
    lines = [
        f'"""{_in_docstring(f"{header.system} {header.system_version} on {header.model}: {claim}")}."""',
        "",
        *(("from pathlib import Path", "") if preloads else ()),
        "from kvgate.declared import explain",
        "from kvgate.runner import Bench, run",
        "from kvgate.systems import load_system",
        *(f"from {module} import {', '.join(names)}" for module, names in sorted(imports.items())),
        "",
        "",
        "def test_replay() -> None:",
        f'    """Goal: {_in_docstring(claim)}. Method: the operations that once showed otherwise."""',
        f"    settings = {settings}",
        "    operations = [",
        *(f"        {operation}," for operation in operations),
        "    ]",
        f"    bench = Bench(load_system({arguments}).factory, {header.detectors!r})",
        "    lockstep, divergences = run(bench, settings, operations)",
        "    assert [found for found in divergences if explain(found, lockstep) is None] == []",
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
