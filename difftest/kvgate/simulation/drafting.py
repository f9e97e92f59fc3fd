"""Speculation in a simulation: what is answered, and which drafts hold, the same for every arm."""

from __future__ import annotations

import random

from kvgate.simulation.arm import Setting
from kvgate.simulation.workload import Turn


class Drafting:
    """How many drafts of a request hold in each of its steps, decided by the seed and by where the request stands."""

    def __init__(self, setting: Setting) -> None:
        self.seed = setting.seed
        self.acceptance = setting.serving.acceptance
        self.drafts_max = setting.serving.drafts_max

    def accepted(self, number: int, tokens: int, drafts: int) -> int:
        """How many of ``drafts`` in flight hold for request ``number``, which has ``tokens`` tokens."""
        if not drafts:
            return 0
        random_source = random.Random(f"{self.seed} {number} {tokens}")
        return next((held for held in range(drafts) if random_source.random() >= self.acceptance), drafts)


def answers(turn: Turn, tokens: int, count: int) -> list[int]:
    """The next ``count`` tokens of a request that has ``tokens`` tokens, as far as its answers go."""
    first = turn.answers.first + tokens - turn.prompt_tokens
    return list(range(first, min(first + count, turn.answers.first + turn.answers.length)))
