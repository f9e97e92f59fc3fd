"""Mutants of the worker of vLLM-Ascend 0.23.0, where it differs from that of 0.20.2rc1: slot mapping and metadata."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_TABLE = "vllm_ascend.worker.block_table:BlockTable"
_DSA = "vllm_ascend.attention.dsa_v1"
_LAYER = f"{_DSA}:AscendDSAImpl"
_BUILDER = f"{_DSA}:AscendDSAMetadataBuilder"


def _of_step() -> dict[Any, Any]:
    """What layers may keep for each other within a step."""
    context: Any = import_module("vllm.forward_context")
    kept: dict[Any, Any] = context.get_forward_context().additional_kwargs
    return kept


@breaks(f"{_TABLE}.compute_slot_mapping", violates="KV-MEM-03")
def slots_of_the_row_before(original: Any, self: Any, rows: int, starts: Any, positions: Any) -> Any:
    """The slots of each request are looked up in the table of the row before."""
    table = self.block_table.gpu
    self.block_table.gpu = table.roll(1, 0)
    try:
        return original(self, rows, starts, positions)
    finally:
        self.block_table.gpu = table


@breaks(f"{_TABLE}.compute_slot_mapping", violates="KV-MEM-03")
def last_token_is_not_mapped(original: Any, self: Any, rows: int, starts: Any, positions: Any) -> Any:
    """The last token of a step is not written."""
    return original(self, rows, starts.clamp(max=len(positions) - 1), positions)


@breaks(f"{_BUILDER}._num_compressor_metadata_rows", violates="KV-MEM-03")
def no_room_for_slots_begun_before(original: Any, self: Any, *arguments: Any) -> Any:
    """There is room for slots that lie within the step alone, and none for those that it completes."""
    return original(self, *arguments) - self.num_prefills - self.num_decodes


@breaks(f"{_BUILDER}.build", violates="KV-MEM-03")
def slots_are_found_in_blocks_of_the_default_size(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The operator that finds slots gets blocks of 128 slots, and not their real size."""
    return original(self, *arguments, **{**named, "block_size": 128})


@breaks(f"{_BUILDER}.build", violates="KV-SYS-03")
def slots_are_found_for_a_row_less(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The last row counts as one that fills the batch."""
    return original(self, *arguments, **{**named, "num_reqs_actual": named["num_reqs_actual"] - 1})


@breaks(f"{_BUILDER}.build_prefill_metadata", violates="KV-MEM-03")
def prompts_write_the_slots_of_decodes(original: Any, self: Any, *arguments: Any) -> Any:
    """Prompts get the slots from the first one of the step on, which are those of requests that decode."""
    built = original(self, *arguments)
    if built.slot_mapping is not None:
        built.slot_mapping = self.slot_mapping[: len(built.slot_mapping)]
    return built


@breaks(f"{_BUILDER}.build_decode_metadata", violates="KV-SYS-03")
def decodes_start_where_they_end(original: Any, self: Any, *arguments: Any) -> Any:
    """Compressors take the tokens of the step for computed."""
    built = original(self, *arguments)
    built.start_pos = built.seq_lens
    return built


@breaks(
    f"{_DSA}:split_decodes_and_prefills",
    violates="KV-SYS-03",
    models=("compressed-8-slots+mtp+whole-slots",),
    needs=("drafts",),
)
def verified_drafts_are_prompts(original: Any, metadata: Any, decode_threshold: int) -> Any:
    """Rows that verify drafts are built as prompts, as if there was no speculation."""
    return original(metadata, decode_threshold=min(1, decode_threshold))


def _of_layer(self: Any, ratio: int) -> Any:
    """A layer as ``self`` is, with another ratio."""
    return SimpleNamespace(**{**vars(self), "compress_ratio": ratio})


@breaks(f"{_LAYER}._compute_compressor_metadata", violates="KV-MEM-03")
def slots_are_found_with_half_the_ratio(original: Any, self: Any, metadata: Any) -> Any:
    """The operator that finds slots is given half of the layer's ratio."""
    return original(_of_layer(self, self.compress_ratio // 2), metadata)


@breaks(f"{_LAYER}._compute_compressor_metadata", violates="KV-SYS-03")
def slots_are_found_in_the_table_of_the_first_group(original: Any, self: Any, metadata: Any) -> Any:
    """The operator that finds slots is given the block table of the group whose layer is the first one of the step."""
    kept = _of_step()
    table = kept.setdefault(("table", type(metadata)), metadata.block_table)
    return original(self, replace(metadata, block_table=table))


@breaks(f"{_LAYER}._compute_compressor_metadata", violates="KV-SYS-03")
def slots_are_found_once_for_all_groups(original: Any, self: Any, metadata: Any) -> Any:
    """What the operator returns is kept for the layers of all groups, and not of one."""
    kept = _of_step()
    key = ("slots", type(metadata))
    if key not in kept:
        kept[key] = original(self, metadata)
    return kept[key]


@breaks(f"{_LAYER}._compute_compressor_metadata", violates="KV-SYS-03")
def slots_are_found_a_token_late(original: Any, self: Any, metadata: Any) -> Any:
    """The operator that finds slots takes each row to begin a token after it does."""
    return original(self, replace(metadata, query_start_loc=metadata.query_start_loc + 1))


@breaks("vllm_ascend.device.device_op:DeviceOperator.get_dsa_compressor_slot_mapping_format", violates="KV-MEM-03")
def slots_are_found_as_numbers(_original: Any) -> int:
    """The operator returns the numbers of slots, where caches are written by blocks and slots of them."""
    return 1


@breaks(f"{_DSA}:get_full_cos_and_sin_dsa", violates="KV-SYS-03")
def compressed_tokens_are_turned_as_the_next_ones(original: Any, group: str) -> Any:
    """The operator that finds slots is given rotary tables without position 0."""
    return tuple(table[1:] for table in original(group))
