"""The sentence at the head of an explanation.

Goal: it does not say zero where something was hit. Method: the workload that was published with 87.49 %, in its pool;
and prompts that hit nothing.
"""

from __future__ import annotations

from kvgate.explain.best_hit import Prompts
from kvgate.explain.cause import Case
from kvgate.explain.explanation import explain
from kvgate.explain.load import load
from kvgate.explain.serving import Serving
from kvgate.report.explanation import verdict


def verdict_of(blocks: int | None, prompts: Prompts) -> str:
    """The verdict for DeepSeek-V4 on Ascend with the smallest blocks."""
    serving = Serving(platform="ascend", num_gpu_blocks_override=blocks, max_model_len=131072)
    return verdict(explain(Case(load("dsv4-flash-ascend-32", serving), serving, prompts)))


def test_what_can_hit_is_said_with_what_may_undo_it() -> None:
    """The published row: the pool turns over only if as much comes in between."""
    sentence = verdict_of(16_000, Prompts(32772, 32772, 29491))
    assert sentence.startswith("Up to 28,672 tokens can hit of a prompt of 32,772 tokens that shares 29,491, but")
    assert "but nothing if between a prompt and its replay more blocks are taken than the pool has" in sentence
    assert sentence.endswith(": windows-flush-the-pool.")


def test_what_cannot_hit_is_said_with_its_cause() -> None:
    """A roomy pool adds no condition."""
    assert "Nothing can hit of a prompt of 2,000 tokens that shares 2,000: coarse-alignment." == verdict_of(
        None, Prompts.replay(2000)
    )
    assert verdict_of(10**6, Prompts(32772, 32772, 29491)).endswith("that shares 29,491.")
