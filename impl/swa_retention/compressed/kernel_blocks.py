"""The block sizes that vLLM-Ascend lists for its kernels for compressed attention, and which of DeepSeek-V4's it lacks.

Read from the source of its back-end, which is not imported: that needs an NPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from attrs import asdict

from swa_retention.compressed.block_sizes import BLOCK_SIZES, BlockSizes
from swa_retention.unimported import file_of

SUPPORTED = "get_supported_kernel_block_sizes"
BACKEND = "vllm_ascend.attention.dsa_v1"
_GROUPS = {
    "mla": "compressed attention",
    "sliding_window": "sliding windows",
    "c4_state": "the state of C4 layers",
    "c128_state": "the state of C128 layers",
}


def installed_kernel_sizes() -> tuple[int, ...] | None:
    """The sizes of the vLLM-Ascend that is installed; None if there is none, or its source does not list them."""
    file = file_of(BACKEND)
    return None if file is None else sizes_in(file.read_text(encoding="utf-8"))


def sizes_in(source: str) -> tuple[int, ...] | None:
    """The sizes that a back-end's source lists; None if it lists none, or several back-ends have sizes of their own."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == SUPPORTED
    ]
    if len(functions) != 1:
        return None
    (returned, *others) = [node.value for node in ast.walk(functions[0]) if isinstance(node, ast.Return)]
    try:
        sizes = None if others or returned is None else ast.literal_eval(returned)
    except ValueError:
        return None
    return tuple(sizes) if isinstance(sizes, list) and all(isinstance(each, int) for each in sizes) else None


READ = (
    "npu_sparse_attn_sharedkv, npu_quant_lightning_indexer and compressor take them by their source, which was not run "
    "on an NPU"
)


def not_taken(sizes: BlockSizes, kernel_sizes: Sequence[int]) -> Iterator[str]:
    """The groups whose blocks vLLM-Ascend says that no kernel takes as they are.

    A block that is a multiple of a smaller kernel block is left out too: vLLM-Ascend divides the block table, and makes
    the memory for the block as it is.
    """
    for field, group in _GROUPS.items():
        slots = asdict(sizes)[field]
        if slots not in kernel_sizes:
            yield f"{slots} slots in {group}"


def describe(kernel_sizes: Sequence[int]) -> Iterator[str]:
    """For each block size, whether vLLM-Ascend lists the kernels' blocks for it, or this plug-in does."""
    for slots, sizes in sorted(BLOCK_SIZES.items()):
        why = ", ".join(not_taken(sizes, kernel_sizes))
        yield f"compressed blocks of {slots} slots: " + (
            f"added by this plug-in, for vLLM-Ascend lists none of {why}; {READ}" if why else "supported"
        )
