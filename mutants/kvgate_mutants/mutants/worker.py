"""Mutants of vLLM-Ascend's worker: of its block tables, its slot mappings, and the batch that they belong to."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_TABLE = "vllm_ascend.worker.block_table:BlockTable"
_TABLES = "vllm_ascend.worker.block_table:MultiGroupBlockTable"
_RUNNER = "vllm_ascend.worker.model_runner_v1"
_BATCH = "vllm.v1.worker.gpu_input_batch:InputBatch"
_BUILDER = "vllm_ascend.attention.dsa_v1:AscendDSAMetadataBuilder"
_SPLIT = "vllm_ascend.attention.dsa_v1:split_decodes_and_prefills"
_STATES = "vllm.v1.worker.gpu_model_runner:GPUModelRunner._update_states"

# Block tables


@breaks(f"{_TABLE}.append_row", violates="KV-SYS-03")
def blocks_appended_over_the_last(original: Any, self: Any, block_ids: Any, row: int) -> Any:
    """Further blocks of a request are written from its last block on."""
    if block_ids and self.num_blocks_per_row[row]:
        self.num_blocks_per_row[row] -= 1
    return original(self, block_ids, row)


@breaks(f"{_TABLE}.add_row", violates="KV-SYS-03")
def row_keeps_the_blocks_of_the_request_before(_original: Any, self: Any, block_ids: Any, row: int) -> Any:
    """A new request's blocks come after those of the request that had its row before."""
    return self.append_row(block_ids, row)


@breaks(f"{_TABLE}.append_row", violates="KV-SYS-03")
def single_blocks_are_not_appended(original: Any, self: Any, block_ids: Any, row: int) -> Any:
    """Where a request gets one further block, its row stays as it is."""
    return None if len(block_ids) == 1 and self.num_blocks_per_row[row] else original(self, block_ids, row)


@breaks(f"{_TABLE}.move_row", violates="KV-SYS-03")
def last_block_is_not_moved(original: Any, self: Any, source: int, target: int) -> Any:
    """If a request moves to another row, its last block stays in the old one."""
    last = self.num_blocks_per_row[source] - 1
    kept = self.block_table.np[target, last]
    original(self, source, target)
    self.block_table.np[target, last] = kept


@breaks(f"{_TABLE}.swap_row", violates="KV-SYS-03", needs=("chunks",))
def lengths_are_not_swapped(original: Any, self: Any, source: int, target: int) -> Any:
    """Where two requests change rows, each row keeps its number of blocks."""
    lengths = self.num_blocks_per_row.copy()
    original(self, source, target)
    self.num_blocks_per_row[:] = lengths


@breaks(f"{_TABLE}.commit_block_table", violates="KV-SYS-03")
def last_row_is_not_committed(original: Any, self: Any, rows: int) -> Any:
    """The device keeps what it had in the last row."""
    return original(self, rows - 1)


@breaks(f"{_TABLES}.append_row", violates="KV-SYS-03")
def windows_change_places(original: Any, self: Any, block_ids: Any, row: int) -> Any:
    """The last two groups get each other's further blocks."""
    *others, first, second = block_ids
    return original(self, (*others, second, first), row)


@breaks(f"{_RUNNER}:select_common_block_size", violates="KV-SYS-01")
def kernel_blocks_twice_as_large(original: Any, size: int, backends: Any) -> Any:
    """A kernel's blocks are taken to be twice as large as the block manager's."""
    return 2 * original(size, backends)


# Slots


@breaks(f"{_TABLE}.compute_slot_mapping_draft", violates="KV-MEM-03")
def slots_one_late(original: Any, self: Any, rows: Any, positions: Any) -> Any:
    """Each token is written where the next one belongs."""
    return original(self, rows, positions + 1)


@breaks(f"{_TABLE}.compute_slot_mapping_draft", violates="KV-MEM-03")
def slots_of_the_first_block(original: Any, self: Any, rows: Any, positions: Any) -> Any:
    """Each token is written to the first block of its request."""
    return original(self, rows, positions % self.block_size)


@breaks(f"{_TABLE}.compute_slot_mapping_draft", violates="KV-MEM-03")
def slots_by_the_rows_in_reverse(original: Any, self: Any, rows: Any, positions: Any) -> Any:
    """The tokens of the first request are looked up in the table of the last one, and so on."""
    return original(self, rows.max() - rows if len(rows) else rows, positions)


@breaks(f"{_TABLE}.compute_slot_mapping_draft", violates="KV-MEM-03")
def stride_of_one_slot_more(original: Any, self: Any, rows: Any, positions: Any) -> Any:
    """Blocks are taken to be a slot further apart in memory than they are."""
    original(self, rows, positions)
    written = self.slot_mapping.np[: len(rows)]
    written += written // self.block_size
    self.slot_mapping.copy_to_gpu(len(rows))


@breaks(f"{_TABLES}.compute_slot_mapping", violates="KV-MEM-03")
def all_groups_by_the_slots_of_the_first(
    original: Any, self: Any, requests: int, starts: Any, positions: Any, compressed: Any = None, rows: Any = None
) -> Any:
    """Every group is mapped by the compress ratio of the first one."""
    if compressed:
        compressed, rows = [compressed[0]] * len(compressed), [rows[0]] * len(rows)
    return original(self, requests, starts, positions, compressed, rows)


@breaks(f"{_RUNNER}:get_compressed_pos_and_indices", violates="KV-MEM-03")
def slots_written_before_they_are_complete(original: Any, computed: Any, scheduled: Any, *others: Any) -> Any:
    """A slot is written with the token before its last one."""
    return original(computed + 1, scheduled, *others)


@breaks(f"{_RUNNER}:get_compressed_pos_and_indices", violates="KV-MEM-03")
def slots_begun_are_written(original: Any, computed: Any, scheduled: Any, *others: Any) -> Any:
    """A step writes a token more than it computes."""
    return original(computed, scheduled + 1, *others)


@breaks(f"{_STATES}", violates="KV-MEM-03", models=("compressed-8-slots+mtp+whole-slots",), needs=("drafts",))
def rejected_draft_counts_as_computed(original: Any, self: Any, output: Any) -> Any:
    """Of the drafts that were rejected, one counts as computed: the next step writes a slot further."""
    known = output.scheduled_cached_reqs
    for index, name in enumerate(known.req_ids):
        before, batch = self.requests.get(name), self.input_batch
        if before is not None and name in batch.req_id_to_index:
            drafted = len(batch.spec_token_ids[batch.req_id_to_index[name]])
            accepted = known.num_computed_tokens[index] - before.num_computed_tokens
            known.num_computed_tokens[index] += 0 < accepted <= drafted
    return original(self, output)


# The batch


@breaks(f"{_BATCH}.condense", violates="KV-SYS-03")
def condensed_without_block_tables(original: Any, self: Any) -> Any:
    """Where rows are condensed, the block tables stay where they were."""
    self.block_table.move_row = lambda *_rows: None
    try:
        return original(self)
    finally:
        del self.block_table.move_row


@breaks(f"{_BATCH}.swap_states", violates="KV-SYS-03", needs=("chunks",))
def swapped_without_block_tables(original: Any, self: Any, first: int, second: int) -> Any:
    """Where two requests change rows, the block tables stay where they were."""
    self.block_table.swap_row = lambda *_rows: None
    try:
        return original(self, first, second)
    finally:
        del self.block_table.swap_row


@breaks(f"{_STATES}", violates="KV-SYS-03")
def resumed_requests_keep_the_blocks_they_lost(original: Any, self: Any, output: Any) -> Any:
    """The blocks of a request that was preempted are followed by those that it has when it runs again."""
    known = output.scheduled_cached_reqs
    resumed, known.resumed_req_ids = known.resumed_req_ids, set()
    try:
        return original(self, output)
    finally:
        known.resumed_req_ids = resumed


# Memory


@breaks(f"{_RUNNER}:select_common_block_size", violates="KV-MEM-03")
def kernel_blocks_of_eight_slots(_original: Any, _size: int, _backends: Any) -> int:
    """A kernel's blocks are taken to have eight slots, and not what the memory was made for."""
    return 8


@breaks(f"{_RUNNER}:NPUModelRunner._adjust_kv_layout", violates="KV-MEM-03")
def blocks_overlap(original: Any, self: Any, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> Any:
    """Blocks are half as far apart in memory as they are large."""
    return original(self, raw, shapes, dtypes, page_bytes // 2)


@breaks(f"{_RUNNER}:NPUModelRunner._adjust_kv_layout", violates="KV-MEM-03")
def slots_of_twice_the_bytes(original: Any, self: Any, raw: Any, shapes: Any, dtypes: Any, page_bytes: int) -> Any:
    """Slots are twice as far apart in memory as they are large."""
    views = original(self, raw, shapes, dtypes, page_bytes)
    return [view.as_strided(view.shape, (view.stride(0), 2 * view.stride(1), *view.stride()[2:])) for view in views]


@breaks(f"{_RUNNER}:NPUModelRunner._allocate_kv_cache_tensors", violates="KV-SYS-01")
def memory_of_a_block_less(original: Any, self: Any, config: Any) -> Any:
    """The memory has a block less than the block manager."""
    raw = original(self, config)
    return {name: tensor[: tensor.numel() - tensor.numel() // config.num_blocks] for name, tensor in raw.items()}


# Attention metadata


@breaks(f"{_BUILDER}.build", violates="KV-MEM-03")
def slots_in_blocks_of_the_published_size(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Attention looks for each slot in blocks of 128 slots."""
    return original(self, *arguments, **{**named, "block_size": 128})


@breaks(f"{_BUILDER}.build_prefill_metadata", violates="KV-MEM-03")
def prompts_write_where_decodes_do(original: Any, self: Any, *arguments: Any) -> Any:
    """Prompts get the slots from the first one of the step on, which are those of requests that decode."""
    built = original(self, *arguments)
    built.slot_mapping = self.slot_mapping[: len(built.slot_mapping)]
    return built


@breaks(f"{_BUILDER}.build_prefill_metadata", violates="KV-SYS-03")
def prompts_read_the_tables_of_the_first_rows(original: Any, self: Any, *arguments: Any) -> Any:
    """Prompts get the block tables from the first row on, which are those of requests that decode."""
    built = original(self, *arguments)
    built.block_table = self.block_table[: len(built.seq_lens)]
    return built


@breaks(f"{_BUILDER}.build_decode_metadata", violates="KV-SYS-03")
def decodes_start_a_token_late(original: Any, self: Any, *arguments: Any) -> Any:
    """Compressors take the state of one token more than was computed."""
    built = original(self, *arguments)
    built.start_pos = built.start_pos + 1
    return built


@breaks(f"{_SPLIT}", violates="KV-SYS-03", models=("compressed-8-slots+mtp+whole-slots",), needs=("drafts",))
def drafts_are_verified_by_prompts(original: Any, metadata: Any, decode_threshold: int) -> Any:
    """Rows that verify drafts are built as prompts, as if there was no speculation."""
    return original(metadata, decode_threshold=min(1, decode_threshold))


@breaks(f"{_SPLIT}", violates="KV-SYS-03")
def rows_of_one_token_are_prompts(original: Any, metadata: Any, **_threshold: int) -> Any:
    """No row decodes."""
    return original(metadata, decode_threshold=0)


@breaks(f"{_SPLIT}", violates="KV-SYS-03")
def short_prompts_decode(original: Any, metadata: Any, decode_threshold: int) -> Any:
    """Rows of up to sixteen tokens decode, as if there were fifteen drafts."""
    return original(metadata, decode_threshold=max(16, decode_threshold))


@breaks(f"{_BUILDER}.build_prefill_metadata", violates="KV-SYS-03")
def prompts_begin_anew(original: Any, self: Any, *arguments: Any) -> Any:
    """The positions of a prompt are counted from the first token that the step computes."""
    built = original(self, *arguments)
    built.input_positions = built.input_positions - built.input_positions.min()
    return built


# Attention without compression: with keys and values, latent, and latent and sparse

_ATTENTION = "vllm_ascend.attention.{0}_v1:Ascend{1}MetadataBuilder"
_KEYS_AND_VALUES, _LATENT, _SPARSE = (
    _ATTENTION.format(*names) for names in (("attention", "Attention"), ("mla", "MLA"), ("sfa", "SFA"))
)
_MODEL = ("blocks-of-128+eagle",)


@breaks(f"{_KEYS_AND_VALUES}.build", violates="KV-SYS-03", models=_MODEL)
def keys_are_read_up_to_the_token_before(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Attention reads one token less of each request than there are."""
    built = original(self, *arguments, **named)
    built.seq_lens = built.seq_lens - 1
    return built


@breaks(f"{_KEYS_AND_VALUES}.build", violates="KV-MEM-03", models=_MODEL)
def keys_are_written_a_slot_late(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Attention writes each token where the next one belongs."""
    built = original(self, *arguments, **named)
    built.slot_mapping = built.slot_mapping + 1
    return built


@breaks(f"{_LATENT}.build_prefill_metadata", violates="KV-SYS-03", models=_MODEL)
def latent_prompts_read_the_tables_of_the_first_rows(original: Any, self: Any, *arguments: Any) -> Any:
    """Prompts get the block tables from the first row on, which are those of requests that decode."""
    built = original(self, *arguments)
    built.block_table = self.block_table[: len(built.context_lens)]
    return built


@breaks(f"{_LATENT}.build_chunked_metadata", violates="KV-SYS-03", models=_MODEL)
def latent_prompts_have_no_context(_original: Any, _self: Any, *_arguments: Any) -> Any:
    """What was computed of a prompt before the step is not read."""


@breaks(f"{_LATENT}.build_decode_metadata", violates="KV-SYS-03", models=_MODEL)
def latent_decodes_end_a_token_late(original: Any, self: Any, *arguments: Any) -> Any:
    """Decodes read one token more than there are."""
    built = original(self, *arguments)
    built.seq_lens = built.seq_lens + 1
    return built


@breaks(f"{_SPARSE}.build", violates="KV-SYS-03", models=_MODEL)
def sparse_rows_change_places(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The first row reads by the block table of the last one, and so on."""
    built = original(self, *arguments, **named)
    built.block_table = built.block_table.flip(0)
    return built


@breaks(f"{_SPARSE}.build", violates="KV-SYS-03", models=_MODEL)
def sparse_tokens_are_turned_as_the_next_ones(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Each token gets the rotary embedding of the one before it."""
    built = original(self, *arguments, **named)
    built.sin = built.sin.roll(1, 0)
    return built
