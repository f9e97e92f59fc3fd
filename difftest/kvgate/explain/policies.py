"""The policies that a pool can retain prefixes by, as settings of the reference."""

from __future__ import annotations

from attrs import evolve, frozen

from kvgate.explain.layout import Layout
from kvgate.explain.serving import DENSE, MASKS, RETAINS, RETAINS_LEAST, Serving
from kvgate.kernel.errors import UsageError
from kvreference.retention import AUTO_INTERVAL_TOKENS, interval_of
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
    """What is served, for the reference; a retention interval that vLLM would reject is left out.

    Raises:
        UsageError: the reference has no such settings either.
    """
    geometry = layout.geometry
    states = min((group.draft_states for group in geometry.groups if group.keeps_states), default=serving.drafts)
    if states < serving.drafts:
        raise UsageError(
            f"--mtp or --speculative-config: {serving.drafts} drafts need as many draft states in each group of "
            f"states, and {layout.name} has {states}: write the dump where it is served with the "
            "drafts (its draft_states say how many), or leave the flag out"
        )
    interval = interval_in_effect(layout, serving)
    if interval is not None and (not serving.retains(geometry) or interval % geometry.alignment_tokens):
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


def auto_interval(alignment_tokens: int) -> str:
    """How to write the interval that auto means; where the alignment does not divide it, the next that is allowed."""
    tokens = -(-AUTO_INTERVAL_TOKENS // alignment_tokens) * alignment_tokens
    return "auto" if tokens == AUTO_INTERVAL_TOKENS else str(tokens)


def policies(layout: Layout, serving: Serving) -> list[Policy]:
    """The policy in effect, and what else could be chosen for this model."""
    effective = settings_of(layout, serving)
    settings = evolve(effective, retention_interval_tokens=None, scratch_first=False, pin_drop_blocks_min=None)
    found = [
        Policy("in effect", effective, "these flags"),
        Policy("dense", settings, f"vLLM before {MASKS.first}, or an interval of {DENSE} from {RETAINS.first} on"),
    ]
    if not settings.caches or not serving.retains(settings.geometry):
        return found
    alignment = settings.geometry.alignment_tokens
    masked = evolve(settings, retention_interval_tokens=alignment)
    found.append(Policy("masked", masked, f"vLLM from {MASKS.first} to before {RETAINS_LEAST.first}"))
    for name in () if serving.ignores_intervals else ("0", auto_interval(alignment)):
        interval = interval_of(name)
        sparse = evolve(settings, retention_interval_tokens=interval, scratch_first=True)
        found.append(Policy(f"retention {interval}", sparse, f"VLLM_PREFIX_CACHE_RETENTION_INTERVAL={name}"))
    if not any(group.slides for group in settings.geometry.groups):
        return found
    pinned = evolve(settings, pin_drop_blocks_min=_PINNED_DROP_BLOCKS)
    return [*found, Policy("pinned", pinned, "VLLM_PIN_SWA_TOKENS=1")]
