"""A shadow on vLLM-Ascend 0.20.2rc1's own managers, on CPU, as published and with the plug-in.

Goal: the shadow reads the groups of DeepSeek-V4 as they are, strictly follows 10,000 calls of each without a
difference, and a system or a shadow that is broken shows one. Method: vLLM's scheduler over vLLM-Ascend's managers, in
a process of its own: importing vLLM-Ascend's modules changes vLLM for good.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.kernel.models import load
from kvreference.compressed import ASCEND_BLOCK_SIZES

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

pytest.importorskip("vllm")

CALLS = 10_000
SYSTEMS = ("ascend", "ascend-retention")
SLOTS = "013-compressed-block-known-by-its-slots"
PROGRAM = """
import json, sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from kvgate.adapters.ascend import install_ascend
from kvgate.adapters.kv_cache_dump import groups_of
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter import attachment, geometry, observer
from kvgate.shadow.recheck import recheck_recordings
from kvgate.shadow.sink_protocol import DifferenceError
from kvreference.compressed import ASCEND_BLOCK_SIZES
from tests.difftest.shadow.live import Server

calls, folder = int(sys.argv[1]), Path(sys.argv[2])
MODELS = (("compressed+whole-slots", 0), ("compressed+whole-slots+mtp", 2))
said = []
attachment.warn = said.append

def served(system, model, drafts, asynchronous=False):
    server = Server(model, system=system, blocks=200, drafts_max=drafts, asynchronous=asynchronous)
    manager, server.hits = server.scheduler.kv_cache_manager, 0
    look_up = manager.get_computed_blocks
    def counted(request):
        answer = look_up(request)
        server.hits += answer[1] > 0
        return answer
    manager.get_computed_blocks = counted
    return server, attachment.attach(server.scheduler, Switch(Mode.STRICT, checkpoint_calls=200))

def followed(system):
    found = {"calls": 0, "hits": 0, "checkpoints": 0, "findings": {}}
    for asynchronous in (False, True):
        for model, drafts in MODELS:
            server, shadow = served(system, model, drafts, asynchronous)
            shadow.share_of_time = 0
            checker, judged = shadow.sink.checker, 0
            while checker.stats.judged < calls / 4:
                server.serve(10)
                assert judged < (judged := checker.stats.judged), "it no longer follows"
            found["calls"] += judged
            found["checkpoints"] += checker.stats.checkpoints
            found["hits"] += server.hits
            for name, times in checker.known.times.items():
                found["findings"][name] = found["findings"].get(name, 0) + times
    return found

def broken(system, *patches):
    for each in patches:
        each.start()
    try:
        server, shadow = served(system, *MODELS[0])
        if shadow is None:
            return f"no shadow: {said[-1]}"
        server.serve(400)
        return f"no difference in {shadow.sink.checker.stats.judged} calls"
    except DifferenceError as error:
        return str(error)
    finally:
        for each in patches:
            each.stop()

def recorded(system):
    server = Server(MODELS[0][0], system=system, blocks=200)
    shadow = attachment.attach(server.scheduler, Switch(Mode.RECORD, folder / system))
    server.serve(60)
    server.scheduler.shutdown()
    shadow.sink._process.wait()
    (checked,) = recheck_recordings(folder / system, print)
    return [checked.header.system, checked.differences, checked.checker.stats.judged]

def published(slots):
    # The groups that vLLM-Ascend itself makes of the layers' specs, as vLLM passes them to its scheduler.
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm_ascend.patch.platform import patch_kv_cache_interface as specs
    from vllm_ascend.patch.platform import patch_kv_cache_utils as groups
    sizes = ASCEND_BLOCK_SIZES[slots]
    common = dict(num_kv_heads=1, model_version="deepseek_v4", cache_dtype_str="auto")
    latent = dict(head_size=512, dtype=torch.bfloat16, block_size=slots, **common)
    layers = {}
    for index, ratio in enumerate((4, 128)):
        layers[f"{index}.attn"] = specs.AscendMLAAttentionSpec(compress_ratio=ratio, **latent)
    for index in range(2):
        layers[f"{index}.window"] = specs.AscendSlidingWindowMLASpec(sliding_window=128, **latent)
    states = ((4, sizes.c4_state, 2048, 8), (128, sizes.c128_state, 1024, 128))
    for index, (ratio, size, dimension, window) in enumerate(states):
        layers[f"{index}.state"] = specs.AscendSlidingWindowMLASpec(
            sliding_window=window, head_size=dimension, dtype=torch.float32, block_size=size, compress_ratio=ratio,
            **common,
        )
    made = groups._get_kv_cache_groups_uniform_groups(groups.group_and_unify_kv_cache_specs(layers))
    dumped = [[each["block_size_tokens"], each.get("compress_ratio", 1)] for each in groups_of(made)]
    passed = kv_cache_utils.generate_scheduler_kv_cache_config([KVCacheConfig(100, [], made)]).kv_cache_groups
    read = [
        [each.kind.value, each.block_size_tokens, each.window_tokens, each.compress_ratio, each.whole_slots]
        for each in geometry.geometry_of(passed, use_eagle=False).groups
    ]
    return {"read": read, "dumped": dumped}

install_ascend(with_plug_in=True)
from swa_retention.patches import ascend_managers
from vllm_ascend.core.single_type_kv_cache_manager import CompressAttentionManager

results = {system: followed(system) for system in ("ascend", "ascend-retention")}
results["recorded"] = {system: recorded(system) for system in ("ascend", "ascend-retention")}
results["published"] = {slots: published(slots) for slots in ASCEND_BLOCK_SIZES}
begun = patch.object(
    CompressAttentionManager, "allocate_new_blocks",
    lambda self, request, tokens, main, original=CompressAttentionManager.allocate_new_blocks:
        original(self, request, tokens + self.compress_ratio - 1, main),
)
results["broken"] = {
    "sound": broken("ascend"),
    "begun slots": broken("ascend", begun),
    "begun slots, plug-in": broken(
        "ascend-retention", patch.object(ascend_managers, "whole_slots", lambda _manager, tokens: tokens)
    ),
    "read as slots": broken("ascend", patch.object(geometry, "spec_block_size_tokens", lambda spec: spec.block_size)),
    "read as begun slots": broken("ascend", patch.object(geometry, "counts_slots", lambda spec: False)),
    "no windows": broken("ascend", patch.object(observer, "_WINDOWED", {})),
    "without its findings": broken("ascend", patch.object(geometry, "system_of", lambda *_: "stock")),
    "without the plug-in": broken("ascend", patch.object(geometry, "system_of", lambda *_: "ascend-retention")),
}
print("\\n" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Any:
    """The findings of the shadows of that process."""
    folder = published()
    recordings = str(tmp_path_factory.mktemp("recordings"))
    environment = {**os.environ, WHERE: str(folder), "VLLM_LOGGING_LEVEL": "ERROR"}
    program = ("-c", PROGRAM, str(CALLS), recordings)
    finished = fork_server.run(*program, env=environment, timeout=300, cwd=Path(__file__).parents[3])
    assert 0 == finished.returncode, finished.stderr[-3000:]
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_followed_strictly(results: Any, system: str) -> None:
    """10,000 calls, hits among them, and no difference: one would have been raised."""
    found = results[system]
    assert found["calls"] >= CALLS
    assert found["hits"] > 20
    assert found["checkpoints"] > 20
    assert (system == "ascend") == (SLOTS in found["findings"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_recording_is_checked_as_what_it_is_of(results: Any, system: str) -> None:
    """Its header names the system, and so its findings."""
    named, differences, judged = results["recorded"][system]
    assert (system, 0) == (named, differences)
    assert judged > 200


@pytest.mark.parametrize("slots", ASCEND_BLOCK_SIZES)
def test_the_groups_of_deepseek_v4_are_read_in_tokens(results: Any, slots: int) -> None:
    """512 and 16384 tokens where ``--block-size`` is 128, in whole slots; by the shadow and by a dump."""
    groups = load(f"dsv4-flash-ascend-{slots}+whole-slots").geometry.groups
    found = results["published"][str(slots)]
    read = [[g.kind.value, g.block_size_tokens, g.window_tokens, g.compress_ratio, g.whole_slots] for g in groups]
    assert read == found["read"]
    assert [[g.block_size_tokens, g.compress_ratio] for g in groups] == found["dumped"]


@pytest.mark.parametrize(
    ("broken", "shown"),
    [
        ("sound", "no difference in "),
        ("begun slots", "KV-OP-05"),
        ("begun slots, plug-in", "KV-OP-05"),
        ("read as slots", "a block of 4 tokens is not whole slots of 16"),
        ("read as begun slots", "KV-OP-05"),
        ("no windows", "KV-OP-06"),
        ("without its findings", "KV-OP-0"),
        ("without the plug-in", "KV-OP-0"),
    ],
)
def test_what_is_broken_shows(results: Any, broken: str, shown: str) -> None:
    """Goal: each of the faults raises where it acts, or leaves no shadow. Method: one fault at a time; and none."""
    assert shown in results["broken"][broken]
