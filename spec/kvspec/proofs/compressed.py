"""Chapter 08: slots and tokens never mix, and the published geometries have the alignment that is documented."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvreference import compressed, retention
from kvreference.attention import Kind
from kvreference.compressed import Tokens
from kvreference.geometry import Geometry, Group
from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.stand_in import group
from kvspec.symbolic import implies


def logical(u: Any) -> Any:
    """Tokens per block, by the code that runs."""
    return compressed.logical_block_size(u.slots, u.ratio)


def compressed_of(u: Any) -> Group:
    """A compressed group with blocks of ``slots`` slots."""
    return group(Kind.FULL, logical(u), compress_ratio=u.ratio)


def _sizes(_geometry: Geometry, its: Group) -> dict[str, int] | None:
    if its.compress_ratio == 1:
        return None
    return {"slots": its.block_size_tokens // its.compress_ratio, "ratio": its.compress_ratio}


SLOTS_MIXED = only(
    "slots-for-tokens",
    "A block of a compressed group is taken to span as many tokens as it has slots.",
    "kvreference.compressed:logical_block_size",
    lambda slots, ratio: slots,
)

ROUND_TRIP = Obligation(
    id="compressed-groups.slots-times-ratio",
    statements=("KV-OP-01", "KV-OP-19"),
    title="A compressed block spans its slots times the ratio in tokens, whole slots, and has the slots that it was "
    "made with.",
    unknowns={"slots": Count(1), "ratio": Count(1)},
    claim=lambda u: (
        (compressed.storage_block_size(compressed_of(u)) == u.slots)
        & (compressed_of(u).block_size_tokens == u.slots * u.ratio)
        & (compressed_of(u).block_size_tokens % u.ratio == 0)
    ),
    witnesses={"compressed": lambda u: (u.ratio >= 4) & (u.slots >= 2)},
    mutants=(SLOTS_MIXED,),
    binds=_sizes,
)

WHOLE_SLOTS = Obligation(
    id="compressed-groups.boundaries-are-whole-slots",
    statements=("KV-OP-01", "KV-OP-19"),
    title="Where a hit ends in a compressed group, a slot ends: at every multiple of a unit of whole slots, also "
    "inside a block.",
    unknowns={"ratio": Count(1), "unit_slots": Count(1), "alignment": Count(1), "times": Count(1)},
    assumes=lambda u: u.alignment % compressed.logical_block_size(u.unit_slots, u.ratio) == 0,
    claim=lambda u: (u.times * u.alignment) % u.ratio == 0,
    lemmas=lambda u: _slots_of_boundary(u),
    witnesses={"a unit of several slots": lambda u: (u.ratio >= 4) & (u.unit_slots >= 2) & (u.times >= 2)},
    mutants=(
        only(
            "slots-are-added",
            "Slots and tokens per slot are added.",
            "kvreference.compressed:logical_block_size",
            lambda slots, ratio: slots + ratio,
        ),
    ),
    binds=lambda geometry, its: (
        {
            "ratio": its.compress_ratio,
            "unit_slots": its.unit // its.compress_ratio,
            "alignment": geometry.alignment_tokens,
        }
        if its.compress_ratio > 1
        else None
    ),
)


def _slots_of_boundary(u: Any) -> tuple[Lemma, ...]:
    """A boundary is units, and a unit is slots."""
    unit = u.unit_slots * u.ratio
    units = u.alignment // unit
    return (
        Lemma(MULTIPLE, {"factor": u.unit_slots, "multiple": u.ratio, "unit": u.ratio}),
        Lemma(MULTIPLE, {"factor": units, "multiple": unit, "unit": u.ratio}),
        Lemma(MULTIPLE, {"factor": u.times, "multiple": u.alignment, "unit": u.ratio}),
    )


ASCEND = (128, 64, 32)
ALIGNMENTS = (16384, 8192, 4096, 256)
"""The hits of chapter 08: on Ascend by block size, and on a GPU."""
LOOKAHEADS = (128, 64, 32, 64)
"""The blocks of the window with the draft layer."""
UNITS = (128, 256, 512, 1024, 2048, 4096)
"""Units for partial hits, of whole slots in every published geometry."""


def published(u: Any) -> Geometry:
    """DeepSeek-V4-Flash as it is deployed: on Ascend by block size, then on a GPU."""
    which, mtp = u.deployed.__index__(), bool(u.mtp)
    if which == len(ASCEND):
        return compressed.dsv4_flash(mtp)
    return compressed.dsv4_flash_ascend(ASCEND[which], mtp)


def _as_published(u: Any) -> Any:
    geometry = published(u)
    published_alignment, behind = ALIGNMENTS[u.deployed.__index__()], LOOKAHEADS[u.deployed.__index__()] if u.mtp else 0
    hits = retention.replay_boundary(geometry, u.prompt) >= published_alignment
    enough = u.prompt > published_alignment + behind
    return (geometry.alignment_tokens == published_alignment) & implies(hits, enough) & implies(enough, hits)


DEPLOYED = Obligation(
    id="compressed-groups.published-alignments",
    statements=("KV-OP-01", "KV-OP-16"),
    title="On Ascend with block sizes 128, 64 and 32 and on a GPU, hits of DeepSeek-V4-Flash are multiples of "
    "16384, 8192, 4096 and 256 tokens, with MTP too, and a replay hits if and only if it is longer than that and "
    "the look-ahead.",
    unknowns={"deployed": Count(0, len(ASCEND)), "mtp": Count(0, 1), "prompt": Count(1)},
    claim=_as_published,
    witnesses={
        "a long prompt that hits nothing": lambda u: (
            (u.deployed == 0)
            & (u.mtp == 1)
            & (u.prompt > 16000)
            & (retention.replay_boundary(published(u), u.prompt) == 0)
        )
    },
    mutants=(
        SLOTS_MIXED,
        only(
            "look-ahead-of-the-last-group",
            "The look-ahead of the last group is taken, which need not be that of the draft layer.",
            "kvreference.retention:replay_boundary",
            lambda geometry, prompt: (
                max(0, prompt - 1 - geometry.groups[-1].lookahead_tokens)
                // geometry.alignment_tokens
                * geometry.alignment_tokens
            ),
        ),
    ),
    bound="the four published geometries, with MTP and without, and prompts of all lengths: the sizes are given, and "
    "not for all sizes",
)


def _unit_is_alignment(u: Any) -> bool:
    unit = Tokens(UNITS[u.unit.__index__()])
    geometry = published(u)
    # No hit ends between the ends of a group's blocks because of a unit that is longer than they are.
    expected = min(unit, geometry.alignment_tokens)
    partial = compressed.with_partial_hits(geometry, unit)
    slots = all(group.unit % group.compress_ratio == 0 for group in partial.groups)
    return slots and partial.alignment_tokens == max(expected, *(group.block_size_tokens for group in windows(partial)))


def windows(geometry: Geometry) -> list[Group]:
    """The groups inside of whose blocks no hit ends."""
    return [group for group in geometry.groups if group.compress_ratio == 1]


PARTIAL = Obligation(
    id="compressed-groups.unit-is-the-alignment",
    statements=("KV-OP-01", "KV-OP-19"),
    title="With partial hits, hits of DeepSeek-V4-Flash are multiples of the unit, wherever it is at least as long as "
    "the blocks of the windows, and whole slots in every group.",
    unknowns={"deployed": Count(0, len(ASCEND)), "mtp": Count(0, 1), "unit": Count(0, len(UNITS) - 1)},
    claim=_unit_is_alignment,
    witnesses={"inside a block of C128": lambda u: (u.deployed == 0) & (u.unit == 0)},
    mutants=(
        only(
            "one-group-alone",
            "Only in C4 layers may a hit end inside a block.",
            "kvreference.compressed:_with_unit",
            lambda its, unit: (
                its
                if its.compress_ratio != compressed.C4 or unit % its.block_size_tokens == 0
                else evolve(its, unit_tokens=unit)
            ),
        ),
    ),
    bound=f"the four published geometries, with units of {UNITS[0]} to {UNITS[-1]} tokens: the sizes are given",
)

OBLIGATIONS = (ROUND_TRIP, WHOLE_SLOTS, DEPLOYED, PARTIAL)
