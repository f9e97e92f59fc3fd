"""A way that was found, as a trace file that ``kvgate replay`` runs again.

The answers in it are those of the design that was explored. Replay checks by the invariants and by ghost memory;
that steps go round in circles only the explorer sees.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import load_system
from kvgate.explore.exploration import Found
from kvgate.explore.manager_world import ManagerWorld
from kvgate.gate.story import describe_answer
from kvgate.gate.trace_codec import Digests, Header, Line, Trace, Violated
from kvgate.levels.manager import MANAGER
from kvreference.operations import Operation

DETECTORS = ("check", "ghost")


def trace_of(world: ManagerWorld, found: Found[Operation]) -> Trace:
    """The trace of what was found."""
    first = found.violations[0]
    header = Header(
        settings=world.scope.settings,
        model=world.name,
        preset="explorer",
        seed=0,
        system=system_of(world),
        system_version=load_system("reference").version,
        detectors=DETECTORS,
        violates=Violated("explorer", first.statement, first.detail),
    )
    return Trace(MANAGER, header, tuple(_lines(world, found)))


def _lines(world: ManagerWorld, found: Found[Operation]) -> list[Line]:
    manager, digests = world.factory(world.scope.settings), Digests()
    # A digest says how the reference stands: there is none for a design that is not the reference.
    is_reference = world.factory is Reference
    lines = []
    for operation in (*found.moves, *found.circle):
        try:
            answer = describe_answer(manager.apply(operation))
        except Exception as error:
            answer = f"raised {type(error).__name__}"
        lines.append(Line(operation, answer, digests.of(manager) if is_reference else ""))
    return lines


def system_of(world: ManagerWorld) -> str:
    """How ``kvgate replay`` calls the design that was explored."""
    if world.factory is Reference:
        return "reference"
    return f"{world.factory.__module__}:{getattr(world.factory, '__qualname__', '')}"


def command_of(world: ManagerWorld, path: Path) -> str:
    """What to type to see it again."""
    system = system_of(world)
    return shlex.join(["kvgate", "replay", str(path), *(() if system == "reference" else ("--sut", system))])
