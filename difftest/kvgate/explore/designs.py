"""Designs that do not work, each with the guarantee that it is expected to violate.

The explorer must refute every one of them: that shows that it can, and that the sound design needs what they lack.
A design is a manager with one thing changed, explored in the scope of a tiny model that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from kvgate.adapters.reference import Reference
from kvgate.explore.invariants import COMMON, Checks, copies_unheld, no_invariants, nothing_in_flight
from kvgate.explore.refuted_designs import (
    AnyChunk,
    CopiesTooLittle,
    ForgetsJunctions,
    ForgetsTheMask,
    FreesInFlight,
    GivesUpLoading,
    HoldsHitsLate,
    KeepsEntries,
    LeavesDrafts,
    PartsWithoutLookAhead,
    PinsScratch,
    ScratchLast,
    StalePins,
    Unfenced,
)
from kvgate.explore.refuted_tiers import (
    EndsForAll,
    FailureCounts,
    FailureKeepsChunk,
    HoldsNoBlock,
    HoldsNoChunk,
    KnownAtOnce,
    LoadsOneGroup,
    OneGroupIsEnough,
    ResetForgetsJobs,
    StoresOverItsOwn,
    StoresWhatFits,
)
from kvgate.kernel.errors import UsageError
from kvreference.holdings import Holdings
from kvreference.settings import Settings
from kvspec.refuted.block_managers import (
    MaskWithoutShift,
    PinnedByCount,
    RepeatedRegistration,
    UnguardedGate,
    UnheldCopy,
    forgets_pin,
    frees_under_holder,
    loses_block,
    undoes_another_holder,
)
from kvspec.refuted.schedulers import (
    FirstIsPreempted,
    FullSequenceWithoutRecycling,
    LoadedIsForgotten,
    LookaheadUnreserved,
    OversizeBlocksQueue,
    ReservedForLoadsAlone,
    UnreservedLoad,
)


@frozen
class Design:
    """A design and what is known about it."""

    name: str
    factory: Callable[..., Any]
    """Builds the manager from its settings, or the scheduler from its settings and limits."""
    model: str
    """The tiny model that shows what is wrong with it."""
    statement: str
    """The guarantee that is seen to be violated."""
    story: str
    """What it does, and what comes of it, in one sentence."""
    checks: Checks = COMMON
    """What checks it, where the common checkers would see something else first."""
    breaks: str = ""
    """The guarantee that it breaks, where another is seen to be violated for it."""


class ReleasesEarly(Reference):
    """Frees the last block that the window still reaches into."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = _ReleasingEarly(settings)


class _ReleasingEarly(Holdings):
    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + 1)


_ALL = (
    Design(
        "released-early",
        ReleasesEarly,
        "tiny-swa",
        "KV-MEM-01",
        "A window is taken to be a token shorter than it is: its last block is gone when the next token reads it.",
        breaks="KV-OP-06",
    ),
)

SEEN_BY_MEMORY = Checks(no_invariants, of_flight=nothing_in_flight)
"""The checks of a design that only ghost memory may refute."""
_LOOPHOLES = "tiny-loopholes"

_REFUTED = (
    Design(
        "pin-by-count-undoes-another",
        PinnedByCount,
        _LOOPHOLES,
        "KV-INV-01",
        "A pin is a second reference: a window drop takes two from a block that another request holds as well.",
        Checks(undoes_another_holder, watches_memory=False, of_steps=()),
    ),
    Design(
        "pin-by-count-frees-under-holder",
        PinnedByCount,
        _LOOPHOLES,
        "KV-INV-02",
        "A count of one is taken for a pin without a holder, and demotion frees a block that a request reads.",
        Checks(frees_under_holder, watches_memory=False, of_steps=()),
    ),
    Design(
        "pin-by-count-loses-block",
        PinnedByCount,
        _LOOPHOLES,
        "KV-LEAK-01",
        "A block that was demoted and hit again has one reference, and a window drop takes two: no queue has it again.",
        Checks(loses_block, watches_memory=False, of_steps=()),
    ),
    Design(
        "pin-by-count-forgets-pin",
        PinnedByCount,
        _LOOPHOLES,
        "KV-OP-22",
        "A pinned block is hit and dropped: the drop takes the pin along, and the block can be recycled.",
        Checks(forgets_pin, watches_memory=False, of_steps=()),
    ),
    Design(
        "mask-without-shift",
        MaskWithoutShift,
        "tiny-masked",
        "KV-OP-16",
        "The mask keeps the tail before each boundary and not the look-ahead block after it: no replay ever hits.",
    ),
    Design(
        "gate-without-demotion",
        UnguardedGate,
        "tiny-pinned",
        "KV-LIVE-01",
        "A gate counts what is free and never demotes: unused pins keep every request out permanently.",
        breaks="KV-OP-23",
    ),
    Design(
        "copy-unheld",
        UnheldCopy,
        "tiny-partial",
        "KV-MEM-01",
        "The source of a copy is not held: before the step is dispatched, it is recycled for another request.",
        Checks(no_invariants),
    ),
    Design(
        "boundaries-offered-again",
        RepeatedRegistration,
        "tiny-partial",
        "KV-WORK-01",
        "A request's boundaries are offered again in every step: a decode step costs more the longer the context is.",
    ),
)
"""Designs that others tried and dropped; ``kvspec.refuted.block_managers`` has their history."""

_HANGS = (
    Design(
        "load-unreserved",
        UnreservedLoad,
        "tiny-scheduler",
        "KV-LIVE-03",
        "A load is begun if it fits by itself: two of them leave too little for either to be computed.",
    ),
    Design(
        "load-reserved-for-loads-alone",
        ReservedForLoadsAlone,
        "tiny-scheduler-tight",
        "KV-LIVE-03",
        "Loads are kept apart from each other, and a running request eats what they need while it decodes.",
    ),
    Design(
        "lookahead-unreserved",
        LookaheadUnreserved,
        "tiny-scheduler-drafts",
        "KV-LIVE-03",
        "What a request needs is counted without speculation: loads fill the pool, and none gets its look-ahead slots.",
    ),
    Design(
        "loaded-forgotten",
        LoadedIsForgotten,
        "tiny-scheduler",
        "KV-LIVE-03",
        "A request that has loaded is not looked at again.",
    ),
    Design(
        "oversize-accepted",
        OversizeBlocksQueue,
        "tiny-scheduler-tight",
        "KV-LIVE-03",
        "Every request is accepted: one that can never fit stays first in the queue permanently.",
    ),
    Design(
        "window-counted-whole",
        FullSequenceWithoutRecycling,
        "tiny-scheduler-drafts",
        "KV-LIVE-03",
        "What a request needs is counted without recycling or speculation, and another gate counts otherwise.",
    ),
    Design(
        "first-preempted",
        FirstIsPreempted,
        "tiny-scheduler-sends",
        "KV-LIVE-02",
        "The only request that runs is preempted, and loses what it had computed towards its next token.",
    ),
)
"""Schedulers without one of their guards; ``kvspec.refuted.schedulers`` says where they come from."""

_IN_FLIGHT = (
    Design(
        "freed-in-flight",
        FreesInFlight,
        "tiny-ahead-loads",
        "KV-MEM-04",
        "Released blocks are free at once: a step in flight still writes them, and another node may, too.",
        breaks="KV-OP-07",
    ),
    Design(
        "window-counts-drafts",
        LeavesDrafts,
        "tiny-ahead-drafts",
        "KV-OP-06",
        "A window counts drafts in flight as computed: if they do not hold, what the next token reads is gone.",
    ),
    Design(
        "window-read-after-rejection",
        LeavesDrafts,
        "tiny-ahead-drafts",
        "KV-MEM-01",
        "A window counts drafts in flight as computed, they do not hold, and the next token reads the null block.",
        SEEN_BY_MEMORY,
    ),
)
"""What findings 022 and 028 do."""

_INJECTED = (
    Design(
        "pinned-queue-stale",
        StalePins,
        "tiny-pinned",
        "KV-INV-07",
        "A hit leaves a pinned block in the pinned queue: demotion meets a block that is in use.",
    ),
    Design(
        "scratch-last",
        ScratchLast,
        "tiny-replay",
        "KV-INV-08",
        "Scratch is queued after what is cached, and something useful is recycled before it.",
        breaks="KV-OP-17",
    ),
    Design(
        "scratch-pinned",
        PinsScratch,
        "tiny-pinned",
        "KV-INV-07",
        "Blocks are pinned that hold nothing a hit could use.",
        breaks="KV-OP-21",
    ),
    Design(
        "mask-forgotten",
        ForgetsTheMask,
        "tiny-retention",
        "KV-OP-15",
        "Every full block is cached, without regard to the interval: what no hit can read pushes out what one could.",
    ),
    Design(
        "junction-without-look-ahead",
        PartsWithoutLookAhead,
        "tiny-junction",
        "KV-OP-27",
        "The boundary where prompts part is kept, and the look-ahead block after it is not shared: no hits.",
    ),
    Design(
        "junction-forgotten",
        ForgetsJunctions,
        "tiny-junction",
        "KV-OP-27",
        "Nothing is kept where prompts part, with an interval of 0: what they share is computed again every time.",
    ),
    Design(
        "copy-source-free",
        UnheldCopy,
        "tiny-partial",
        "KV-INV-09",
        "The source of a copy is not held: checked as soon as it can be seen.",
        Checks(copies_unheld),
    ),
    Design(
        "copy-too-short",
        CopiesTooLittle,
        "tiny-partial",
        "KV-MEM-01",
        "A copy is a slot short, and the next token reads what was in the block before.",
        breaks="KV-OP-19",
    ),
    Design(
        "step-unfenced",
        Unfenced,
        "tiny-partial",
        "KV-MEM-01",
        "A block is copied in the step that computes it: the copy comes first, and takes nothing along.",
        breaks="KV-OP-20",
    ),
    Design(
        "entries-kept",
        KeepsEntries,
        "tiny-partial",
        "KV-MEM-01",
        "An allocated block keeps the entries inside it, and serves another request's slots.",
        breaks="KV-OP-18",
    ),
    Design(
        "hit-held-late",
        HoldsHitsLate,
        "tiny-transfers",
        "KV-MEM-01",
        "New blocks are taken before the hit is held: one of them may be the hit itself.",
        breaks="KV-OP-24",
    ),
    Design(
        "loading-given-up",
        GivesUpLoading,
        "tiny-transfers",
        "KV-MEM-01",
        "An abort gives blocks back that another node still writes into.",
        breaks="KV-OP-25",
    ),
    Design(
        "chunks-anywhere",
        AnyChunk,
        "tiny-mamba-align",
        "KV-MEM-01",
        "A chunk runs over a block's end, and the state that is cached for it is another.",
        breaks="KV-OP-26",
    ),
)
"""Faults injected into the reference, each of which breaks one guarantee."""

_TIERS = (
    Design(
        "job-holds-no-block",
        HoldsNoBlock,
        "tiny-tier",
        "KV-TIER-02",
        "A request that leaves gives its blocks back although a job still reads or writes them.",
    ),
    Design(
        "load-holds-no-chunk",
        HoldsNoChunk,
        "tiny-tier",
        "KV-TIER-02",
        "A chunk is evicted while a load reads it.",
    ),
    Design(
        "load-ends-for-all",
        EndsForAll,
        "tiny-tier-shared",
        "KV-TIER-02",
        "That loads read a chunk is a flag and no count: the first that ends takes it from the others.",
    ),
    Design(
        "stored-at-once",
        KnownAtOnce,
        "tiny-tier",
        "KV-TIER-04",
        "A chunk is a hit while it is still being stored.",
    ),
    Design(
        "failed-store-counts",
        FailureCounts,
        "tiny-tier",
        "KV-TIER-04",
        "A chunk whose store has failed is a hit.",
        breaks="KV-TIER-01",
    ),
    Design(
        "failed-job-keeps-its-chunk",
        FailureKeepsChunk,
        "tiny-tier",
        "KV-TIER-05",
        "A job that fails never gives its chunk back, and the tier runs full.",
    ),
    Design(
        "reset-forgets-jobs",
        ResetForgetsJobs,
        "tiny-tier",
        "KV-TIER-04",
        "What was on its way at a reset is a hit afterwards.",
    ),
    Design(
        "hit-of-one-group",
        OneGroupIsEnough,
        "tiny-tier",
        "KV-TIER-03",
        "A hit is reported where full attention can be resumed, and the chunks of the window are gone.",
    ),
    Design(
        "window-not-loaded",
        LoadsOneGroup,
        "tiny-tier",
        "KV-TIER-03",
        "The hit covers all groups, and only full attention is loaded.",
    ),
    Design(
        "stores-what-fits",
        StoresWhatFits,
        "tiny-tier",
        "KV-TIER-02",
        "Of what a request needs together, as much is stored as there is room for.",
    ),
    Design(
        "stores-over-its-own",
        StoresOverItsOwn,
        "tiny-tier",
        "KV-TIER-02",
        "A chunk of the same request is evicted to store another one.",
    ),
)
"""Second tiers with one rule broken."""

DESIGNS: Mapping[str, Design] = MappingProxyType(
    {each.name: each for each in (*_ALL, *_REFUTED, *_HANGS, *_IN_FLIGHT, *_INJECTED, *_TIERS)}
)
"""The designs, by name."""


def load(name: str) -> Design:
    """The design called ``name``.

    Raises:
        UsageError: the design is unknown.
    """
    if name not in DESIGNS:
        raise UsageError(f"unknown design {name!r}: give one of {', '.join(DESIGNS)}")
    return DESIGNS[name]
