"""What follows from the sizes of blocks alone, in every release."""

from __future__ import annotations

from attrs import evolve

from kvgate.explain.alignment import dominant
from kvgate.explain.best_hit import best_hit, shortest_prompt
from kvgate.explain.cause import Case, Cause, Effect, Rule
from kvgate.explain.serving import Platform
from kvreference.geometry import Geometry
from kvreference.settings import Settings

COARSE_TOKENS = 512
"""A prompt that must be longer than this before anything of it can be hit is worth a warning: many are not."""
_COMPRESSED = ("vllm-project/vllm-ascend#10710", "vllm-project/vllm-ascend#16270", "vllm-project/vllm-ascend#12589")
_STATES = ("vllm-project/vllm#40696", "vllm-project/vllm#51198")
_PLAIN = ("vllm-project/vllm-ascend#16270",)


def coarse_alignment(case: Case) -> Cause | None:
    """Prompts, or what they share, are shorter than the first boundary."""
    settings = case.settings
    geometry = settings.geometry
    shortest = shortest_prompt(settings)
    if not settings.caches or shortest <= COARSE_TOKENS or _is_reached(case, geometry):
        return None
    index = dominant(geometry)
    group = geometry.groups[index]
    slots = f" ({group.block_size_tokens // group.compress_ratio} slots)" if group.compress_ratio > 1 else ""
    ahead = (
        f", and {geometry.lookahead_tokens} more must match for the draft layers" if geometry.lookahead_tokens else ""
    )
    compressed = any(each.compress_ratio > 1 for each in geometry.groups)
    threads = _COMPRESSED if compressed else _STATES if geometry.keeps_states else _PLAIN
    return Cause(
        "coarse-alignment",
        Effect.ZERO_IF,
        "KV-OP-01",
        threads,
        f"hits end at multiples of {geometry.alignment_tokens} tokens, because of group {index}, whose blocks span "
        f"{group.block_size_tokens} tokens{slots}{ahead}",
        f"they share less than {shortest - 1} tokens, or are shorter than {shortest}",
        _finer(case),
    )


def _is_reached(case: Case, geometry: Geometry) -> bool:
    """Whether the given prompts share enough for the first boundary."""
    if case.prompts is None:
        return False
    return min(case.prompts.shared_tokens, case.prompts.second_tokens - 1) >= geometry.alignment_tokens


def _finer(case: Case) -> str:
    geometry = case.layout.geometry
    if case.serving.platform is Platform.ASCEND and any(group.compress_ratio > 1 for group in geometry.groups):
        return "--block-size 32, the smallest that vLLM-Ascend has, with vllm-ascend#10354 or the plug-in"
    if geometry.keeps_states:
        return "no flag makes a state smaller; --tensor-parallel-size and --kv-cache-dtype change the block: compare"
    return "a smaller --block-size, if the kernels allow one; partial hits with the plug-in"


def look_ahead_on_coarse_blocks(case: Case) -> Cause | None:
    """What must match for the draft layers is not shared: of long blocks, a whole one."""
    settings = case.settings
    ahead = settings.geometry.lookahead_tokens
    if not settings.caches or not ahead:
        return None
    without = without_look_ahead(settings)
    if case.prompts is None:
        if ahead < settings.geometry.alignment_tokens or ahead <= COARSE_TOKENS // 2:
            return None
    elif case.hits(case.prompts) or not best_hit(without, case.prompts):
        return None
    return Cause(
        "look-ahead-on-coarse-blocks",
        Effect.ZERO_IF,
        "KV-OP-01",
        ("vllm-project/vllm-ascend#10710", "vllm-project/vllm-ascend#16449"),
        f"with a draft layer a hit must match {ahead} tokens more than it serves: the shortest prompt "
        f"that can hit has {shortest_prompt(settings)} tokens instead of {shortest_prompt(without)}",
        f"they share less than {shortest_prompt(settings) - 1} tokens",
        "prompts that long, smaller blocks, or no draft model",
    )


def without_look_ahead(settings: Settings) -> Settings:
    """The same without draft layers."""
    groups = tuple(evolve(group, lookahead=False) for group in settings.geometry.groups)
    return evolve(settings, geometry=Geometry(groups))


def no_group_flagged(case: Case) -> Cause | None:
    """Where DeepSeek-V4's draft group is not flagged, a whole compressed block is dropped."""
    settings = case.settings
    flagged = [group.lookahead for group in settings.geometry.groups]
    compressed = max(
        (group.block_size_tokens for group in settings.geometry.groups if group.compress_ratio > 1), default=0
    )
    if not settings.caches or not any(flagged) or all(flagged) or not compressed:
        return None
    groups = tuple(evolve(group, lookahead=True) for group in settings.geometry.groups)
    unflagged = evolve(settings, geometry=Geometry(groups))
    shortest = shortest_prompt(unflagged)
    if shortest <= COARSE_TOKENS * 2 or case.serving.platform is not Platform.ASCEND:
        return None
    if case.prompts is not None and best_hit(unflagged, case.prompts):
        return None
    return Cause(
        "no-group-is-flagged",
        Effect.LESS,
        "KV-OP-01",
        ("vllm-project/vllm-ascend#10710", "vllm-project/vllm-ascend#9326"),
        "where a build does not flag the group of the draft layer, it takes all groups for such, and drops a whole "
        f"block of {compressed} tokens: the shortest prompt that can hit then has {shortest} tokens",
        remedy="a build whose groups say is_eagle_group of one of them alone: a dump shows it",
    )


def state_in_unique_tail(case: Case) -> Cause | None:
    """Where states are kept where chunks end alone, what prompts share has none."""
    settings = case.settings
    block = settings.geometry.state_block_tokens
    if block is None or not settings.caches or settings.chunk_tokens <= block:
        return None
    if case.prompts is not None and (case.hits(case.prompts) or not best_hit(every_state(settings), case.prompts)):
        return None
    return Cause(
        "state-in-unique-tail",
        Effect.ZERO_IF,
        "KV-OP-16",
        ("vllm-project/vllm#45238", "vllm-project/vllm#43587", "vllm-project/vllm#37898"),
        f"states are kept where chunks end alone, and a step computes up to {settings.chunk_tokens} tokens: of a "
        f"prompt that fits into one step there is one state, at its last multiple of {block}",
        "they part before the last whole block of the first prompt, or it is as long as whole blocks",
        f"--max-num-batched-tokens {block} keeps a state at every block, at the price of smaller steps; or "
        "--mamba-cache-mode all where the model supports it",
        sets=(("max_num_batched_tokens", block),),
    )


def every_state(settings: Settings) -> Settings:
    """The same with a state at every block's end."""
    block = settings.geometry.state_block_tokens
    return settings if block is None else evolve(settings, chunk_tokens=block)


RULES: tuple[Rule, ...] = (
    coarse_alignment,
    look_ahead_on_coarse_blocks,
    no_group_flagged,
    state_in_unique_tail,
)
