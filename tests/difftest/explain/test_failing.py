"""Settings that are known to fail.

Goal: each cause is reported with its guarantee, and only where it applies. Method: settings that have the cause, and
for each the nearest settings that do not.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.explain.cause import Case, Cause, Effect
from kvgate.explain.load import load
from kvgate.explain.rules import causes
from kvgate.explain.serving import Serving, Speculation
from kvreference.statements import STATEMENTS

MTP = Speculation("mtp")
ASCEND: dict[str, Any] = {"platform": "ascend"}


def named(model: str, **flags: Any) -> dict[str, Cause]:
    """The causes by id."""
    serving = Serving(**flags)
    return {cause.id: cause for cause in causes(Case(load(model, serving), serving))}


@pytest.mark.parametrize(
    ("id", "model", "flags", "model_without", "flags_without"),
    [
        ("never-fits", "full", {"num_gpu_blocks_override": 9, "max_model_len": 200}, "full", {"max_model_len": 200}),
        (
            "never-fits",
            "full",
            {"num_gpu_blocks_override": 9, "max_model_len": 129},
            "full",
            {"num_gpu_blocks_override": 9, "max_model_len": 128},
        ),
        (
            "chunk-below-state-block",
            "mamba-align",
            {"max_num_batched_tokens": 15, "enable_prefix_caching": True},
            "mamba-align",
            {"max_num_batched_tokens": 16, "enable_prefix_caching": True},
        ),
        (
            "chunk-below-state-block",
            "mamba-align",
            {"long_prefill_token_threshold": 10, "enable_prefix_caching": True},
            "full",
            {"long_prefill_token_threshold": 10},
        ),
        ("interval-is-refused", "mixed-blocks", {"retention": "48"}, "mixed-blocks", {"retention": "64"}),
        ("interval-is-refused", "full", {"retention": "64", "version": "0.23.0"}, "full", {"retention": "64"}),
        ("retention-needs-the-plug-in", "swa", {"retention": "64"}, "swa", {"retention": "64", "version": "0.23.0"}),
        (
            "retention-is-ignored",
            "gpt-oss-hybrid",
            {**ASCEND, "version": "0.30.0rc2", "retention": "512"},
            "gpt-oss-hybrid",
            {**ASCEND, "version": "0.23.0", "retention": "512"},
        ),
        ("known-by-slots", "dsv4-flash-ascend-32", ASCEND, "dsv4-flash-ascend-32", {**ASCEND, "version": "0.23.0"}),
        ("known-by-slots", "compressed", ASCEND, "mixed-blocks", ASCEND),
        ("equal-groups-drop-too", "dsv4-flash+mtp", {}, "dsv4-flash", {}),
        ("no-group-is-flagged", "dsv4-flash-ascend-128+mtp", ASCEND, "dsv4-flash-ascend-128+eagle", ASCEND),
        ("caching-is-off", "mamba-align", {}, "mamba-align", {"version": "0.30.0"}),
    ],
)
def test_only_affected_settings_are_warned_of(
    id: str,  # noqa: A002 - it is what a cause calls it
    model: str,
    flags: dict[str, Any],
    model_without: str,
    flags_without: dict[str, Any],
) -> None:
    """By the id of the cause."""
    assert id in named(model, **flags)
    assert id not in named(model_without, **flags_without)


@pytest.mark.parametrize(
    ("blocks", "flags", "says"),
    [
        (
            9,
            {"max_model_len": 200},
            "vLLM 0.20.2 does not start: to serve one request of 200 tokens it reckons",
        ),
        (
            9,
            {"max_model_len": 129},
            "vLLM starts, for it reckons with 9 of them, but a request of more than 128",
        ),
        (9, {"max_model_len": 200, "version": "0.19.0"}, "a request of more than 128 tokens does not fit"),
        (9, {"max_model_len": 200, "platform": "ascend"}, "a request of more than 128 tokens does not fit"),
    ],
)
def test_a_rejected_pool_is_distinguished_from_one_that_hangs(blocks: int, flags: dict[str, Any], says: str) -> None:
    """vLLM compares its estimate with the pool when it starts; only what it leaves out hangs."""
    assert named("full", num_gpu_blocks_override=blocks, **flags)["never-fits"].says.startswith(says)


def test_ordinary_settings_are_not_warned_of() -> None:
    """Models with small blocks, and a pool that is large enough."""
    for model in ("full", "swa", "gemma-hybrid", "gpt-oss-hybrid", "two-windows"):
        for version in ("0.20.2", "0.23.0"):
            assert {} == named(model, version=version, num_gpu_blocks_override=60_000, max_model_len=8192), model
        assert {} == named(model, speculation=MTP, num_gpu_blocks_override=60_000, max_model_len=8192), model


def test_what_is_certain_is_reported_first() -> None:
    """The worst for the hit rate before what costs a little."""
    flags: dict[str, Any] = {**ASCEND, "version": "0.23.0", "retention": "16384"}
    effects = [cause.effect for cause in named("dsv4-flash-ascend-128+mtp", **flags).values()]
    assert Effect.ALWAYS_ZERO == effects[0]
    assert effects == sorted(effects, key=list(Effect).index)


def test_a_cause_has_a_guarantee_a_thread_and_a_remedy() -> None:
    """And a condition if and only if it does not apply to all prompts."""
    sound: dict[str, Any] = {
        "id": "some-cause",
        "effect": Effect.ALWAYS_ZERO,
        "statement": next(iter(STATEMENTS)),
        "upstream": ("vllm-project/vllm#1",),
        "says": "what is the matter",
        "remedy": "what to do",
    }
    assert "some-cause" == Cause(**sound).id
    for change in (
        {"statement": "KV-OP-" + "99"},
        {"upstream": ()},
        {"upstream": ("somewhere",)},
        {"remedy": ""},
        {"condition": "they are short"},
        {"effect": Effect.ZERO_IF},
    ):
        with pytest.raises(ValueError, match=r".+"):
            Cause(**{**sound, **change})
