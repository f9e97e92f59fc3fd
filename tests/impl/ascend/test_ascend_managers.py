"""vLLM-Ascend's own block manager, as published and with the plug-in.

Goal: a hit never serves what another prompt has left, every table ends where the hit ends, and coordinators take what
newer schedulers say. Method: DeepSeek-V4's groups with 128 slots, and two prompts that share their first 4096 tokens.
"""

from __future__ import annotations

from typing import Any

import pytest

from .process import output_of

pytestmark = pytest.mark.ci

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
    prompts = {"A": shared + list(range(100000, 112388)), "B": shared + list(range(200000, 212388))}
    block_manager = manager()
    return {name: serve(block_manager, name, prompts[name[0]]) for name in ("A", "B", "B again", "A again")}
"""
C4, C128 = 0, 1
PUBLISHED = "import_managers(folder)\n" + SERVE + "tell(served=served())"
PATCHED = (
    "enter(folder)\n"
    + SERVE
    + """
from swa_retention.features import FEATURES
from swa_retention.doctor import examine
from swa_retention.register import look

def states():
    patches = {patch.target: patch for feature in FEATURES for patch in feature.patches if patch.only_where}
    return {name: look(patch).state.value for name, patch in patches.items() if name.startswith("vllm_ascend")}

before = states()
doctor = examine({"VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE": "64", "VLLM_ASCEND_APPLY_DSV4_PATCH": "1"})
install(Configuration(retention_interval_tokens=0, compressed_block_size_slots=128))
waiting, imported = states(), sorted(name for name in sys.modules if name.startswith("vllm_ascend."))
import_managers(folder)
from vllm.v1.core import kv_cache_coordinator, kv_cache_manager
from vllm_ascend.patch.platform import patch_kv_cache_coordinator as ours
bound = [module.get_kv_cache_coordinator is ours.get_kv_cache_coordinator
         for module in (kv_cache_coordinator, kv_cache_manager)]

newer = manager(scheduler_block_size=16384, local_kv_retention_interval=16384).coordinator
try:
    manager(no_version_says_this=1)
except TypeError as error:
    refused = str(error)

activate(Configuration(compressed_block_size_slots=128))
on = served()
activate(Configuration())
tell(before=before, waiting=waiting, imported=imported, after=states(), bound=bound, refused=refused, doctor=doctor,
     served=on, off=served(), newer=[type(newer).__name__, newer.scheduler_block_size,
                          newer.single_type_managers[2].reach.interval_tokens])
"""
)


@pytest.fixture(scope="module")
def published() -> Any:
    """Per request: the hit, how many blocks serve it by group, and the tables, as vLLM-Ascend is published."""
    return output_of(PUBLISHED)["served"]


@pytest.fixture(scope="module")
def patched() -> Any:
    """The same with the plug-in, which came first; and what became of its patches."""
    return output_of(PATCHED)


def test_as_published_a_hit_serves_another_prompts_blocks(published: Any) -> None:
    """A block of 16384 tokens is cached under the hash of 128 of them: what the patch is for."""
    (_, _, first), (hit, _, again) = published["A"], published["B again"]
    assert 16384 == hit
    # The blocks of C4 after the 4096 tokens that both prompts share, and the one of C128, are the other prompt's.
    assert (first[C4][8:32], first[C128][:1]) == (again[C4][8:32], again[C128][:1])


def test_as_published_a_table_continues_after_the_hit(published: Any) -> None:
    """The second prompt hits nothing, and writes into the first one's block of C128."""
    (_, _, first), (hit, blocks, second) = published["A"], published["B"]
    assert (0, 1) == (hit, blocks[C128])
    assert first[C128][0] == second[C128][0]


def test_a_hit_serves_the_prompts_own_blocks(patched: Any) -> None:
    """But for those that hold what both prompts share."""
    served = patched["served"]
    for name in ("A", "B"):
        (_, _, first), (hit, _, again) = served[name], served[f"{name} again"]
        assert 16384 == hit
        assert (first[C4][8:32], first[C128][:1]) == (again[C4][8:32], again[C128][:1])
    assert not set(served["A"][2][C4]) & set(served["B"][2][C4])


def test_every_table_ends_where_the_hit_ends(patched: Any) -> None:
    """Of each group as many blocks as fill the hit."""
    assert [0, 0, 0, 0, 0] == patched["served"]["B"][1]
    assert [32, 1, 128, 2048, 512] == patched["served"]["A again"][1]


def test_memory_is_taken_for_whole_slots(published: Any, patched: Any) -> None:
    """As vLLM-Ascend has it: 16484 tokens are 4121 slots of C4 and 128 of C128; the one that is begun needs none."""
    _, _, tables = patched["served"]["A"]
    assert [33, 1] == [len(tables[group]) for group in (C4, C128)]
    assert [len(table) for table in published["A"][2]] == [len(table) for table in tables]


def test_patches_wait_for_vllm_ascends_own_imports(patched: Any) -> None:
    """They import none of its modules, each fits its file, and code that holds the old function gets the new one."""
    assert {"waiting"} == set(patched["before"].values()) == set(patched["waiting"].values())
    packages = ("core", "patch", "patch.platform", "patch.worker")
    assert [f"vllm_ascend.{each}" for each in packages] == patched["imported"]
    assert [True, True] == patched["bound"]
    managers = ("vllm_ascend.core.", "vllm_ascend.patch.platform.patch_kv_cache_coordinator")
    after = {name: state for name, state in patched["after"].items() if name.startswith(managers)}
    # The scheduler is not imported here.
    assert "waiting" == after.pop("vllm_ascend.core.recompute_scheduler:RecomputeScheduler.update_from_output")
    assert {"patched"} == set(after.values())


def test_the_doctor_says_which_of_its_symbols_are_patched(patched: Any) -> None:
    """Each one by its name, and that its own coordinator is in use."""
    code, lines = patched["doctor"]
    assert 0 == code
    assert lines[0].endswith("; vLLM-Ascend, of an unknown version, with its own coordinator")
    assert "  on vLLM-Ascend, compressed blocks have 64 slots" in lines
    assert "compressed groups: switched on, and fits this vLLM" in lines
    deferred = {line.split(": ")[0].strip() for line in lines if ": would be patched when it is imported. " in line}
    assert set(patched["before"]) == {name for name in deferred if name.startswith("vllm_ascend")}


def test_coordinators_take_what_newer_schedulers_say(patched: Any) -> None:
    """The value can be read back; a keyword of no version is still an error."""
    assert ["AscendHybridKVCacheCoordinator", 16384, 16384] == patched["newer"]
    assert "no_version_says_this" in patched["refused"]


def test_with_nothing_switched_on_it_is_vllm_ascends_own(published: Any, patched: Any) -> None:
    """The patches are in place, and change nothing: wrong hits included."""
    assert published == patched["off"]
