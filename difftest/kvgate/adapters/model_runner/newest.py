"""The model runner of vLLM 0.33.0: it makes the memory of all groups in one piece, and clears blocks in it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from kvgate.adapters.model_runner import stand_ins
from kvgate.adapters.model_runner.runner import Memory, Tensor, Worker

_PLANNED_BYTES = 1 << 40
"""How much memory there is to plan with: the number of blocks is given."""


class _Layer:
    """A layer, as far as memory is made for it."""

    def bind_kv_cache(self, kv_cache: Any) -> None:
        self.kv_cache = kv_cache


class NewestWorker(Worker):
    """The model runner of vLLM 0.33.0."""

    kernels: ClassVar[tuple[str, ...]] = (
        "vllm.v1.worker.block_table:ComputeSlotMappingKernel.kernel",
        "vllm.v1.worker.utils:_zero_kv_blocks_kernel",
    )

    def _backend(self) -> type[Any]:
        """That of Triton: the blocks of the CPU platform are multiples of 32 tokens, which most models' are not."""
        backend: type[Any] = importlib.import_module("vllm.v1.attention.backends.triton_attn").TritonAttentionBackend
        return backend

    def _bare(self, *arguments: Any) -> Any:
        stand_ins.unpin()
        runner = super()._bare(*arguments)
        registry = importlib.import_module("vllm.model_executor.warmup.jit_warmup").JitWarmupRegistry
        runner.jit_warmup_registry = registry(runner.vllm_config)
        runner._init_max_num_blocks = runner._init_slot_mapping_modes = runner._pp_recv_work = None
        runner.cp_kv_cache_interleave_size = runner.parallel_config.cp_kv_cache_interleave_size
        runner.prev_num_spec_tokens = runner.num_spec_tokens
        runner.kv_caches = []
        runner.drafter = SimpleNamespace()
        return runner

    def _start(self) -> None:
        runner = self.runner
        self.config = runner.kv_cache_config = planned(self, [self._backend()], "vllm.v1.core.kv_cache_planning")
        sizes = importlib.import_module("vllm.v1.worker.utils").prepare_kernel_block_sizes(
            self.config, runner.attn_groups
        )
        runner._kernel_block_sizes = sizes
        runner.may_reinitialize_input_batch(self.config)
        # Its tables name the manager's blocks: where a back-end has smaller ones, its metadata divides them.
        self.kernel_block_sizes = tuple(group.kv_cache_spec.block_size for group in self.config.kv_cache_groups)
        layers = [group.layer_names[0] for group in self.config.kv_cache_groups]
        runner.compilation_config.static_forward_context.update({name: _Layer() for name in layers})
        views = runner.initialize_kv_cache_tensors(self.config, sizes)
        self.views = [views[name] for name in layers]
        self.memory = tuple(_memory(self.config.num_blocks, view) for view in self.views)
        runner._init_kv_zero_meta()


def planned(worker: Worker, backends: Sequence[type[Any]], home: str) -> Any:
    """The memory, as an engine plans it for so many blocks, with the functions of the module ``home``."""
    layouts = importlib.import_module("vllm.v1.attention.backends.utils")
    config, groups = worker.runner.vllm_config, worker.config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    names = [each.name for each in layouts.get_supported_kv_cache_layouts(backends)]
    if len({spec.page_size_bytes for spec in specs}) > 1:
        # What its message says to choose where pages differ.
        names = ["BLHNC"]
    layouts.resolve_kv_cache_layout(config, [names], specs)
    config.cache_config.num_gpu_blocks_override = worker.config.num_blocks
    return importlib.import_module(home).get_kv_cache_config_from_groups(config, groups, _PLANNED_BYTES)


def _memory(blocks: int, view: Any) -> Memory:
    """A view has blocks, heads, tokens and what is kept of a token."""
    size, storage = view.element_size(), view.untyped_storage()
    tensor = Tensor(
        view.shape[0],
        view.shape[2],
        view.stride(0) * size,
        view.stride(2) * size,
        view.data_ptr() - storage.data_ptr(),
    )
    return Memory(blocks, storage.nbytes(), (tensor,))
