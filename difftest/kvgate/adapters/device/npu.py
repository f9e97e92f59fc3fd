"""Whether this machine has an NPU, and which device the adapters use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

CPU = "cpu"
_used = [CPU]


def device_name(number: int) -> str:
    """What torch calls an NPU."""
    return f"npu:{number}"


def used_device() -> str:
    """The device of this process: the CPU, unless ``use_npu`` has chosen another one."""
    return _used[0]


def use_npu(number: int) -> None:
    """Let the adapters of this process use an NPU. Nothing that follows from it has been run on one yet."""
    _used[0] = device_name(number)
    npu: Any = import_module("torch").npu
    npu.set_device(_used[0])


def missing_npu(number: int = 0) -> str | None:
    """Why nothing can be run on an NPU here; None if it can."""
    try:
        import torch

        import_module("torch_npu")
    except Exception as error:
        return f"no NPU: torch_npu cannot be imported ({type(error).__name__}: {error})"
    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_available():
        return "no NPU: torch_npu is here, and sees no device"
    count = npu.device_count()
    if number >= count:
        return f"no NPU {number}: torch_npu sees {count}, counted from 0"
    return None
