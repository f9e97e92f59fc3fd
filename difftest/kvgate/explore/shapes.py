"""What content is when its families have no names: a shape, and the families that it is made of.

A shape numbers the families by where they appear first within one content, so content of the same shape differs in
families alone. Content never changes, so its shape is worked out once and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

from kvgate.explore.families import family_of, within_family
from kvgate.monitors.slot_memory import JUNK, Slots, States
from kvreference.content import Prefix

Shape: TypeAlias = tuple[int, tuple[int, ...]]
"""A number, equal exactly for equal shapes, and the families in the order in which they appear."""
_Token: TypeAlias = Callable[[int], Hashable]
"""What stands for a token in a shape."""


def named(shape: Shape, families: Mapping[int, int]) -> tuple[int, ...]:
    """The canonical name of content, given the canonical numbers of the families."""
    number, own = shape
    return (number, *[families[family] for family in own])


class Shapes:
    """The shapes of all content of one world, whose memories number their states by ``states``."""

    def __init__(self, states: States) -> None:
        self.states = states
        self._known: dict[Hashable, Shape] = {}
        self._numbers: dict[Hashable, int] = {}

    def of_tokens(self, tokens: tuple[int, ...]) -> Shape:
        """The shape of some tokens in a row."""
        return self._known.get(tokens) or self._learn(tokens, lambda token: tuple(map(token, tokens)))

    def of_prefix(self, prefix: Prefix) -> Shape:
        """The shape of a token prefix and of its keys."""
        return self._known.get(prefix) or self._learn(prefix, lambda token: _pieces(prefix, token))

    def of_slots(self, slots: Slots | None) -> Shape:
        """The shape of what the slots of a block hold."""
        return self._known.get(slots) or self._learn(slots, lambda token: _memory(slots, self.states, token))

    def _learn(self, content: Hashable, describe: Callable[[_Token], Hashable]) -> Shape:
        order: dict[int, int] = {}
        description = describe(
            lambda token: (order.setdefault(family_of(token), len(order)), within_family(token)),
        )
        number = self._numbers.setdefault(description, len(self._numbers))
        shape = self._known[content] = (number, tuple(order))
        return shape


def _pieces(prefix: Prefix, token: _Token) -> Hashable:
    """Salt and adapter, then piece by piece the tokens and the multimodal items that reach into them."""
    chain = []
    node: Prefix | None = prefix
    while node is not None:
        chain.append(node)
        node = node.parent
    # The root's piece is the salt and the adapter; every other one is some tokens and the media among them.
    pieces: list[Any] = [each.piece for each in reversed(chain)]
    return (pieces[0], *[(tuple(map(token, tokens)), media) for tokens, media in pieces[1:]])


def _memory(slots: Slots | None, states: States, token: _Token) -> Hashable:
    """Who wrote the block, and slot by slot the history of the state there."""
    if slots is None:
        return None
    writer, numbers = slots
    return (writer, *[_history(number, states, token) for number in numbers])


def _history(number: int | None, states: States, token: _Token) -> Hashable:
    if number is None or number == JUNK:
        return number
    origins: list[Any] = states.history(number)
    return (origins[0][1], *[(token(each), media) for _, each, media in origins[1:]])
