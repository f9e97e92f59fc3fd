"""The explanation as text: the verdict first, then the figures that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from textwrap import wrap

from rich.console import Console
from rich.table import Table

from kvgate.explain.cause import Cause, Effect
from kvgate.explain.explanation import Explanation
from kvgate.explain.figures import Figures
from kvgate.explain.layout import Layout
from kvgate.explain.text_plot import text_plot
from kvgate.kernel.text import printable
from kvreference.statements import STATEMENTS

_WIDTH = 120
_LINKS = {"vllm-project/vllm#": "vllm#", "vllm-project/vllm-ascend#": "vllm-ascend#"}


def text_report(explanation: Explanation) -> str:
    """The explanation as plain text."""
    figures, case = explanation.figures, explanation.case
    out = StringIO()
    console = Console(file=out, width=_WIDTH, highlight=False, markup=False, soft_wrap=False)
    serving = case.serving
    engine = "vLLM-Ascend" if serving.platform.value == "ascend" else "vLLM"
    console.print(printable(f"{case.layout.name} on {engine} {serving.version}", 500))
    console.print(printable(case.layout.source, 500))
    for note in case.layout.notes:
        for line in wrap(f"note: {note}", _WIDTH, break_on_hyphens=False, subsequent_indent="  "):
            console.print(printable(line, 500))
    console.print()
    for line in verdict(explanation):
        console.print(line)
    told: set[str] = set()
    for cause in explanation.causes:
        for line in _cause(cause, with_sentence=cause.statement not in told):
            console.print(line)
        told.add(cause.statement)
    console.print("\nGroups\n")
    console.print(_groups(figures))
    for line in _numbers(figures, case.layout):
        console.print(line)
    console.print()
    console.print(_policies(figures))
    if figures.curve:
        console.print("How much of a prompt can hit when it is sent again, over its length:\n")
        for line in text_plot(figures.curve):
            console.print(line)
    if explanation.recommended:
        console.print("\nRecommended\n")
        for flag in explanation.recommended:
            console.print(f"- {flag}")
    return out.getvalue()


def verdict(explanation: Explanation) -> Iterator[str]:
    """One sentence: zero, zero if, or not zero as far as the flags tell."""
    figures, causes = explanation.figures, explanation.causes
    always = [cause for cause in causes if cause.effect is Effect.ALWAYS_ZERO]
    conditional = [cause for cause in causes if cause.effect is Effect.ZERO_IF]
    if always:
        yield f"The hit rate is zero: {always[0].id}."
    elif figures.hit is not None and explanation.case.prompts is not None:
        prompts = explanation.case.prompts
        told = f"of a prompt of {prompts.second_tokens:,} tokens that shares {prompts.shared_tokens:,}"
        if figures.hit:
            but = f", but nothing if {conditional[0].condition}: {conditional[0].id}" if conditional else ""
            yield from wrap(f"Up to {figures.hit:,} tokens can hit {told}{but}.", _WIDTH, break_on_hyphens=False)
        elif conditional:
            yield f"Nothing can hit {told}: {conditional[0].id}."
        else:
            yield f"Nothing can hit {told}."
    elif conditional:
        yield "The hit rate can be zero, for some prompts: " + ", ".join(cause.id for cause in conditional) + "."
        yield "--prompt-tokens and --shared-tokens say which of it is yours."
    else:
        yield "Nothing in these flags makes the hit rate zero."


def _cause(cause: Cause, with_sentence: bool) -> Iterator[str]:
    """A cause; the guarantee's sentence is told once."""
    yield ""
    heading = f"{cause.id}: {cause.effect.value}{' ' + cause.condition if cause.condition else ''}"
    yield from wrap(heading, _WIDTH, break_on_hyphens=False, subsequent_indent="  ")
    sentence = f": {STATEMENTS[cause.statement]}" if with_sentence else ""
    for text in (
        cause.says,
        f"{cause.statement}{sentence}",
        f"seen in: {', '.join(map(short, cause.upstream))}",
        f"what to do: {cause.remedy}",
    ):
        yield from wrap(text, _WIDTH, break_on_hyphens=False, initial_indent="  ", subsequent_indent="    ")


def short(thread: str) -> str:
    """``vllm#40624`` for a thread of vLLM's own."""
    for long, brief in _LINKS.items():
        if thread.startswith(long):
            return brief + thread.removeprefix(long)
    return thread


def _groups(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("", "right"),
        ("kind", "left"),
        ("holds", "left"),
        ("layers", "right"),
        ("block, tokens", "right"),
        ("slots", "right"),
        ("window", "right"),
        ("draft", "left"),
        ("held, blocks", "right"),
    ):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for index, group in enumerate(figures.groups):
        table.add_row(
            str(index),
            group.kind.replace("_", " "),
            group.label,
            str(group.layers),
            str(group.block_tokens),
            str(group.block_slots),
            "" if group.window_tokens is None else str(group.window_tokens),
            "look-ahead" if group.lookahead else "",
            str(group.blocks_held),
        )
    return table


def _numbers(figures: Figures, layout: Layout) -> Iterator[str]:
    aligned = f"Hits end at multiples of {figures.alignment_tokens:,} tokens"
    yield f"\n{aligned}: {figures.derivation}, decided by group {figures.dominant}."
    yield f"The shortest prompt that can hit when it is sent again has {figures.shortest_prompt:,} tokens."
    if figures.lookahead_tokens:
        yield (
            f"The draft layers cost {figures.lookahead_tokens:,} tokens: without them it would have "
            f"{figures.shortest_prompt_without_drafts:,}."
        )
    yield (
        f"A request of {figures.tokens:,} tokens holds {figures.blocks_held:,} blocks at most, "
        f"{figures.blocks_to_run:,} with drafts and look-ahead, and takes {figures.blocks_taken:,} from the free queue."
    )
    if layout.blocks is None:
        yield "How many blocks the pool has is not known: --num-gpu-blocks-override says it."
    elif figures.largest_request is not None and figures.largest_request < figures.max_model_len:
        largest = figures.largest_request
        yield f"Of {layout.blocks:,} blocks a request of more than {largest:,} tokens is refused for ever."
    else:
        yield f"Of {layout.blocks:,} blocks no request of up to {figures.max_model_len:,} tokens is refused for ever."


def _policies(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    table.add_column("blocks kept of one", justify="right")
    table.add_column("prompts retained", justify="right")
    table.add_column("with")
    for policy in figures.policies:
        retained = "?" if policy.prefixes_retained is None else f"{policy.prefixes_retained:,}"
        table.add_row(policy.name, f"{policy.blocks_kept:,}", retained, policy.flags)
    return table
