"""Rows 11 and 12: shared prefixes of 28k tokens on Gemma-4-31B, without and with a pinned tier."""

from __future__ import annotations

from benchmarks.headlines.figure import Accepts, Case, Figure

from kvgate.simulation.arm import Setting
from kvgate.simulation.generators import shared_prefixes
from kvgate.simulation.policy import Serving, policy_of
from kvreference.geometry import Geometry, Group

GEOMETRY = Geometry((Group("full", 32), *(Group("sliding_window", 16, 1024),) * 5))
SERVER = Serving("gemma-4-31b", GEOMETRY, 189_245, tokens_max=40_960, chunk_tokens=8192)
REPORT = "vLLM pull request 40676"
PREFIX_TOKENS, OWN_TOKENS, ANSWER_TOKENS = 25_000, 3672, 128
SHAPE = "prompts of 28 x 1024 tokens, the first 25,000 shared (both published, but not together), 128 answered"
GROUPS = "one full group with blocks of 32 tokens and five of windows of 1,024 with blocks of 16"
ONE = "one request at a time: every prefix once, then every prefix again, which is counted"


def _sweep(
    prefixes: int,
    policy: str,
    expected: float | None,
    arms: tuple[str, ...],
    prefix_tokens: int = PREFIX_TOKENS,
    own_tokens: int = OWN_TOKENS,
    answer_tokens: int = ANSWER_TOKENS,
) -> Case:
    workload = shared_prefixes(prefixes, prefix_tokens, own_tokens, answer_tokens)
    shape = "" if prefix_tokens == PREFIX_TOKENS and answer_tokens == ANSWER_TOKENS else f" of {prefix_tokens:,} tokens"
    shape += "" if answer_tokens == ANSWER_TOKENS else f", {answer_tokens} answered"
    return Case(f"{prefixes} prefixes{shape}, {policy}", Setting(workload, SERVER, policy_of(policy)), expected, arms)


STOCK = ("ranges", "stock")
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
            _sweep(15, "dense", BEST, STOCK),
            _sweep(19, "dense", BEST, STOCK),
            _sweep(20, "dense", 0.0, STOCK),
            _sweep(30, "dense", 0.0, STOCK),
        ),
        (SHAPE, GROUPS, ONE, "fine is all of the shared prefix, lost is nothing"),
    ),
    Figure(
        "12",
        "the same with pinning",
        "83.7 % at 30, flat to 60",
        REPORT,
        Accepts.BRACKET,
        (
            *(_sweep(prefixes, "dense+pinned", None, PLUGIN) for prefixes in (30, 60)),
            *(_sweep(prefixes, "dense+pinned", None, ("ranges",)) for prefixes in (48, 70, 80)),
            *(_sweep(30, "dense+pinned", None, ("ranges",), shared, 28_672 - shared) for shared in (24_600, 25_600)),
            _sweep(30, "dense+pinned", None, ("ranges",), answer_tokens=1),
        ),
        (
            SHAPE,
            GROUPS,
            ONE,
            "how long prefix, question and answer were is not published exactly: the last cases vary it",
            "a request that ends pins whatever is cached of it; with pins on window drops alone all is lost from 25 on",
        ),
    ),
)
