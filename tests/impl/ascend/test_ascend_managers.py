"""vLLM-Ascend's own block manager, as published and with the plug-in.

Goal: a hit never serves what another prompt has left, every table ends where the hit ends, and coordinators take what
newer schedulers say. Method: DeepSeek-V4's groups with 128 slots, and two prompts that share their first 4096 tokens.
"""

from __future__ import annotations

from typing import Any

import pytest

from .process import told_by

SERVE = """
def manager(**more):
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MLAAttentionSpec, SlidingWindowMLASpec
    shape = dict(num_kv_heads=1, head_size=1, dtype=torch.float32, model_version="deepseek_v4")
    specs = [MLAAttentionSpec(block_size=128, compress_ratio=ratio, **shape) for ratio in (4, 128)]
    windows = [(128, 128), (8, 8), (32, 128)]
    specs += [SlidingWindowMLASpec(block_size=size, sliding_window=window, **shape) for size, window in windows]
    groups = [KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)]
    init_none_hash(sha256)
    return KVCacheManager(
        KVCacheConfig(num_blocks=12000, kv_cache_tensors=[], kv_cache_groups=groups), max_model_len=65536,
        hash_block_size=8, max_num_batched_tokens=8192, enable_caching=True, use_eagle=False, log_stats=True,
        enable_kv_cache_events=False, **more)

def serve(manager, name, prompt):
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request
    request = Request(request_id=name, prompt_token_ids=prompt, sampling_params=SamplingParams(), pooling_params=None,
                      block_hasher=get_request_block_hasher(8, sha256))
    blocks, hit = manager.get_computed_blocks(request)
    manager.allocate_slots(request, len(prompt) - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks)
    tables = [list(table) for table in manager.get_block_ids(name)]
    manager.free(request)
    return hit, [len(group) for group in blocks.blocks], tables

def served():
    shared = list(range(4096))
    prompts = {"A": shared + list(range(100000, 114000)), "B": shared + list(range(200000, 214000))}
    block_manager = manager()
    return {name: serve(block_manager, name, prompts[name[0]]) for name in ("A", "B", "B again", "A again")}
"""
C4, C128 = 0, 1
PUBLISHED = "import_managers(folder)\n" + SERVE + "tell(served=served())"
PATCHED = (
    "enter(folder)\ninstall(Configuration(compressed_block_size_slots=128))\nimport_managers(folder)\n"
    + SERVE
    + "tell(served=served())"
)


@pytest.fixture(scope="module")
def patched() -> Any:
    """Per request: the hit, how many blocks serve it by group, and the tables, with the plug-in."""
    return told_by(PATCHED)["served"]


def test_as_published_a_hit_serves_another_prompts_blocks() -> None:
    """A block of 16384 tokens is cached under the hash of 128 of them: what the patch is for."""
    served = told_by(PUBLISHED)["served"]
    (_, _, first), (hit, _, again) = served["A"], served["B again"]
    assert 16384 == hit
    # The blocks of C4 behind the 4096 tokens that both prompts share, and the one of C128, are the other prompt's.
    assert (first[C4][8:32], first[C128][:1]) == (again[C4][8:32], again[C128][:1])


def test_as_published_a_table_goes_on_behind_the_hit() -> None:
    """The second prompt hits nothing, and writes into the first one's block of C128."""
    served = told_by(PUBLISHED)["served"]
    (_, _, first), (hit, blocks, second) = served["A"], served["B"]
    assert (0, 1) == (hit, blocks[C128])
    assert first[C128][0] == second[C128][0]


def test_a_hit_serves_the_prompts_own_blocks(patched: Any) -> None:
    """As long as the shared tokens fill no block of every group, nothing is shared."""
    for name in ("A", "B"):
        (_, _, first), (hit, _, again) = patched[name], patched[f"{name} again"]
        assert 16384 == hit
        assert first[C4][:32] == again[C4][:32]
        assert first[C128][:1] == again[C128][:1]
    assert not set(patched["A"][2][C4]) & set(patched["B"][2][C4])


def test_every_table_ends_where_the_hit_ends(patched: Any) -> None:
    """Of each group as many blocks as fill the hit."""
    assert [0, 0, 0, 0, 0] == patched["B"][1]
    assert [32, 1, 128, 2048, 512] == patched["A again"][1]


def test_memory_is_taken_for_whole_slots(patched: Any) -> None:
    """As vLLM-Ascend has it: 18096 tokens are 4524 slots of C4, 141 of C128, and begun ones need none."""
    _, _, tables = patched["A"]
    assert [36, 2] == [len(tables[group]) for group in (C4, C128)]
    assert [len(table) for table in told_by(PUBLISHED)["served"]["A"][2]] == [len(table) for table in tables]


STATES = """
from swa_retention.features import FEATURES
from swa_retention.register import look
def states():
    patches = {patch.target: patch for feature in FEATURES for patch in feature.patches if patch.only_where}
    return {name: look(patch).state.value for name, patch in patches.items() if name.startswith("vllm_ascend")}
"""


def test_patches_wait_for_vllm_ascends_own_imports() -> None:
    """None of its modules is imported for them, each fits its file, and whoever holds the old function has the new."""
    told = told_by(
        "enter(folder)\n"
        + STATES
        + "before = states()\ninstall(Configuration(compressed_block_size_slots=64))\n"
        + "waiting, imported = states(), sorted(name for name in sys.modules if name.startswith('vllm_ascend.'))\n"
        + "import_managers(folder)\nfrom vllm.v1.core import kv_cache_coordinator, kv_cache_manager\n"
        + "from vllm_ascend.patch.platform import patch_kv_cache_coordinator as ours\n"
        + "bound = [module.get_kv_cache_coordinator is ours.get_kv_cache_coordinator "
        + "for module in (kv_cache_coordinator, kv_cache_manager)]\n"
        + "tell(before=before, waiting=waiting, imported=imported, after=states(), bound=bound)"
    )
    assert {"waiting"} == set(told["before"].values()) == set(told["waiting"].values())
    assert ["vllm_ascend.core", "vllm_ascend.patch", "vllm_ascend.patch.platform"] == told["imported"]
    assert [True, True] == told["bound"]
    managers = ("vllm_ascend.core.", "vllm_ascend.patch.platform.patch_kv_cache_coordinator")
    assert {"patched"} == {state for name, state in told["after"].items() if name.startswith(managers)}


def test_coordinators_take_what_newer_schedulers_say() -> None:
    """And keep it for whoever asks; what no version says is still an error."""
    told = told_by(
        "enter(folder)\ninstall(Configuration(0))\nimport_managers(folder)\n"
        + SERVE
        + "block_manager = manager(scheduler_block_size=16384, local_kv_retention_interval=16384)\n"
        + "coordinator = block_manager.coordinator\n"
        + "try:\n    manager(no_version_says_this=1)\nexcept TypeError as error:\n    refused = str(error)\n"
        + "tell(coordinator=type(coordinator).__name__, block=coordinator.scheduler_block_size, "
        + "interval=block_manager.coordinator.single_type_managers[2].reach.interval_tokens, refused=refused)"
    )
    assert ("AscendHybridKVCacheCoordinator", 16384, 16384) == (told["coordinator"], told["block"], told["interval"])
    assert "no_version_says_this" in told["refused"]


def test_with_nothing_switched_on_it_is_vllm_ascends_own() -> None:
    """The patches are in place, and change nothing: wrong hits included."""
    off = "\nactivate(Configuration())\n"
    told = told_by(PATCHED.replace("\nimport_managers(folder)\n", "\nimport_managers(folder)" + off))["served"]
    assert told_by(PUBLISHED)["served"] == told
