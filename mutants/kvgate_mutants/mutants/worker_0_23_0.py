"""Mutants of the worker of vLLM-Ascend 0.23.0, where it differs from that of 0.20.2rc1: slot mapping and metadata."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_TABLE = "vllm_ascend.worker.block_table:BlockTable"
_DSA = "vllm_ascend.attention.dsa_v1"
_BUILDER = f"{_DSA}:AscendDSAMetadataBuilder"


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
    """The operator that finds slots is given blocks of 128 slots, whatever size they have."""
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
