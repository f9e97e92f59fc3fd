"""Hits that are lost: what is cached, or should be, serves nobody."""

from __future__ import annotations

from attrs import evolve

from kvgate_mutants.corpus.bug import Bug, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, window
from kvgate_mutants.corpus.scenario import Blocks, ended, tokens
from kvgate_mutants.mutants.corpus import hits
from kvgate_mutants.mutants.plugin import reachable
from kvreference.operations import Arrive, LookUp, Operation
from kvreference.settings import Settings

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
        of(full(eagle=True), window(64, eagle=True), window(128, eagle=True)), 120, tokens_max=512, chunk_tokens=320
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

BUGS = (
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
                (hits.look_ahead_dropped_at_every_visit,),
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
                (reachable.mask_without_look_ahead,),
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
                (reachable.replay_boundary_without_look_ahead,),
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
        "The only state that is kept of a prompt lies behind what it shares with others, so nobody hits anything.",
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
                (hits.no_group_is_flagged,),
                why_mutant="which group is flagged is told by code that needs a model's layers; the mutant leaves "
                "out the flag, and vLLM-Ascend's own coordinator does the rest",
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
                (reachable.alignment_of_the_last_group,),
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
