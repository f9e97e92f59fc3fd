"""The table as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvgate.equality.feature import EVIDENCE, FEATURE
from kvgate.equality.table import PLANTED, TOLERANCE, Cell, State

FORMAT, VERSION = "kvgate-token-equality", 1


def document(cells: Sequence[Cell]) -> dict[str, Any]:
    """Everything that was seen, for a program to read."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tolerance": TOLERANCE,
        "as_it_should_be": all(cell.is_as_it_should_be for cell in cells),
        "cells": [_plain(cell) for cell in cells],
    }


def _plain(cell: Cell) -> dict[str, Any]:
    told = cell.told
    seen: dict[str, Any] = {}
    if told is not None and told.error is None:
        seen = {
            "cached_tokens": told.cached_tokens,
            "preemptions": told.preemptions,
            "drafts": told.drafts,
            "drafts_accepted": told.drafts_accepted,
            "cached_blocks": told.cached_blocks,
            "pinned_blocks": told.pinned_blocks,
            "seconds": round(told.seconds, 1),
        }
    return {
        "model": cell.model,
        "feature": cell.feature,
        "planted": cell.planted,
        "state": cell.state.value,
        "why": cell.why,
        "answers": cell.answers,
        "differ": cell.differ,
        "logprob_distance": cell.logprob_distance,
        "gap": cell.gap,
        **seen,
    }


def page(cells: Sequence[Cell]) -> str:
    """The table in Markdown, and what it says."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    rows = list(dict.fromkeys(cell.feature for cell in cells))
    there = {(cell.model, cell.feature): cell for cell in cells}
    lines = [f"| | {' | '.join(models)} |", f"|---|{'---|' * len(models)}"]
    for name in [row for row in rows if row not in PLANTED] + [row for row in rows if row in PLANTED]:
        title = f"planted: {name}" if name in PLANTED else f"{name}: {FEATURE[name].sentence}"
        said = [_words(there[model, name]) if (model, name) in there else "" for model in models]
        lines.append(f"| {title} | {' | '.join(said)} |")
    return "\n".join([*lines, "", *_footer(cells)])


def _words(cell: Cell) -> str:
    told = cell.told
    if cell.state in (State.NOT_THERE, State.FAILED) or told is None:
        return f"{cell.state.value}: {cell.why}"
    seen = [f"{told.cached_tokens} tokens cached"]
    seen += [f"{told.preemptions} preemptions"] * bool(told.preemptions)
    seen += [f"{told.drafts_accepted} of {told.drafts} drafts right"] * bool(told.drafts)
    seen += [f"{told.pinned_blocks} blocks pinned"] * bool(told.pinned_blocks)
    if cell.state is State.DIFFERS:
        return f"{cell.differ} of {cell.answers} differ ({', '.join(seen)})"
    because = f"; {cell.why}" if cell.why else ""
    return f"{cell.state.value} {cell.answers} ({', '.join(seen)}{because})"


def _footer(cells: Sequence[Cell]) -> list[str]:
    judged = [cell for cell in cells if cell.state not in (State.NOT_THERE, State.FAILED) and not cell.planted]
    lines = []
    if judged:
        distance, gap = max(cell.logprob_distance for cell in judged), min(cell.gap for cell in judged)
        lines.append(
            f"{sum(cell.answers for cell in judged)} answers next to those without a cache. First tokens' "
            f"log-probabilities differ by at most {distance:.2g} (allowed: {TOLERANCE:g}); no chosen token was "
            f"less than {gap:.2g} ahead of the next."
        )
    lines.append("Not in it: DeepSeek-V4, whose model in vLLM 0.20.2 is not built without CUDA.")
    wrong = [cell for cell in cells if not cell.is_as_it_should_be]
    lines += [f"NOT AS IT SHOULD BE: {cell.model}, {cell.feature}: {_words(cell)}" for cell in wrong]
    unseen = sorted({name for cell in wrong if cell.state is State.NOT_SHOWN for name in EVIDENCE if name in cell.why})
    lines += [f"{name}: {EVIDENCE[name]}" for name in unseen]
    return lines
