"""Hits on what is not there: another request's states, states not written yet, or blocks that stand in two tables."""

from __future__ import annotations

from kvgate_mutants.corpus.bug import Bug, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, states, window
from kvgate_mutants.corpus.scenario import Blocks, dispatched, ended, prefilled, tokens
from kvgate_mutants.mutants import block_pool
from kvgate_mutants.mutants.corpus import hits
from kvreference.content import Keys
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive, Dispatch, Evict, Finish, LookUp, Sample, Schedule
from kvreference.settings import Settings

_OTHER = 1_000_000

_STOLEN = Blocks(
    Settings(of(full(), window(32)), 7, tokens_max=36, chunk_tokens=32),
    (
        *prefilled(0, tokens(0, 32), 32),
        *prefilled(1, tokens(_OTHER, 1), 1),
        Finish(0),
        Finish(1),
        Arrive(2, tokens(0, 34)),
        Admit(2, 1, external_tokens=1),
    ),
)

_STATE_NOT_DROPPED = Blocks(
    Settings(of(full(eagle=True), states()), 40, tokens_max=256, chunk_tokens=16),
    (
        *dispatched(ended(0, tokens(0, 80), 16)),
        Arrive(1, (*tokens(0, 80), *tokens(_OTHER, 20))),
        LookUp(1),
    ),
)

_DRAFTED = Blocks(
    Settings(
        of(full(eagle=True), states(mode=StateMode.ALL, drafts=3)), 100, tokens_max=256, chunk_tokens=64, drafts_max=3
    ),
    (
        Arrive(0, tokens(0, 62)),
        Admit(0, 64),
        Dispatch(),
        Sample(0, 0, 500, 3),
        # Three drafts, past the end of the fourth block; all are rejected.
        Schedule(0, 4),
        Dispatch(),
        Sample(0, 0, 600, 0),
        Schedule(0, 1),
        Dispatch(),
        Sample(0, 0, 700, 0),
        Finish(0),
        Arrive(1, (*tokens(0, 62), *tokens(500, 1), *tokens(600, 1), *tokens(_OTHER, 20))),
        LookUp(1),
        Admit(1, 64),
        Dispatch(),
    ),
    ("check", "ghost", "leak"),
)

_SALTED = Blocks(
    Settings(of(full()), 20, tokens_max=128, chunk_tokens=64),
    (
        *ended(0, tokens(0, 64), 64, Keys(lora="tenant")),
        Arrive(1, (*tokens(0, 64), *tokens(_OTHER, 16)), Keys(salt="tenant")),
        LookUp(1),
    ),
)

_SAME_STEP = Blocks(
    Settings(of(full(), states(mode=StateMode.ALL)), 40, tokens_max=128, chunk_tokens=32),
    (
        *prefilled(0, tokens(0, 32), 32),
        Arrive(1, (*tokens(0, 32), *tokens(_OTHER, 32))),
        Admit(1, 32),
    ),
)

_CHURN = Blocks(
    Settings(
        of(full(), window(32)), 24, tokens_max=512, chunk_tokens=32, retention_interval_tokens=0, scratch_first=True
    ),
    (
        *ended(0, tokens(0, 96), 32),
        Arrive(1, tokens(0, 96)),
        LookUp(1),
        *ended(2, tokens(_OTHER, 240), 32),
        LookUp(1),
    ),
)

_PARTED = Blocks(
    Settings(of(full(), states(mode=StateMode.ALL)), 40, tokens_max=256, chunk_tokens=16),
    (
        *dispatched(ended(0, tokens(0, 96), 16)),
        # Full attention has blocks 1, 3, 5, ... and keeps the first two of them.
        *(Evict(block) for block in (5, 7, 9, 11)),
        Arrive(1, (*tokens(0, 96), *tokens(_OTHER, 40))),
        LookUp(1),
    ),
)

_LENGTH_ONLY = "Caught as a hit that is too long, one block past what attention was found for."

_STATE_IS_RIGHT = (
    "With drafts that were rejected, and without the reference: attention reads a block of which nothing was ever "
    "written, for the hit is a block longer than what was found for it. The other harm that is reported, a state that "
    "has seen rejected drafts, is not shown: the ghost memory reads that state first, and it is right where a worker "
    "keeps the state behind the last draft that was accepted."
)

_ABORTED = (
    "What was reported is not caught: a chunk is scheduled, its request aborted, and another hits the state in the "
    "next step. 0.20.2 does that, and the reference with it. Both hold that a step which was scheduled is computed "
    "before the next, aborted or not, and then the state is there; the ghost memory has this order, and is silent."
)

BUGS = (
    Bug(
        9,
        "external-alloc-steals-other-groups-hit-blocks",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/pull/44409",
        "Blocks for external tokens are taken from what another group has just hit, and stand in two tables.",
        "0.20.2 to 0.22.1 executed, 0.14 to 0.23.0 by upstream's threads",
        (Trial("stock", _STOLEN, ("KV-OP-05",)),),
    ),
    Bug(
        10,
        "mamba-finder-ignores-eagle-drop",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/pull/57128",
        "Full attention drops its look-ahead block, states do not, and the longer of the two hits is served.",
        "0.19 to 0.33.0",
        (
            Trial("stock", _STATE_NOT_DROPPED, ("KV-OP-01",), remark=_LENGTH_ONLY),
            Trial("stock", _DRAFTED, ("KV-MEM-01",), remark=_STATE_IS_RIGHT),
        ),
    ),
    Bug(
        11,
        "mamba-hash-published-before-state-written",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/pull/56525",
        "A state can be hit as soon as the chunk that will write it is scheduled.",
        "0.19 to 0.33.0, where steps overlap",
        (
            Trial(
                "stock",
                _SAME_STEP,
                ("KV-OP-03",),
                (hits.states_not_fenced,),
                why_mutant="0.20.2 guards the step in which a state is scheduled, and a worker takes its steps in "
                "order; what is unguarded is one step on, so the guard is taken away",
                analogue=True,
                remark=_ABORTED,
            ),
        ),
    ),
    Bug(
        12,
        "lora-name-collides-with-cache-salt",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/issues/44701",
        "A cache salt that is named like an adapter shares the adapter's first block.",
        "0.11 to 0.30.0",
        (Trial("stock", _SALTED, ("KV-OP-01",)),),
    ),
    Bug(
        13,
        "peer-lil-phantom-hits-after-full-eviction",
        Kind.WRONG_HIT,
        "https://github.com/local-inference-lab/vllm/issues/480",
        "After all blocks were handed out again, a prefix is still hit that they no longer hold.",
        "a fork of vLLM's main of 2026-08",
        (
            Trial(
                "retention",
                _CHURN,
                ("KV-OP-10",),
                (block_pool.content_outlives_handing_out,),
                why_mutant="the fork is not published, and its cause not settled; a block that is handed out keeps "
                "its hash",
                analogue=True,
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        33,
        "per-group-hit-divergence-with-connector",
        Kind.CRASH,
        "https://github.com/vllm-project/vllm/issues/46453",
        "Groups hit at different lengths, and the longest is taken for all: the others lack blocks there.",
        "from 0.23 on, with a connector; mended in one direction",
        (
            Trial(
                "stock",
                _PARTED,
                ("KV-OP-01",),
                (hits.longest_hit_of_any_group,),
                why_mutant="0.20.2 has one hit for all groups; the versions with a hit for each hand it to a connector "
                "that loads between nodes, which none does here",
                analogue=True,
            ),
        ),
    ),
)
