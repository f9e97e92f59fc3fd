"""The device tests: the plug-in's block copies on an NPU, and the same code on the host's tensors.

Run with ``--npu``, or with ``--npu-sim`` on the host's tensors alone.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.device.copies import DTYPES, missing_dtype, tried
from kvgate.adapters.device.npu import CPU, used_device


@pytest.mark.parametrize("device", ["npu", "cpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_are_those_of_the_reference(device: str, dtype: str) -> None:
    """Goal: exactly the slots before each boundary arrive. Method: every layout, compared byte by byte."""
    if device == "npu" and used_device() == CPU:
        pytest.skip("not run: no NPU in a simulated run (--npu-sim)")
    where = used_device() if device == "npu" else CPU
    absent = missing_dtype(where, dtype)
    if absent is not None:
        pytest.skip(f"not run: {absent}")
    complaints = [f"{each.layout}: {each.complaint}" for each in tried(where, dtype) if each.complaint is not None]
    assert not complaints
