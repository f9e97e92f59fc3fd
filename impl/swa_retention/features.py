"""The features, each with the patches that it needs."""

from __future__ import annotations

from attrs import frozen

from swa_retention.config import PIN, PIN_MIN_DROP, RETENTION, Configuration
from swa_retention.patches import attach, caching, free_queue, pinning
from swa_retention.register import Patch


@frozen
class Feature:
    """Something that can be switched on."""

    name: str
    variables: tuple[str, ...]
    patches: tuple[Patch, ...]
    upstream: bool = True
    """Whether a later vLLM has it: where it is there, nothing is patched."""


RETAINS = Feature("retention", (RETENTION,), (*free_queue.PATCHES, *caching.PATCHES, *attach.PATCHES))
"""Sliding windows are cached at retained boundaries alone, and what is not cached is used again first."""
PINS = Feature(
    "the pinned tier", (PIN, PIN_MIN_DROP), (*free_queue.PATCHES, *pinning.PATCHES, *attach.PATCHES), upstream=False
)
"""What a window leaves behind is kept out of the free queue until blocks run short."""
FEATURES = (RETAINS, PINS)


def features_of(configuration: Configuration) -> tuple[Feature, ...]:
    """The features that ``configuration`` switches on."""
    retains = (RETAINS,) if configuration.retention_interval_tokens is not None else ()
    return (*retains, *((PINS,) if configuration.pins else ()))
