"""The report of ``kvgate explain``: the verdict first, then the figures that it rests on, then the causes."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from attrs import asdict

from kvgate.explain.cause import Cause, Effect, short_thread
from kvgate.explain.explanation import Explanation
from kvgate.explain.figures import Figures
from kvgate.explain.layout import Layout
from kvgate.explain.text_plot import text_plot
from kvgate.kernel.output import AGREEMENT, DIVERGENCE
from kvgate.kernel.text import printable
from kvgate.report.document import Column, Report, Section, Story, columns
from kvreference.statements import STATEMENTS

_WIDTH = 120
GROUPS = columns(
    *("group", "kind", "holds", "layers", "block, tokens", "slots", "window", "draft", "held, blocks"),
)
POLICIES = (
    *(Column("policy"), Column("blocks kept of one", ","), Column("prompts retained", ",")),
    Column("with"),
)
_SEVERITY: dict[Effect, Any] = {Effect.ALWAYS_ZERO: "error", Effect.ZERO_IF: "warning"}


def report_of(explanation: Explanation) -> Report:
    """The report of an explanation; lengths are in tokens, counts in blocks."""
    figures, case = explanation.figures, explanation.case
    zero = any(cause.effect is Effect.ALWAYS_ZERO for cause in explanation.causes) or figures.hit == 0
    reported = dict.fromkeys(cause.statement for cause in explanation.causes)
    stories = tuple(_story(cause, reported.pop(cause.statement, "told") is None) for cause in explanation.causes)
    return Report(
        command="explain",
        outcome=printable(f"{case.layout.name} on {case.serving.engine}: {verdict(explanation)}", 1000),
        exit_code=DIVERGENCE if zero else AGREEMENT,
        tested=tuple(_sections(explanation)),
        found=stories,
        tested_title="Figures",
        found_noun="cause",
    )


def verdict(explanation: Explanation) -> str:
    """Whether the hit rate is zero, can be zero, or is not zero as far as the flags say."""
    figures, causes, prompts = explanation.figures, explanation.causes, explanation.case.prompts
    always = [cause for cause in causes if cause.effect is Effect.ALWAYS_ZERO]
    conditional = [cause for cause in causes if cause.effect is Effect.ZERO_IF]
    if always:
        return f"The hit rate is zero: {always[0].id}."
    if figures.hit is not None and prompts is not None:
        shared = f"of a prompt of {prompts.second_tokens:,} tokens that shares {prompts.shared_tokens:,}"
        if figures.hit:
            but = f", but nothing if {conditional[0].condition}: {conditional[0].id}" if conditional else ""
            return f"Up to {figures.hit:,} tokens can hit {shared}{but}."
        return f"Nothing can hit {shared}{f': {conditional[0].id}' if conditional else ''}."
    if conditional:
        names = ", ".join(cause.id for cause in conditional)
        return f"The hit rate can be zero, for some prompts: {names}. Give --prompt-tokens and --shared-tokens."
    return "Nothing in these flags makes the hit rate zero."


def _story(cause: Cause, with_sentence: bool) -> Story:
    """A cause; the guarantee's sentence is printed once."""
    heading = f"{cause.id}: {cause.effect.value}{' ' + cause.condition if cause.condition else ''}"
    sentence = STATEMENTS[cause.statement]
    lines = wrap(heading, _WIDTH, break_on_hyphens=False, subsequent_indent="  ")
    for text in (
        cause.says,
        f"{cause.statement}: {sentence}" if with_sentence else cause.statement,
        f"seen in: {', '.join(map(short_thread, cause.upstream))}",
        f"to fix: {cause.remedy}",
    ):
        lines += wrap(text, _WIDTH, break_on_hyphens=False, initial_indent="  ", subsequent_indent="    ")
    return Story(
        headline=heading,
        text="\n".join(lines),
        severity=_SEVERITY.get(cause.effect, "notice"),
        statement=cause.statement,
        sentence=sentence,
        details={
            **{"id": cause.id, "effect": cause.effect.name.lower(), "condition": cause.condition},
            **{"says": cause.says, "upstream": list(cause.upstream), "remedy": cause.remedy},
        },
    )


def _sections(explanation: Explanation) -> Iterator[Section]:
    figures, case = explanation.figures, explanation.case
    notes = [printable(case.layout.source, 500)]
    for note in case.layout.notes:
        notes += [
            printable(line, 500)
            for line in wrap(f"note: {note}", _WIDTH, break_on_hyphens=False, subsequent_indent="  ")
        ]
    yield Section(notes=tuple(notes))
    yield Section("Groups", GROUPS, tuple(_groups(figures)), notes=tuple(_numbers(figures, case.layout)))
    yield Section(
        "Policies",
        POLICIES,
        tuple((each.name, each.blocks_kept, each.prefixes_retained, each.flags) for each in figures.policies),
    )
    if explanation.curve:
        plot = tuple(text_plot(explanation.curve))
        yield Section("How much of a prompt can hit when it is sent again, over its length:", notes=plot)
    if explanation.recommended:
        yield Section("Recommended", notes=tuple(f"- {flag}" for flag in explanation.recommended))
    yield Section("figures", columns("figure", "value"), tuple(_all_figures(explanation)), shown=False)


def _all_figures(explanation: Explanation) -> Iterator[tuple[str, Any]]:
    """Everything that was worked out, for programs."""
    case = explanation.case
    yield "model", case.layout.name
    yield "source", case.layout.source
    yield "notes", list(case.layout.notes)
    yield "platform", case.serving.platform.value
    yield "release", case.serving.version
    yield "prefix_caching", case.layout.caches
    yield "retention_interval_tokens", case.settings.retention_interval_tokens
    yield "block_bytes", case.layout.block_bytes
    yield "prompts", None if case.prompts is None else asdict(case.prompts)
    yield "recommended", list(explanation.recommended)
    yield from asdict(explanation.figures).items()
    yield "curve", [asdict(point) for point in explanation.curve]


def _groups(figures: Figures) -> Iterator[tuple[Any, ...]]:
    for index, group in enumerate(figures.groups):
        yield (
            *(index, group.kind.replace("_", " "), group.label, group.layers, group.block_tokens, group.block_slots),
            *(group.window_tokens, "look-ahead" if group.lookahead else None, group.blocks_held),
        )


def _numbers(figures: Figures, layout: Layout) -> Iterator[str]:
    aligned = f"Hits end at multiples of {figures.alignment_tokens:,} tokens"
    yield f"{aligned}: {figures.derivation}, decided by group {figures.dominant}."
    if figures.shortest_prompt is not None:
        yield f"The shortest prompt that can hit when it is sent again has {figures.shortest_prompt:,} tokens."
    elif layout.caches:
        yield "No prompt was found that can hit when it is sent again."
    else:
        yield "Nothing can hit: prefix caching is off."
    if figures.lookahead_tokens and figures.shortest_prompt is not None:
        yield (
            f"The draft layers cost {figures.lookahead_tokens:,} tokens: without them it would have "
            f"{figures.shortest_prompt_without_drafts:,}."
        )
    yield (
        f"A request of {figures.tokens:,} tokens holds {figures.blocks_held:,} blocks at most, "
        f"{figures.blocks_to_run:,} with drafts and look-ahead, and takes {figures.blocks_taken:,} from the free queue."
    )
    if figures.tier_blocks is not None:
        keeps = "none" if figures.tier_prompts is None else f"{figures.tier_prompts:,}"
        yield (
            f"An ideal tier on the host of {figures.tier_blocks:,} blocks keeps {keeps} of such requests, of "
            f"{figures.tier_blocks_taken:,} full blocks each, besides what the pool keeps. "
            "A connector keeps at most that."
        )
    if layout.blocks is None:
        yield "The number of blocks in the pool is not known: give --num-gpu-blocks-override."
    elif figures.largest_request is not None and figures.largest_request < figures.max_model_len:
        largest = figures.largest_request
        yield f"A request of more than {largest:,} tokens never fits the pool of {layout.blocks:,} blocks."
    else:
        yield f"Any request of up to {figures.max_model_len:,} tokens fits the pool of {layout.blocks:,} blocks."
