"""Rows 14 and 15, and a public conversation trace: what real clients asked, under every policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.headlines.figure import Accepts, Case, Figure

from kvgate.simulation.arm import Setting
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.traces.mooncake import mooncake
from kvgate.simulation.traces.weka import weka
from kvgate.simulation.workload import Workload
from kvreference.compressed import dsv4_flash

FOLDER = Path(__file__).parents[2] / "difftest" / "traces"
SERVER = Serving("dsv4-flash", dsv4_flash(), 71_833, tokens_max=1 << 20, chunk_tokens=2048)
CHAT_SERVER = Serving("dsv4-flash", dsv4_flash(), 71_833, tokens_max=150_000, chunk_tokens=8192)
REPORT = "vLLM pull request 43447"
POOL = "a pool of 71,833 blocks"
SESSIONS, TURNS = 96, 10
REQUESTS = 3000


@cache
def agents(sessions: int = SESSIONS, turns: int = TURNS) -> Workload:
    """The first turns of sessions of the agent trace on 16 lanes.

    All sessions have as many turns, so that all lanes are busy nearly to the end: who is alone at the end hits always.
    """
    file = FOLDER / "weka_kv-cache-tester_710traces.rle.jsonl.xz"
    return weka(str(file), sessions, turns, lanes=16, turns_min=turns)


@cache
def chats(requests: int = REQUESTS) -> Workload:
    """The first requests of the conversation trace, one at a time."""
    return mooncake(str(FOLDER / "mooncake_fast25_conversation_trace.jsonl.xz"), requests)


def _agents(policy: str, expected: float | None, *arms: str) -> Case:
    name = "a cache without end" if arms == ("infinite",) else policy
    return Case(name, Setting(agents(), SERVER, policy_of(policy)), expected, arms)


def _few_agents(policy: str, *arms: str) -> Case:
    """A part that vLLM's scheduler serves in minutes: for whether the arms agree."""
    setting = Setting(agents(16, 2), SERVER, policy_of(policy))
    return Case(f"the first two turns of 16 sessions, {policy}", setting, None, arms)


def _chats(policy: str, expected: float | None, *arms: str) -> Case:
    name = "a cache without end" if arms == ("infinite",) else policy
    return Case(name, Setting(chats(), CHAT_SERVER, policy_of(policy)), expected, arms)


def _few_chats(policy: str, *arms: str) -> Case:
    setting = Setting(chats(100), CHAT_SERVER, policy_of(policy))
    return Case(f"the first 100 requests, {policy}", setting, None, arms)


BOTH = ("ranges", "retention")
UNPUBLISHED = "found by another simulation, whose hits were checked against vLLM's manager"
PREFIX = "a conversation's own earlier turns; answers are text of their own, since no trace tells them"

FIGURES = (
    Figure(
        "14",
        "agent traces, 16 lanes, before",
        "0.0 %",
        REPORT,
        Accepts.EXACT,
        (
            _agents("dense", 0.0, "ranges"),
            _agents("masked", 0.0, "ranges"),
            _few_agents("dense", "ranges", "stock"),
        ),
        (
            POOL,
            f"the first {TURNS} turns of {SESSIONS} of the 710 public sessions (739 were used): 960 requests of 124k "
            "tokens each, where 123k were published; nobody stops to think",
            "what hits is nearly all of it at the very end, when lanes have nothing left to send",
        ),
    ),
    Figure(
        "15",
        "agent traces, 16 lanes, retention",
        "74.3 %",
        REPORT,
        Accepts.BRACKET,
        (
            _agents("dense", None, "infinite"),
            _agents("retention=32768+scratch", None, "ranges"),
            _agents("retention=0+scratch", None, "ranges"),
            _agents("masked+scratch", None, "ranges"),
            _agents("dense+scratch", None, "ranges"),
            _agents("dense+pinned", None, "ranges"),
            _few_agents("retention=32768+scratch", *BOTH),
        ),
        (
            POOL,
            PREFIX,
            "which revision of the set was used, and how long it ran, was not published: with a cold start and few "
            "turns per session the rate is lower",
        ),
    ),
    Figure(
        "M",
        f"Mooncake's conversation trace, the first {REQUESTS:,} requests",
        "not published",
        UNPUBLISHED,
        Accepts.EXACT,
        (
            _chats("dense", 31.97, "infinite"),
            _chats("dense", 3.86, "ranges"),
            _chats("masked", 3.86, "ranges"),
            _chats("masked+scratch", 4.51, "ranges"),
            _chats("retention=0+scratch", 15.12, "ranges"),
            _chats("retention=32768+scratch", 18.02, "ranges"),
            _few_chats("dense", "ranges", "stock"),
            _few_chats("retention=32768+scratch", *BOTH),
        ),
        (POOL, "one request at a time, 8,192 tokens a step", PREFIX),
    ),
)
