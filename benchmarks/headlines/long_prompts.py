"""Rows 9 and 10: DeepSeek-V4 on a GPU, prompts of a million tokens one after another."""

from __future__ import annotations

from benchmarks.headlines.figure import Accepts, Case, Figure

from kvgate.simulation.arm import Setting
from kvgate.simulation.generators import Spellings, fractions, replays
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.workload import Session, Turn, Workload, single
from kvreference.compressed import dsv4_flash
from kvreference.operations import Run

TOKENS = 1_000_000
PROMPTS = 14
SERVER = Serving("dsv4-flash", dsv4_flash(), 71_833, tokens_max=1 << 20, chunk_tokens=2048)
"""A request of 2^20 tokens holds 4,954 blocks at its peak, computed 2,048 at a time; the pool is 14.5 times that."""
REPORT = "vLLM pull request 43447"
POOL = "a pool of 71,833 blocks: 14.5 times the 4,954 that a request of 2^20 tokens holds, 2,048 tokens a step"
BOTH = ("ranges", "retention")
ALL = ("ranges", "stock", "retention")


def sweep(percent: int) -> Workload:
    """14 prompts, then 10 per cent of each again, 20, and so on up to ``percent``; the last are counted."""
    words = Spellings()
    whole = [words.fresh(TOKENS) for _ in range(PROMPTS)]

    def again(part: int) -> tuple[Session, ...]:
        return single(*(Turn((Run(run.first, TOKENS * part // 100),), words.fresh(1)) for run in whole))

    before = tuple(session for part in range(10, percent, 10) for session in again(part))
    return Workload(
        f"{percent} % of {PROMPTS} x {TOKENS} tokens, in a sweep",
        again(percent),
        1,
        (*again(100), *before),
        f"{PROMPTS} prompts of {TOKENS:,} tokens, then the first 10 % of each, 20 %, and so on up to {percent} %, "
        "which is counted",
    )


def _replay(others: int, policy: str, expected: float | None, *arms: str) -> Case:
    setting = Setting(replays(TOKENS, others), SERVER, policy_of(policy))
    when = "at once" if not others else f"after {others} other{'s' if others > 1 else ''}"
    return Case(f"replayed {when}, {policy}", setting, expected, arms)


def _part(percent: int, policy: str, expected: float, *arms: str) -> Case:
    setting = Setting(fractions(TOKENS, PROMPTS, percent), SERVER, policy_of(policy))
    return Case(f"{percent} %, {policy}", setting, expected, arms)


def _swept(percent: int, policy: str) -> Case:
    return Case(f"up to {percent} %, {policy}", Setting(sweep(percent), SERVER, policy_of(policy)), arms=("ranges",))


FIGURES = (
    Figure(
        "9",
        "1M-token prompts one after another, then the first again",
        "misses once a second one was sent",
        REPORT,
        Accepts.EXACT,
        (
            _replay(0, "dense", 99.99, *ALL),
            _replay(1, "dense", 0.0, *ALL),
            _replay(0, "masked", 99.99, "ranges"),
            _replay(1, "masked", 0.0, "ranges"),
            _replay(2, "masked", 0.0, "ranges"),
            _replay(0, "masked+scratch", None, *BOTH),
            _replay(1, "masked+scratch", None, *BOTH),
        ),
        (
            POOL,
            "published is that it misses; 99.99 % and 0 % are what that means where hits end at multiples of 256",
            "another simulation, of masked caching without scratch first, reported 99.99 % after one other prompt, "
            "and 0.0 % only after two: here one is enough to lose it with either, so they differ by one prompt",
            "masked caching alone is what vLLM's main branch did then: neither 0.20.2 nor the plug-in has it without "
            "scratch first, so only the reference serves it, and the row with scratch first stands next to it",
        ),
    ),
    Figure(
        "10",
        "14 x 1M-token prompts, 10 to 100 % of each again, retention 32768 and scratch first",
        "> 95 %",
        REPORT,
        Accepts.EXACT,
        (
            *(_part(percent, "retention=32768+scratch", 98.3, *BOTH) for percent in (10, 50)),
            _part(90, "retention=32768+scratch", 98.3, "ranges"),
            _part(100, "retention=32768+scratch", 99.99, *BOTH),
            _part(100, "masked+scratch", 0.0, *BOTH),
        ),
        (POOL, "one request at a time", "of prompts of exactly a million tokens"),
    ),
    Figure(
        "10b",
        "the same, with the replay boundary alone",
        "not published",
        REPORT,
        Accepts.AGREES,
        tuple(_swept(percent, "retention=0+scratch") for percent in (10, 20, 50, 100)),
        (
            POOL,
            "10 % of every prompt again, then 20 %, and so on: each replay leaves the boundary for the next one",
            "another simulation reported that it rises with the fraction",
        ),
    ),
)
