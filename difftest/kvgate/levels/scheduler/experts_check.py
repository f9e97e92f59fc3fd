"""Experts that are returned: which a worker chose for each token is kept by slot, and sent to clients at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvreference.rules import Rules

EXPERTS = 2**20
"""More experts than there are tokens nearby."""


def chosen(position: int, token: int) -> int:
    """The expert of a token: any number that differs from those of tokens nearby."""
    return (position * 7919 + token) % EXPERTS


def experts_returned(experts: Sequence[int], kept: Sequence[int | None]) -> Sequence[int]:
    """What is returned for the tokens of a request: the expert of each.

    ``kept`` is what is kept by now for the tokens that its table has an entry for: None where it holds the block.
    """
    del kept
    return experts


class Experts:
    """What the worker keeps, and what clients are due."""

    def __init__(self, memory: Any, block_tokens: int, rules: Rules) -> None:
        self.memory = memory
        """By slot; the other axes, layers and choices, have one entry."""
        self.block_tokens = block_tokens
        self._rules = rules

    def computed(self, table: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        """The worker has computed some tokens of a request, from position ``start`` on."""
        for position, token in enumerate(tokens, start):
            slot = self._slot(table, position)
            if slot < len(self.memory):
                self.memory[slot] = chosen(position, token)

    def due(self, table: Sequence[int], tokens: Sequence[int]) -> list[list[list[int]]]:
        """What is returned of a request with these tokens, by token, layer and choice: the last was never computed."""
        experts = [chosen(position, token) for position, token in enumerate(tokens[:-1])]
        slots = [self._slot(table, position) for position in range(min(len(experts), len(table) * self.block_tokens))]
        kept = [int(self.memory[slot].item()) if slot < self.block_tokens else None for slot in slots]
        return [[[expert]] for expert in self._rules.ask(experts_returned, experts, kept)]

    def _slot(self, table: Sequence[int], position: int) -> int:
        return table[position // self.block_tokens] * self.block_tokens + position % self.block_tokens
