"""The stage of these tests: a system that is watched by one monitor while it performs what must be legal."""

from __future__ import annotations

from typing import Any

from kvgate.difference import Difference
from kvgate.monitors.monitor import Monitor, Step
from kvgate.system import System
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Operation, Run
from kvreference.settings import Settings

FULL = Group(Kind.FULL, 4)
WINDOW = Group(Kind.SLIDING_WINDOW, 4, window_tokens=6)
DRAFTING = Group(Kind.FULL, 4, lookahead=True)


def settings_of(*groups: Group, **limits: Any) -> Settings:
    """Settings with room for everything, unless ``limits`` say otherwise."""
    return Settings(Geometry(groups), **{"blocks": 64, "chunk_tokens": 1024, **limits})


def watch(monitor: Monitor, system: System, *operations: Operation) -> Difference | None:
    """The first difference that ``monitor`` sees; every operation before it must be legal as it stands."""
    for operation in operations:
        assert operation == system.population.resolve(operation)
        answer = system.apply(operation)
        found = monitor.observe(Step(operation, answer, system.snapshot(), system.population))
        if found is not None:
            return found
    return None


def arrive(number: int, tokens: int, first: int = 0) -> Arrive:
    """A request with a prompt of one run."""
    return Arrive(number, (Run(first, tokens),))
