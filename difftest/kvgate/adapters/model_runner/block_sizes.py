"""The block sizes of DeepSeek-V4 on vLLM-Ascend, and which of them the kernels of a wheel take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvgate.adapters.ascend_wheel import PACKAGE
from kvgate.adapters.model_runner.operators import BACKEND
from swa_retention.compressed.block_sizes import BLOCK_SIZES
from swa_retention.compressed.kernel_blocks import describe, sizes_in

__all__ = ["BLOCK_SIZES", "SIZES", "kernel_sizes", "supported"]

SIZES = tuple(sorted(BLOCK_SIZES))
"""Slots of a compressed block."""


def kernel_sizes(folder: Path) -> tuple[int, ...] | None:
    """The kernel block sizes of a wheel's back-end for compressed attention; None if its source lists none.

    Raises:
        OSError: it has no such back-end.
    """
    return sizes_in((folder / PACKAGE / BACKEND).read_text(encoding="utf-8"))


def supported(folder: Path) -> Iterator[str]:
    """For each block size, whether the kernels of a wheel take it, and why not.

    Raises:
        OSError: it has no such back-end.
    """
    sizes = kernel_sizes(folder)
    if sizes is not None:
        yield from describe(sizes)
