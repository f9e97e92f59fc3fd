"""The features: how an engine is started with each, and what must have been seen for its answers to say anything."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from kvgate.adapters.cpu_engine.job import DRAFT, Job, JobResult

ANSWER_TOKENS = 48
"""The length of every answer: it crosses a window of 32 tokens, and is three blocks."""

_RETENTION = {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "128"}
_PINS = {"VLLM_PIN_SWA_TOKENS": "1", "VLLM_PIN_MIN_DROP_SIZE": "1"}
_PARTIAL = {"VLLM_PREFIX_CACHE_PARTIAL_HITS": "auto"}
_EAGLE = {"speculative_config": {"method": "eagle", "model": DRAFT, "num_speculative_tokens": 2}}
_NGRAM = {
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
}


@frozen
class Feature:
    """A feature of the cache, or what disturbs one."""

    name: str
    sentence: str
    needs: tuple[str, ...]
    """What must have been seen; see ``EVIDENCE``."""
    environment: Mapping[str, str] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    larger_blocks: bool = False
    """Whether only models with blocks of several sizes have it."""
    short_of_blocks: bool = False
    """Whether the pool is too small for all requests at once."""


FEATURES = (
    Feature("hits", "prefix caching", ("hits",)),
    Feature("retention", "of windows, what a resume at multiples of 128 tokens reads", ("hits", "fewer"), _RETENTION),
    Feature("pins", "blocks that windows drop are pinned", ("hits", "pins"), _PINS),
    Feature("partial", "hits that end inside a block", ("hits", "inside"), _PARTIAL, larger_blocks=True),
    Feature(
        "together",
        "retention, pins, and partial hits where there are any",
        ("hits", "pins"),
        {**_RETENTION, **_PINS, **_PARTIAL},
    ),
    Feature("preemption", "a pool too small for all", ("hits", "preemptions"), short_of_blocks=True),
    Feature(
        "preemption, together",
        "the same with retention, pins and partial hits",
        ("hits", "preemptions"),
        {**_RETENTION, **_PINS, **_PARTIAL},
        short_of_blocks=True,
    ),
    Feature("n-gram", "drafts from the prompt", ("hits", "drafts"), options=_NGRAM),
    Feature("eagle", "drafts of a layer with a cache of its own", ("hits", "drafts"), options=_EAGLE),
    Feature(
        "eagle, together",
        "the same with retention, pins and partial hits",
        ("hits", "drafts", "pins"),
        {**_RETENTION, **_PINS, **_PARTIAL},
        _EAGLE,
    ),
    Feature(
        "eagle, preemption",
        "drafts in a pool too small for all",
        ("hits", "drafts", "preemptions"),
        options=_EAGLE,
        short_of_blocks=True,
    ),
)
FEATURE: Mapping[str, Feature] = MappingProxyType({each.name: each for each in FEATURES})

EVIDENCE = MappingProxyType(
    {
        "hits": "tokens were served from the cache",
        "inside": "a hit ended inside a block of full attention",
        "pins": "blocks were pinned in the end",
        "fewer": "fewer blocks were cached in the end than without",
        "preemptions": "requests were preempted",
        "drafts": "drafts were accepted, and others were not",
    }
)
"""What may have to be seen, by name."""


def lacking(feature: Feature, result: JobResult, with_hits: JobResult) -> tuple[str, ...]:
    """What ``feature`` needs and was not observed; ``with_hits`` is the engine with prefix caching alone."""
    largest = max((size for _, size in result.groups), default=1)
    seen = {
        "hits": result.cached_tokens > 0,
        "inside": any(answer.cached_tokens % largest for answer in result.answers),
        "pins": result.pinned_blocks > 0,
        "fewer": result.cached_blocks < with_hits.cached_blocks,
        "preemptions": result.preemptions > 0,
        "drafts": 0 < result.drafts_accepted < result.drafts,
    }
    return tuple(name for name in feature.needs if not seen[name])


def with_feature(feature: Feature, plain: Job, blocks_short: tuple[int, int]) -> Job:
    """The job without a cache, asked of an engine that has the feature.

    ``blocks_short`` are as many blocks as the longest request takes, without a draft model and with one.
    """
    options = {**plain.options, "enable_prefix_caching": True, **feature.options}
    if feature.short_of_blocks:
        options["num_gpu_blocks_override"] = blocks_short["speculative_config" in feature.options]
    return evolve(plain, name=feature.name, options=options, environment=dict(feature.environment))
