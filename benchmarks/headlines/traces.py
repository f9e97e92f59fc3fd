"""Rows 14 and 15, and a public conversation trace: what real clients asked, under every policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attrs import evolve
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
SESSIONS_ALL, TURNS_ALL = 710, 10_000
"""As many as there are, and more than any session has: the whole trace."""
SESSIONS, TURNS = 96, 10
REQUESTS = 3000


@cache
def agents(sessions: int = SESSIONS_ALL, turns: int = TURNS_ALL, turns_min: int = 1) -> Workload:
    """Sessions of the agent trace on 16 lanes; those of fewer than ``turns_min`` turns are passed over."""
    file = FOLDER / "weka_kv-cache-tester_710traces.rle.jsonl.xz"
    return weka(str(file), sessions, turns, lanes=16, turns_min=turns_min)


@cache
def chats(requests: int = REQUESTS) -> Workload:
    """The first requests of the conversation trace, one at a time."""
    return mooncake(str(FOLDER / "mooncake_fast25_conversation_trace.jsonl.xz"), requests)


def _agents(policy: str, expected: float | None, *arms: str, busy: bool = False) -> Case:
    """All of the trace."""
    name = "all sessions, " + ("while all lanes are busy, " if busy else "") + policy
    return Case(name, Setting(agents(), SERVER, policy_of(policy)), expected, arms, busy=busy)


def _first_agents(policy: str, *arms: str) -> Case:
    """As many turns of each: no lane is idle until nearly the end."""
    name = "a cache without end" if arms == ("infinite",) else policy
    setting = Setting(agents(SESSIONS, TURNS, TURNS), SERVER, policy_of(policy))
    return Case(f"the first {TURNS} turns of {SESSIONS} sessions, {name}", setting, None, arms)


def _some_agents(sessions: int) -> Case:
    """All turns of a few: most of it is sent when lanes are idle."""
    setting = Setting(agents(sessions), SERVER, policy_of("dense"))
    return Case(f"{sessions} sessions, dense", setting, None, ("ranges",))


def _few_agents(policy: str, *arms: str) -> Case:
    """A part that vLLM's scheduler serves in minutes: for whether the arms agree."""
    setting = Setting(agents(16, 2, 2), SERVER, policy_of(policy))
    return Case(f"the first two turns of 16 sessions, {policy}", setting, None, arms, spans=False)


def _chats(policy: str, expected: float | None, *arms: str) -> Case:
    name = "a cache without end" if arms == ("infinite",) else policy
    return Case(name, Setting(chats(), CHAT_SERVER, policy_of(policy)), expected, arms)


def _few_chats(policy: str, *arms: str) -> Case:
    setting = Setting(chats(100), CHAT_SERVER, policy_of(policy))
    return Case(f"the first 100 requests, {policy}", setting, None, arms)


BOTH = ("ranges", "retention")
UNPUBLISHED = "found by another simulation, whose hits were checked against vLLM's manager"
PREFIX = "a conversation's own earlier turns; answers are text of their own, since no trace tells them"


def _size(workload: Workload) -> str:
    """How much of the trace is sent."""
    turns = [turn.prompt_tokens for session in workload.sessions for turn in session.turns]
    mean = sum(turns) / len(turns)
    return f"{len(turns):,} requests of {len(workload.sessions)} sessions, {mean / 1000:.0f}k tokens each"


NO_SUB_AGENTS = "what sub-agents asked is left out"
NO_THINKING = "nobody stops to think"

FIGURES = (
    Figure(
        "14",
        "agent traces, 16 lanes, before",
        "0.0 %",
        REPORT,
        Accepts.DIRECTION,
        (
            _agents("dense", 0.0, "ranges"),
            _agents("dense", 0.0, "ranges", busy=True),
            _first_agents("dense", "ranges"),
            _first_agents("masked", "ranges"),
            *(_some_agents(sessions) for sessions in (32, 64)),
            _few_agents("dense", "ranges", "stock"),
        ),
        (
            POOL,
            f"all public sessions, {SESSIONS_ALL} where 739 were used: {_size(agents())} (123k were published)",
            NO_SUB_AGENTS,
            NO_THINKING,
            "at the end lanes have nothing left to send, and who is alone hits nearly always: the fewer sessions, the "
            "more of the rate is that; all lanes are busy until the last session has begun",
            "the whole trace is a little more than a point off, so the row is accepted as a direction only; what is "
            "sent while all lanes are busy is within a point",
            "the other cases are choices that were tried, and nothing is expected of them: what is sent decides the "
            "rate of a part of the trace",
        ),
    ),
    Figure(
        "15",
        "agent traces, 16 lanes, retention",
        "74.3 %",
        REPORT,
        Accepts.BRACKET,
        (
            *(_first_agents(policy, "ranges") for policy in ("retention=32768+scratch", "retention=0+scratch")),
            *(
                evolve(each, spans=False)
                for each in (
                    _first_agents("dense", "infinite"),
                    *(
                        _first_agents(policy, "ranges")
                        for policy in ("masked+scratch", "dense+scratch", "dense+pinned")
                    ),
                )
            ),
            _few_agents("retention=32768+scratch", *BOTH),
        ),
        (
            POOL,
            f"a part of the sessions, chosen so that no lane is idle until nearly the end: "
            f"{_size(agents(SESSIONS, TURNS, TURNS))}; other parts have other rates",
            NO_SUB_AGENTS,
            NO_THINKING,
            PREFIX,
            "which revision of the set was used, and how long it ran, was not published: with a cold start and few "
            "turns per session the rate is lower",
            "the bracket is of the cases with retention and scratch first on that part of the sessions",
        ),
        74.3,
    ),
    Figure(
        "M",
        f"Mooncake's conversation trace, the first {REQUESTS:,} requests",
        "not published",
        UNPUBLISHED,
        Accepts.AGREES,
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
        (
            POOL,
            "what is expected is what another simulation told",
            "one request at a time, 8,192 tokens a step",
            PREFIX,
        ),
    ),
)
