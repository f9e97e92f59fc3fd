"""The device tests: the plug-in's block copies on an NPU, and the same code on the host's tensors.

Run with ``--npu``. Without an NPU nothing of it is passed over in silence: the tests say ``not run: no NPU``.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.device.copies import DTYPES, missing_dtype, tried
from kvgate.adapters.device.npu import DEVICE, missing_npu


@pytest.mark.parametrize("device", ["npu", "cpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_are_those_of_the_reference(device: str, dtype: str) -> None:
    """Goal: exactly the slots before each boundary arrive. Method: every layout, compared byte by byte."""
    where = "cpu"
    if device == "npu":
        missing = missing_npu()
        if missing is not None:
            pytest.skip(f"not run: {missing}")
        where = DEVICE
    absent = missing_dtype(where, dtype)
    if absent is not None:
        pytest.skip(f"not run: {absent}")
    complaints = [f"{each.layout}: {each.complaint}" for each in tried(where, dtype) if each.complaint is not None]
    assert not complaints
