"""Whose fault an exception is: that of the system under test, or of the gate that drives it."""

from __future__ import annotations

from types import TracebackType

_OURS = ("kvgate", "kvreference")


def is_ours(error: BaseException) -> bool:
    """Whether the gate itself raised an exception: what called last is the gate's."""
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    module = str(last.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in _OURS
