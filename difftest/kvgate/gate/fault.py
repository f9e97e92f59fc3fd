"""A fault of the gate itself: kvgate raised, and not the system under test. It is not a verdict about that system.

``GateFaultError`` carries the case that was run; ``Fault`` is the same in words, for another process or for a report.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import frozen

from kvgate.gate import trace_codec
from kvgate.gate.level import Case
from kvgate.gate.trace_codec import Header, Line, Trace
from kvgate.kernel.errors import SystemUnavailableError, UsageError

UNKNOWN = "unknown"
FRAMES_MAX = 40
"""How many calls a traceback shows at each end."""


class GateFaultError(Exception):
    """The gate failed; exit code 5. Its cause is what was raised."""

    def __init__(self, doing: str, case: Case | None = None) -> None:
        super().__init__(doing)
        self.case = case
        """What was run, up to the operation at which the gate failed."""


@frozen
class Fault:
    """What failed, in words."""

    doing: str
    """What the gate was doing."""
    raised: str
    traceback: str
    trace: str | None = None
    """The text of a trace file with the case, if there was one."""


@contextmanager
def faults_of(doing: str, case: Callable[[], Case] | None = None) -> Iterator[None]:
    """Turn an exception raised here into a ``GateFaultError`` with the case, unless it has an exit code of its own."""
    try:
        yield
    except (UsageError, SystemUnavailableError, GateFaultError, MemoryError):
        raise
    except Exception as error:
        raise GateFaultError(doing, case and case()) from error


def fault_of(error: Exception, system: str = UNKNOWN, version: str = UNKNOWN, detectors: tuple[str, ...] = ()) -> Fault:
    """An exception in words, with the trace of its case for the system that was run."""
    case, cause = getattr(error, "case", None), error.__cause__ if isinstance(error, GateFaultError) else error
    assert cause is not None, "a fault of the gate has a cause"
    return Fault(
        str(error) if isinstance(error, GateFaultError) else "running the command",
        f"{type(cause).__name__}: {cause}",
        "".join(traceback.format_exception(cause, limit=-FRAMES_MAX)),
        None if case is None else trace_codec.render(_trace(case, system, version, detectors)),
    )


def _trace(case: Case, system: str, version: str, detectors: tuple[str, ...]) -> Trace:
    """Without what the reference answers: it may be what failed."""
    level = case.level
    checkers = tuple(each for each in detectors if each in level.detectors) or level.gate
    # A campaign's seed is a number at one level, and the seed of a case a text at the others.
    header = Header(case.settings, case.model, case.preset, case.seed, system, version, checkers, None, case.stage)
    return Trace(level, header, tuple(map(Line, case.operations)))
