"""Blocks that are counted wrongly, kept too long, or thrown out although others were free."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, states, window
from kvgate_mutants.corpus.scenario import Blocks, Direct, ended, prefilled, tokens
from kvgate_mutants.mutants.corpus import blocks
from kvgate_mutants.mutants.plugin import free_queue
from kvreference.operations import Admit, Arrive, Evict, LookUp, TakeStatistics
from kvreference.settings import Settings

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
    call = Direct("blocks for 64 tokens that are provided, and 64 behind them, or a refusal", _provide)
    return Blocks(settings, (call, TakeStatistics()), ("check",))


_ORDER_ONLY = (
    "Caught as the order of the free queue. What the report complains of, a hit that is lost, is no violation by "
    "itself: no statement promises that a prefix outlives so many blocks of somebody else."
)

BUGS = (
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
                ("KV-INV-07",),
                (blocks.hit_stays_in_the_pinned_queue,),
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
        "What leaves a long request's window goes through the whole free queue and evicts everybody's prefixes.",
        "up to 0.22; later without a retention interval",
        (
            Trial(
                "retention",
                _FLUSHED,
                ("KV-INV-08",),
                (free_queue.scratch_is_queued_last,),
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
                (blocks.gates_cap_in_every_count,),
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
        "Of two states that a request takes behind provided tokens one is counted, and taking the other raises.",
        "up to 0.33.0",
        (
            Trial(
                "stock",
                _provided(10),
                ("KV-SYS-01",),
                words="Cannot get 1 free blocks",
                otherwise=Control(
                    "both states counted", "stock", _provided(10), (blocks.provided_state_counted,), Contrast.REPAIR
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
                    (blocks.provided_state_counted,),
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
        "Of two groups of full attention only the first is cut to the hit; the other keeps blocks nobody asked for.",
        "0.20.2 to 0.27.1, vLLM-Ascend 0.20.2rc1 to 0.25.1rc",
        (
            Trial("stock", _SECOND_GROUP, ("KV-OP-02",)),
            Trial("ascend", _SECOND_GROUP_ASCEND, ("KV-OP-02",)),
        ),
    ),
)
