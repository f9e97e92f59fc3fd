"""The memory of DeepSeek-V4 as it is, and with one fault each: ``python -m tests.difftest.worker.dsv4_faults``.

A fault is patched into the published code, or into the plug-in, for as long as one memory is made and checked. With the
argument ``published``, the plug-in is left out, and the faults with it; with ``flash``, the model has all its layers,
and no faults. Importing vLLM-Ascend takes most of the time, so one process does all.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.difftest.worker.dsv4_memory import FLASH_RATIOS, INDEXER_PAGE, RATIOS, WrongMemoryError, compare, prepare

SLOTS = 64

Patch = pytest.MonkeyPatch
Layout = Callable[..., list[Any]]


def _in_layout(broken: Callable[[Layout, Any, Any, Any, int], list[Any]]) -> Callable[[Patch], None]:
    """A fault in how the runner divides the pages of a layer between its tensors."""

    def inject(patch: Patch) -> None:
        runner: Any = importlib.import_module("vllm_ascend.worker.model_runner_v1").NPUModelRunner
        original = runner._adjust_kv_layout

        def _adjust_kv_layout(self: Any, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
            def layout(*given: Any) -> list[Any]:
                made: list[Any] = original(self, *given)
                return made

            return broken(layout, raw, shapes, dtypes, page_bytes)

        patch.setattr(runner, "_adjust_kv_layout", _adjust_kv_layout)

    return inject


def _scale_at_values(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    values, *scales = layout(raw, shapes, dtypes, page_bytes)
    return [values, *(each.as_strided(each.shape, each.stride(), 0) for each in scales)]


def _scales_together(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    """All scales follow each other, as if they had pages of their own."""
    import torch

    values, *scales = layout(raw, shapes, dtypes, page_bytes)
    strides = [torch.empty(each.shape).stride() for each in scales]
    return [
        values,
        *(
            each.as_strided(each.shape, stride, each.storage_offset())
            for each, stride in zip(scales, strides, strict=True)
        ),
    ]


def _unpadded(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    del page_bytes
    return layout(raw, shapes, dtypes, sum(map(_block_bytes, shapes, dtypes)))


def _without_scales(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    """Pages of the size of the values."""
    return layout(raw, shapes, dtypes, _block_bytes(shapes[0], dtypes[0]) if len(shapes) > 1 else page_bytes)


def _half_pages(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    return layout(raw, shapes, dtypes, page_bytes // 2)


def _half_blocks(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    return layout(raw, [(blocks, slots // 2, *rest) for blocks, slots, *rest in shapes], dtypes, page_bytes)


def _slots_of_one_element_less(layout: Layout, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> list[Any]:
    """From a slot to the next one; the shape is right."""
    made = layout(raw, shapes, dtypes, page_bytes)
    return [
        each.as_strided(
            each.shape,
            (each.stride(0), max(each.stride(1) - 1, 0), *each.stride()[2:]),
            each.storage_offset(),
        )
        for each in made
    ]


def _block_bytes(shape: Any, dtype: Any) -> int:
    import torch

    return int(torch.Size(shape[1:]).numel()) * int(dtype.itemsize)


def _padding_unscaled(patch: Patch) -> None:
    """The plug-in leaves the indexer's states in the pages of blocks of 128 slots; the planner rejects the others."""
    from swa_retention.compressed.block_sizes import BlockSizes

    original = BlockSizes.page_bytes
    patch.setattr(
        BlockSizes,
        "page_bytes",
        lambda self, page_bytes: page_bytes if page_bytes == 128 * INDEXER_PAGE else original(self, page_bytes),
    )


def _states_unscaled(patch: Patch) -> None:
    """The plug-in gives the states of C128 blocks of half the slots."""
    from swa_retention.compressed.block_sizes import BlockSizes

    original = BlockSizes.state
    patch.setattr(BlockSizes, "state", lambda self, ratio: original(self, ratio) // (2 if ratio == 128 else 1))


def _layers_together(patch: Patch) -> None:
    """Two layers of a group have one tensor."""
    home: Any = importlib.import_module("vllm.v1.core.kv_cache_utils")
    original = home._get_kv_cache_config_deepseek_v4

    def _get_kv_cache_config_deepseek_v4(*given: Any) -> Any:
        blocks, tensors = original(*given)
        first = next(each for each in tensors if any(name.endswith(".attn") for name in each.shared_by))
        second = next(each for each in tensors if each is not first and each.size == first.size)
        moved = next(name for name in second.shared_by if name.endswith(".attn"))
        second.shared_by.remove(moved)
        first.shared_by.append(moved)
        return blocks, tensors

    patch.setattr(home, "_get_kv_cache_config_deepseek_v4", _get_kv_cache_config_deepseek_v4)


def _kernel_blocks(patch: Patch) -> None:
    """The back-end has the published sizes: blocks of 64 slots are divided in the block table alone."""
    backend: Any = importlib.import_module("vllm_ascend.attention.dsa_v1").AscendDSABackend
    # States have sizes that are not published.
    patch.setattr(backend, "get_supported_kernel_block_sizes", staticmethod(lambda: [4, 16, 32, 128]))


def _in_copies(broken: Callable[[list[Any]], list[Any]]) -> Callable[[Patch], None]:
    """A fault in which tensors of a group the plug-in copies."""

    def inject(patch: Patch) -> None:
        from swa_retention.copying import runner

        original = runner._look
        patch.setattr(runner, "_look", lambda *given: iter(broken(list(original(*given)))))

    return inject


def _a_slot_less(patch: Patch) -> None:
    from swa_retention.copying.layout import Layout

    original = Layout.slots_of
    patch.setattr(Layout, "slots_of", lambda self, tokens: original(self, tokens) - 1)


FAULTS: dict[str, Callable[[Patch], None]] = {
    "scales at the offset of the values": _in_layout(_scale_at_values),
    "scales without the stride of the page": _in_layout(_scales_together),
    "stride without the padding": _in_layout(_unpadded),
    "page of the values alone": _in_layout(_without_scales),
    "half the page": _in_layout(_half_pages),
    "half the slots": _in_layout(_half_blocks),
    "slots of an element less": _in_layout(_slots_of_one_element_less),
    "padding of the indexer's states of another block size": _padding_unscaled,
    "states of another block size": _states_unscaled,
    "two layers of a group in a tensor": _layers_together,
    "kernel blocks that are divided in the table alone": _kernel_blocks,
    "copies without scales": _in_copies(lambda found: [each for each in found if each[0].shape[-1] > 1]),
    "copies of all layers but the last": _in_copies(lambda found: found[:-1]),
    "copies of a slot too few": _a_slot_less,
}


def faults_found(system: str) -> dict[str, str | None]:
    """Inject each; its report, or None if it was not found."""
    found = dict[str, str | None]()
    for name, inject in FAULTS.items():
        with pytest.MonkeyPatch.context() as patch:
            inject(patch)
            try:
                compare(system, SLOTS, mtp=True)
            except WrongMemoryError as error:
                found[name] = str(error)
            else:
                found[name] = None
    return found


def main() -> None:
    """Print what was compared by block size, without the draft model's layer and with it, and what was found."""
    plug_in, ratios = "published" not in sys.argv, FLASH_RATIOS if "flash" in sys.argv else RATIOS
    system = prepare(plug_in=plug_in)
    faults = faults_found(system) if plug_in and ratios is RATIOS else {}
    # After the faults, so that one that was left in place is seen.
    sizes = (128, 64, 32) if plug_in else (128,)
    compared = {slots: [compare(system, slots, mtp=mtp, ratios=ratios) for mtp in (False, True)] for slots in sizes}
    print(json.dumps({"compared": compared, "faults": faults}))


if __name__ == "__main__":
    main()
