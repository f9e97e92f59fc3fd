"""Reported bugs of blocks: freed twice, counted wrongly, kept too long, evicted too early, or reported wrongly."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.reporting import telling_hits
from kvgate_mutants.corpus.scenario import (
    Blocks,
    Direct,
    dispatched,
    ended,
    full,
    of,
    prefilled,
    states,
    tokens,
    window,
)
from kvgate_mutants.mutants import block_pool, reintroduced
from kvgate_mutants.mutants.plugin import retention
from kvreference.operations import Admit, Arrive, Evict, LookUp, TakeEvents, TakeStatistics
from kvreference.settings import Settings

# Blocks that are released too often, or queued while they are held.

_SMALL = Settings(of(full()), 10, tokens_max=128, chunk_tokens=64)


def _release_twice_in_one_call(system: Any) -> None:
    pool = system.manager.block_pool
    (block,) = pool.get_new_blocks(1)
    pool.touch([block])
    pool.free_blocks([block, block])


def _release_junk(system: Any) -> None:
    pool = system.manager.block_pool
    held, queued = pool.get_new_blocks(2)
    pool.free_blocks([queued])
    pool.free_blocks([pool.null_block, held, held, queued])


_TWICE = Blocks(
    _SMALL,
    (Direct("a block with two holders is released for both in one call", _release_twice_in_one_call), TakeStatistics()),
    ("check",),
)
_JUNK = Blocks(
    _SMALL,
    (
        Direct("the null block, a block twice and a free block are released in one call", _release_junk),
        TakeStatistics(),
    ),
    ("check",),
)
_PIN = Blocks(
    Settings(of(full(), window(32)), 20, tokens_max=128, chunk_tokens=64),
    (
        *ended(0, tokens(0, 64), 64),
        # A hit holds them.
        Arrive(1, tokens(0, 70)),
        Admit(1, 16),
        *prefilled(2, tokens(1_000_000, 60), 64),
    ),
    ("check", "ghost", "leak"),
)

_BY_HAND = "The pool is handed this by the scenario itself; nothing in 0.20.2 was seen to hand it over."

DOUBLE_FREES = (
    Bug(
        17,
        "duplicate-block-in-one-free-call",
        Kind.DOUBLE_FREE,
        "https://github.com/vllm-project/vllm/pull/42612",
        "A block that is released twice in one call is queued twice.",
        "up to 0.23.0",
        (
            Trial(
                "stock",
                _TWICE,
                ("KV-INV-03",),
                otherwise=Control(
                    "each release by itself", "stock", _TWICE, (reintroduced.released_one_by_one,), Contrast.REPAIR
                ),
                by_hand=True,
                remark=_BY_HAND,
            ),
        ),
    ),
    Bug(
        18,
        "peer-ucm-duplicate-free",
        Kind.DOUBLE_FREE,
        "https://github.com/ModelEngine-Group/unified-cache-management/pull/1053",
        "The pool takes back every block that it is given: null blocks, blocks twice, blocks without a holder.",
        "UCM on 0.20.2 and vLLM-Ascend 0.20.2",
        (
            Trial(
                "stock",
                _JUNK,
                ("KV-INV-01",),
                otherwise=Control("releases guarded", "stock", _JUNK, (reintroduced.release_guarded,), Contrast.REPAIR),
                by_hand=True,
                remark=_BY_HAND,
            ),
        ),
    ),
    Bug(
        19,
        "peer-trtllm-pin-of-block-still-in-free-queue",
        Kind.DOUBLE_FREE,
        "https://github.com/NVIDIA/TensorRT-LLM/pull/12667",
        "A block is pinned by its count alone and stays in the free queue, so that it is allocated while in use.",
        "TensorRT-LLM 1.3rc",
        (
            Trial(
                "stock",
                _PIN,
                ("KV-INV-02",),
                (block_pool.held_hit_still_queued,),
                why_mutant="TensorRT-LLM is another program; vLLM counts a holder of a free block in the same place",
                elsewhere=True,
            ),
        ),
    ),
)

# Blocks that are counted wrongly, kept too long, or thrown out although others were free.

_OTHER = 1_000_000

_PINNED = Blocks(
    Settings(of(full(32), window(64)), 40, tokens_max=256, chunk_tokens=64, pin_drop_blocks_min=1),
    (
        *ended(0, tokens(0, 128), 64),
        Arrive(1, tokens(0, 128)),
        Admit(1, 64),
    ),
)

_FLUSHED = Blocks(
    Settings(
        of(full(64), window(64)),
        121,
        tokens_max=4096,
        chunk_tokens=64,
        retention_interval_tokens=256,
        scratch_first=True,
    ),
    (
        *ended(0, tokens(0, 1024), 64),
        *ended(1, tokens(_OTHER, 3200), 64),
        Arrive(2, (*tokens(0, 1024), *tokens(2 * _OTHER, 64))),
        LookUp(2),
    ),
    ("check", "ghost", "leak"),
)

_TIGHT = Blocks(
    Settings(of(full(), window(64)), 22, tokens_max=512, chunk_tokens=64, full_sequence_must_fit=False),
    (*prefilled(0, tokens(0, 256), 64),),
)

_SECOND_GROUP = Blocks(
    Settings(of(full(), full(32), window(32)), 40, tokens_max=256, chunk_tokens=96, tells_events=False),
    (
        *ended(0, tokens(0, 96), 96),
        # The window's blocks.
        *(Evict(block) for block in range(10, 16)),
        Arrive(1, tokens(0, 106)),
        LookUp(1),
    ),
)
_SECOND_GROUP_ASCEND = Blocks(
    Settings(
        of(full(64, ratio=4, whole_slots=True), full(256, ratio=16, whole_slots=True), window(16)),
        60,
        tokens_max=1024,
        chunk_tokens=256,
        tells_events=False,
    ),
    (
        *ended(0, tokens(0, 512), 256),
        *(Evict(block) for block in range(11, 60)),
        Arrive(1, tokens(0, 522)),
        LookUp(1),
    ),
)


def _provide(system: Any) -> None:
    """Another node provides the first half of a prompt within the step."""
    request = system._new_request(Arrive(0, tokens(0, 128)))
    if system.manager.allocate_slots(request, 64, num_external_computed_tokens=64) is not None:
        system.manager.free(request)


def _provided(pool_blocks: int, scratch_first: bool = False) -> Blocks:
    """Eight blocks of full attention, and two states: what was provided, and what is computed."""
    settings = Settings(of(full(), states()), pool_blocks, tokens_max=256, chunk_tokens=64, scratch_first=scratch_first)
    call = Direct("blocks for 64 tokens that are provided, and 64 after them, or a rejection", _provide)
    return Blocks(settings, (call, TakeStatistics()), ("check",))


_ORDER_ONLY = (
    "Caught as the order of the free queue. The reported harm, a lost hit, is not a violation by itself: "
    "no statement promises that a prefix outlives so many blocks of other requests."
)

MISCOUNTS = (
    Bug(
        15,
        "is-pinned-blocks-refcount-loopholes",
        Kind.LEAK,
        "https://github.com/vllm-project/vllm/pull/40676",
        "A pinned block that is used again stays in the queue of the pinned, and is demoted while in use.",
        "a closed pull request",
        (
            Trial(
                "retention",
                _PINNED,
                ("KV-INV-03",),
                (reintroduced.hit_stays_in_the_pinned_queue,),
                why_mutant="it was never published; the plug-in has a pinned tier of its own, and loses the same step",
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        28,
        "swa-churn-flushes-prefix-cache",
        Kind.OVER_EVICTION,
        "https://github.com/vllm-project/vllm/issues/42948",
        "What leaves a long request's window goes through the whole free queue and evicts the prefixes of all "
        "requests.",
        "up to 0.22; later without a retention interval",
        (
            Trial(
                "retention",
                _FLUSHED,
                ("KV-INV-08",),
                (retention.scratch_is_queued_last,),
                why_mutant="0.20.2 promises no order but that of release, so nothing that it does is wrong by its own "
                "rules; the plug-in promises scratch first, and breaks the promise",
                elsewhere=True,
                remark=_ORDER_ONLY,
            ),
        ),
    ),
    Bug(
        29,
        "admission-cap-leaks-into-step-predictor",
        Kind.ACCOUNTING,
        "https://github.com/vllm-project/vllm/pull/41282",
        "A cap that is meant for the admission gate is applied to each step, which then takes more than was counted.",
        "nightlies between 2026-04-27 and 2026-04-29",
        (
            Trial(
                "stock",
                _TIGHT,
                ("KV-SYS-01",),
                (reintroduced.gates_cap_in_every_count,),
                words="free blocks from the pool",
                why_mutant="0.20.2 caps at the gate alone; the cap is put back everywhere",
            ),
        ),
    ),
    Bug(
        30,
        "mamba-external-hit-undercount",
        Kind.ACCOUNTING,
        "https://github.com/vllm-project/vllm/pull/46892",
        "Of two states that a request takes after provided tokens one is counted, and taking the other raises.",
        "up to 0.33.0",
        (
            Trial(
                "stock",
                _provided(10),
                ("KV-SYS-01",),
                words="Cannot get 1 free blocks",
                otherwise=Control(
                    "both states counted",
                    "stock",
                    _provided(10),
                    (reintroduced.provided_state_counted,),
                    Contrast.REPAIR,
                ),
            ),
            Trial(
                "native@0.33.0",
                _provided(10, scratch_first=True),
                ("KV-SYS-01",),
                words="Cannot get 1 free blocks",
                otherwise=Control(
                    "both states counted",
                    "native@0.33.0",
                    _provided(10, scratch_first=True),
                    (reintroduced.provided_state_counted,),
                    Contrast.REPAIR,
                ),
            ),
        ),
    ),
    Bug(
        31,
        "ascend-only-first-full-group-truncated",
        Kind.ACCOUNTING,
        "https://github.com/vllm-project/vllm-ascend/pull/14810",
        "Of two groups of full attention only the first is cut to the hit; the other keeps blocks that were not "
        "asked for.",
        "0.20.2 to 0.27.1, vLLM-Ascend 0.20.2rc1 to 0.25.1rc",
        (
            Trial("stock", _SECOND_GROUP, ("KV-OP-02",)),
            Trial("ascend", _SECOND_GROUP_ASCEND, ("KV-OP-02",)),
        ),
    ),
)

# KV events that report what did not happen.

_SPANS = Blocks(
    Settings(of(full(), states()), 20, tokens_max=128, chunk_tokens=48),
    (*dispatched(prefilled(0, tokens(0, 96), 48)), TakeEvents()),
)

_SPANS_OF_33 = evolve(_SPANS, settings=evolve(_SPANS.settings, scratch_first=True))
"""The same for a release that always has scratch first."""


def _ask_for_full_report(system: Any) -> None:
    """The second request asks for a report of its hit, as a client does by a sampling parameter."""
    system._requests[1].kv_cache_report_mode = "full"


_PHANTOMS = Blocks(
    Settings(of(full(), window(32)), 60, tokens_max=512, chunk_tokens=64, scratch_first=True),
    (
        *ended(0, tokens(0, 300), 64),
        TakeEvents(),
        Arrive(1, tokens(0, 300)),
        Direct("a request asks for a full report", _ask_for_full_report),
        LookUp(1),
        TakeEvents(),
    ),
    adapts=telling_hits,
)

_AGAIN = Blocks(
    Settings(
        of(full(32), window(64)), 40, tokens_max=256, chunk_tokens=64, retention_interval_tokens=32, scratch_first=True
    ),
    (*ended(0, tokens(0, 64), 64),),
)

WRONG_EVENTS = (
    Bug(
        34,
        "event-token-ids-span-null-blocks",
        Kind.EVENTS,
        "https://github.com/vllm-project/vllm/issues/44451",
        "An event reports the tokens of null blocks, but not the blocks.",
        "0.17 to 0.33.0",
        (
            Trial("stock", _SPANS, ("KV-OP-12",)),
            Trial("native@0.33.0", _SPANS_OF_33, ("KV-OP-12",)),
        ),
    ),
    Bug(
        35,
        "event-full-report-phantom-blocks",
        Kind.EVENTS,
        "https://github.com/vllm-project/vllm/pull/45261",
        "A hit is reported with blocks that a window or a state group does not have.",
        "0.24 to 0.33.0, with full reports",
        (
            Trial(
                "native@0.33.0",
                _PHANTOMS,
                ("KV-OP-12",),
                otherwise=Control(
                    "null blocks left out",
                    "native@0.33.0",
                    _PHANTOMS,
                    (reintroduced.null_blocks_not_told,),
                    Contrast.REPAIR,
                ),
                remark="The reference reports hits here, by the blocks that serve them; a right report is silent.",
            ),
        ),
    ),
    Bug(
        36,
        "event-stale-partial-hash-resurrected",
        Kind.EVENTS,
        "https://github.com/vllm-project/vllm/issues/49125",
        "What is known of a part of a block is registered once more after it was registered for good.",
        "0.25 to 0.33.0",
        (
            Trial(
                "native@0.33.0",
                _AGAIN,
                ("KV-INV-05",),
                otherwise=Control(
                    "no key for a part of a whole block",
                    "native@0.33.0",
                    _AGAIN,
                    (reintroduced.whole_blocks_keep_one_key,),
                    Contrast.REPAIR,
                    frozenset({"012-prompt-tail-that-serves-nobody"}),
                ),
                remark="The block is filled in one step, and known by a part of it after it is known as a whole: the "
                "order of the report. That a key is removed first, and then comes back, is not played.",
            ),
        ),
    ),
)
