"""Whose fault an exception is: that of the system under test, or of the gate that drives it."""

from __future__ import annotations

import sys
from types import TracebackType

OURS = ("kvgate", "kvreference")
_CALLED = {"attr", "attrs", "cattrs", "msgspec", "numpy", "safetensors", "torch", "transformers"}
"""What both the gate and a system call."""
_LIBRARIES = sys.stdlib_module_names | _CALLED | {""}
"""Packages that raise for their caller. Methods that attrs generates are in no module."""
_CONTAINERS = "kvgate.adapters.work_meter"
"""Where lists and maps of a system are counted: what its own methods of a container raise, the system has called."""
_METHODS = {*dir(list), *dir(dict)}


def is_ours(error: BaseException) -> bool:
    """Whether the gate itself raised an exception: the last call outside a library is the gate's."""
    return raised_in(error) in OURS


def raised_in(error: BaseException) -> str:
    """The package of the last call outside a library."""
    package = ""
    at: TracebackType | None = error.__traceback__
    while at is not None:
        module, code = str(at.tb_frame.f_globals.get("__name__", "")), at.tb_frame.f_code
        name = module.partition(".")[0]
        is_container = module == _CONTAINERS and code.co_name in _METHODS
        package = package if name in _LIBRARIES or is_container else name
        at = at.tb_next
    return package
