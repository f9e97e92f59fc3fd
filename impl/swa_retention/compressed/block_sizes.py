"""The block sizes of DeepSeek-V4 on vLLM-Ascend, which are scaled together.

A block of a compressed group has ``--block-size`` *slots*, each of them for as many tokens as the compress ratio says.
So 128 slots of C128 span 16384 tokens, and no shorter prompt hits anything; with 64 or 32 slots it is a half or a
quarter of that. All groups share memory pages, so all of them shrink alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from swa_retention.config import COMPRESSED, COMPRESSED_BLOCK_SIZES_SLOTS, ConfigurationError

DEFAULT_SLOTS = 128
"""What vLLM-Ascend has; it ignores ``--block-size``."""


@frozen
class BlockSizes:
    """How many slots a block has in each kind of group."""

    mla: int
    """Compressed attention, and its indexer."""
    sliding_window: int
    c4_state: int
    c128_state: int

    def state(self, compress_ratio: int) -> int:
        """The compressor's state in the layers of this ratio.

        Raises:
            ValueError: DeepSeek-V4 has no such layers.
        """
        if compress_ratio not in (4, 128):
            raise ValueError(f"no compressor has a ratio of {compress_ratio}: DeepSeek-V4 has 4 and 128")
        return self.c4_state if compress_ratio == 4 else self.c128_state

    def page_bytes(self, page_bytes: int) -> int:
        """The page that holds as much less as blocks are smaller, where ``page_bytes`` is vLLM-Ascend's own."""
        return page_bytes * self.mla // DEFAULT_SLOTS


BLOCK_SIZES: Mapping[int, BlockSizes] = {
    128: BlockSizes(128, 128, 8, 32),
    64: BlockSizes(64, 64, 4, 16),
    32: BlockSizes(32, 32, 2, 8),
}
"""By ``--block-size``."""


class ContradictionError(ConfigurationError):
    """``--block-size`` and the variable ask for different block sizes."""

    def __init__(self, variable_slots: int, block_size: int) -> None:
        super().__init__(
            COMPRESSED,
            str(variable_slots),
            f"--block-size={block_size} was given too, and a model has one block size: give the same, or one of them",
        )


def resolve(variable_slots: int | None, block_size: int | None) -> BlockSizes | None:
    """The block sizes that the variable and ``--block-size`` ask for; None if neither does: vLLM-Ascend's own.

    Raises:
        ContradictionError: they differ.
        ConfigurationError: the only one that is given is a size that there is not.
    """
    if variable_slots is None:
        return None if block_size is None else _sizes("--block-size", block_size)
    if block_size is not None and block_size != variable_slots:
        raise ContradictionError(variable_slots, block_size)
    return _sizes(COMPRESSED, variable_slots)


def _sizes(asked_by: str, slots: int) -> BlockSizes:
    if slots not in BLOCK_SIZES:
        allowed = f"give one of {', '.join(map(str, sorted(COMPRESSED_BLOCK_SIZES_SLOTS)))}"
        raise ConfigurationError(asked_by, str(slots), allowed)
    return BLOCK_SIZES[slots]
