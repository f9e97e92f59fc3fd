"""The model runners of vLLM-Ascend from 0.23.0 on."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from kvgate.adapters.ascend_wheel import PACKAGE
from kvgate.adapters.groups import spec_compress_ratio
from kvgate.adapters.model_runner.compressor import OperatorInput, operator_input
from kvgate.adapters.model_runner.newest import planned
from kvgate.adapters.model_runner.runner import LATENT, AscendWorker, Part, memory_of, part_of

_ROTARY, _BASE, _WIDTH = "layers.0.rotary", 10**13, 4
"""What registers rotary tables, their base and their width: small, and the last sine of a position is unique."""
_MAPPING = f"{PACKAGE}.ops.triton.compute_slot_mapping"


class LaterAscendWorker(AscendWorker):
    """The model runner of vLLM-Ascend 0.23.0: an operator maps compressed slots, from the block table."""

    def _compressed(self, inputs: Any) -> dict[str, Any]:
        del inputs
        return {}

    def _finds(self, part: Any) -> tuple[int, int, int]:
        return part.block_size, part.num_reqs_actual, part.num_compressed_tokens

    def _all_parts(self, built: Any) -> tuple[tuple[Part, ...], ...]:
        """Layers run within one forward context, where what they compute for their group may be kept."""
        context: Any = importlib.import_module("vllm.forward_context")
        with context.override_forward_context(context.create_forward_context(built, self.runner.vllm_config)):
            return super()._all_parts(built)

    def _found(self, part: Any, spec: Any) -> OperatorInput | None:
        if part.slot_mapping is not None:
            return None
        return operator_input(self._call(part, spec_compress_ratio(spec)), _BASE)

    def _call(self, part: Any, ratio: int) -> Any:
        """What the published caller returns, of a layer with that ratio."""
        layer = importlib.import_module(f"{PACKAGE}.attention.dsa_v1").AscendDSAImpl
        return layer._compute_compressor_metadata(SimpleNamespace(compress_ratio=ratio), part)

    def _build(self) -> None:
        """Rotary tables are those of a model's layers, which register them: here one layer does for each group."""
        layers = self.runner.compilation_config.static_forward_context
        for group in (each for groups in self.runner.attn_groups for each in groups):
            # What latent attention asks its layer for; no prompt is computed.
            none, heads = SimpleNamespace(clone=lambda: None), SimpleNamespace(num_heads=64, use_mla_rope=True)
            layer = SimpleNamespace(prefill_backend=none, impl=heads, **LATENT)
            layers.setdefault(group.layer_names[0], layer)
        super()._build()
        if not self._compresses:
            return
        home = importlib.import_module(f"{PACKAGE}.ops.rope_dsv4")
        home._ROPE_STATE.__init__()
        ratios = {f"c{spec_compress_ratio(group.kv_cache_spec)}" for group in self.config.kv_cache_groups}
        groups, longest = ["default", *sorted(ratios)], self.runner.model_config.max_model_len
        home.ComplexExpRotaryEmbedding(
            self.runner.vllm_config, _ROTARY, _WIDTH, _WIDTH, longest, _BASE, 1, rope_groups=groups
        )

    def _maps(self, spec: Any) -> bool:
        return spec_compress_ratio(spec) == 1


class NewestAscendWorker(LaterAscendWorker):
    """The model runner of vLLM-Ascend 0.30.0rc2: each kind of cache has a back-end, and all share one memory."""

    kernels = (
        f"{_MAPPING}:_compute_slot_mapping_request",
        f"{_MAPPING}:_compute_slot_mapping_fused_groups_kernel",
        f"{_MAPPING}:_compute_slot_mapping_fused_groups_adaptive_kernel",
    )

    def _parts(self, built: Any, block_slots: int, spec: Any) -> Iterator[Part]:
        """What metadata has of all rows, of which the first ones decode."""
        del block_slots
        part = built.req_metadata
        positions, found = self._positions(part.sin), self._found(part, spec)
        yield part_of(part, positions, built.num_decodes, self._finds(part), found)

    def _finds(self, part: Any) -> tuple[int, int, int]:
        return part.storage_block_size, part.num_actual_reqs, part.num_compressed_tokens

    def _call(self, part: Any, ratio: int) -> Any:
        layer = importlib.import_module(f"{PACKAGE}.models.deepseek_v4.compressor").Compressor
        model = SimpleNamespace(compress_ratio=ratio, vllm_config=self.runner.vllm_config)
        return layer._compute_metadata(model, part)

    def _positions(self, sine: Any) -> tuple[int, ...]:
        """Which rows of the rotary tables attention is given: positions themselves are not in its metadata."""
        import torch

        ((_, every),) = importlib.import_module(f"{PACKAGE}.ops.rope_dsv4")._ROPE_STATE.full_rope_cache.values()
        rows = torch.searchsorted(every[:, 0, 0, -1].contiguous(), sine[_ROTARY][:, 0, 0, -1].contiguous())
        return tuple(rows.tolist())

    def _bare(self, *arguments: Any) -> Any:
        runner = super()._bare(*arguments)
        runner.ascend_config = importlib.import_module(f"{PACKAGE}.ascend_config").get_ascend_config()
        runner.sparse_kv_offload_config = runner.ascend_config.sparse_kv_offload_config
        runner.use_score_encoder_cache = runner.sparse_kv_offload_enabled = runner.use_hybrid_blocks = False
        runner.hybrid_with_attn_and_mamba = False
        runner._offload_request_states = runner.dcp_manager = runner.valid_sampled_token_count_event = None
        runner.device_metadata_executor = runner.device_metadata_providers = None
        runner._offload_req_ids_tensor = runner._offload_token_to_req = None
        runner._offload_pool_slots = runner._offload_pool_active = None
        runner._copy_sfa_need_eager_tail_restore = False
        for name in ("group_len", "group_key_idx", "group_key_cache_idx"):
            setattr(runner, name, runner._make_buffer(runner.max_num_tokens, dtype=runner.seq_lens.dtype))
        runner.valid_sampled_token_count_cpu = runner._pp_recv_work = None
        runner._pending_encoder_cache_copies, runner.cached = [], {}
        runner.tp_rank, runner.uniform_decode_query_len = 0, 1 + runner.num_spec_tokens
        return runner

    def _backends_of(self, spec: Any) -> tuple[type[Any], ...]:
        """That of the layers that a group is of, as its models have it.

        Only the states of a compressor of 4 tokens have a window that is shorter than the other ones; those of 128 have
        fewer slots in a block than compressed caches.
        """
        if not self._compresses:
            return super()._backends_of(spec)
        home, ratio = importlib.import_module(f"{PACKAGE}.attention.dsa_v1"), spec_compress_ratio(spec)
        specs = [group.kv_cache_spec for group in self.config.kv_cache_groups]
        if ratio > 1:
            name = "C4" if ratio == 4 else "C128"
        elif spec.sliding_window < max(getattr(each, "sliding_window", None) or 0 for each in specs):
            name = "C4State"
        elif spec.block_size < max(each.block_size // spec_compress_ratio(each) for each in specs):
            name = "C128State"
        else:
            name = "SWA"
        return (getattr(home, f"AscendDSA{name}Backend"),)

    def _start(self) -> None:
        runner, groups = self.runner, self.config.kv_cache_groups
        backends = [each.backend for groups in runner.attn_groups for each in groups]
        self.config = runner.kv_cache_config = planned(self, backends, "vllm.v1.core.kv_cache_utils")
        self._build()
        home = importlib.import_module(f"{PACKAGE}.worker.model_runner_v1")
        sizes = home.prepare_kernel_block_sizes(self.config, runner.attn_groups)
        runner.may_reinitialize_input_batch(self.config, sizes)
        ratios = [spec_compress_ratio(group.kv_cache_spec) for group in groups]
        tables = runner.input_batch.block_table.block_tables
        self.kernel_block_sizes = tuple(table.block_size // each for table, each in zip(tables, ratios, strict=True))
        if not self._compresses:
            return
        raw = runner._allocate_kv_cache_tensors(self.config)
        shaped = runner._reshape_kv_cache_tensors(self.config, raw, sizes)
        names = [group.layer_names[0] for group in groups]
        self.memory = tuple(memory_of(self.config.num_blocks, raw[name], shaped[name]) for name in names)
