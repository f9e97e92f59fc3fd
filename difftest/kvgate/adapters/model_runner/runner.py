"""A published model runner, fed with the scheduler's outputs: the block tables and slot mappings that it computes.

The runner is not constructed, because that loads a model: it is given the fields that its constructor would set. Then
its own methods choose kernel block sizes, make and shape tensors, update the batch and prepare each step. Nothing here
says what a table or a slot should be: that is ``kvreference.slots``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

from attrs import evolve, frozen

from kvgate.adapters.ascend_wheel import PACKAGE, ascend_folder, check_folder, enter, import_patches
from kvgate.adapters.device.npu import CPU, used_device
from kvgate.adapters.groups import spec_compress_ratio
from kvgate.adapters.model_runner import stand_ins
from kvgate.adapters.model_runner.compressor import OperatorInput
from kvgate.adapters.releases import ASCEND
from kvgate.adapters.releases.description import Release

LAYER = "layers.{}.attn"
"""What the layer of a group is called."""


@frozen
class Tensor:
    """A view of a group's memory, as kernels get it."""

    blocks: int
    block_slots: int
    """How many slots a block has."""
    block_bytes: int
    """From a block to the next one."""
    slot_bytes: int
    """From a slot to the next one of its block."""
    first_byte: int
    """From the begin of the memory."""

    def byte(self, block: int, slot: int, block_slots: int) -> int:
        """Where a slot begins of one of the block manager's blocks, which have ``block_slots`` slots."""
        kernel_block, offset = divmod(block * block_slots + slot, self.block_slots)
        return self.first_byte + kernel_block * self.block_bytes + offset * self.slot_bytes


@frozen
class Memory:
    """The memory of a group, as the worker made it."""

    blocks: int
    """How many blocks the block manager has."""
    total_bytes: int
    tensors: tuple[Tensor, ...]


@frozen
class Part:
    """What an attention back-end is given of some rows of the batch: of those that decode, of the others, or of all."""

    slots: tuple[tuple[int, int], ...] | None
    """Where the step writes, row after row: a kernel block, and a slot of it. Then what fills the buffer: block -1.

    None where an operator finds them in the tables.
    """
    tables: tuple[tuple[int, ...], ...]
    """By row: the kernel blocks, and what follows them up to the end of the row."""
    starts: tuple[int, ...] | None
    """By row: how many tokens were computed before the step; None where a back-end is given their ends alone."""
    ends: tuple[int, ...]
    """By row: how many there are after it."""
    offsets: tuple[int, ...]
    """By row, and for the row after the last one: how many tokens the rows before it compute."""
    positions: tuple[int, ...] | None
    """Where in its request each token is that the step computes, row after row; None where no back-end needs it."""
    decodes: int | None
    """How many rows, from the first one on, are built as decodes, which may verify drafts; the others as prompts.

    None where a back-end makes no difference.
    """
    finds: tuple[int, int, int] | None = None
    """What an operator is given to find slots in the tables: the slots of a block, in how many rows, and for how many
    slots there is room; None if the release has no such operator."""
    found: OperatorInput | None = None
    """What the published caller passes to that operator."""


@frozen
class Prepared:
    """What a worker has computed for one step."""

    requests: tuple[str, ...]
    """By row of the batch."""
    kernel_block_sizes: tuple[int, ...]
    """By group: how many slots a kernel block has."""
    tables: tuple[tuple[tuple[int, ...], ...], ...]
    """By group and row: the kernel blocks that the block table names."""
    slots: tuple[tuple[int, ...] | None, ...]
    """By group: the slots that are written, row after row, and what follows them up to the end of the buffer; None
    where an operator computes them."""
    cleared: tuple[tuple[int, ...], ...] | None = None
    """By group: the blocks whose memory was cleared; None where that was not looked at."""
    touched: frozenset[int] = frozenset()
    """The blocks of which anything was cleared."""
    metadata: tuple[tuple[Part, ...], ...] = ()
    """By group: what its attention back-ends are given, one after the other, of the rows in their order; empty where
    none was built."""
    memories: tuple[tuple[bytes, bytes], ...] = ()
    """By group: its memory before the step's copies and after them; empty where a step has none."""


@frozen
class Rank:
    """A worker among those that share the context of each request."""

    rank: int = 0
    ranks: int = 1
    interleave: int = 1
    """How many tokens in a row one of them has."""


class Worker:
    """The model runner of vLLM 0.20.2."""

    kernels: ClassVar[tuple[str, ...]] = ("vllm.v1.worker.block_table:_compute_slot_mapping_kernel",)
    """The kernels that are interpreted."""

    def __init__(self, scheduler: Any, drafts_max: int, rank: Rank | None = None) -> None:
        from vllm.config import set_current_vllm_config

        rank = rank or Rank()
        set_ranks(rank)
        if used_device() == CPU:
            for kernel in self.kernels:
                stand_ins.interpret(*kernel.split(":"))
        self.config = SimpleNamespace(num_blocks=scheduler.kv_cache_config.num_blocks, kv_cache_tensors=[])
        # vLLM-Ascend looks for "attn" in a layer's name.
        self.config.kv_cache_groups = [
            type(group)([LAYER.format(index)], group.kv_cache_spec)
            for index, group in enumerate(scheduler.kv_cache_config.kv_cache_groups)
        ]
        self.memory: tuple[Memory, ...] = ()
        """By group; empty where no tensors are made."""
        self._raw: tuple[Any, ...] = ()
        self.views: list[Any] = []
        """By group: its memory, by block; empty where no blocks are cleared."""
        self.runner = self._bare(scheduler, drafts_max, rank)
        with set_current_vllm_config(scheduler.vllm_config):
            self._start()

    # What differs between vLLM and vLLM-Ascend

    def _kind(self) -> type[Any]:
        kind: type[Any] = importlib.import_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
        return kind

    def _backend(self) -> type[Any]:
        """The attention back-end: the one of vLLM's CPU platform."""
        backend: type[Any] = importlib.import_module("vllm.v1.attention.backends.cpu_attn").CPUAttentionBackend
        return backend

    def _backends_of(self, spec: Any) -> tuple[type[Any], ...]:
        """The back-ends of a group: those of its layers."""
        del spec
        return (self._backend(),)

    def _start(self) -> None:
        """Choose kernel block sizes, and make the batch."""
        prepare = importlib.import_module("vllm.v1.worker.utils").prepare_kernel_block_sizes
        sizes = prepare(self.config, self.runner.attn_groups)
        self.runner.may_reinitialize_input_batch(self.config, sizes)
        self.kernel_block_sizes = tuple(sizes)

    # What does not

    def step(self, output: Any, fresh: Collection[int] = (), *, copies: bool = False) -> Prepared | None:
        """Take in a step's output and prepare its inputs; None if it computes nothing. ``copies``: it has copies.

        Where it can clear blocks, it is to clear the ``fresh`` ones, as if caches had several precisions.
        """
        import numpy as np

        runner = self.runner
        for view in self.views:
            view.fill_(1)
        if self.views:
            output.new_block_ids_to_zero = list(fresh)
        before = self._bytes() if copies else ()
        runner._update_states(output)
        after = self._bytes() if copies else ()
        if not output.total_num_scheduled_tokens:
            return None
        batch = runner.input_batch
        names = tuple(batch.req_ids)
        counts = np.array([output.num_scheduled_tokens[name] for name in names], dtype=np.int32)
        for table in batch.block_table.block_tables:
            # What a step leaves unwritten is seen.
            table.slot_mapping.cpu.fill_(UNWRITTEN)
            table.slot_mapping.gpu.fill_(UNWRITTEN)
        inputs = runner._prepare_inputs(output, counts)
        prepared = prepared_by(runner)
        mapped = (
            slots if self._maps(group.kv_cache_spec) else None
            for slots, group in zip(prepared.slots, self.config.kv_cache_groups, strict=True)
        )
        cleared, touched = self._cleared()
        return evolve(
            prepared,
            kernel_block_sizes=self.kernel_block_sizes,
            slots=tuple(mapped),
            cleared=cleared,
            touched=touched,
            metadata=self._metadata(counts, inputs),
            memories=tuple(zip(before, after, strict=True)),
        )

    def _metadata(self, counts: Any, inputs: Any) -> tuple[tuple[Part, ...], ...]:
        """What attention back-ends are given of a step, of which the rows compute ``counts`` tokens."""
        del counts, inputs
        return ()

    def _maps(self, spec: Any) -> bool:
        """Whether the runner maps a group's tokens to slots, and not an operator from the block table."""
        del spec
        return True

    def _cleared(self) -> tuple[tuple[tuple[int, ...], ...] | None, frozenset[int]]:
        """By group the blocks that are zero, None where that is not looked at; and all that are zero in part."""
        if not self.views:
            return None, frozenset()
        zero = [(view == 0).flatten(1) for view in self.views]
        touched = frozenset(block for each in zero for block in each.any(1).nonzero().flatten().tolist())
        return tuple(tuple(each.all(1).nonzero().flatten().tolist()) for each in zero), touched

    def _bytes(self) -> tuple[bytes, ...]:
        """The memory of each group."""
        return tuple(raw.cpu().numpy().tobytes() for raw in self._raw)

    def _bare(self, scheduler: Any, drafts_max: int, rank: Rank) -> Any:
        """A runner with the fields that its constructor would set."""
        import numpy as np
        import torch
        from vllm.v1.sample.logits_processor import LogitsProcessors
        from vllm.v1.worker.utils import AttentionGroup

        kind, config = self._kind(), scheduler.vllm_config
        # Releases have it in different modules.
        late_interaction: Any = importlib.import_module("vllm.v1.worker.gpu_model_runner").LateInteractionRunner
        runner: Any = object.__new__(kind)
        tokens, requests = config.scheduler_config.max_num_batched_tokens, config.scheduler_config.max_num_seqs
        fields = {
            "vllm_config": config,
            "model_config": config.model_config,
            "cache_config": config.cache_config,
            "scheduler_config": config.scheduler_config,
            "compilation_config": config.compilation_config,
            "parallel_config": config.parallel_config,
            "offload_config": config.offload_config,
            "speculative_config": config.speculative_config,
            "lora_config": None,
            "device": torch.device(used_device()),
            "pin_memory": False,
            "dtype": torch.float32,
            "max_num_tokens": tokens,
            "max_num_reqs": requests,
            "max_model_len": config.model_config.max_model_len,
            "max_encoder_len": 0,
            "num_spec_tokens": drafts_max,
            "kv_cache_config": self.config,
            "runner_only_attn_layers": set(),
            "shared_kv_cache_layers": {},
            "requests": {},
            "num_prompt_logprobs": {},
            "encoder_cache": {},
            "late_interaction_runner": late_interaction(),
            "reorder_batch_threshold": None,
            "num_accepted_tokens_event": None,
            "valid_sampled_token_count_gpu": None,
            "_draft_token_ids": None,
            "mamba_prev_last_scheduled_idx": None,
            "mamba_state_idx": {},
            "uses_xdrope_dim": 0,
            **dict.fromkeys(
                (
                    *("use_async_spec_decode", "use_async_scheduling", "is_pooling_model", "uses_mrope"),
                    *("is_multimodal_model", "enable_prompt_embeds", "supports_mm_inputs", "is_kv_consumer"),
                ),
                False,
            ),
        }
        for name, value in fields.items():
            setattr(runner, name, value)
        runner.input_batch = SimpleNamespace(logitsprocs=LogitsProcessors(), logitsprocs_need_output_token_ids=False)
        runner._init_block_sizes = runner._init_kernel_block_sizes = None
        longest = max(requests + 1, tokens)
        runner.arange_np = np.arange(longest, dtype=np.int64)
        runner._arange_scratch = np.empty(longest, dtype=np.int64)
        for name, size, dtype in (
            ("input_ids", tokens, torch.int32),
            ("query_start_loc", requests + 2, torch.int32),
            ("prev_num_draft_tokens", requests, torch.int32),
            ("req_indices", tokens, torch.int64),
            ("prev_positions", requests, torch.int64),
            ("num_scheduled_tokens", requests, torch.int32),
            ("discard_request_mask", requests, torch.bool),
            ("discard_request_indices", requests, torch.int64),
            ("num_decode_draft_tokens", requests, torch.int32),
            ("num_accepted_tokens", requests, torch.int32),
            ("query_pos", longest, torch.int64),
        ):
            setattr(runner, name, runner._make_buffer(size, dtype=dtype))
        runner.positions = torch.zeros(tokens, dtype=torch.int64, device=runner.device)
        runner.optimistic_seq_lens_cpu = torch.zeros(requests, dtype=torch.int32)
        for name in ("seq_lens", "num_computed_tokens"):
            setattr(runner, name, torch.zeros(requests, dtype=torch.int32, device=runner.device))
        runner.attn_groups = [
            [
                AttentionGroup(backend, [f"{name}{also}" for name in group.layer_names], group.kv_cache_spec, index)
                for also, backend in zip(("", *ALSO), self._backends_of(group.kv_cache_spec), strict=False)
            ]
            for index, group in enumerate(self.config.kv_cache_groups)
        ]
        config.parallel_config.cp_kv_cache_interleave_size = rank.interleave
        return runner


class AscendWorker(Worker):
    """The model runner of vLLM-Ascend."""

    kernels: ClassVar[tuple[str, ...]] = (f"{PACKAGE}.worker.block_table:_compute_slot_mapping_kernel",)
    latent: ClassVar[tuple[str, ...]] = ("mla", "sfa")
    """The further back-ends that are given steps of a group without compression and window."""

    def _kind(self) -> type[Any]:
        kind: type[Any] = importlib.import_module(f"{PACKAGE}.worker.model_runner_v1").NPUModelRunner
        return kind

    def _backend(self) -> type[Any]:
        """DeepSeek-V4's layers are served by the back-end for compressed attention, others by that for attention."""
        module, name = (
            ("dsa_v1", "AscendDSABackend") if self._compresses else ("attention_v1", "AscendAttentionBackend")
        )
        backend: type[Any] = getattr(importlib.import_module(f"{PACKAGE}.attention.{module}"), name)
        return backend

    def _backends_of(self, spec: Any) -> tuple[type[Any], ...]:
        """What is not compressed may be a model's of any kind: all its back-ends are given each step.

        Latent attention, sparse or not, has no window.
        """
        latent = (
            getattr(importlib.import_module(f"{PACKAGE}.attention.{kind}_v1"), f"Ascend{kind.upper()}Backend")
            for kind in (() if self._compresses or getattr(spec, "sliding_window", None) else self.latent)
        )
        return (*super()._backends_of(spec), *latent)

    @property
    def _compresses(self) -> bool:
        return any(spec_compress_ratio(group.kv_cache_spec) > 1 for group in self.config.kv_cache_groups)

    def _bare(self, scheduler: Any, drafts_max: int, rank: Rank) -> Any:
        import torch

        runner = super()._bare(scheduler, drafts_max, rank)
        importlib.import_module(f"{PACKAGE}.ascend_config").init_ascend_config(runner.vllm_config)
        tokens = runner.max_num_tokens
        runner.use_compress = self._compresses
        runner.attn_backend = self._backend()
        runner.use_sparse = False
        windows = [getattr(group.kv_cache_spec, "sliding_window", None) for group in self.config.kv_cache_groups]
        # What the metadata builder of DeepSeek-V4 asks of the model, and of its runner.
        of_model = {
            **LATENT,
            "sliding_window": max(window or 0 for window in windows),
            "num_attention_heads": 64,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 512,
        }
        for name, value in of_model.items():
            setattr(runner.model_config.hf_text_config, name, value)
        runner.decode_token_per_req, runner.actual_seq_lengths_q = 1 + drafts_max, []
        runner.enable_hamming_sparse = runner.is_mm_prefix_lm = runner._seq_lens_cpu_event_pending = False
        runner.drafter = None
        runner._has_gdn = runner._needs_seq_lens_cpu_sync = False
        runner.pcp_size, runner.dcp_size, runner.pcp_rank, runner.dcp_rank = 1, rank.ranks, 0, rank.rank
        runner._positions_np_buf = torch.zeros(tokens, dtype=torch.int64).numpy()
        runner._dsa_positions_cpu_buf = torch.zeros(tokens, dtype=torch.int64)
        runner._dsa_positions_np_buf = runner._dsa_positions_cpu_buf.numpy()
        return runner

    def _build(self) -> None:
        """Have the metadata of each group built, which asks for an order of the batch."""
        runner = self.runner
        for group in (each for groups in runner.attn_groups for each in groups):
            builder = group.backend.get_builder_cls()
            group.metadata_builders = [
                builder(group.kv_cache_spec, group.layer_names, runner.vllm_config, runner.device)
            ]
        if not self._compresses:
            self._rotate()
        runner.calculate_reorder_batch_threshold()

    def _rotate(self) -> None:
        """Make the rotary tables that layers with latent attention register: a row has its position in it."""
        import torch

        home: Any = importlib.import_module(f"{PACKAGE}.ops.rotary_embedding")
        runner = self.runner
        longest, width = runner.model_config.max_model_len, runner.model_config.hf_text_config.qk_rope_head_dim
        table = torch.arange(longest, dtype=torch.float64).unsqueeze(1).expand(longest, width)
        home._record_cos_and_sin_cache(table, table)
        home._cos_mla, home._sin_mla = (torch.zeros(runner.max_num_tokens, 1, 1, width).double() for _ in range(2))

    def _metadata(self, counts: Any, inputs: Any) -> tuple[tuple[Part, ...], ...]:
        """Of all back-ends."""
        import numpy as np

        runner, rows = self.runner, len(counts)
        tokens, row_of = int(counts.sum()), np.repeat(np.arange(rows), counts)
        # As its runner does between preparing the inputs and building the metadata.
        runner._dsa_positions_np_buf[:tokens] = (
            runner.input_batch.num_computed_tokens_cpu[row_of] + runner.query_pos.np[:tokens]
        )
        built, _ = runner._build_attention_metadata(
            tokens, rows, int(counts.max()), num_scheduled_tokens_np=counts, **self._compressed(inputs)
        )
        return self._all_parts(built)

    def _all_parts(self, built: Any) -> tuple[tuple[Part, ...], ...]:
        """By group, of the metadata of each layer."""
        parts = self._parts if self._compresses else self._uncompressed
        return tuple(
            tuple(part for each in groups for part in parts(built[each.layer_names[0]], size, each.kv_cache_spec))
            for groups, size in zip(self.runner.attn_groups, self.kernel_block_sizes, strict=True)
        )

    @staticmethod
    def _uncompressed(built: Any, block_slots: int, spec: Any) -> Iterator[Part]:
        """What the back-ends for attention are given: with its keys and values, latent, or latent and sparse."""
        del spec
        slots = [divmod(slot, block_slots) for slot in built.slot_mapping.tolist()]
        if hasattr(built, "cum_query_lens"):
            offsets = (0, *built.cum_query_lens.tolist())
            positions = tuple(map(int, built.sin[: built.num_actual_tokens, 0, 0, 0].tolist()))
            yield _part(slots, built.block_table, None, built.seq_lens, offsets, positions, None)
        elif not hasattr(built, "decode"):
            ends, offsets = built.seq_lens, tuple(built.query_start_loc.tolist())
            yield _part(slots, built.block_tables, None, ends, offsets, None, built.num_decodes)
        else:
            decodes, tokens = built.num_decodes, built.num_decode_tokens
            for part, is_decode in ((built.decode, True), (built.prefill, False)):
                if part is None:
                    continue
                # What fills a batch may follow.
                count = tokens if is_decode else built.num_actual_tokens - tokens
                positions = tuple(part.input_positions[:count].tolist())
                if is_decode:
                    offsets = (0, *part.actual_seq_lengths_q)
                    yield _part(slots[:tokens], part.block_table, None, part.seq_lens, offsets, positions, decodes)
                    continue
                # How much of each row is computed: chunk after chunk, and nothing where no row has anything.
                context, ends = part.chunked_context, part.context_lens
                starts = ends * 0 if context is None else context.chunk_seq_lens.sum(0)
                offsets = tuple(part.query_start_loc.tolist())
                yield _part(slots[tokens:], part.block_table, tuple(starts.tolist()), ends, offsets, positions, 0)

    def _compressed(self, inputs: Any) -> dict[str, Any]:
        """What metadata is built from besides: of each group, how many compressed tokens each row has."""
        return {"num_scheduled_tokens_compressed_list": inputs[-1]}

    def _parts(self, built: Any, block_slots: int, spec: Any) -> Iterator[Part]:
        """What metadata has of the rows that decode, and of the others."""
        del block_slots
        for part, decodes in ((built.decode, True), (built.prefill, False)):
            if part is not None:
                positions = tuple(part.input_positions.tolist())
                rows = len(part.seq_lens) if decodes else 0
                yield part_of(part, positions, rows, self._finds(part), self._found(part, spec))

    def _finds(self, part: Any) -> tuple[int, int, int] | None:
        """The arguments of the operator that finds slots in the tables: this release has no such operator."""
        del part
        return None

    def _found(self, part: Any, spec: Any) -> OperatorInput | None:
        """What its layers pass to that operator."""
        del part, spec
        return None

    def _start(self) -> None:
        import torch
        from vllm.v1.kv_cache_interface import KVCacheTensor

        runner, config = self.runner, self.config
        self._build()
        runner.may_reinitialize_input_batch(config)
        self.kernel_block_sizes = tuple(table.block_size for table in runner.input_batch.block_table.block_tables)
        if self._compresses:
            config.kv_cache_tensors = [
                KVCacheTensor(group.kv_cache_spec.page_size_bytes * config.num_blocks, list(group.layer_names))
                for group in config.kv_cache_groups
            ]
            raw = runner._allocate_kv_cache_tensors(config)
            shaped = runner._reshape_kv_cache_tensors(config, raw)
            names = [group.layer_names[0] for group in config.kv_cache_groups]
            self.memory = tuple(memory_of(config.num_blocks, raw[name], shaped[name]) for name in names)
            self._raw = tuple(raw[name].view(torch.uint8).random_(256) for name in names)
            for name in names:
                # As its runner binds the memory of DeepSeek-V4's layers.
                layer = SimpleNamespace(kv_cache=[shaped[name]])
                runner.compilation_config.static_forward_context[name] = layer


def prepared_by(runner: Any) -> Prepared:
    """What a model runner, of this process or of a server, has prepared for the step that is next."""
    names, tables = tuple(runner.input_batch.req_ids), runner.input_batch.block_table.block_tables
    return Prepared(
        names,
        tuple(table.block_size for table in tables),
        tuple(_rows(table, len(names)) for table in tables),
        tuple(tuple(table.slot_mapping.gpu.tolist()) for table in tables),
    )


def _rows(table: Any, rows: int) -> tuple[tuple[int, ...], ...]:
    """What the device has of each row."""
    lengths = table.num_blocks_per_row[:rows].tolist()
    return tuple(
        tuple(row[:length]) for row, length in zip(table.block_table.gpu[:rows].tolist(), lengths, strict=True)
    )


def _part(slots: list[Any], tables: Any, starts: Any, ends: Any, *others: Any) -> Part:
    return Part(tuple(slots), tuple(map(tuple, tables.tolist())), starts, tuple(ends.tolist()), *others)


def part_of(
    built: Any,
    positions: tuple[int, ...],
    decodes: int,
    finds: tuple[int, int, int] | None = None,
    found: OperatorInput | None = None,
) -> Part:
    """What a back-end's metadata has of some rows."""
    mapped = built.slot_mapping
    return Part(
        None if mapped is None else tuple((block, offset) for block, offset in mapped.tolist()),
        tuple(map(tuple, built.block_table.tolist())),
        tuple(built.start_pos.tolist()),
        tuple(built.seq_lens.tolist()),
        tuple(built.query_start_loc.tolist()),
        positions,
        decodes,
        finds if mapped is None else None,
        found,
    )


def memory_of(blocks: int, raw: Any, views: Any) -> Memory:
    tensors = (
        Tensor(
            view.shape[0],
            view.shape[1],
            view.stride(0) * view.element_size(),
            view.stride(1) * view.element_size(),
            view.data_ptr() - raw.data_ptr(),
        )
        for view in views
    )
    return Memory(blocks, raw.numel() * raw.element_size(), tuple(tensors))


LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 64, "v_head_dim": 8}
"""The widths of latent attention; those of the rotary part are a model's."""
ALSO = ("_2", "_3")
"""What the names of layers end with that have the second or third back-end of a group."""
UNWRITTEN = -7
"""What a slot mapping holds where a step has not written it."""


def set_ranks(rank: Rank) -> None:
    """Let the groups of processes have a rank and a size."""
    from vllm.distributed import parallel_state

    one = SimpleNamespace(world_size=1, rank_in_group=0, is_first_rank=True, is_last_rank=True)
    state: Any = parallel_state
    state._PP = state._TP = state._PCP = one
    state._DCP = SimpleNamespace(world_size=rank.ranks, rank_in_group=rank.rank, is_first_rank=True, is_last_rank=True)


def install_ascend_worker(release: Release = ASCEND) -> None:
    """Make vLLM-Ascend's worker importable in this process; from 0.23.0 on, with its block manager.

    Raises:
        AscendUnavailableError: it cannot be had.
    """
    os.environ.setdefault("VLLM_ASCEND_APPLY_DSV4_PATCH", "1")
    # Contexts of large blocks are longer than those of the model that is configured, which is never loaded.
    os.environ.setdefault("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    if used_device() == CPU:
        is_later = release.below is not None
        if is_later:
            stand_ins.unpin()
        stand_ins.install(is_later)
        folder = ascend_folder(release)
        check_folder(folder, release)
        enter(folder)
        if is_later:
            import_patches(release)
    else:
        # Not run yet: on an NPU the installed packages are used, as a server imports them.
        importlib.import_module("torch_npu")
        importlib.import_module(PACKAGE)
        check_folder(ascend_folder(release), release)
        importlib.import_module(f"{PACKAGE}.utils").adapt_patch(is_global_patch=True)
