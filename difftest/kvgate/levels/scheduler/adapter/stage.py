"""vLLM's scheduler, built without a model: what it needs to know of one, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from functools import cache
from importlib import import_module
from math import lcm
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from kvgate.adapters.groups import group_specs
from kvgate.levels.scheduler.adapter.experts import own_memory
from kvgate.levels.scheduler.operations import Stage
from kvreference.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

CONFIGURATION = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 1 << 20,
}
"""A model that is never loaded."""
CLASSES = "vllm.v1.core.sched.scheduler:Scheduler", "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
CONNECTORS = "kvgate.levels.scheduler.adapter.connector"
DECODE_RANKS, PREFILL_RANKS = 2, 4
"""Over how many ranks blocks are spread by decode and by prefill context parallelism, if they are."""


class Tier(Protocol):
    """A second tier, with the connector that moves blocks to it and back."""

    @property
    def one_group(self) -> bool:
        """Whether the connector is for models with one group."""
        ...

    def transfers(self, groups: Sequence[KVCacheGroupSpec]) -> Any:
        """How the connector is configured, for these groups."""
        ...

    def tensors(self, blocks: int, groups: Sequence[KVCacheGroupSpec]) -> list[Any]:
        """The memory of the device, of which the connector takes its sizes."""
        ...


@cache
def _model_config(tokens_max: int) -> Any:
    from vllm.config import ModelConfig

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIGURATION))
        return ModelConfig(model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=tokens_max)


def new_scheduler(
    settings: Settings,
    stage: Stage,
    groups: Sequence[KVCacheGroupSpec] | None = None,
    caching: Mapping[str, Any] = MappingProxyType({}),
    hashing_option: str = "",
    classes: Sequence[str] = CLASSES,
    tier: Tier | None = None,
) -> Scheduler:
    """vLLM's scheduler for these settings.

    A step computes at most ``settings.chunk_tokens`` tokens, of one request or of all together. ``groups`` are those of
    vLLM 0.20.2 unless given; what else a release needs is ``caching`` of its KV-cache configuration, and the
    ``hashing_option`` of its speculation. ``classes`` are the schedulers for synchronous and for asynchronous steps.
    With a second ``tier`` the connector is one of vLLM's own.
    """
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ECTransferConfig,
        KVEventsConfig,
        LoRAConfig,
        ObservabilityConfig,
        SchedulerConfig,
        VllmConfig,
    )
    from vllm.utils.hashing import sha256
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, compute_mm_encoder_budget
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.structured_output import StructuredOutputManager

    # On every machine, this is the runner whose batch is modelled.
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    init_none_hash(sha256)
    geometry, options = settings.geometry, stage.options
    modes: list[Any] = [group.states.value for group in geometry.groups if group.states is not None]
    cache = CacheConfig(
        # Of vLLM's scheduler, only the rule that ends chunks where states are kept asks for this size.
        block_size=geometry.state_block_tokens or geometry.alignment_tokens,
        enable_prefix_caching=settings.caches,
        mamba_cache_mode=modes[0] if modes else "none",
    )
    cache.num_gpu_blocks = settings.blocks
    if tier is not None and any(group.copies for group in geometry.groups):
        # A connector asks for it, where the scheduler is given it.
        setattr(cache, "prefix_match_unit", geometry.grain_tokens)  # noqa: B010 - vLLM 0.20.2 does not have it
    for name, value in caching.items():
        # vLLM takes the one from the other, and a connector may ask either.
        if hasattr(cache, name):
            setattr(cache, name, value)
    specs = list(groups) if groups is not None else group_specs(geometry)
    config = VllmConfig(
        model_config=_model_config(settings.tokens_max),
        device_config=DeviceConfig(device="cpu"),
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_num_seqs=stage.running_max,
            max_num_batched_tokens=settings.chunk_tokens + (stage.running_max if settings.draft_model else 0),
            max_model_len=settings.tokens_max,
            long_prefill_token_threshold=stage.long_prefill_tokens or 0,
            policy="priority" if stage.by_priority else "fcfs",
            enable_chunked_prefill=not options.whole_prompts,
            disable_chunked_mm_input=options.whole_items,
            async_scheduling=False,
            is_encoder_decoder=False,
            scheduler_reserve_full_isl=settings.full_sequence_must_fit,
        ),
        speculative_config=_speculation(settings, hashing_option) if settings.drafts_max else None,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=settings.tells_events, publisher="null"),
        kv_transfer_config=tier.transfers(specs) if tier else _transfers(stage) if stage.connector else None,
        ec_transfer_config=ECTransferConfig(
            ec_connector="FakeEncoderConnector", ec_role="ec_both", ec_connector_module_path=CONNECTORS
        )
        if options.encoder_connector
        else None,
        observability_config=ObservabilityConfig(
            kv_cache_metrics=options.measures_residency,
            kv_cache_metrics_sample=1.0,
            enable_mfu_metrics=options.measures_arithmetic,
        ),
    )
    # The following settings replace vLLM's defaults for drafts by n-grams, and with a connector.
    config.scheduler_config.async_scheduling = stage.asynchronous
    # If a model of its own drafts, vLLM leaves out a token for each request, and rejects a step in which none is left.
    config.scheduler_config.max_num_scheduled_tokens = settings.chunk_tokens
    config.scheduler_config.max_num_batched_tokens = settings.chunk_tokens
    config.scheduler_config.disable_hybrid_kv_cache_manager = options.one_group_connector or bool(
        tier and tier.one_group
    )
    if options.context_parallel:
        parallel = config.parallel_config
        parallel.decode_context_parallel_size = DECODE_RANKS
        parallel.prefill_context_parallel_size = PREFILL_RANKS
        specs = [dataclasses.replace(each, kv_cache_spec=_of_one_rank(each.kv_cache_spec)) for each in specs]
    if options.returns_experts:
        config.model_config = copy(config.model_config)
        config.model_config.enable_return_routed_experts = True
    tensors = tier.tensors(settings.blocks, specs) if tier else []
    kv_cache: Any = KVCacheConfig(settings.blocks, tensors, specs, **caching)
    if tier is None:
        # vLLM-Ascend's coordinator reads it there, where its planner puts it.
        kv_cache.kv_transfer_config = config.kv_transfer_config
    with own_memory() if options.returns_experts else nullcontext():
        module, _, name = classes[stage.asynchronous].partition(":")
        scheduler: Scheduler = getattr(import_module(module), name)(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=lcm(*(group.block_size_tokens for group in geometry.groups)),
            hash_block_size=geometry.grain_tokens,
            log_stats=not options.without_statistics,
            include_finished_set=not options.without_ends,
        )
    # vLLM reads the first from the environment, and the second from ranks that are not there.
    scheduler.use_v2_model_runner, scheduler.use_pp = options.second_runner, options.pipeline
    if stage.adapters_max is not None:
        # What else a configuration of adapters says is for the worker.
        scheduler.lora_config = LoRAConfig(max_loras=stage.adapters_max)
    if stage.encoder_budget is not None:
        # A model with an encoder is not configured: what the scheduler needs of one is computed as it would.
        longest, limits = min(stage.encoder_budget, stage.encoder_cache), config.scheduler_config
        limits.max_num_encoder_input_tokens, limits.encoder_cache_size = stage.encoder_budget, stage.encoder_cache
        budget, size = compute_mm_encoder_budget(limits, {"image": longest})
        scheduler.max_num_encoder_input_tokens, scheduler.encoder_cache_manager = budget, EncoderCacheManager(size)
    return scheduler


def _of_one_rank(spec: Any) -> Any:
    """What one rank of several has of each block."""
    return dataclasses.replace(spec, block_size=spec.block_size // (DECODE_RANKS * PREFILL_RANKS))


def _speculation(settings: Settings, hashing_option: str) -> Any:
    """Drafts by n-grams, which need no model; with draft layers, vLLM's configuration is changed afterwards so that
    these draft."""
    from vllm.config import SpeculativeConfig

    hashing: dict[str, Any] = {hashing_option: not settings.geometry.hashed_ahead_tokens} if hashing_option else {}
    config = SpeculativeConfig(model="ngram", num_speculative_tokens=settings.drafts_max, **hashing)
    if settings.geometry.has_draft_layer:
        config.method = "mtp"
    elif settings.draft_model:
        config.method = "draft_model"
    return config


def _transfers(stage: Stage) -> Any:
    """A connector that transfers nothing."""
    from vllm.config import KVTransferConfig

    return KVTransferConfig(
        kv_connector="OneGroupConnector" if stage.options.one_group_connector else "FakeConnector",
        kv_connector_module_path=CONNECTORS,
        kv_role="kv_both",
        kv_load_failure_policy="fail" if stage.failed_loads_end else "recompute",
    )
