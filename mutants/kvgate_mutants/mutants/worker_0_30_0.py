"""Mutants of the worker of vLLM-Ascend 0.30.0rc2, where it differs from that of 0.23.0.

One kernel maps the slots of all groups, and the metadata of all rows is built in one piece.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_TABLES = "vllm_ascend.worker.block_table"
_DSA = "vllm_ascend.attention.dsa_v1"
_COMPRESSOR = "vllm_ascend.models.deepseek_v4.compressor:Compressor"
_BUILDER = f"{_DSA}:AscendDSAMetadataBuilder"


def _of_step() -> dict[Any, Any]:
    """What layers may keep for each other within a step."""
    context: Any = import_module("vllm.forward_context")
    kept: dict[Any, Any] = context.get_forward_context().additional_kwargs
    return kept


@breaks(f"{_TABLES}:compute_slot_mapping_fused_groups", violates="KV-MEM-03")
def positions_of_all_groups_one_late(original: Any, *arguments: Any, **named: Any) -> Any:
    """In every group each token is written where the next one belongs."""
    *before, positions = arguments[:6]
    return original(*before, positions + 1, *arguments[6:], **named)


@breaks(f"{_TABLES}:compute_slot_mapping_fused_groups", violates="KV-MEM-03")
def groups_are_not_mapped(_original: Any, *_arguments: Any, **_named: Any) -> Any:
    """The kernel that maps the slots of all groups is not called."""


@breaks(f"{_DSA}:AscendDSAC128StateBackend.get_supported_kernel_block_sizes", violates="KV-SYS-01")
def states_of_128_tokens_have_the_kernels_of_windows(_original: Any) -> list[int]:
    """The back-end of one kind of states lists the kernel block sizes of another back-end."""
    return [32, 64, 128]


@breaks(f"{_BUILDER}._num_compressor_metadata_rows", violates="KV-MEM-03")
def no_room_for_slots_that_rows_complete(original: Any, self: Any, rows: int) -> Any:
    """There is room for slots that lie within the step alone, and none for those that it completes."""
    return original(self, rows) - rows


@breaks(f"{_DSA}:get_storage_block_size", violates="KV-MEM-03")
def slots_are_found_in_blocks_of_tokens(_original: Any, spec: Any) -> Any:
    """Where blocks are counted in slots, tokens are counted."""
    return spec.block_size


@breaks(f"{_BUILDER}.build", violates="KV-SYS-03")
def slots_are_found_for_all_but_the_last_row(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The last row counts as one that fills the batch."""
    return original(self, *arguments, **{**named, "num_actual_reqs": named["num_actual_reqs"] - 1})


@breaks(f"{_BUILDER}.build_req_metadata", violates="KV-SYS-03")
def rows_start_where_they_end(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Compressors take the tokens of the step for computed."""
    built = original(self, *arguments, **named)
    built.start_pos = built.seq_lens
    return built


@breaks(f"{_DSA}:get_cos_and_sin_dsa", violates="KV-SYS-03")
def tokens_are_turned_as_the_next_ones(original: Any, positions: Any, *arguments: Any, **named: Any) -> Any:
    """Each token gets the rotary embedding of the one before it."""
    return original((positions - 1).clamp(min=0), *arguments, **named)


@breaks(f"{_DSA}:split_decodes_and_prefills", violates="KV-SYS-03")
def long_rows_decode(original: Any, metadata: Any, decode_threshold: int) -> Any:
    """Rows of up to sixteen tokens decode, as if there were fifteen drafts."""
    return original(metadata, decode_threshold=max(16, decode_threshold))


@breaks(
    f"{_DSA}:split_decodes_and_prefills",
    violates="KV-SYS-03",
    models=("dsv4-flash-ascend-32+mtp+whole-slots",),
    needs=("drafts",),
)
def drafts_are_built_as_prompts(original: Any, metadata: Any, decode_threshold: int) -> Any:
    """Rows that verify drafts are built as prompts, as if there was no speculation."""
    return original(metadata, decode_threshold=min(1, decode_threshold))


@breaks(f"{_COMPRESSOR}._compute_metadata", violates="KV-MEM-03")
def compressors_have_half_their_ratio(original: Any, self: Any, metadata: Any) -> Any:
    """The operator that finds slots is given half of the layer's ratio."""
    return original(SimpleNamespace(compress_ratio=self.compress_ratio // 2, vllm_config=self.vllm_config), metadata)


@breaks(f"{_BUILDER}.build_req_metadata", violates="KV-SYS-03")
def groups_share_the_slots_that_are_found(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """What the operator returns is kept with one key for all groups."""
    built = original(self, *arguments, **named)
    built.cache_group_key = "layers"
    return built


@breaks(f"{_DSA}:get_or_compute_compressor_metadata", violates="KV-SYS-03")
def compressors_read_the_table_of_the_first_group(
    original: Any, metadata: Any, compress_ratio: int, vllm_config: Any
) -> Any:
    """The operator that finds slots is given the block table of the group whose layer is the first one of the step."""
    table = _of_step().setdefault("table", metadata.block_table)
    return original(replace(metadata, block_table=table), compress_ratio, vllm_config)
