"""From layers to groups.

Goal: groups are as vLLM makes them where its rules matter, and what vLLM rejects is rejected. Method: layers by hand;
the configurations in ``configs`` are compared with vLLM itself in ``test_groups_vllm``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.explain.alignment import derivation, dominant
from kvgate.explain.config_file import Config
from kvgate.explain.deepseek_v4 import grouping
from kvgate.explain.layers import Layer, grouped
from kvgate.explain.load import load as load_layout
from kvgate.explain.load import of_document
from kvgate.explain.serving import Platform, Serving, Speculation, speculation_of
from kvgate.explain.states import multi_head
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvreference.attention import Kind
from kvreference.compressed import ASCEND_BLOCK_SIZES, dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group

FULL = Layer(Kind.FULL, 16, 4096, (8, 64))
SLIDES = Layer(Kind.SLIDING_WINDOW, 16, 4096, (8, 64), 128)
FLASH = Config(
    Path("config.json"),
    {
        "model_type": "deepseek_v4",
        "num_hidden_layers": 43,
        "sliding_window": 128,
        "compress_ratios": [0, 0, *[4, 128] * 20, 4],
        "num_nextn_predict_layers": 1,
    },
)


def sizes(layers: list[Layer]) -> list[tuple[str, int, int]]:
    """Kind, block size and layers of each group."""
    return [(each.group.kind.value, each.group.block_size_tokens, each.layers) for each in grouped(layers).groups]


def test_all_alike_are_one_group() -> None:
    """If their heads differ too: each layer then has memory of its own size."""
    assert [("full", 16, 4)] == sizes([FULL] * 4)
    wide = Layer(Kind.FULL, 16, 8192, (16, 64))
    assert [("full", 16, 3)] == sizes([FULL, wide, FULL])
    assert 4096 + 8192 == grouped([FULL, wide]).block_bytes


def test_the_kind_with_more_layers_is_dealt_out() -> None:
    """Over groups of as many layers as the other kind has; but for a small difference, which is padded."""
    assert [("sliding_window", 16, 2)] * 2 + [("full", 16, 2)] == sizes([SLIDES, SLIDES, FULL, SLIDES, SLIDES, FULL])
    assert [("sliding_window", 16, 4), ("full", 16, 3)] == sizes([*[SLIDES] * 4, *[FULL] * 3])
    assert [("sliding_window", 16, 2), ("sliding_window", 16, 1), ("full", 16, 2)] == sizes([*[SLIDES] * 3, FULL, FULL])


def test_blocks_are_stretched_to_one_size_in_bytes() -> None:
    """Where a token is cheaper, a block has more of them."""
    cheap = Layer(Kind.FULL, 16, 2048, (1, 64))
    assert [("sliding_window", 16, 1), ("full", 32, 1)] == sizes([SLIDES, cheap])
    with pytest.raises(UsageError, match=r"blocks of 3000 and of 4096 bytes cannot share a pool"):
        grouped([SLIDES, Layer(Kind.FULL, 16, 3000, (1, 64))])


def test_without_the_hybrid_manager_windows_are_full() -> None:
    """If full attention exists to convert to; else vLLM rejects the model."""
    assert [(16, 2)] == [
        (each.group.block_size_tokens, each.layers) for each in grouped([SLIDES, FULL], hybrid_manager=False).groups
    ]
    other = Layer(Kind.SLIDING_WINDOW, 16, 4096, (8, 64), 256)
    with pytest.raises(UsageError, match="disable-hybrid-kv-cache-manager"):
        grouped([SLIDES, other], hybrid_manager=False)
    with pytest.raises(UsageError, match="no layer with a KV cache"):
        grouped([])


@pytest.mark.parametrize("drafts", [False, True])
def test_deepseek_v4_flash_is_the_references(drafts: bool) -> None:
    """On both platforms, with the draft layer's group flagged."""
    speculation = Speculation("mtp") if drafts else None
    on_gpu = grouping(FLASH, Serving(speculation=speculation))
    assert dsv4_flash(mtp=drafts) == Geometry(tuple(placed.group for placed in on_gpu.groups))
    assert [62, 22, 22 if drafts else 21, 21, 20] == [placed.layers for placed in on_gpu.groups]
    for size in ASCEND_BLOCK_SIZES:
        serving = Serving(platform=Platform.ASCEND, block_size=size, speculation=speculation)
        found = grouping(FLASH, serving)
        assert dsv4_flash_ascend(size, mtp=drafts) == Geometry(tuple(placed.group for placed in found.groups))


@pytest.mark.parametrize(
    ("change", "serving", "message"),
    [
        ({"compress_ratios": [4, 8] * 22}, Serving(), "compress ratios of"),
        ({"compress_ratios": None}, Serving(), "needs compress_ratios"),
        ({}, Serving(block_size=100), "a multiple of 128 tokens"),
        ({}, Serving(platform=Platform.ASCEND, block_size=16), "block size 16 is not one of 128, 64, 32"),
    ],
)
def test_another_deepseek_v4_is_rejected(change: dict[str, object], serving: Serving, message: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=message):
        grouping(Config(FLASH.path, {**FLASH.values, **change}), serving)


def test_pages_of_states_on_ascend_are_those_of_the_thread() -> None:
    """Pages of 1,536 tokens for such a model on two workers, by vllm-ascend#16449; 1,568 on a GPU, by vllm#53504."""
    report = json.loads((Path(__file__).parent / "reports" / "53504-dense.json").read_text(encoding="utf-8"))
    blocks = {}
    for platform in Platform:
        serving = Serving(platform=platform, tensor_parallel_size=2, enable_prefix_caching=True, kv_cache_dtype="fp8")
        if platform is Platform.ASCEND:
            serving = evolve(serving, kv_cache_dtype="auto")
        blocks[platform] = of_document(report["model"], Path("config.json"), serving).geometry.alignment_tokens
    assert {Platform.GPU: 1568, Platform.ASCEND: 1536} == blocks


def test_the_group_that_decides_the_alignment() -> None:
    """The one without which hits could end more often."""
    ascend = load("dsv4-flash-ascend-128").geometry
    assert (1, "lcm(512, 16384, 128, 8, 32) = 16384") == (dominant(ascend), derivation(ascend))
    assert 0 == dominant(load("mixed-blocks").geometry)
    crossed = Geometry((Group(Kind.FULL, 48), Group(Kind.FULL, 32), Group(Kind.FULL, 16)))
    assert (0, 96) == (dominant(crossed), crossed.alignment_tokens)
    assert "no group serves hits" == derivation(Geometry(load("mamba-none").geometry.groups[1:]))


@pytest.mark.parametrize(
    ("version", "config", "expected"),
    [
        ("0.33.0", '{"method": "mtp"}', (1, 0)),
        ("0.33.0", '{"method": "mtp", "disable_lookahead_block_hashes": true}', (0, 16)),
        ("0.33.0", '{"method": "ngram"}', (0, 0)),
        ("0.23.0", '{"method": "mtp"}', (0, 16)),
    ],
)
def test_hashes_cover_a_token_more_where_the_release_has_such(
    version: str, config: str, expected: tuple[int, int]
) -> None:
    """Of the layers that read the cache, and unless it is switched off."""
    geometry = load_layout("full", Serving(version=version, speculation=speculation_of(config))).geometry
    assert expected == (geometry.hashed_ahead_tokens, geometry.lookahead_tokens)


def test_such_hashes_are_rejected_where_the_release_has_none() -> None:
    """A model of the gate that has them, and a speculative config that is neither yes nor no."""
    with pytest.raises(UsageError, match=r"hashes of vLLM 0\.23\.0 cover no token after a block"):
        load_layout("full+eagle+hashed-ahead", Serving(version="0.23.0"))
    assert 1 == load_layout("full+eagle+hashed-ahead", Serving(version="0.33.0")).geometry.hashed_ahead_tokens
    with pytest.raises(UsageError, match="is true or false"):
        speculation_of('{"method": "mtp", "disable_lookahead_block_hashes": 1}')


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
STATED = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4}


@pytest.mark.parametrize(
    ("family", "values", "serving", "message"),
    [
        ("bamba", STATED, Serving(), "bamba needs layer_types"),
        ("bamba", {**STATED, "layer_types": ["mamba", "conv"]}, Serving(), "other words than mamba and attention"),
        ("nemotron_h", STATED, Serving(), "needs hybrid_override_pattern"),
        ("nemotron_h", {**STATED, "hybrid_override_pattern": "M*M"}, Serving(), "needs hybrid_override_pattern"),
        ("nemotron_h", {**STATED, "hybrid_override_pattern": "M?"}, Serving(), "needs hybrid_override_pattern"),
        ("zamba2", STATED, Serving(), "needs layers_block_type"),
        ("falcon_h1", STATED, Serving(tensor_parallel_size=3), "--tensor-parallel-size 3 does not divide the channels"),
        ("falcon_h1", STATED, Serving(tensor_parallel_size=8), "--tensor-parallel-size 8 does not divide the heads"),
        ("falcon_h1", STATED, Serving(platform=Platform.ASCEND), "falcon_h1 is not known on Ascend here"),
        ("mamba2", {**STATED, "head_dim": 16}, Serving(platform=Platform.ASCEND), "mamba2 is not known on Ascend here"),
        ("lfm2", {"conv_L_cache": 3}, Serving(mamba_cache_mode="all"), "cannot keep all states of this model"),
        (
            "falcon_h1",
            STATED,
            Serving(version="0.33.0", mamba_cache_mode="all"),
            "cannot keep all states of this model",
        ),
        ("falcon_h1", {}, Serving(), "falcon_h1 needs mamba_n_heads"),
        ("falcon_h1", {**STATED, "num_attention_heads": 128}, Serving(), "keeps no bytes"),
        ("lfm2", {"conv_L_cache": 1, "layer_types": ["conv", "full_attention"]}, Serving(), "keeps no bytes"),
        ("bamba", STATED, Serving(version="0.30.0"), "vLLM 0.30.0 has no model of its own for 'bamba'"),
    ],
)
def test_states_that_are_not_understood_are_rejected(
    family: str, values: dict[str, object], serving: Serving, message: str
) -> None:
    """A file that lacks something, or a server that the family is not known on."""
    with pytest.raises(UsageError, match=re.escape(message)):
        of_document({"model_type": family, **SMALL, **values}, Path("config.json"), serving)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(None, ("all", 256)), ("align", ("align", 16)), ("all", ("all", 256)), ("none", ("none", 4096))],
)
def test_which_states_are_kept_can_be_said(mode: str | None, expected: tuple[str, int]) -> None:
    """All of them where the model allows it, in blocks of whole chunks; or fewer, as asked."""
    document = {"model_type": "falcon_h1", **SMALL, **STATED, "mamba_chunk_size": 256, "max_position_embeddings": 4096}
    serving = Serving(enable_prefix_caching=True, mamba_cache_mode=mode)
    states = of_document(document, Path("config.json"), serving).groups[1].group
    assert states.states is not None
    assert expected == (states.states.value, states.block_size_tokens)


def test_states_are_divided_over_workers() -> None:
    """Heads and channels; a group that all heads share is on each worker."""
    config = Config(Path("config.json"), {"model_type": "falcon_h1", **SMALL, **STATED})
    alone, two = (multi_head(config, Serving(tensor_parallel_size=workers)) for workers in (1, 2))
    assert (2 * two.recurrent_bytes, (64 + 32) * 3 * 2, (32 + 32) * 3 * 2) == (
        alone.recurrent_bytes,
        alone.convolution_bytes,
        two.convolution_bytes,
    )


@pytest.mark.parametrize(("pattern", "sliding"), [("LLG", 4), (3, 4), ("", 5), (None, 5)])
def test_a_pattern_may_be_a_word(pattern: object, sliding: int) -> None:
    """A letter for each layer says as much as their number; without one it is the family's, four."""
    document = {"model_type": "exaone4", **SMALL, "num_hidden_layers": 6, "sliding_window": 64}
    layout = of_document({**document, "sliding_window_pattern": pattern}, Path("config.json"), Serving())
    assert sliding == sum(placed.layers for placed in layout.groups if placed.group.window_tokens)
