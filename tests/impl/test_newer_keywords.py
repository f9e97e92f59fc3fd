"""The keywords of newer vLLM.

Goal: the scheduler's block size reaches every part that counts in it, and a coordinator that is written for a newer
vLLM can be built on 0.20.2. Method: real constructors with the plug-in's patches, and a coordinator of the newer form.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.adapters.groups import group_specs
from kvgate.kernel.models import load
from swa_retention.config import Configuration, ConfigurationError
from swa_retention.features import RETAINS
from swa_retention.newer_keywords import SCHEDULER_BLOCK, said, saying
from swa_retention.patches.attach import activate
from swa_retention.patches.newer_keywords import scheduler
from swa_retention.register import apply

MODEL = load("mixed-blocks+mtp")
ALIGNMENT = MODEL.geometry.alignment_tokens
COUNTS: dict[str, Any] = {"max_model_len": 1024, "max_num_batched_tokens": 64, "enable_caching": True}
COORDINATOR: dict[str, Any] = {
    **{"max_model_len": 1024, "max_num_batched_tokens": 64, "enable_kv_cache_events": False},
    **{"dcp_world_size": 1, "pcp_world_size": 1, "hash_block_size": MODEL.geometry.grain_tokens},
}


@pytest.fixture(autouse=True)
def patched() -> Iterator[None]:
    """The plug-in, with retention at the replay boundary."""
    apply(RETAINS.patches)
    activate(Configuration(0))
    yield
    activate(Configuration())


def config() -> Any:
    """The groups of a model with a window, a draft layer and blocks of two sizes."""
    from vllm.v1.kv_cache_interface import KVCacheConfig

    return KVCacheConfig(num_blocks=50, kv_cache_tensors=[], kv_cache_groups=group_specs(MODEL.geometry))


def manager_of(**newer: Any) -> Any:
    """vLLM's manager, built as a newer scheduler builds it."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    return KVCacheManager(config(), hash_block_size=MODEL.geometry.grain_tokens, use_eagle=True, **COUNTS, **newer)


def test_from_the_manager_to_every_group() -> None:
    """Set once, known everywhere; and unknown where it was not set."""
    coordinator = manager_of(scheduler_block_size=4 * ALIGNMENT).coordinator
    known = [each.scheduler_block_size for each in (coordinator, *coordinator.single_type_managers)]
    assert {4 * ALIGNMENT} == set(known)
    assert manager_of().coordinator.scheduler_block_size is None


def test_from_the_scheduler() -> None:
    """Everything that it builds gets the keyword; later objects do not."""
    with saying({SCHEDULER_BLOCK: 2 * ALIGNMENT}):
        assert 2 * ALIGNMENT == manager_of().coordinator.scheduler_block_size
    assert {} == dict(said())


def test_another_block_than_hits_have_is_rejected() -> None:
    """By both sizes."""
    with pytest.raises(ValueError, match=rf"counts in blocks of 24 tokens, .* multiples of {ALIGNMENT}"):
        manager_of(scheduler_block_size=24)


def test_without_a_cache_there_are_no_hits_to_align() -> None:
    """Any block will do."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    counts = {**COUNTS, "enable_caching": False, "scheduler_block_size": 24}
    coordinator: Any = KVCacheManager(config(), hash_block_size=8, **counts).coordinator
    assert 24 == coordinator.scheduler_block_size


def newer_coordinator(**said_to_it: Any) -> Any:
    """A coordinator in the form of a newer vLLM: it hands on by keyword what 0.20.2 does not know."""
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator

    class Newer(HybridKVCacheCoordinator):
        def __init__(self, kv_cache_config: Any, **keywords: Any) -> None:
            super().__init__(kv_cache_config, **keywords)

        def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
            manager: Any
            for manager in self.single_type_managers:
                manager.cache_blocks(request, num_computed_tokens, retention_interval=None)

    return Newer(config(), use_eagle=True, enable_caching=True, **COORDINATOR, **said_to_it)


def test_a_newer_coordinator_is_built() -> None:
    """With the block size, the interval by either name, and the layers that draft."""
    for name in ("retention_interval", "local_kv_retention_interval"):
        coordinator = newer_coordinator(scheduler_block_size=ALIGNMENT, **{name: 2 * ALIGNMENT})
        assert (ALIGNMENT, 2 * ALIGNMENT) == (coordinator.scheduler_block_size, coordinator.retention_interval)
    assert newer_coordinator().retention_interval is None


def test_a_newer_coordinator_caches() -> None:
    """Its retention keyword is ignored where vLLM's own function caches."""
    from vllm.v1.core.kv_cache_utils import BlockHash

    coordinator = newer_coordinator()
    tokens = 2 * ALIGNMENT
    hashes = [BlockHash(bytes([index])) for index in range(tokens // MODEL.geometry.grain_tokens)]
    coordinator.allocate_new_blocks("r", tokens, tokens)
    coordinator.cache_blocks(SimpleNamespace(request_id="r", block_hashes=hashes), tokens)
    assert all(manager.req_to_blocks["r"][0].block_hash for manager in coordinator.single_type_managers)


def test_layers_that_draft() -> None:
    """Their groups look ahead, and no others."""
    assert {0} == newer_coordinator(eagle_attn_layer_names=["layer.0"]).eagle_group_ids
    assert newer_coordinator().eagle_group_ids == newer_coordinator(eagle_attn_layer_names=None).eagle_group_ids


def test_an_interval_by_keyword_goes_before_the_environment() -> None:
    """And is checked as that one is."""
    from swa_retention.patches.attach import attach

    coordinator = newer_coordinator(retention_interval=2 * ALIGNMENT)
    attach(coordinator, Configuration(0), COUNTS["max_model_len"])
    reaches = [manager.reach for manager in coordinator.single_type_managers if hasattr(manager, "reach")]
    assert [2 * ALIGNMENT] == [reach.interval_tokens for reach in reaches]
    with pytest.raises(ConfigurationError, match="multiple of scheduler_block_size"):
        attach(newer_coordinator(retention_interval=ALIGNMENT + 1), Configuration(0), COUNTS["max_model_len"])


def test_an_unknown_word_is_an_error() -> None:
    """Only what is known to be newer is set aside."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'scheduler_blocks'"):
        manager_of(scheduler_blocks=16)


def built_by(specs: list[Any], block_size: int, **hashed: int) -> tuple[int, int | None, int]:
    """The block size and hash block size of a scheduler of these groups, and the block size that it passes on."""
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    seen: list[Any] = []

    def build(
        _self: Any, _vllm_config: Any, kv_cache_config: Any, block_size: int, hash_block_size: int | None = None
    ) -> None:
        assert len(specs) == len(kv_cache_config.kv_cache_groups)
        seen.extend((block_size, hash_block_size, said()[SCHEDULER_BLOCK]))

    groups = [KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)]
    scheduler(build)(None, None, KVCacheConfig(9, [], groups), block_size=block_size, **hashed)
    block, hash_block, value = seen
    return block, hash_block, value


def test_the_scheduler_counts_in_tokens() -> None:
    """A block of 128 slots for 128 tokens each is one of 16384; where specs count tokens, nothing is changed."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    tokens = FullAttentionSpec(block_size=256, **shape)
    slots = type("Slots", (MLAAttentionSpec,), {"__module__": "vllm_ascend.stand_in"})
    compressed = slots(block_size=128, compress_ratio=128, **shape)
    assert (256, None, 256) == built_by([tokens], 256)
    assert (16384, 128, 16384) == built_by([compressed, tokens], 128)
    assert (16384, 8, 16384) == built_by([compressed, tokens], 256, hash_block_size=8)
