"""The figures that an explanation is made of, all by the reference's own formulas."""

from __future__ import annotations

from attrs import frozen

from kvgate.explain.alignment import derivation, dominant
from kvgate.explain.best_hit import Prompts, shortest_prompt
from kvgate.explain.cause import Case
from kvgate.explain.policies import policies
from kvgate.explain.retained import blocks_held, blocks_protected, blocks_taken, largest_request, prefixes_retained
from kvgate.explain.rules.geometry import without_look_ahead
from kvreference.scheduler.room import blocks_to_run

CURVE_POINTS = 160
"""At how many prompt lengths the curve of best hits is computed."""
_CURVE_BOUNDARIES = 8
"""How many alignments the curve spans."""
_CURVE_TOKENS_MIN = 2048


@frozen
class GroupFigures:
    """One group, as it is printed."""

    kind: str
    label: str
    layers: int
    block_tokens: int
    block_slots: int
    window_tokens: int | None
    lookahead: bool
    blocks_held: int
    """How many blocks a request of the length in question holds at most."""


@frozen
class PolicyFigures:
    """What a policy keeps of a prompt."""

    name: str
    flags: str
    blocks_kept: int
    prefixes_retained: int | None
    """How many prompts of the length in question the pool retains; None if the pool is not known."""


@frozen
class Point:
    """How much of a prompt that is sent again can hit."""

    tokens: int
    hit: int


@frozen
class Figures:
    """All of them."""

    groups: tuple[GroupFigures, ...]
    alignment_tokens: int
    derivation: str
    dominant: int
    """The index of the group that decides the alignment."""
    shortest_prompt: int | None
    """The length from which on a prompt that is sent again can hit at all; None if none can."""
    shortest_prompt_without_drafts: int
    lookahead_tokens: int
    tokens: int
    """The length in question: of a given prompt, or as long as one may be."""
    blocks_held: int
    blocks_taken: int
    blocks_to_run: int
    """With drafts and look-ahead."""
    blocks: int | None
    largest_request: int | None
    """The longest request that an empty pool admits and completes; None if the pool is not known."""
    max_model_len: int
    policies: tuple[PolicyFigures, ...]
    hit: int | None
    """How much of the given prompts can hit; None if none are."""
    tier_blocks: int | None = None
    """How many blocks a tier on the host has; None if none was named."""
    tier_blocks_taken: int | None = None
    """How many of them a prompt of the length in question takes in an ideal tier: every full block of every group."""
    tier_prompts: int | None = None
    """How many such prompts the ideal tier keeps, besides what the pool does."""


def figures_of(case: Case, tier_blocks: int | None = None) -> Figures:
    """The figures of a case, with a tier on the host of so many blocks."""
    settings, layout = case.settings, case.layout
    geometry = settings.geometry
    largest = None if layout.blocks is None else largest_request(settings)
    # What does not fit the pool holds nothing in it.
    longest = settings.tokens_max if not largest else min(settings.tokens_max, largest)
    tokens = case.prompts.first_tokens if case.prompts else longest
    held = blocks_held(settings, tokens)
    in_tier = sum(tokens // group.block_size_tokens for group in geometry.groups)
    return Figures(
        tuple(
            GroupFigures(
                placed.group.kind.value,
                placed.label,
                placed.layers,
                placed.group.block_size_tokens,
                placed.group.block_size_tokens // placed.group.compress_ratio,
                placed.group.window_tokens,
                placed.group.lookahead,
                count,
            )
            for placed, count in zip(layout.groups, held, strict=True)
        ),
        geometry.alignment_tokens,
        derivation(geometry),
        dominant(geometry),
        case.shortest_prompt,
        shortest_prompt(without_look_ahead(settings)),
        geometry.lookahead_tokens,
        tokens,
        sum(held),
        blocks_taken(settings, tokens),
        blocks_to_run(settings, tokens),
        layout.blocks,
        largest,
        settings.tokens_max,
        tuple(
            PolicyFigures(
                policy.name,
                policy.flags,
                sum(blocks_protected(policy.settings, tokens)),
                None if layout.blocks is None else prefixes_retained(policy.settings, tokens),
            )
            for policy in policies(layout, case.serving)
        ),
        None if case.prompts is None else case.hit_tokens(case.prompts),
        *((tier_blocks, in_tier, tier_blocks // in_tier if in_tier else None) if tier_blocks else ()),
    )


def curve(case: Case) -> tuple[Point, ...]:
    """How much of a prompt of each length can hit when it is sent again, over some boundaries."""
    settings = case.settings
    if not settings.caches:
        return ()
    longest = max(_CURVE_BOUNDARIES * settings.geometry.alignment_tokens, _CURVE_TOKENS_MIN)
    if case.prompts is not None:
        longest = max(longest, case.prompts.first_tokens)
    longest = min(longest, settings.tokens_max)
    lengths = {max(1, longest * step // CURVE_POINTS) for step in range(1, CURVE_POINTS + 1)}
    alignment, shortest = settings.geometry.alignment_tokens, shortest_prompt(settings)
    steps = range(shortest, longest + 1, alignment)
    if len(steps) <= CURVE_POINTS:
        lengths.update(length for step in steps for length in (step - 1, step))
    return tuple(Point(tokens, case.hit_tokens(Prompts.replay(tokens))) for tokens in sorted(lengths))
