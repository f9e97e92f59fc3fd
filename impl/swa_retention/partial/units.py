"""The unit: at which multiples of tokens a hit may end, and in which groups it then ends inside a block.

A block of full attention can be cut anywhere between two slots: what is before the cut never depends on what is after
it. A window's blocks are not cut, so a hit ends where they end. The finest unit is therefore a whole number of those
blocks, of the slots of every compress ratio, and of the blocks that vLLM hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm

from attrs import frozen

from swa_retention.config import PARTIAL, ConfigurationError


@frozen
class Cuttable:
    """What matters of one KV-cache group here."""

    block_tokens: int
    is_full_attention: bool
    compress_ratios: tuple[int, ...] = (1,)
    """How many tokens share a slot, in each kind of the group's layers."""


@frozen
class Units:
    """Where hits end."""

    unit_tokens: int
    """Every hit is a multiple of this."""
    copies: tuple[bool, ...]
    """Per group, whether a hit may end inside its blocks, and is then served by a copy."""


def units_of(groups: Sequence[Cuttable], hash_block_tokens: int, given_tokens: int | None) -> Units:
    """The finest units that work, or those of ``given_tokens``.

    Raises:
        ConfigurationError: ``given_tokens`` does not work.
    """
    required = lcm(hash_block_tokens, *_whole(groups))
    if given_tokens is None:
        unit = _fitting(required, groups)
    elif given_tokens % required or _fitting(given_tokens, groups) != given_tokens:
        finest = _fitting(required, groups)
        raise ConfigurationError(
            PARTIAL,
            str(given_tokens),
            f"give auto, which is {finest} tokens for this model, or a multiple of {required} tokens that divides "
            "every larger block of full attention",
        )
    else:
        unit = given_tokens
    return Units(unit, tuple(group.is_full_attention and group.block_tokens > unit for group in groups))


def _whole(groups: Iterable[Cuttable]) -> Iterable[int]:
    """What the unit must be a multiple of."""
    for group in groups:
        yield from group.compress_ratios
        if not group.is_full_attention:
            yield group.block_tokens


def _fitting(unit_tokens: int, groups: Iterable[Cuttable]) -> int:
    """The least multiple of ``unit_tokens`` that every block is either a multiple of, or a divisor."""
    blocks = sorted(group.block_tokens for group in groups)
    while True:
        odd = next((block for block in blocks if block % unit_tokens and unit_tokens % block), None)
        if odd is None:
            return unit_tokens
        unit_tokens = lcm(unit_tokens, odd)
