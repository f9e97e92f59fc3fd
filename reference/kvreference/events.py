"""KV events: how a cache-aware router outside the process learns what is cached here."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from attrs import frozen

from kvreference.content import ExtraKey

DEVICE = "device"
"""Where the blocks are that a block manager has."""


@frozen
class Stored:
    """Blocks of one request became cached, in order.

    ``contents`` and ``parent`` are content identities: opaque, equal exactly for equal content. ``tokens`` are the
    token ids that the named blocks hold and ``extra_keys`` has one entry per named block.
    """

    group: int
    contents: tuple[Hashable, ...]
    parent: Hashable | None
    tokens: tuple[int, ...]
    block_size_tokens: int
    lora: str | None
    extra_keys: tuple[tuple[ExtraKey, ...], ...]
    medium: str = DEVICE
    ahead: tuple[tuple[int, ...], ...] = ()
    """Per named block, the tokens after it that its content depends on; nothing where there are none."""


@frozen
class Removed:
    """One block's content is not cached in that block any more. The group is part of the identity."""

    content: Hashable
    medium: str = DEVICE


@frozen
class Cleared:
    """Nothing is cached any more."""


Event: TypeAlias = Stored | Removed | Cleared
