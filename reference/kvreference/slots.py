"""Where a worker keeps what it computes: the slot of each token in each group.

A *slot* is one entry of a group's cache: what is kept for one token, or for ``compress_ratio`` of them together. Slots
of a request are counted from its first token on, across its blocks. Slots of the memory are counted from the
first slot of block 0 on. If several workers share a request's context, each has a part of its slots, ``interleave`` in
a row, in turn. A block then spans ``ranks`` times the tokens, since each worker has a block of that number.

A kernel may use another block size than the block manager. Then a block is several *kernel blocks*, with the same slots
in the same order. So the slot of a token does not depend on the kernel's blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, field, frozen
from attrs.validators import ge, instance_of

from kvreference.geometry import Geometry, Group

_count = [instance_of(int), ge(1)]


def slot_of_token(token: int, compress_ratio: int) -> int:
    """Which of its request's slots a token is kept in, together with the others of that slot."""
    return token // compress_ratio


def rank_of(slot: int, ranks: int, interleave: int) -> int:
    """Which worker keeps a slot of a request."""
    return slot // interleave % ranks


def slot_on_rank(slot: int, ranks: int, interleave: int) -> int:
    """Which of the slots that its worker keeps of the request it is."""
    return slot // interleave // ranks * interleave + slot % interleave


def place(slot: int, block_slots: int) -> tuple[int, int]:
    """The entry of the block table that has a slot of one worker, and which slot of that block it is."""
    return slot // block_slots, slot % block_slots


def in_memory(block: int, offset: int, block_slots: int) -> int:
    """A slot of a block, as the memory counts them."""
    return block * block_slots + offset


def kernel_block(block: int, part: int, parts: int) -> int:
    """A part of a block, as a kernel counts blocks if each of the manager's is ``parts`` of its own."""
    return block * parts + part


@frozen
class Layout:
    """How one worker keeps the slots of one group.

    Raises:
        ValueError: a worker that is not one of them, or slots in a row that do not fill a block.
    """

    block_slots: int = field(validator=_count)
    """How many slots a block has on each worker."""
    compress_ratio: int = field(default=1, validator=_count)
    ranks: int = field(default=1, validator=_count)
    rank: int = 0
    interleave: int = field(default=1, validator=_count)

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"worker {self.rank} is not one of {self.ranks}")
        if self.block_slots % self.interleave:
            raise ValueError(f"blocks of {self.block_slots} slots are not whole rows of {self.interleave}")

    def slot(self, table: Sequence[int], token: int) -> int | None:
        """Where in memory this worker keeps ``token`` of the request with that table; None if another one keeps it."""
        slot = slot_of_token(token, self.compress_ratio)
        if rank_of(slot, self.ranks, self.interleave) != self.rank:
            return None
        entry, offset = place(slot_on_rank(slot, self.ranks, self.interleave), self.block_slots)
        return in_memory(table[entry], offset, self.block_slots)

    def written(self, table: Sequence[int], start: int, end: int) -> list[int | None]:
        """The slots that a step writes which computes the tokens from ``start`` to ``end``, in order.

        A slot is written with the last of its tokens.
        """
        ratio = self.compress_ratio
        return [self.slot(table, slot * ratio) for slot in range(start // ratio, end // ratio)]

    def kernel_blocks(self, table: Sequence[int], kernel_block_slots: int) -> list[int]:
        """The table as a kernel reads it whose blocks have so many slots.

        Raises:
            ValueError: the manager's blocks are not whole blocks of the kernel.
        """
        parts, rest = divmod(self.block_slots, kernel_block_slots)
        if rest:
            raise ValueError(f"blocks of {self.block_slots} slots are not whole blocks of {kernel_block_slots}")
        return [kernel_block(block, part, parts) for block in table for part in range(parts)]


def layout_of(group: Group) -> Layout:
    """How a single worker keeps a group, where a slot of several tokens is written once they are all computed."""
    return Layout(group.block_size_tokens // group.compress_ratio, group.compress_ratio)


def layouts_of(geometry: Geometry, rank: int = 0, ranks: int = 1, interleave: int = 1) -> tuple[Layout, ...]:
    """How one of several workers keeps each group."""
    return tuple(evolve(layout_of(group), rank=rank, ranks=ranks, interleave=interleave) for group in geometry.groups)
