"""The states that a worker computes, as numbers: equal exactly if everything that they depend on is equal.

A state is identified by everything it depends on: cache salt, adapter, every token up to it, and the multimodal
items that lie there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kvreference.population import Request

Origin: TypeAlias = tuple[object, ...]
"""How a state came about: the state before it, the token, and the multimodal item there with the offset in it. The
first state of all has salt and adapter for a token."""

JUNK = -1
"""What a draft layer leaves in a look-ahead slot: nothing that anyone may read."""


class States:
    """Numbers for states: equal numbers exactly for equal origins."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._origins: list[Origin] = []

    def number(self, *origin: object) -> int:
        """The number of the state with this origin."""
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._origins)
            self._origins.append(origin)
        return number

    def extend(self, chain: list[int], request: Request, tokens: Sequence[int]) -> None:
        """Append to ``chain`` the states of the ``tokens`` of ``request`` that it does not hold yet."""
        keys = request.keys
        state = chain[-1] if chain else self.number(None, (keys.salt, keys.lora), None)
        for position in range(len(chain), len(tokens)):
            media = keys.media_within(position, position + 1) if keys.media else ()
            state = self.number(state, tokens[position], media)
            chain.append(state)

    def history(self, number: int) -> list[Origin]:
        """Everything that went into a state: salt and adapter first, then token by token."""
        origins: list[Origin] = []
        state: object = number
        while isinstance(state, int):
            origins.append(self._origins[state])
            state = self._origins[state][0]
        return origins[::-1]

    def describe(self, number: int | None) -> str:
        """A state in words: which token of which prefix."""
        if number is None:
            return "nothing was ever written there"
        if number == JUNK:
            return "what a draft layer left in a look-ahead slot"
        root, *tokens = self.history(number)
        where = f"token {self._origins[number][1]} at position {len(tokens) - 1}"
        return f"state {number}: {where}, salt and adapter {root[1]}"
