"""The policies that a pool can retain prefixes by, as settings of the reference."""

from __future__ import annotations

from attrs import evolve, frozen

from kvgate.errors import UsageError
from kvgate.explain.layout import Layout
from kvgate.explain.serving import Serving
from kvreference.retention import AUTO_INTERVAL_TOKENS
from kvreference.settings import Settings

UNKNOWN_BLOCKS = 2**31
"""How many blocks are taken for a pool of which nothing is known: more than anything asks for."""
UNKNOWN_TOKENS = 131_072
"""How long a request may become where neither the flags nor the model say so."""
_PINNED_DROP_BLOCKS = 16


@frozen
class Policy:
    """A way to choose what stays cached."""

    name: str
    settings: Settings
    flags: str
    """What turns it on."""


def settings_of(layout: Layout, serving: Serving) -> Settings:
    """What is served, for the reference; a retention interval that vLLM would refuse is left out.

    Raises:
        UsageError: the reference has no such settings either.
    """
    geometry = layout.geometry
    interval = interval_in_effect(layout, serving)
    slides = any(group.slides for group in geometry.groups)
    if interval is not None and (not slides or interval % geometry.alignment_tokens):
        interval = None
    try:
        return Settings(
            geometry,
            layout.blocks or UNKNOWN_BLOCKS,
            tokens_max=layout.max_model_len or UNKNOWN_TOKENS,
            chunk_tokens=serving.chunk_tokens,
            requests_max=serving.max_num_seqs,
            drafts_max=serving.drafts,
            caches=layout.caches,
            retention_interval_tokens=interval if layout.caches else None,
            scratch_first=interval is not None and (not serving.on_stock or serving.retention is not None),
        )
    except ValueError as error:
        raise UsageError(f"{layout.name}: {error}") from error


def interval_in_effect(layout: Layout, serving: Serving) -> int | None:
    """The retention interval, as it is written or as the version has it."""
    return serving.interval_tokens(layout.geometry.alignment_tokens, layout.has_states)


def policies(layout: Layout, serving: Serving) -> list[Policy]:
    """What could be chosen for this model, the policy in effect apart."""
    settings = evolve(
        settings_of(layout, serving), retention_interval_tokens=None, scratch_first=False, pin_drop_blocks_min=None
    )
    found = [Policy("dense", settings, "vLLM before 0.22")]
    if not settings.caches or not any(group.slides for group in settings.geometry.groups):
        return found
    alignment = settings.geometry.alignment_tokens
    masked = evolve(settings, retention_interval_tokens=alignment)
    found.append(Policy("masked", masked, "vLLM from 0.22 on"))
    rounded = -(-AUTO_INTERVAL_TOKENS // alignment) * alignment
    for interval, name in ((0, "0"), (rounded, "auto" if rounded == AUTO_INTERVAL_TOKENS else str(rounded))):
        sparse = evolve(settings, retention_interval_tokens=interval, scratch_first=True)
        found.append(Policy(f"retention {interval}", sparse, f"VLLM_PREFIX_CACHE_RETENTION_INTERVAL={name}"))
    pinned = evolve(settings, pin_drop_blocks_min=_PINNED_DROP_BLOCKS)
    return [*found, Policy("pinned", pinned, "VLLM_PIN_SWA_TOKENS=1")]
