"""Rows 11 and 12: shared prefixes of 28k tokens on Gemma-4-31B, without and with a pinned tier."""

from __future__ import annotations

from attrs import evolve
from benchmarks.headlines.figure import Accepts, Case, Figure

from kvgate.simulation.arm import Setting
from kvgate.simulation.generators import shared_prefixes
from kvgate.simulation.policy import Serving, policy_of
from kvreference.geometry import Geometry, Group

GEOMETRY = Geometry((Group("full", 32), *(Group("sliding_window", 16, 1024),) * 5))
BLOCKS, BLOCKS_OTHER = 189_245, (170_000, 200_000)
SERVER = Serving("gemma-4-31b", GEOMETRY, BLOCKS, tokens_max=40_960, chunk_tokens=8192)
REPORT = "vLLM pull request 40676"
PREFIX_TOKENS, OWN_TOKENS, ANSWER_TOKENS = 25_000, 3672, 128
SHAPE = "prompts of 28 x 1024 tokens, the first 25,000 shared (both published, but not together), 128 answered"
GROUPS = "one full group with blocks of 32 tokens and five of windows of 1,024 with blocks of 16"
POOL = (
    f"a pool of {BLOCKS:,} blocks, a context of {SERVER.tokens_max:,} tokens, {SERVER.chunk_tokens:,} of them a step: "
    "this alone decides at how many prefixes all is lost, so other pools stand next to it"
)
ONE = "one request at a time: every prefix once, then every prefix again, which is counted"


def _sweep(
    prefixes: int,
    policy: str,
    expected: float | None,
    arms: tuple[str, ...],
    prefix_tokens: int = PREFIX_TOKENS,
    own_tokens: int = OWN_TOKENS,
    answer_tokens: int = ANSWER_TOKENS,
    blocks: int = BLOCKS,
    spans: bool = True,
) -> Case:
    """Every prefix once, and once more."""
    workload = shared_prefixes(prefixes, prefix_tokens, own_tokens, answer_tokens)
    shape = "" if prefix_tokens == PREFIX_TOKENS and answer_tokens == ANSWER_TOKENS else f" of {prefix_tokens:,} tokens"
    shape += "" if answer_tokens == ANSWER_TOKENS else f", {answer_tokens} answered"
    shape += "" if blocks == BLOCKS else f", P = {blocks:,}"
    setting = Setting(workload, evolve(SERVER, blocks=blocks), policy_of(policy))
    return Case(f"{prefixes} prefixes{shape}, {policy}", setting, expected, arms, spans)


ALL = ("ranges", "stock", "retention")
PLUGIN = ("ranges", "retention")
BEST = 100 * 24_992 / (PREFIX_TOKENS + OWN_TOKENS)
"""All of the shared prefix, at a multiple of the alignment."""

FIGURES = (
    Figure(
        "11",
        "shared prefixes of 28k tokens, no pinning",
        "fine at 15, lost at 20",
        REPORT,
        Accepts.EXACT,
        (
            _sweep(15, "dense", BEST, ALL),
            _sweep(19, "dense", BEST, ALL),
            _sweep(20, "dense", 0.0, ALL),
            _sweep(30, "dense", 0.0, ALL),
            *(
                _sweep(prefixes, "dense", None, ("ranges",), blocks=blocks)
                for blocks in BLOCKS_OTHER
                for prefixes in (15, 19, 20)
            ),
        ),
        (SHAPE, GROUPS, POOL, ONE, "fine is all of the shared prefix, lost is nothing"),
    ),
    Figure(
        "12",
        "the same with pinning",
        "83.7 % at 30, flat to 60",
        REPORT,
        Accepts.BRACKET,
        (
            _sweep(30, "dense+pinned", None, PLUGIN),
            _sweep(60, "dense+pinned", None, PLUGIN, spans=False),
            *(_sweep(prefixes, "dense+pinned", None, ("ranges",), spans=False) for prefixes in (48, 70, 80)),
            *(_sweep(30, "dense+pinned", None, ("ranges",), shared, 28_672 - shared) for shared in (24_600, 25_600)),
            _sweep(30, "dense+pinned", None, ("ranges",), answer_tokens=1),
            *(_sweep(30, "dense+pinned", None, ("ranges",), blocks=blocks) for blocks in BLOCKS_OTHER),
            *(_sweep(60, "dense+pinned", None, ("ranges",), blocks=blocks, spans=False) for blocks in BLOCKS_OTHER),
        ),
        (
            SHAPE,
            GROUPS,
            POOL,
            ONE,
            "how long prefix, question and answer were is not published exactly: cases vary it",
            "a request that ends pins all of its cached blocks",
            "another simulation reported 85.8 % at 30 and 83.7 % at 48 to 70 prefixes, and nothing left at 80: here "
            "there "
            "is less at 30 and from 48 on, and it differs by more than a point",
            "the bracket is of the cases at 30, where a number was published; the others show how flat it is",
        ),
        83.7,
    ),
)
