"""What a release does wrong, or does not do, for every prompt."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvgate.adapters.releases import without_finding
from kvgate.explain.best_hit import Prompts, best_hit
from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.policies import interval_in_effect
from kvgate.explain.serving import CACHES_HYBRIDS, Platform
from kvgate.findings.finding import Finding
from kvgate.findings.register import with_ids
from kvgate.kernel.versions import Span
from kvreference.prefix_cache import new_cache
from kvreference.rules import Rules

_SPIRALS = Span("0.14.0", "0.20.0")
_SPIRALS_WITH_TWO = Span("0.14.0", "0.16.0")
_OMITS_LOOK_AHEAD = Span("0.22.0", "0.23.0")
_KEEPS_STATE_ABOVE = Span("0.27.0", "0.30.0")
_COUNTS_IN_SLOTS = Span("0.22.0", "0.24.0")
_SPLITS_AT_SMALLEST = Span("0.20.0")
_MASK = "011-mask-omits-look-ahead"
_REPLAY_ABOVE = "015-replay-above-its-look-ahead"
_WITH_A_RULE = {_MASK, "010-lookahead-spreads-to-equal-groups", "013-compressed-block-known-by-its-slots"}
"""Findings of which a rule says more."""


def caching_is_off(case: Case) -> Cause | None:
    """Nothing is cached at all."""
    if case.layout.caches:
        return None
    by_default = case.serving.enable_prefix_caching is None
    return Cause(
        "caching-is-off",
        Effect.ALWAYS_ZERO,
        "KV-OP-01",
        ("vllm-project/vllm#30877",),
        "prefix caching is off: vLLM leaves it off for models of state-space layers, and before "
        f"{CACHES_HYBRIDS.first} for those with attention as well, unless it is asked for"
        if by_default
        else "prefix caching is off, by the flags or because no states are kept for it",
        remedy="--enable-prefix-caching",
        sets=(("enable_prefix_caching", True),),
    )


def look_ahead_spirals(case: Case) -> Cause | None:
    """The fixed-point loop drops a block for the draft layers in every round."""
    groups = case.layout.geometry.groups
    kinds = {evolve(group, lookahead=False) for group in groups}
    drops = any(group.lookahead for group in groups)
    certain, count = _spirals(len(kinds), case), len(kinds)
    if not certain and not case.layout.counts_draft_layers:
        count += 1
    if not (case.layout.caches and drops and _spirals(count, case)) or case.serving.platform is Platform.ASCEND:
        return None
    return Cause(
        "look-ahead-spirals",
        Effect.ALWAYS_ZERO if certain else Effect.ZERO_IF,
        "KV-OP-01",
        ("vllm-project/vllm#40624", "vllm-project/vllm#32802", "vllm-project/vllm#33270"),
        f"vLLM {case.serving.version} drops a block for the draft layers in every round of a look-up; with "
        f"{count} kinds of groups there is a round after every drop, until nothing is left",
        "" if certain else "the draft model's layers make a group of another kind",
        "vLLM 0.20.0 or newer; or no draft model; or --disable-hybrid-kv-cache-manager, which makes one group "
        "and holds every block of a window",
    )


def _spirals(kinds: int, case: Case) -> bool:
    """Whether the loop does not end before nothing is left, with so many kinds of groups."""
    release = case.serving.release
    return (kinds > 2 and release in _SPIRALS) or (kinds > 1 and release in _SPIRALS_WITH_TWO)


def mask_omits_look_ahead(case: Case) -> Cause | None:
    """What is cached of a window lacks the block that every hit asks for."""
    settings = case.settings
    if case.serving.release not in _OMITS_LOOK_AHEAD or settings.retention_interval_tokens is None:
        return None
    (finding,) = with_ids([_MASK])
    if not finding.where(settings):
        return None
    masked = new_cache(settings, Rules(finding.acts(settings, "").deltas))
    tried = case.replays if case.prompts is None else (case.prompts,)
    lost = [prompts for prompts in tried if case.hits(prompts) and not best_hit(settings, prompts, masked)]
    if not lost:
        return None
    certain = len(lost) == len(tried)
    return Cause(
        "mask-omits-look-ahead",
        Effect.ALWAYS_ZERO if certain else Effect.ZERO_IF,
        "KV-OP-15",
        ("vllm-project/vllm#44082", "vllm-project/vllm#42258"),
        f"vLLM {case.serving.version} caches of a window what a hit reads without its look-ahead block, and looks it "
        "up with that block: no boundary is complete",
        "" if certain else "nothing after their last boundary was computed in the same prompt",
        "vLLM 0.23.0 or newer; or no draft model",
    )


def state_kept_above(case: Case) -> Cause | None:
    """The one state that is kept lies a block above all that a look-up with draft layers asks for."""
    settings = case.settings
    block = settings.geometry.state_block_tokens
    least = interval_in_effect(case.layout, case.serving) == 0
    applies = block and least and case.serving.release in _KEEPS_STATE_ABOVE and settings.geometry.lookahead_tokens
    if not applies or not settings.caches:
        return None
    tried = case.replays if case.prompts is None else (case.prompts,)
    if any(map(case.hit_tokens, tried)) or not any(map(case.hits, tried)):
        return None
    return Cause(
        "state-kept-above-the-drop",
        Effect.ALWAYS_ZERO,
        "KV-OP-15",
        ("vllm-project/vllm#53504", "vllm-project/vllm#52216", "vllm-project/vllm#53945"),
        f"with an interval of 0 the one state that is kept is at the last boundary of the prompt, and with draft "
        f"layers a look-up asks for one {block} tokens before it at most",
        remedy="no --prefix-cache-retention-interval of 0: leave it out on 0.29 (dense for such models), or 0.30",
    )


def retention_counts_slots(case: Case) -> Cause | None:
    """vLLM-Ascend's first port of retention reckons boundaries in slots."""
    compressed = any(group.compress_ratio > 1 for group in case.layout.geometry.groups)
    interval = interval_in_effect(case.layout, case.serving)
    retains = case.serving.retention is not None and interval is not None
    on_ascend = case.serving.platform is Platform.ASCEND and case.serving.release in _COUNTS_IN_SLOTS
    if not (on_ascend and compressed and retains and case.layout.caches):
        return None
    return Cause(
        "retention-counts-slots",
        Effect.ALWAYS_ZERO,
        "KV-OP-15",
        ("vllm-project/vllm-ascend#11383", "vllm-project/vllm-ascend#10970"),
        f"vLLM-Ascend {case.serving.version} keeps the tails of boundaries that it reckons in slots, and looks them up "
        f"at multiples of {case.layout.geometry.alignment_tokens} tokens: none of what is kept is ever asked for",
        remedy="the release of 0.23.0 with vllm-ascend#11600; or no VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
    )


def split_at_another_block(case: Case) -> Cause | None:
    """Chunks end at multiples of the smallest block, and states are kept at those of their own."""
    settings = case.settings
    block = settings.geometry.state_block_tokens
    smallest = min(group.block_size_tokens for group in settings.geometry.groups)
    if block is None or smallest == block or case.serving.release not in _SPLITS_AT_SMALLEST or not settings.caches:
        return None
    tried = case.short_replays if case.prompts is None else (case.prompts,)
    lost = [
        prompts
        for prompts in tried
        if best_hit(settings, prompts) and not best_hit(settings, prompts, split_tokens=smallest)
    ]
    if not lost:
        return None
    certain = len(lost) == len(tried)
    return Cause(
        "states-cut-at-another-block",
        Effect.ALWAYS_ZERO if certain else Effect.ZERO_IF,
        "KV-OP-26",
        ("vllm-project/vllm#54076", "vllm-project/vllm#55600"),
        f"chunks are cut at multiples of {smallest} tokens, the smallest block of all groups, and a state is kept only "
        f"where one ends at a multiple of {block}",
        "" if certain else f"no chunk of theirs happens to end at a multiple of {block} tokens",
        f"--max-num-batched-tokens {-(-settings.chunk_tokens // block) * block}, a multiple of {block}; or no draft "
        "model with smaller blocks",
        sets=(("max_num_batched_tokens", -(-settings.chunk_tokens // block) * block),),
    )


def findings_that_act(case: Case) -> Iterator[Cause]:
    """The findings of the release that change what can hit."""
    cache, known = case.released
    tried = (*case.short_replays, *case.replays) if case.prompts is None else (case.prompts,)
    known.times.clear()
    hits = {prompts: best_hit(case.settings, prompts, cache) for prompts in tried}
    covered = _WITH_A_RULE | ({_REPLAY_ABOVE} if state_kept_above(case) else set())
    for finding in known.findings:
        if finding.id in known.times and finding.id not in covered:
            without = case.released_without(finding)[0]
            ideal = {prompts: best_hit(case.settings, prompts, without) for prompts in tried}
            changed = {prompts: (ideal[prompts], hit) for prompts, hit in hits.items() if hit != ideal[prompts]}
            if changed:
                yield _of_finding(case, finding, changed, len(tried))


def _of_finding(case: Case, finding: Finding, changed: dict[Prompts, tuple[int, int]], tried: int) -> Cause:
    """The cause; ``changed`` has for prompts what can hit without the finding and with it."""
    lost = [prompts for prompts, (_without, hit) in changed.items() if not hit]
    longer = any(hit > without for without, hit in changed.values())
    effect = Effect.FAILS if longer else Effect.LESS
    if lost and not longer:
        effect = Effect.ALWAYS_ZERO if len(lost) == tried else Effect.ZERO_IF
    prompts = (lost or [*changed])[0]
    without, hit = changed[prompts]
    later = without_finding(finding.id, case.serving.described)
    return Cause(
        finding.id.partition("-")[2],
        effect,
        finding.statement,
        (f"finding {finding.id[:3]}",),
        f"{case.serving.engine} hits {hit} tokens of a prompt of {prompts.second_tokens} that shares "
        f"{prompts.shared_tokens}, and {without} without this finding, which acts with {finding.condition}",
        f"they are like a prompt of {prompts.second_tokens} tokens" if effect is Effect.ZERO_IF else "",
        f"{later} or newer" if later else f"no release that is described is without it: see finding {finding.id}",
    )


RULES: tuple[Rule, ...] = (
    caching_is_off,
    look_ahead_spirals,
    mask_omits_look_ahead,
    state_kept_above,
    retention_counts_slots,
    split_at_another_block,
)
