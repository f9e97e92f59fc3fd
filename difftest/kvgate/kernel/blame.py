"""Whose fault an exception is: that of the system under test, or of the gate that drives it."""

from __future__ import annotations

import sys
from types import TracebackType

OURS = ("kvgate", "kvreference")
_CALLED = {"attr", "attrs", "cattrs", "msgspec", "numpy", "safetensors", "torch", "transformers"}
"""What both the gate and a system call."""
_LIBRARIES = sys.stdlib_module_names | _CALLED | {""}
"""Packages that raise for their caller. Methods that attrs generates are in no module."""


def is_ours(error: BaseException) -> bool:
    """Whether the gate itself raised an exception: the last call outside a library is the gate's."""
    return raised_in(error) in OURS


def raised_in(error: BaseException) -> str:
    """The package of the last call outside a library."""
    package = ""
    at: TracebackType | None = error.__traceback__
    while at is not None:
        name = str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        package = package if name in _LIBRARIES else name
        at = at.tb_next
    return package
