"""Chapter 08: no two slots of a request share a place in memory, each is inside its block, and kernels agree on it."""

from __future__ import annotations

from typing import Any

from kvreference import slots
from kvspec.obligation import Count, Obligation, only
from kvspec.symbolic import implies

INSIDE = Obligation(
    id="compressed-groups.slot-inside-its-block",
    statements=("KV-MEM-03",),
    title="A slot is inside the block that the table names for it, and none of another block's.",
    unknowns={"block": Count(1), "slot": Count(0), "number": Count(0)},
    claim=lambda u: (
        (u.number * u.block <= slots.in_memory(u.number, slots.place(u.slot, u.block)[1], u.block))
        & (slots.in_memory(u.number, slots.place(u.slot, u.block)[1], u.block) < u.number * u.block + u.block)
    ),
    witnesses={"a later slot of a later block": lambda u: (u.slot % u.block >= 2) & (u.number >= 2)},
    mutants=(
        only(
            "a-slot-late",
            "A slot is taken to be the one after it.",
            "kvreference.slots:in_memory",
            lambda block, offset, block_slots: block * block_slots + offset + 1,
        ),
    ),
)


def _entry(u: Any, slot: Any) -> Any:
    return slots.place(slot, u.block)[0]


def _differ(first: Any, second: Any) -> Any:
    return (first < second) | (second < first)


APART = Obligation(
    id="compressed-groups.slots-of-a-request-are-apart",
    statements=("KV-MEM-03",),
    title="Two slots of a request whose table names no block twice are two places in memory.",
    unknowns={"block": Count(1), **dict.fromkeys(("slot", "other", "number", "other_number"), Count(0))},
    assumes=lambda u: (
        (u.slot < u.other)
        & implies(_entry(u, u.slot) < _entry(u, u.other), _differ(u.number, u.other_number))
        & implies(_entry(u, u.slot) == _entry(u, u.other), u.number == u.other_number)
    ),
    claim=lambda u: _differ(
        slots.in_memory(u.number, slots.place(u.slot, u.block)[1], u.block),
        slots.in_memory(u.other_number, slots.place(u.other, u.block)[1], u.block),
    ),
    witnesses={"in two blocks": lambda u: (_entry(u, u.slot) < _entry(u, u.other)) & (u.block >= 2)},
    mutants=(
        only(
            "stride-of-one-slot-less",
            "Blocks are taken to be a slot smaller than they are.",
            "kvreference.slots:in_memory",
            lambda block, offset, block_slots: block * (block_slots - 1) + offset,
        ),
    ),
)


ON_RANK = Obligation(
    id="compressed-groups.slots-of-a-worker-are-apart",
    statements=("KV-MEM-03",),
    title="Each slot of a request belongs to one of the workers that share its context, and two of the same worker "
    "have two numbers there.",
    unknowns={"ranks": Count(1), "row": Count(1), "slot": Count(0), "other": Count(0)},
    assumes=lambda u: (
        (u.slot < u.other) & (slots.rank_of(u.slot, u.ranks, u.row) == slots.rank_of(u.other, u.ranks, u.row))
    ),
    claim=lambda u: (
        (slots.rank_of(u.slot, u.ranks, u.row) < u.ranks)
        & (slots.slot_on_rank(u.slot, u.ranks, u.row) < slots.slot_on_rank(u.other, u.ranks, u.row))
    ),
    witnesses={"rows of several": lambda u: (u.row >= 2) & (u.ranks >= 2) & (u.other >= u.slot + u.row)},
    mutants=(
        only(
            "rows-begin-anew",
            "Every row of a worker is taken to begin at the first slot.",
            "kvreference.slots:slot_on_rank",
            lambda slot, ranks, interleave: slot % interleave,
        ),
    ),
)

KERNEL = Obligation(
    id="compressed-groups.kernel-blocks-keep-slots",
    statements=("KV-MEM-03",),
    title="If a kernel's blocks are parts of the block manager's, a slot is in the same place by the kernel's table.",
    unknowns={"kernel": Count(1), "parts": Count(1), "number": Count(0), "offset": Count(0)},
    assumes=lambda u: u.offset < u.kernel * u.parts,
    claim=lambda u: (
        slots.in_memory(slots.kernel_block(u.number, u.offset // u.kernel, u.parts), u.offset % u.kernel, u.kernel)
        == slots.in_memory(u.number, u.offset, u.kernel * u.parts)
    ),
    witnesses={"several parts": lambda u: (u.parts >= 2) & (u.kernel >= 2) & (u.number >= 1) & (u.offset > u.kernel)},
    mutants=(
        only(
            "parts-are-added",
            "A part of a block is counted as if blocks had one part.",
            "kvreference.slots:kernel_block",
            lambda block, part, parts: block + part,
        ),
    ),
)

OBLIGATIONS = (INSIDE, APART, ON_RANK, KERNEL)
