"""The groups that vLLM itself makes.

Goal: ``kvgate explain`` reads out of a configuration what vLLM 0.20.2 makes of it. Method: a process that has vLLM
build each model in ``configs``, without weights, and ask its layers. The same for DeepSeek-V4, whose layers are asked
one by one because no CPU builds the model. Other releases are in ``test_families.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kvgate.adapters.kv_cache_dump import FORMAT, document_of, groups_of, write
from kvgate.adapters.releases import INSTALLED
from kvgate.explain import dump
from kvgate.explain.layers import Placed
from kvgate.explain.load import load, of_document
from kvgate.explain.serving import Serving, Speculation
from kvgate.kernel.models import MODELS

from .families import CONFIGS, NAMES, asked, flags_of, ours, theirs

if TYPE_CHECKING:
    from tests.fork_server import ForkServer


pytestmark = pytest.mark.ci

SECONDS_MAX = 900


@pytest.fixture(scope="module")
def answers(fork_server: ForkServer) -> dict[str, dict[str, Any]]:
    """By configuration, what vLLM says."""
    command = ("-m", "kvgate.adapters.kv_cache_groups", *(str(CONFIGS / name) for name in NAMES))
    ran = fork_server.run(*command, timeout=SECONDS_MAX)
    lines = [line.removeprefix("kvgate ") for line in ran.stdout.splitlines() if line.startswith("kvgate ")]
    assert len(NAMES) == len(lines), ran.stderr[-3000:]
    return {answer["folder"]: answer for answer in map(json.loads, lines)}


def placed_in(groups: list[dict[str, Any]]) -> list[Placed]:
    """The same of what vLLM says."""
    return list(dump.of({"format": FORMAT, "version": 1, "groups": groups}, Path("vLLM")).placed())


@pytest.mark.parametrize("name", NAMES)
def test_groups_are_vllms(name: str, answers: dict[str, dict[str, Any]]) -> None:
    """Kinds, blocks, windows and layers, in order, as they are stored; and what memory a block of the pool takes."""
    answer = answers[name]
    assert "refused" not in answer, answer["refused"]
    assert theirs(answer) == ours(name, INSTALLED.version)
    assert answer["block_bytes"] == load(str(CONFIGS / name), Serving(**flags_of(name))).block_bytes
    assert INSTALLED.version in asked()[name][theirs(answer)]


def _specs_of_deepseek_v4(ratios: list[int], drafted: int) -> dict[str, Any]:
    """The KV-cache specs of the layers of DeepSeek-V4, in the order in which vLLM builds them."""
    import torch
    from vllm.model_executor.layers.deepseek_compressor import CompressorStateCache
    from vllm.model_executor.layers.deepseek_v4_attention import DeepseekV4IndexerCache, DeepseekV4MLAAttention
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekV4SWACache

    cache = SimpleNamespace(block_size=256, cache_dtype="fp8_ds_mla")
    config: Any = SimpleNamespace(cache_config=cache)
    specs: dict[str, Any] = {}
    for index, ratio in enumerate([*ratios, *[0] * drafted]):
        window: Any = SimpleNamespace(
            block_size=64, head_dim=512, dtype=torch.uint8, window_size=128, cache_config=cache
        )
        specs[f"{index}.swa"] = DeepseekV4SWACache.get_kv_cache_spec(window, config)
        if not ratio:
            continue
        latent: Any = SimpleNamespace(compress_ratio=ratio, head_dim=512, kv_cache_dtype="fp8_ds_mla")
        specs[f"{index}.mla"] = DeepseekV4MLAAttention.get_kv_cache_spec(latent, config)
        overlap = 1 + (ratio == 4)
        block = 4 if ratio == 4 else 8
        sizes = {"state": 2 * overlap * 512}
        if ratio == 4:
            indexer: Any = SimpleNamespace(cache_config=cache, head_dim=132, dtype=torch.uint8, compress_ratio=ratio)
            specs[f"{index}.indexer"] = DeepseekV4IndexerCache.get_kv_cache_spec(indexer, config)
            sizes["indexer.state"] = 2 * overlap * 128
        for name, size in sizes.items():
            state: Any = SimpleNamespace(
                block_size=block, state_dim=size, dtype=torch.float32, sliding_window=overlap * ratio
            )
            specs[f"{index}.{name}"] = CompressorStateCache.get_kv_cache_spec(state, config)
    if drafted:
        last = f"{len(ratios) + drafted - 1}.swa"
        specs[last] = specs.pop(last)
    return specs


@pytest.mark.parametrize("drafted", [0, 1])
@pytest.mark.parametrize("ratios", [[0, 0, *[4, 128] * 20, 4], [0, *[4, 128] * 30]], ids=["flash", "longer"])
def test_deepseek_v4_is_vllms(ratios: list[int], drafted: int) -> None:
    """Its layers' own words, grouped by vLLM; and the memory that a block of the pool takes."""
    from vllm.v1.core import kv_cache_utils

    speculative = SimpleNamespace(use_eagle=lambda: True) if drafted else None
    config: Any = SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False), speculative_config=speculative
    )
    groups = kv_cache_utils.get_kv_cache_groups(config, _specs_of_deepseek_v4(ratios, drafted))
    document = {
        "model_type": "deepseek_v4",
        "num_hidden_layers": len(ratios),
        "compress_ratios": ratios,
        "sliding_window": 128,
        "num_nextn_predict_layers": 1,
    }
    serving = Serving(block_size=256, speculation=Speculation("mtp") if drafted else None)
    layout = of_document(document, Path("config.json"), serving)
    found = placed_in(groups_of(groups))
    assert [placed.group for placed in found] == [placed.group for placed in layout.groups]
    assert [len(group.layer_names) for group in groups] == [
        placed.layers * (2 if "C4 state" in placed.label else 1) for placed in layout.groups
    ]
    assert kv_cache_utils._pool_bytes_per_block(groups) == layout.block_bytes


@pytest.mark.parametrize("name", ["gpt-oss-hybrid", "local", "mamba-align", "dsv4-flash+mtp"])
def test_a_dump_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    """From vLLM's own specs, through a file, to the same groups."""
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvgate.adapters.groups import group_specs
    from kvgate.kernel.models import load as preset

    geometry = preset(name).geometry
    config = KVCacheConfig(num_blocks=77, kv_cache_tensors=[], kv_cache_groups=group_specs(geometry))
    path = tmp_path / "kv-cache-config.json"
    write(config, path)
    assert document_of(config) == json.loads(path.read_text())
    layout = load(str(path), Serving())
    assert (geometry.groups, 77) == (layout.geometry.groups, layout.blocks)
    assert name.partition("+")[0] in MODELS


@pytest.mark.parametrize("eagle", [False, True])
def test_chunks_end_where_vllms_scheduler_cuts_them(eagle: bool) -> None:
    """vLLM's own rule for models that keep states at block ends, asked chunk by chunk."""
    from attrs import evolve
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvgate.explain.chunks import chunk_ends
    from kvgate.kernel.models import load as preset
    from kvreference.settings import Settings

    geometry = preset("mamba-align+eagle" if eagle else "mamba-align").geometry
    for budget in (16, 40, 64, 500):
        settings = evolve(Settings(geometry, 100), chunk_tokens=budget)
        server: Any = SimpleNamespace(cache_config=SimpleNamespace(block_size=16), use_eagle=eagle)
        for prompt in (15, 16, 17, 31, 32, 48, 63, 100, 128, 129):
            ends = [0]
            while ends[-1] < prompt:
                request: Any = SimpleNamespace(
                    num_computed_tokens=ends[-1], num_prompt_tokens=prompt, num_tokens=prompt
                )
                new = Scheduler._mamba_block_aligned_split(server, request, min(budget, prompt - ends[-1]))
                ends.append(ends[-1] + new)
            assert ends[1:] == chunk_ends(settings, prompt), (budget, prompt)
