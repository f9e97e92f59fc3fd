"""The device tests' code on the host's tensors.

Goal: it finds nothing wrong with the plug-in's copies, and finds what is wrong with broken ones. Method: two kinds of
elements in every layout; then copies that are left out, and copies of one slot too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("torch")

from kvgate.adapters.device import copies
from kvgate.adapters.device.copies import LAYOUTS, missing_dtype, shapes, tried, ways
from kvgate.adapters.device.npu import missing_npu
from swa_retention.copying.views import copy_views


def complaints(dtype: str) -> list[str]:
    """The errors in the copies of elements of ``dtype``."""
    return [each.complaint for each in tried("cpu", dtype) if each.complaint is not None]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_nothing_is_wrong(dtype: str) -> None:
    """In all layouts, padded and not, one copy and several."""
    assert [] == complaints(dtype)


@pytest.mark.parametrize("name", ["nothing is copied", "one slot more"])
def test_a_broken_copy_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the comparison can fail. Method: the plug-in's copy by views, broken."""
    sound = copy_views

    def broken(regions: Any, ordered: Sequence[Any]) -> None:
        if name == "one slot more":
            (_, layout) = regions[0]
            room = layout.rows_per_block * layout.slots_per_row * layout.tokens_per_slot
            grown = [evolve(copy, tokens=min(room, copy.tokens + layout.tokens_per_slot)) for copy in ordered]
            sound(regions, grown)

    monkeypatch.setattr(copies, "copy_views", broken)
    found = complaints("bfloat16")
    assert len(found) > len(LAYOUTS)
    assert all(each.startswith("by views: ") for each in found)


def test_both_copy_methods_are_tried_on_the_host() -> None:
    """On an NPU, and on CUDA, the one that the plug-in takes there."""
    assert [("by views", "by index"), ("by views",), ("by index",)] == [ways(name) for name in ("cpu", "npu:0", "cuda")]


def test_all_layouts_differ() -> None:
    """Each name is one shape."""
    names = [name for name, _, _ in shapes()]
    assert len(names) == len(set(names))


def test_what_is_missing_is_reported() -> None:
    """A kind of number that torch does not have; and no NPU here, or one."""
    assert "has no float3" in str(missing_dtype("cpu", "float3"))
    assert None is missing_dtype("cpu", "bfloat16")
    missing = missing_npu()
    assert missing is None or missing.startswith("no NPU")
