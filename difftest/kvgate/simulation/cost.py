"""The cost model: how much work a server does, relative to another policy's. It is simple, and says so.

The work of a request is the tokens computed for it, and a share of the tokens copied for it. Every computed token
counts the same, wherever it stands; waiting, decoding in batches and the growth of attention with the context are not
in it. So it compares policies on one workload. It does not predict latency.
"""

from __future__ import annotations

from kvgate.simulation.result import Result

COPIED_WEIGHT = 0.01
"""What a copied token costs, in computed ones: a copy moves memory, and no layer is run. An assumption."""


def work_tokens(result: Result) -> float:
    """The work of the counted requests, in computed tokens."""
    return result.computed_tokens + COPIED_WEIGHT * result.copied_tokens


def relative_work(result: Result) -> float:
    """The work, by what an empty cache and an endless pool would cost: every token of prompts and answers once."""
    cold = sum(each.prompt_tokens + each.answer_tokens - 1 for each in result.counted)
    return work_tokens(result) / cold if cold else 0.0


def recomputed_tokens(result: Result) -> int:
    """What was computed again because blocks were taken back: beyond each request's own tokens after its hit."""
    return sum(
        max(0, each.computed_tokens - (each.prompt_tokens + each.answer_tokens - 1 - each.hit_tokens))
        for each in result.counted
    )
