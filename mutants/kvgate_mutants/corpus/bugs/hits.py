"""Reported bugs of hits: cached blocks that serve no request, and hits on blocks with other content."""

from __future__ import annotations

from attrs import evolve

from kvgate.levels.scheduler.operations import Serve, Stage
from kvgate_mutants.corpus.bug import Bug, Control, Kind, Trial
from kvgate_mutants.corpus.scenario import (
    Blocks,
    Engines,
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
from kvreference.content import Keys
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive, Dispatch, Evict, Finish, LookUp, Operation, Sample, Schedule
from kvreference.scheduler.operations import Step
from kvreference.settings import Settings

# Hits that are lost: what is cached, or should be, serves no request.

_A = 0
"""The first token of the request that fills the cache."""
_OTHER = 1_000_000
"""The first token of what differs from it."""


def _the_same_again(prompt_tokens: int, chunk_tokens: int) -> tuple[Operation, ...]:
    """A request ends, and another one with its prompt is looked up."""
    prompt = tokens(_A, prompt_tokens)
    return (*ended(0, prompt, chunk_tokens), Arrive(1, prompt), LookUp(1))


_SPIRAL = Blocks(
    Settings(
        of(full(eagle=True), window(64, eagle=True), window(128, eagle=True)),
        120,
        tokens_max=512,
        chunk_tokens=320,
        tells_events=False,
    ),
    (
        *ended(0, tokens(_A, 320), 320),
        Arrive(1, (*tokens(_A, 320), *tokens(_OTHER, 40))),
        LookUp(1),
    ),
)

_MASK = Blocks(
    Settings(
        of(full(256), window(128, 64, eagle=True)),
        200,
        tokens_max=8192,
        chunk_tokens=2048,
        drafts_max=1,
        retention_interval_tokens=256,
        scratch_first=True,
    ),
    (
        *ended(0, tokens(_A, 4096), 2048),
        Arrive(1, (*tokens(_A, 4096), *tokens(_OTHER, 300))),
        LookUp(1),
    ),
)

_MASK_OF_22 = evolve(_MASK, settings=evolve(_MASK.settings, scratch_first=False))
"""The same for a release that masks, and has no other order of the free queue."""

_DIVERGES_IN_LAST_BLOCK = (
    "With retention at the replay boundary alone, only a replay of the same prompt is promised a hit (KV-OP-15, "
    "KV-OP-16), and the reference keeps as little: a prompt that parts in the last aligned block hits nothing in "
    "either. The promise is what is poor, and no statement says so."
)

_REPLAY = Blocks(
    Settings(
        of(full(64, eagle=True), window(128, 64, eagle=True)),
        60,
        tokens_max=1024,
        chunk_tokens=64,
        retention_interval_tokens=0,
        scratch_first=True,
    ),
    _the_same_again(8 * 64 + 5, 64),
)

_UNIQUE_TAIL = (
    "In mode align states are kept where chunks end, and nowhere else: KV-OP-16 says so and leaves them out. The "
    "reference keeps the same states and gives the same hit of 0, so nothing is violated. Whether a chunk should end "
    "where prefixes part is a matter of design that no statement decides."
)

_ALL_FLAGGED = Blocks(
    Settings(
        of(
            full(512, ratio=4, whole_slots=True),
            full(16384, ratio=128, whole_slots=True),
            window(128, 128, eagle=True),
        ),
        600,
        tokens_max=65536,
        chunk_tokens=8192,
        drafts_max=1,
        # Its events are wrong in a way of their own.
        tells_events=False,
    ),
    _the_same_again(20000, 8192),
)

_UNITS = Blocks(
    Settings(
        of(full(32, ratio=4), full(64, ratio=16), window(32)),
        80,
        tokens_max=512,
        chunk_tokens=96,
        retention_interval_tokens=128,
        scratch_first=True,
    ),
    _the_same_again(400, 96),
)

_STATE_UNIT = (
    "The hit length is a multiple of the least common multiple of all groups' blocks (KV-OP-01), and so it is in the "
    "reference: with these groups a prompt below 4096 tokens hits nothing in either. A compressed group of 4096 "
    "tokens a block alone makes it so. What is missed is a promise of the documentation, not of the block manager."
)

ZERO_HITS = (
    Bug(
        1,
        "eagle-drop-fixed-point-spiral",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/pull/33270",
        "With draft layers in several groups, each round of the look-up drops a block again until nothing is hit.",
        "0.14.0 to 0.19",
        (
            Trial("native@0.19.1", _SPIRAL, ("KV-OP-01",)),
            Trial(
                "stock",
                _SPIRAL,
                ("KV-OP-01",),
                (reintroduced.look_ahead_dropped_at_every_visit,),
                why_mutant="0.20.2 remembers whose drop it has verified; the loop without that is put back",
            ),
        ),
    ),
    Bug(
        2,
        "swa-mask-omits-eagle-lookahead",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/pull/44082",
        "The blocks that are kept of a window lack the look-ahead block that its own look-up asks for.",
        "0.22",
        (
            Trial("native@0.22.1", _MASK_OF_22, ("KV-OP-15",)),
            Trial(
                "retention",
                _MASK,
                ("KV-OP-15",),
                (retention.mask_without_look_ahead,),
                why_mutant="0.20.2 keeps every block; the plug-in keeps a mask of them, from which the shift is taken",
            ),
        ),
    ),
    Bug(
        3,
        "divergence-in-last-alignment-block",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/issues/57610",
        "A prompt that parts from a cached one inside its last aligned block hits nothing, where one block less would.",
        "0.23.0 to 0.33.0, with a retention interval",
        not_caught=_DIVERGES_IN_LAST_BLOCK,
    ),
    Bug(
        4,
        "mamba-eagle-retention-default-zero",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/pull/52216",
        "What is kept for a replay lies at a boundary that a look-up with a draft layer can never ask for.",
        "main between #52216 and #53945",
        (
            Trial(
                "retention",
                _REPLAY,
                ("KV-OP-15",),
                (retention.replay_boundary_without_look_ahead,),
                why_mutant="no release was found that has it, and of states only windows are retained by the plug-in: "
                "the same boundary is chosen for them",
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        5,
        "mamba-align-checkpoint-in-unique-tail",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm/issues/45238",
        "The only state kept of a prompt lies after its shared prefix, so no other request hits.",
        "0.19 to 0.28",
        not_caught=_UNIQUE_TAIL,
    ),
    Bug(
        6,
        "ascend-eagle-drop-on-16k-granularity",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm-ascend/issues/10710",
        "The draft layer's one block is dropped in all groups, of which one has blocks of 16384 tokens.",
        "vLLM-Ascend 0.20.2rc to 0.23, where no group is flagged",
        (
            Trial(
                "ascend",
                _ALL_FLAGGED,
                ("KV-OP-01",),
                (reintroduced.no_group_is_flagged,),
                why_mutant=(
                    "code that needs a model's layers says which group is flagged; the mutant leaves out the "
                    "flag, and vLLM-Ascend's own coordinator does the rest"
                ),
            ),
        ),
    ),
    Bug(
        7,
        "ascend-retention-mask-unit-mismatch",
        Kind.ZERO_HIT,
        "https://github.com/vllm-project/vllm-ascend/pull/11383",
        "What is kept of a window is reckoned in slots, and what is looked up in tokens.",
        "vLLM-Ascend 0.23.0rc",
        (
            Trial(
                "retention",
                _UNITS,
                ("KV-OP-15",),
                (retention.alignment_of_the_last_group,),
                why_mutant="vLLM-Ascend 0.20.2rc1 retains nothing, and 0.23 does not run on a CPU; the plug-in "
                "retains, and is given the window's unit",
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        37,
        "ascend-state-group-drags-lcm-to-4096",
        Kind.CONFIGURATION,
        "https://github.com/vllm-project/vllm-ascend/issues/16270",
        "A group with blocks of two tokens decides the unit of all hits, and short prompts are never cached.",
        "vLLM-Ascend 0.26.0rc1",
        not_caught=_STATE_UNIT,
    ),
)

# Hits on what is not there: another request's states, states not written yet, or blocks that stand in two tables.

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
    "keeps the state after the last draft that was accepted."
)


def _state_passed(drafts: int) -> Engines:
    """A prompt of 17 tokens, of which a first step has room for one: the chunk after it passes the end of a block."""
    groups = of(full(eagle=drafts > 0), states(drafts=drafts))
    settings = Settings(
        groups, 40, tokens_max=128, chunk_tokens=16, drafts_max=drafts, tells_events=False, scratch_first=True
    )
    steps = tuple(Step() for _ in range(4))
    return Engines(
        settings,
        Stage(),
        (
            Serve(Arrive(0, tokens(_OTHER, 15))),
            Serve(Arrive(1, tokens(0, 17))),
            *steps,
            Serve(Arrive(2, (*tokens(0, 17), *tokens(2 * _OTHER, 20)))),
            *steps,
        ),
    )


_TWO_CAUSES = (
    "The report is of a model that answers wrongly, with no cause; vllm#47861 names two and is to fix it: a chunk that "
    "does not end at the end of a block of states, shown here, and states that are hit past what attention has, which "
    "the same run shows as finding 036. On 0.33.0 the same run shows neither."
)

_NO_CAUSE = (
    "The report is of wrong answers of 0.28.0, with no cause that was settled. The one that vllm#57128 proposes is "
    "defect 10: 0.33.0 looks states up without a margin, and hits no more of them than the reference does. That a "
    "state at the end of a block holds what was computed and not what was drafted is up to the worker, whose kernels "
    "for states are not run: the ghost memory has a worker that is right."
)

_ABORTED = (
    "What was reported is not caught: a chunk is scheduled, its request aborted, and another hits the state in the "
    "next step. 0.20.2 does that, and the reference with it. Both hold that a step which was scheduled is computed "
    "before the next, aborted or not, and then the state is there; the ghost memory has this order, and is silent."
)

WRONG_HITS = (
    Bug(
        9,
        "external-alloc-steals-other-groups-hit-blocks",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/pull/44409",
        "Blocks for external tokens are taken from what another group has just hit, and stand in two tables.",
        "0.20.2 to 0.23.0 executed, 0.14 to 0.23.0 by upstream's threads",
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
                (reintroduced.states_not_fenced,),
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
        "After all blocks were reused, a prefix is still hit that they no longer hold.",
        "a fork of vLLM's main of 2026-08",
        (
            Trial(
                "retention",
                _CHURN,
                ("KV-OP-10",),
                (block_pool.content_outlives_handing_out,),
                why_mutant="the fork is not published, and its cause not settled; an allocated block keeps its hash",
                analogue=True,
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        42,
        "state-of-a-chunk-that-passes-a-block",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/issues/47194",
        "With a draft layer, a chunk passes the end of a block of states, which is hit with another token's state.",
        "0.20.2 to 0.23.0 executed, as reported with three drafts",
        (
            Trial(
                "native@0.23.0",
                _state_passed(drafts=1),
                ("KV-MEM-01",),
                otherwise=Control("no draft layer", "native@0.23.0", _state_passed(drafts=0)),
                remark=_TWO_CAUSES,
            ),
        ),
    ),
    Bug(
        43,
        "drafts-and-prefix-caching-of-states",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/issues/53912",
        "With drafts and prefix caching, models with states answer wrongly.",
        "0.28.0 as reported",
        not_caught=_NO_CAUSE,
    ),
    Bug(
        33,
        "per-group-hit-divergence-with-connector",
        Kind.CRASH,
        "https://github.com/vllm-project/vllm/issues/46453",
        "Groups hit at different lengths, and the longest is taken for all: the others lack blocks there.",
        "from 0.23 on, with a connector; fixed in one direction",
        (
            Trial(
                "stock",
                _PARTED,
                ("KV-OP-01",),
                (reintroduced.longest_hit_of_any_group,),
                why_mutant="0.20.2 has one hit for all groups; the versions with a hit for each hand it to a connector "
                "that loads between nodes, which none does here",
                analogue=True,
            ),
        ),
    ),
)
