"""KV events that tell what is not so."""

from __future__ import annotations

from attrs import evolve

from kvgate.corpus.bug import Bug, Kind, Trial
from kvgate.corpus.bugs.groups import full, of, states, window
from kvgate.corpus.scenario import Blocks, dispatched, ended, prefilled, tokens
from kvgate.mutants.corpus import blocks
from kvgate.mutants.plugin import partial_hits
from kvreference.operations import Admit, Arrive, LookUp, TakeEvents
from kvreference.settings import Settings

_SPANS = Blocks(
    Settings(of(full(), states()), 20, tokens_max=128, chunk_tokens=48),
    (*dispatched(prefilled(0, tokens(0, 96), 48)), TakeEvents()),
)

_SPANS_OF_33 = evolve(_SPANS, settings=evolve(_SPANS.settings, scratch_first=True))
"""The same for a release that always has scratch first."""

_PHANTOMS = Blocks(
    Settings(of(full(), window(32)), 60, tokens_max=512, chunk_tokens=64),
    (
        *ended(0, tokens(0, 300), 64),
        TakeEvents(),
        Arrive(1, tokens(0, 300)),
        LookUp(1),
        TakeEvents(),
    ),
)

_AGAIN = Blocks(
    Settings(of(evolve(full(64), unit_tokens=16), window(32)), 40, tokens_max=256, chunk_tokens=64),
    (
        *dispatched(ended(0, tokens(0, 16), 16)),
        Arrive(1, tokens(0, 17)),
        Admit(1, 1),
    ),
)

BUGS = (
    Bug(
        34,
        "event-token-ids-span-null-blocks",
        Kind.EVENTS,
        "https://github.com/vllm-project/vllm/issues/44451",
        "An event tells the tokens of null blocks, and does not name them.",
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
        "A hit is told with blocks that a window or a state group does not have.",
        "0.24 to 0.33.0, with full reports",
        (
            Trial(
                "stock",
                _PHANTOMS,
                ("KV-OP-12",),
                (blocks.hit_told_with_null_blocks,),
                why_mutant="0.20.2 does not tell hits, and the reference knows no report of them; a hit is told as "
                "those versions tell it",
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
                "retention",
                _AGAIN,
                ("KV-OP-18",),
                (partial_hits.offered_again,),
                why_mutant="0.20.2 caches whole blocks only; the plug-in has entries inside blocks, and "
                "offers them twice",
            ),
        ),
    ),
)
