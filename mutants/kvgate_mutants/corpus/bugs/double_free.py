"""Blocks that are released too often, or queued while somebody holds them."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of, window
from kvgate_mutants.corpus.scenario import Blocks, Direct, ended, prefilled, tokens
from kvgate_mutants.mutants import block_pool
from kvgate_mutants.mutants.corpus import blocks
from kvreference.operations import Admit, Arrive, TakeStatistics
from kvreference.settings import Settings

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
        # Whoever hits them holds them.
        Arrive(1, tokens(0, 70)),
        Admit(1, 16),
        *prefilled(2, tokens(1_000_000, 60), 64),
    ),
    ("check", "ghost", "leak"),
)

_BY_HAND = "The pool is handed this by the scenario itself; nothing in 0.20.2 was seen to hand it over."

BUGS = (
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
                    "each release by itself", "stock", _TWICE, (blocks.released_one_by_one,), Contrast.REPAIR
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
        "The pool takes back whatever it is given: null blocks, blocks twice, blocks that nobody holds.",
        "UCM on 0.20.2 and vLLM-Ascend 0.20.2",
        (
            Trial(
                "stock",
                _JUNK,
                ("KV-INV-01",),
                otherwise=Control("releases guarded", "stock", _JUNK, (blocks.release_guarded,), Contrast.REPAIR),
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
        "A block is pinned by its count alone and stays in the free queue, so that it is handed out while in use.",
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
