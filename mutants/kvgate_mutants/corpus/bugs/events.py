"""KV events that tell what is not so."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, states, window
from kvgate_mutants.corpus.reporting import telling_hits
from kvgate_mutants.corpus.scenario import Blocks, Direct, dispatched, ended, prefilled, tokens
from kvgate_mutants.mutants.corpus import blocks
from kvreference.operations import Arrive, LookUp, TakeEvents
from kvreference.settings import Settings

_SPANS = Blocks(
    Settings(of(full(), states()), 20, tokens_max=128, chunk_tokens=48),
    (*dispatched(prefilled(0, tokens(0, 96), 48)), TakeEvents()),
)

_SPANS_OF_33 = evolve(_SPANS, settings=evolve(_SPANS.settings, scratch_first=True))
"""The same for a release that always has scratch first."""


def _ask_for_full_report(system: Any) -> None:
    """The second request asks that its hit be told, as a client does by a sampling parameter."""
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
                "native@0.33.0",
                _PHANTOMS,
                ("KV-OP-12",),
                otherwise=Control(
                    "null blocks left out", "native@0.33.0", _PHANTOMS, (blocks.null_blocks_not_told,), Contrast.REPAIR
                ),
                remark="The reference is taught to tell hits, by the blocks that serve them; a right report is silent.",
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
                    (blocks.whole_blocks_keep_one_key,),
                    Contrast.REPAIR,
                ),
                remark="The block is filled in one step, and known by a part of it after it is known as a whole: the "
                "order of the report. That a key is removed first, and then comes back, is not played.",
            ),
        ),
    ),
)
