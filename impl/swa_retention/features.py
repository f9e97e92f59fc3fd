"""The features, each with the patches that it needs."""

from __future__ import annotations

from attrs import frozen

from swa_retention import releases
from swa_retention.config import Configuration
from swa_retention.patches import (
    ascend_layers,
    ascend_managers,
    attach,
    caching,
    compressed,
    dispatch,
    free_queue,
    junctions,
    metrics,
    newer_keywords,
    partial_hits,
    pinning,
)
from swa_retention.register import Patch


@frozen
class Feature:
    """Something that can be switched on."""

    name: str
    """As in the table of releases."""
    patches: tuple[Patch, ...]


BUILT = (*attach.PATCHES, *newer_keywords.PATCHES, *compressed.LOOKUP, *ascend_managers.PATCHES)
"""How a block manager is built, and that it counts tokens: what every feature needs."""

RETAINS = Feature(
    releases.RETENTION,
    (*free_queue.PATCHES, *caching.PATCHES, *junctions.PATCHES, *metrics.PATCHES, *BUILT),
)
"""Sliding windows are cached at retained boundaries alone, and what is not cached is used again first."""
PINS = Feature(
    releases.PINS,
    (*free_queue.PATCHES, *pinning.PATCHES, *metrics.PATCHES, *BUILT),
)
"""Blocks that a window drops are kept out of the free queue until blocks run short."""
PARTIAL_HITS = Feature(
    releases.PARTIAL_HITS,
    (
        *partial_hits.PATCHES,
        *caching.WHERE_VLLM_MASKS,
        *dispatch.PATCHES,
        *metrics.PATCHES,
        *metrics.DONE,
        *BUILT,
    ),
)
"""A hit may end inside a block, and is then served by a copy."""
COMPRESSED_GROUPS = Feature(releases.COMPRESSED, (*compressed.PAGES, *ascend_layers.PATCHES, *BUILT))
"""The blocks of DeepSeek-V4 have the size that was asked for, and its tensors no more than they need."""
FEATURES = (RETAINS, PINS, PARTIAL_HITS, COMPRESSED_GROUPS)


def features_of(configuration: Configuration) -> tuple[Feature, ...]:
    """The features that ``configuration`` switches on."""
    retains = (RETAINS,) if configuration.retains or configuration.scratch_first else ()
    pins = (PINS,) if configuration.pins else ()
    partial = (PARTIAL_HITS,) if configuration.partial_hits else ()
    compressed_groups = (COMPRESSED_GROUPS,) if configuration.compressed_block_size_slots is not None else ()
    return (*retains, *pins, *partial, *compressed_groups)
