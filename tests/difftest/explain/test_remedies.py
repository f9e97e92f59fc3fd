"""Remedies.

Goal: the remedy of a cause is accepted and removes the cause. Method: each flag that a cause recommends, set as it
says, over models, releases and prompts; and the cases whose remedy once was rejected or already set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.explain.best_hit import Prompts
from kvgate.explain.cause import Case, Cause, Effect
from kvgate.explain.explanation import case_of, explain
from kvgate.explain.load import of_document
from kvgate.explain.rules import causes
from kvgate.explain.serving import Serving, Speculation

CONFIGS = Path(__file__).parent / "configs"
FLASH = {
    "model_type": "deepseek_v4",
    "num_hidden_layers": 43,
    "sliding_window": 128,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4],
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576,
}
MTP = Speculation("mtp")
POOL: dict[str, Any] = {"num_gpu_blocks_override": 16_000, "max_model_len": 100_000}
SERVED: list[tuple[str, dict[str, Any]]] = [
    ("dsv4", {"block_size": 384}),
    ("dsv4", {"block_size": 384, **POOL}),
    ("dsv4", {"block_size": 384, "retention": "33024", "version": "0.29.0"}),
    ("dsv4", {**POOL, "num_gpu_blocks_override": 3000}),
    ("dsv4", {**POOL, "retention": "auto", "version": "0.29.0"}),
    ("dsv4", {"platform": "ascend", "block_size": 32, **POOL}),
    ("dsv4", {"platform": "ascend", "block_size": 32, "version": "0.23.0", "speculation": MTP}),
    ("dsv4", {"platform": "ascend", "block_size": 32, "version": "0.22.0", **POOL, "num_gpu_blocks_override": 11_000}),
    ("gemma4", {"version": "0.29.0"}),
    ("gemma4", {"version": "0.29.0", "retention": "2048"}),
    ("gemma4", {"version": "0.29.0", "retention": "1000"}),
    ("gemma4", {"num_gpu_blocks_override": 4000, "max_model_len": 16384}),
    ("gpt-oss", {"version": "0.23.0", "retention": "auto", "speculation": MTP}),
    ("llama", {"retention": "32768", "version": "0.23.0"}),
    ("llama", {"num_gpu_blocks_override": 20}),
    ("qwen3-next", {}),
    ("qwen3-next-cached", {"enable_prefix_caching": True}),
    ("qwen3-next-cached", {"enable_prefix_caching": True, "max_num_batched_tokens": 20}),
]
PROMPTS = [None, Prompts(1500, 1500, 1400), Prompts(3000, 3000, 3000)]


def case(model: str, prompts: Prompts | None = None, **flags: Any) -> Case:
    """A configuration of the tests, or DeepSeek-V4."""
    serving = Serving(**flags)
    if model == "dsv4":
        return case_of(lambda served: of_document(FLASH, Path("config.json"), served), serving, prompts)
    from kvgate.explain.load import load

    return case_of(lambda served: load(str(CONFIGS / model), served), serving, prompts)


def named(model: str, prompts: Prompts | None = None, **flags: Any) -> dict[str, Cause]:
    """The causes by id."""
    return {cause.id: cause for cause in causes(case(model, prompts, **flags))}


def followed() -> Iterator[tuple[str, dict[str, Any], Prompts | None, Cause]]:
    """Every cause of every case that says what to set."""
    for model, flags in SERVED:
        for prompts in PROMPTS:
            for cause in named(model, prompts, **flags).values():
                if cause.sets:
                    yield model, flags, prompts, cause


def test_what_is_followed_is_accepted_and_the_cause_is_gone() -> None:
    """For every cause whose remedy is a flag."""
    seen = set()
    for model, flags, prompts, cause in followed():
        allowed = dict(cause.sets).get("max_model_len")
        if prompts is not None and isinstance(allowed, int) and prompts.first_tokens > allowed:
            continue
        after = named(model, prompts, **{**flags, **dict(cause.sets)})
        assert cause.id not in after, (model, flags, prompts, cause.remedy)
        assert "interval-is-refused" not in after, (model, flags, prompts, cause.remedy)
        before = {each.id for each in named(model, prompts, **flags).values() if each.effect is Effect.ALWAYS_ZERO}
        certain = {each.id for each in after.values() if each.effect is Effect.ALWAYS_ZERO}
        assert certain <= before, (model, flags, prompts, cause.remedy)
        seen.add(cause.id)
    assert {
        "caching-is-off",
        "chunk-below-state-block",
        "interval-is-refused",
        "never-fits",
        "parts-before-what-is-kept",
        "state-in-unique-tail",
        "windows-flush-the-pool",
    } <= seen


def test_a_remedy_that_reads_like_a_flag_says_what_it_sets() -> None:
    """Else the test above would pass it by."""
    for model, flags in SERVED:
        for prompts in PROMPTS:
            for cause in named(model, prompts, **flags).values():
                words = cause.remedy.split(" ")[0]
                flag = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=" in cause.remedy or words.startswith("--")
                if flag and cause.id not in ("coarse-alignment",):
                    assert cause.sets, cause


def test_the_interval_is_one_that_the_alignment_allows() -> None:
    """Blocks of 384 tokens: auto is rejected, and 33,024 is not; with it set, no further remedy is reported."""
    remedy = named("dsv4", block_size=384)["windows-flush-the-pool"].remedy
    assert "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=33024" in remedy
    with_auto = named("dsv4", block_size=384, retention="auto", version="0.23.0")
    assert "interval-is-refused" in with_auto
    assert "windows-flush-the-pool" not in with_auto
    assert "an interval of 33024" == with_auto["interval-is-refused"].remedy


def test_where_no_interval_retains_more_it_takes_more_blocks() -> None:
    """The prompt alone fills the pool."""
    prompts = Prompts.replay(40_000)
    found = {
        blocks: named("dsv4", prompts, max_model_len=40_000, num_gpu_blocks_override=blocks)["windows-flush-the-pool"]
        for blocks in (3520, 16_000)
    }
    assert ("more blocks", ()) == (found[3520].remedy, found[3520].sets)
    assert found[16_000].sets


@pytest.mark.parametrize(("set_before", "at_most"), [(None, 1400), ("2048", 1400), ("1024", 1023)])
def test_a_shorter_interval_is_shorter_and_below_what_is_shared(set_before: str | None, at_most: int) -> None:
    """Prompts of 1,500 tokens that share 1,400."""
    prompts = Prompts(1500, 1500, 1400)
    flags: dict[str, Any] = {"version": "0.29.0", **({"retention": set_before} if set_before else {})}
    cause = named("gemma4", prompts, **flags).get("parts-before-what-is-kept")
    if cause is None:
        assert "1024" == set_before
        return
    interval = int(str(dict(cause.sets)["retention"]))
    assert 0 < interval <= at_most
    assert explain(case("gemma4", prompts, version="0.29.0", retention=str(interval))).figures.hit


@pytest.mark.parametrize(
    ("version", "keeps_junctions"), [("0.20.2", True), ("0.23.0", False), ("0.27.1", True), ("0.33.0", True)]
)
def test_junctions_are_known(version: str, keeps_junctions: bool) -> None:
    """With the plug-in, and in vLLM since 0.27.1, the second prompt alone misses."""
    cause = named("gemma4", Prompts(1500, 1500, 1400), version=version, retention="0")["parts-before-what-is-kept"]
    assert keeps_junctions == ("the third one hits it" in cause.condition)
    assert keeps_junctions == ("for the second prompt already" in cause.remedy)


def test_a_model_without_a_window_gets_one_message_about_an_interval() -> None:
    """The plug-in warns that it has no effect, and starts; vLLM 0.23 refuses it."""
    assert set() == set(named("llama", retention="32768", version="0.20.2"))
    assert {"interval-is-refused"} == set(named("llama", retention="32768", version="0.23.0"))


def test_before_vllm_retains_it_is_the_plugin_that_refuses() -> None:
    """An interval that is not a multiple of the alignment."""
    found = named("gemma4", retention="1001")
    assert "with the plug-in" in found["interval-is-refused"].says
    assert "with the plug-in" not in named("gemma4", retention="1001", version="0.23.0")["interval-is-refused"].says


def test_what_follows_the_switch_is_reported_with_it() -> None:
    """With caching off, the causes that are there once it is on."""
    off = [cause.id for cause in causes(case("qwen3-next"))]
    on = [cause.id for cause in causes(case("qwen3-next", enable_prefix_caching=True))]
    assert ["caching-is-off", *on] == off
    assert "state-in-unique-tail" in off


def test_the_policy_in_effect_is_in_the_table() -> None:
    """First, with what it retains."""
    pool: dict[str, Any] = {"num_gpu_blocks_override": 16_000, "max_model_len": 131_072, "platform": "ascend"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "dense"),
        ({"version": "0.22.0"}, "masked"),
        ({"version": "0.29.0"}, "retention 0"),
        ({"version": "0.29.0", "retention": "auto"}, "retention 32768"),
    ]
    for flags, like in cases:
        first, *others = explain(case("dsv4", Prompts.replay(40_000), **pool, **flags)).figures.policies
        assert "in effect" == first.name
        same = next(each for each in others if each.name == like)
        assert (same.blocks_kept, same.prefixes_retained) == (first.blocks_kept, first.prefixes_retained), like


def test_masked_is_said_of_the_releases_that_have_it() -> None:
    """From 0.29 on the default is an interval of 0."""
    flags = {policy.name: policy.flags for policy in explain(case("gemma4")).figures.policies}
    assert "vLLM from 0.22.0 to before 0.29.0" == flags["masked"]


def test_evolving_a_case_reckons_anew() -> None:
    """Nothing of the old settings is kept."""
    first = case("gemma4")
    assert first.settings.retention_interval_tokens is None
    again = evolve(first, serving=evolve(first.serving, retention="32768"))
    assert 32768 == again.settings.retention_interval_tokens
