"""Whether this machine has an NPU."""

from __future__ import annotations

from importlib import import_module

DEVICE = "npu:0"


def missing_npu() -> str | None:
    """Why nothing can be run on an NPU here; None if it can."""
    try:
        import torch

        import_module("torch_npu")
    except Exception as error:
        return f"no NPU: torch_npu cannot be imported ({type(error).__name__}: {error})"
    npu = getattr(torch, "npu", None)
    if npu is None or not npu.is_available():
        return "no NPU: torch_npu is here, and sees no device"
    return None
