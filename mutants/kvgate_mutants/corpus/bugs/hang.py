"""Requests that wait for ever."""

from __future__ import annotations

from kvgate.levels.scheduler.case import Stage
from kvgate.levels.scheduler.operations import Step, Submit
from kvgate_mutants.corpus.bug import Bug, Control, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, window
from kvgate_mutants.corpus.scenario import Blocks, Engines, tokens
from kvgate_mutants.mutants import admission_gate
from kvgate_mutants.mutants.corpus import blocks
from kvreference.operations import Admit, Arrive
from kvreference.settings import Settings

_OTHER = 1_000_000

_LONG = Settings(of(full(), window(64), window(128)), 60, tokens_max=1024, chunk_tokens=64)
"""A prompt of 512 tokens takes 32 blocks of full attention; its windows take 9 and 13 at a time."""
_RECYCLED = Blocks(_LONG, (Arrive(0, tokens(0, 512)), Admit(0, 64)))
_NEVER_LET_IN = Engines(
    _LONG,
    Stage(),
    (Submit(Arrive(0, tokens(0, 512))), Submit(Arrive(1, tokens(_OTHER, 32))), Step(), Step(), Step()),
    with_reference=False,
)


def _oversize(pool_blocks: int) -> Engines:
    settings = Settings(of(full()), pool_blocks, tokens_max=4096, chunk_tokens=64)
    steps = tuple(Step() for _ in range(8))
    return Engines(
        settings, Stage(), (Submit(Arrive(0, tokens(0, 200))), Submit(Arrive(1, tokens(_OTHER, 20))), *steps)
    )


_STARTUP = Blocks(
    Settings(
        of(full(512, ratio=4, whole_slots=True), window(128, 128), window(8, 128)),
        150,
        tokens_max=40960,
        chunk_tokens=4096,
        tells_events=False,
    ),
    (Arrive(0, tokens(0, 32768)), Admit(0, 4096)),
)

BUGS = (
    Bug(
        20,
        "swa-admission-budgets-full-sequence",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/issues/39734",
        "The admission gate asks for room for all tokens of a window, though few are held at once.",
        "0.19",
        (
            Trial("native@0.19.1", _RECYCLED, ("KV-OP-03",)),
            Trial(
                "stock",
                _RECYCLED,
                ("KV-OP-03",),
                (admission_gate.gate_ignores_the_window,),
                why_mutant="0.20.2 caps what the gate asks for; the cap is taken away",
            ),
            Trial(
                "stock",
                _NEVER_LET_IN,
                ("KV-LIVE-03", "KV-LIVE-01"),
                (admission_gate.gate_ignores_the_window,),
                why_mutant="the same, seen by what comes of it: nobody is let in",
            ),
        ),
    ),
    Bug(
        21,
        "oversize-request-blocks-queue",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/pull/35570",
        "A request that can never fit is retried for ever, and everybody behind it waits.",
        "all of V1 where the pool is smaller than the longest request",
        (
            Trial(
                "stock",
                _oversize(9),
                ("KV-LIVE-03", "KV-LIVE-01"),
                otherwise=Control("a pool in which it fits", "stock", _oversize(16)),
            ),
        ),
    ),
    Bug(
        26,
        "ascend-dsa-admission-cap-missing",
        Kind.HANG,
        "https://github.com/vllm-project/vllm-ascend/pull/9548",
        "The admission gate of vLLM-Ascend asks for room for all tokens in every group, and prompts wait for ever.",
        "vLLM-Ascend 0.20 before 2026-05-26",
        (
            Trial(
                "ascend",
                _STARTUP,
                ("KV-OP-03",),
                (blocks.ascend_gate_without_caps,),
                why_mutant="the published 0.20.2rc1 is mended; it still falls back to no caps if it is not told the "
                "chunk",
            ),
        ),
    ),
)
