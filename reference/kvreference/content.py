"""What a block holds: the identity of its content.

The attention state at a position depends on everything before it. So a block's content is its request's whole token
prefix up to the block's end, and all else that enters the computation: the cache salt and the LoRA adapter from the
first token on, a multimodal item where its tokens are. The model has no hashes: equal content is the same object,
different content never is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from weakref import WeakValueDictionary

from attrs import field, frozen
from attrs.validators import ge, min_len, optional

from kvreference.rules import OWN_RULES, Rules


@frozen
class Media:
    """A multimodal item: its identifier stands for its content, its tokens are placeholders.

    Offset and length are in tokens of the request.
    """

    identifier: str = field(validator=min_len(1))
    offset_tokens: int = field(validator=ge(0))
    length_tokens: int = field(validator=ge(1))


UNTAGGED = "untagged"
"""The domain of an extra key whose domain a system does not tell."""


@frozen
class ExtraKey:
    """One thing besides the tokens that a block's content depends on, tagged with its domain."""

    domain: str
    name: str
    offset_tokens: int | None = None
    """Where a multimodal item starts, from the block's first token."""


@frozen
class Keys:
    """The keys that distinguish one request's content from another's, besides its tokens.

    Each of the three is a domain of its own: a salt never equals an adapter of the same name.
    """

    salt: str | None = field(default=None, validator=optional(min_len(1)))
    lora: str | None = field(default=None, validator=optional(min_len(1)))
    media: tuple[Media, ...] = field(default=())
    lora_version: int = field(default=0, validator=ge(0))
    """Which of several adapters of that name it is: after a reload, or since names are not unique."""

    @property
    def adapter(self) -> str | None:
        """The adapter that computes, and not only its name."""
        return f"{self.lora}#{self.lora_version}" if self.lora is not None and self.lora_version else self.lora

    @media.validator
    def _media_in_order(self, _attribute: object, media: tuple[Media, ...]) -> None:
        for before, after in pairwise(media):
            if before.offset_tokens + before.length_tokens > after.offset_tokens:
                raise ValueError("multimodal items must be in order and must not overlap")

    def media_within(self, start_tokens: int, end_tokens: int) -> tuple[tuple[str, int], ...]:
        """Every item that reaches into the tokens ``[start_tokens, end_tokens)``, with its offset from their start."""
        return tuple(
            (item.identifier, item.offset_tokens - start_tokens)
            for item in self.media
            if item.offset_tokens < end_tokens and start_tokens < item.offset_tokens + item.length_tokens
        )

    def of_block(self, start_tokens: int, end_tokens: int) -> tuple[ExtraKey, ...]:
        """The keys that a KV event names besides the tokens ``[start_tokens, end_tokens)`` of a block, each with its
        domain.

        The adapter with every block, the items that reach into it, the salt with the request's first block.
        """
        lora = () if self.lora is None else (ExtraKey("lora", self.lora),)
        media = tuple(ExtraKey("media", *item) for item in self.media_within(start_tokens, end_tokens))
        salt = () if self.salt is None or start_tokens > 0 else (ExtraKey("salt", self.salt),)
        return (*lora, *media, *salt)


class Prefix:
    """A token prefix, interned: two equal prefixes of one ``Prefixes`` are the same object."""

    __slots__ = ("__weakref__", "parent", "piece", "tokens")

    def __init__(self, parent: Prefix | None, piece: Hashable, tokens: int) -> None:
        self.parent = parent
        self.piece = piece
        self.tokens = tokens
        """The length of the prefix, in tokens."""

    @property
    def pieces(self) -> tuple[Hashable, ...]:
        """Its tokens, piece by piece, each with what else their content depends on."""
        pieces, prefix = [self.piece], self.parent
        while prefix is not None:
            pieces.append(prefix.piece)
            prefix = prefix.parent
        return tuple(reversed(pieces))

    def __repr__(self) -> str:
        return f"<prefix of {self.tokens} tokens>"


def names_of_piece(keys: Keys, start_tokens: int, end_tokens: int, known_tokens: int) -> tuple[ExtraKey, ...]:
    """The keys that the content of the tokens ``[start_tokens, end_tokens)`` depends on.

    The prefix of the first ``known_tokens`` tokens was there before.
    """
    del known_tokens
    named = keys.of_block(start_tokens, end_tokens)
    return named if keys.adapter == keys.lora else (*named, ExtraKey("adapter", f"version {keys.lora_version}"))


class Prefixes:
    """All prefixes that are in use, as a tree whose edges are pieces of ``grain_tokens`` tokens.

    In use are those of the requests alive and of what is cached. The tree itself keeps none.
    """

    def __init__(self, grain_tokens: int, rules: Rules = OWN_RULES, ahead_tokens: int = 0) -> None:
        self.grain_tokens = grain_tokens
        self.ahead_tokens = ahead_tokens
        """How many tokens after a prefix must agree as well."""
        self._rules = rules
        self._children: WeakValueDictionary[tuple[Prefix | None, Hashable], Prefix] = WeakValueDictionary()

    def _child(self, parent: Prefix | None, piece: Hashable, tokens: int) -> Prefix:
        edge = (parent, piece)
        node = self._children.get(edge)
        if node is None:
            node = self._children[edge] = Prefix(parent, piece, tokens)
        return node

    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        """Append to ``known`` the prefixes of ``tokens`` at every whole grain that it does not hold yet.

        ``known[i]`` is the prefix of ``(i + 1) * grain_tokens`` tokens.
        """
        grain, known_tokens = self.grain_tokens, len(known) * self.grain_tokens
        for start in range(known_tokens, len(tokens) - self.ahead_tokens - grain + 1, grain):
            end, read = start + grain, start + grain + self.ahead_tokens
            names = self._rules.ask(names_of_piece, keys, start, read, known_tokens)
            parent = known[-1] if known else None
            known.append(self._child(parent, (tuple(tokens[start:read]), names), end))
