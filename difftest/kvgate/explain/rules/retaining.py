"""What is not kept long enough, or not for all requests."""

from __future__ import annotations

from attrs import evolve

from kvgate.explain.best_hit import Prompts, best_hit
from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.policies import auto_interval, settings_of
from kvgate.explain.retained import blocks_held, blocks_taken, largest_request, prefixes_retained
from kvgate.explain.rules import releases
from kvgate.explain.rules.failing import interval_is_refused
from kvgate.explain.serving import RETAINS, RETENTION_VARIABLE
from kvreference.settings import Settings

CHURN = 8
"""Where the pool is not known: a prompt that takes this many times the blocks that it ever holds is likely to turn the
free queue of any pool that is worth having."""


_SHORT_TOKENS = 2048


def parts_before_what_is_kept(case: Case) -> Cause | None:
    """With retention, a prompt that parts from a cached one below what is kept hits nothing."""
    settings = case.settings
    interval, alignment = settings.retention_interval_tokens, settings.geometry.alignment_tokens
    # Masked caching loses nothing: every boundary keeps its tail.
    if not settings.caches or interval is None or interval == alignment:
        return None
    tried = _parting(case) if case.prompts is None else (case.prompts,)
    if not any(not best_hit(settings, prompts) and best_hit(case.dense, prompts) for prompts in tried):
        return None
    kept = "the last boundary of the first prompt" if interval == 0 else f"multiples of {interval} tokens, and the last"
    shorter = _shorter(settings, tried[0])
    # Windows alone do not show where prompts part.
    junction = case.serving.keeps_junctions and any(group.keeps_all for group in settings.geometry.groups)
    return Cause(
        "parts-before-what-is-kept",
        Effect.ZERO_IF,
        "KV-OP-15",
        ("vllm-project/vllm#57610", "vllm-project/vllm#57613"),
        f"with a retention interval of {interval} windows and states keep what a hit at {kept} reads, and hits end at "
        f"multiples of {alignment}",
        f"they part from the first prompt before that boundary: in its last {alignment} tokens, say"
        + ("; the second one keeps the boundary where they part, and the third one hits it" if junction else ""),
        f"a shorter interval, {RETENTION_VARIABLE}={shorter}: a boundary where yours part"
        + (", for the second prompt already" if junction else ""),
        sets=(("retention", str(shorter)),),
    )


def _parting(case: Case) -> tuple[Prompts, ...]:
    """Prompts of which the second parts from the first right before its last boundary."""
    first = case.beyond_windows + 8 * case.settings.geometry.alignment_tokens + 1
    return (Prompts(first, first, first - case.settings.geometry.lookahead_tokens - 2),)


def _shorter(settings: Settings, prompts: Prompts) -> int:
    """The longest interval with which such prompts hit, below the one that is set, and of a few thousand tokens."""
    alignment, interval = settings.geometry.alignment_tokens, settings.retention_interval_tokens
    shared = prompts.shared_tokens - settings.geometry.lookahead_tokens
    most = min(max(_SHORT_TOKENS, alignment), shared, interval - 1 if interval else shared)
    for tokens in range(most // alignment * alignment, alignment, -alignment):
        if best_hit(evolve(settings, retention_interval_tokens=tokens), prompts):
            return tokens
    return alignment


def windows_flush_the_pool(case: Case) -> Cause | None:
    """Blocks pass through a window and push out of the free queue what is cached."""
    settings = case.settings
    slides = any(group.slides for group in settings.geometry.groups)
    if not settings.caches or settings.scratch_first or settings.pin_drop_blocks_min is not None or not slides:
        return None
    if interval_is_refused(case):
        # What does not start turns no queue; the settings are those of no interval then.
        return None
    longest = min(settings.tokens_max, largest_request(settings))
    tokens = longest if case.prompts is None else min(case.prompts.first_tokens, longest)
    if tokens < 1:
        return None
    taken, held = blocks_taken(settings, tokens), sum(blocks_held(settings, tokens))
    known = case.layout.blocks is not None
    if (prefixes_retained(settings, tokens) > 1 or taken == held) if known else taken < CHURN * held:
        return None
    if case.prompts is not None and not known:
        return None
    auto = auto_interval(settings.geometry.alignment_tokens)
    by_interval = {interval: _retained(case, interval, tokens) for interval in (auto, "0")}
    best = max(by_interval, key=lambda interval: by_interval[interval]) if known else auto
    helps = not (case.serving.ignores_intervals or _spoils(case, best))
    helps = helps and (not known or by_interval[best] > prefixes_retained(settings, tokens))
    pool = ""
    if known:
        now = prefixes_retained(settings, tokens)
        pool = f"; of such prompts the pool retains {now}, and {by_interval[best]} with an interval of {best}"
    return Cause(
        "windows-flush-the-pool",
        Effect.ZERO_IF,
        "KV-OP-17",
        ("vllm-project/vllm#42948", "vllm-project/vllm#43447"),
        f"a prompt of {tokens} tokens holds {held} blocks at most, and takes {taken} from the free queue: what "
        f"leaves a window is queued after what is cached, and the queue turns{pool}",
        f"between a prompt and its replay more blocks are taken than the pool has, {taken} for one of {tokens} tokens",
        f"{RETENTION_VARIABLE}={best}, with vLLM {RETAINS.first} or newer, or the plug-in for 0.20.2"
        if helps
        else "more blocks",
        sets=(("retention", best),) if helps else (),
    )


def _spoils(case: Case, interval: str) -> bool:
    """Whether with an interval every rate is zero, as in a release that reckons it wrongly."""
    served = evolve(case, serving=evolve(case.serving, retention=interval))
    found = (rule(served) for rule in releases.RULES)
    return any(cause is not None and cause.effect is Effect.ALWAYS_ZERO for cause in found)


def _retained(case: Case, interval: str, tokens: int) -> int:
    """How many prompts the pool retains with an interval, where there is one."""
    version = case.serving.version if case.serving.release in RETAINS else RETAINS.first
    served = evolve(case.serving, retention=interval, version=version)
    return prefixes_retained(settings_of(case.layout, served), tokens)


RULES: tuple[Rule, ...] = (parts_before_what_is_kept, windows_flush_the_pool)
