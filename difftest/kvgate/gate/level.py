"""The levels at which a system is run: its block manager alone, and a scheduler that drives it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Level(str, Enum):
    """What is run."""

    BLOCKS = "blocks"
    SCHEDULER = "scheduler"
    BOTH = "both"
    PAIR = "pair"
    """A scheduler on each of two nodes, of which one computes prompts and the other answers."""


NOT_TESTED: Mapping[Level, tuple[str, ...]] = {
    Level.BLOCKS: (
        "Scheduling: requests are driven as a scheduler would, without the scheduler itself (--level scheduler).",
    ),
    Level.SCHEDULER: (
        "Requests with adapters and multimodal items, pipeline and context parallelism: no scheduler was given any.",
        "The connector of a scheduler is a fake one: it transfers nothing, and says what a case has it say.",
        "Of newer vLLMs the second version of the model runner, and hashes that cover what draft layers read behind a "
        "block: both are switched off.",
        "Where steps are asynchronous, the work that a step costs; and of how much it computes, drafts, and who comes "
        "back behind an answer in flight. Anywhere, how much is computed where chunks end at blocks of states.",
    ),
    Level.PAIR: (
        "Requests with adapters and multimodal items, pipeline and context parallelism; models that keep states.",
        "Messages that never come: they leave blocks held on both nodes for good (finding 025).",
        "The router and the connector are the gate's own: they do what a connector that reads from the decode node has "
        "to do, and no product's is run.",
        "Where steps are asynchronous, the work that a step costs.",
    ),
}
"""What a level leaves out, beside what all leave out."""
_ALWAYS = (
    "Mechanisms that no model of this run has (--model and its suffixes), and context parallelism.",
    "The worker: what it would read and write is modelled, no tensor is touched.",
)


def not_tested(level: Level) -> tuple[str, ...]:
    """What a run at this level leaves out: where both are run, what the scheduler's leaves out."""
    return (*NOT_TESTED.get(level, NOT_TESTED[Level.SCHEDULER]), *_ALWAYS)
