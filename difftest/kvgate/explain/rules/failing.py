"""Settings that are known to hang, to be rejected, or to answer from the wrong blocks; and those that cost hits."""

from __future__ import annotations

from attrs import evolve

from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.chunks import stands_still
from kvgate.explain.policies import interval_in_effect
from kvgate.explain.retained import blocks_at_start, largest_at_start, largest_request
from kvgate.explain.serving import RETENTION_VARIABLE, Platform, Serving
from kvgate.kernel.versions import Span

_KNOWN_BY_SLOTS = Span("0.20.0", "0.21.0")
_COMPARES_THE_OVERRIDE = Span("0.20.2")
_LEAVES_OUT_THE_NULL_BLOCK = Span("0.20.2", "0.20.3")
"""The release whose check was seen to count the null block as if it could be given; some later one does not."""
_FORGETS_THE_DROP = Span("0.20.2")


def never_fits(case: Case) -> Cause | None:
    """The longest request does not fit the pool: vLLM does not start, or where it reckons wrongly, waits in vain."""
    settings, layout, serving = case.settings, case.layout, case.serving
    if layout.blocks is None or layout.max_model_len is None:
        return None
    largest, allowed = largest_request(settings), settings.tokens_max
    asked = blocks_at_start(settings, serving.batched_tokens, allowed)
    refuses = asked > settings.blocks and _compares(serving)
    if refuses:
        largest = min(largest, largest_at_start(settings, serving.batched_tokens))
        says = (
            f"vLLM {serving.version} does not start: to serve one request of {allowed} tokens it reckons with {asked} "
            f"blocks, and the pool has {settings.blocks}"
        )
    elif largest < allowed:
        seen = _compares(serving) and serving.release in _LEAVES_OUT_THE_NULL_BLOCK
        passes = f"vLLM starts, for it reckons with {asked} of them, but " if seen else ""
        says = (
            f"{passes}a request of more than {largest} tokens does not fit the pool of {settings.blocks} blocks, of "
            f"which one is never given, though --max-model-len allows {allowed}: it blocks the queue permanently"
        )
    else:
        return None
    return Cause(
        "never-fits",
        Effect.FAILS,
        "KV-LIVE-01",
        ("vllm-project/vllm#35541", "vllm-project/vllm#39734", "finding 027"),
        says,
        remedy=f"--max-model-len {largest}, or more blocks" if largest > 1 else "more blocks",
        sets=(("max_model_len", largest),) if largest > 1 else (),
    )


def _compares(serving: Serving) -> bool:
    """Whether the pool is compared with the longest request at the start, as far as that is known.

    Older releases compare what was profiled, and not the blocks that override it; what vLLM-Ascend reckons with is not
    known here.
    """
    overrides = serving.num_gpu_blocks_override is not None
    return serving.platform is Platform.GPU and (serving.release in _COMPARES_THE_OVERRIDE or not overrides)


def chunk_below_state_block(case: Case) -> Cause | None:
    """A chunk that is shorter than a block of states is cut to nothing."""
    settings = case.settings
    block = settings.geometry.state_block_tokens
    if block is None or settings.chunk_tokens >= block or not stands_still(settings, 3 * block):
        return None
    return Cause(
        "chunk-below-state-block",
        Effect.FAILS,
        "KV-LIVE-03",
        ("vllm-project/vllm#40707", "vllm-project/vllm#40757", "finding 029"),
        f"a step computes {settings.chunk_tokens} tokens of a prompt at most, less than the {block} of a block of "
        "states: the chunk is rounded down to nothing, in every step",
        remedy=f"--max-num-batched-tokens and --long-prefill-token-threshold of at least {block}",
        sets=tuple(
            (name, block)
            for name in ("max_num_batched_tokens", "long_prefill_token_threshold")
            if 0 < (getattr(case.serving, name) or 0) < block
        ),
    )


def interval_is_refused(case: Case) -> Cause | None:
    """A retention interval with which the engine does not start."""
    geometry = case.layout.geometry
    interval = interval_in_effect(case.layout, case.serving)
    if case.serving.retention is None or interval is None or not case.layout.caches:
        return None
    retains = case.serving.retains(geometry)
    on_stock = case.serving.on_stock
    if (on_stock and not retains) or case.serving.ignores_intervals:
        # The plug-in says that it has no effect, and starts; what is ignored is not checked.
        return None
    if retains and interval % geometry.alignment_tokens == 0:
        return None
    aligned = -(-interval // geometry.alignment_tokens) * geometry.alignment_tokens
    of = "sliding windows and states" if case.serving.described.retains_states else "sliding windows"
    return Cause(
        "interval-is-refused",
        Effect.FAILS,
        "KV-OP-15",
        ("vllm-project/vllm#43447",),
        f"a retention interval of {interval} tokens is not a multiple of the alignment, {geometry.alignment_tokens}: "
        f"{'with the plug-in ' if on_stock else ''}the engine does not start"
        if retains
        else f"a retention interval is for {of} alone, and there are none: the engine does not start",
        remedy=f"an interval of {aligned}" if retains else "leave it out",
        sets=(("retention", str(aligned) if retains else None),),
    )


def retention_needs_the_plugin(case: Case) -> Cause | None:
    """An interval that vLLM, or vLLM-Ascend, does not know of."""
    serving = case.serving
    if serving.retention is None or not any(group.slides for group in case.layout.geometry.groups):
        return None
    if serving.ignores_intervals:
        return Cause(
            "retention-is-ignored",
            Effect.LESS,
            "KV-OP-15",
            ("vllm-project/vllm#52216",),
            f"{serving.engine} takes its retention interval from {RETENTION_VARIABLE}, which the vLLM that it runs on "
            "has no more: it ignores the interval, and caches what a hit at any boundary reads",
            remedy="another release, or leave the interval out",
            sets=(("retention", None),),
        )
    if not serving.on_stock or serving.platform is Platform.ASCEND:
        return None
    return Cause(
        "retention-needs-the-plug-in",
        Effect.LESS,
        "KV-OP-15",
        ("vllm-project/vllm#43447",),
        f"vLLM {serving.version} knows no retention interval: without the plug-in swa_retention it changes nothing",
        remedy="python -m swa_retention doctor says whether the plug-in is there",
    )


def known_by_slots(case: Case) -> Cause | None:
    """Compressed blocks that are known by a part of what they hold."""
    compressed = any(group.compress_ratio > 1 for group in case.layout.geometry.groups)
    on_ascend = case.serving.platform is Platform.ASCEND and case.serving.release in _KNOWN_BY_SLOTS
    if not (compressed and on_ascend and case.layout.caches):
        return None
    return Cause(
        "known-by-slots",
        Effect.FAILS,
        "KV-MEM-01",
        ("finding 013",),
        f"vLLM-Ascend {case.serving.version} knows a compressed block by as many tokens as it has slots: prompts that "
        "begin alike and part later can be served each other's blocks",
        remedy="no prefix caching, or the plug-in for vLLM-Ascend",
    )


def equal_groups_drop_too(case: Case) -> Cause | None:
    """One group's draft layer makes all groups like it ask for a look-ahead block."""
    groups = case.layout.geometry.groups
    flagged = {evolve(group, lookahead=False) for group in groups if group.lookahead}
    spread = [group for group in groups if not group.lookahead and group in flagged]
    if not spread or case.serving.release not in _FORGETS_THE_DROP or not case.layout.caches:
        return None
    return Cause(
        "equal-groups-drop-too",
        Effect.LESS,
        "KV-OP-01",
        ("finding 010", "vllm-project/vllm#49069"),
        f"one group holds the draft layer, and {len(spread)} like it are looked up as if they did: each of their hits "
        f"must match {spread[0].block_size_tokens} tokens more",
        remedy="nothing: it costs a block of that size at most",
    )


RULES: tuple[Rule, ...] = (
    never_fits,
    chunk_below_state_block,
    interval_is_refused,
    known_by_slots,
    retention_needs_the_plugin,
    equal_groups_drop_too,
)
