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
BEFORE, AFTER = 161, 560
"""How many requests the published runs served in their half hour: ``done=161`` and ``done=560`` in their logs."""
SKIPPED = 500
"""After so many sessions, prompts are about as long as the published ones."""
SESSIONS_BEGUN_MAX = 64
"""More than are begun until then."""
SESSIONS, TURNS = 96, 10
REQUESTS = 3000


@cache
def agents(sessions: int = 0, turns: int = 0, turns_min: int = 1, step_ms: int = 0) -> Workload:
    """Sessions of the agent trace on 16 lanes; those of fewer than ``turns_min`` turns are passed over."""
    file = FOLDER / "weka_kv-cache-tester_710traces.rle.jsonl.xz"
    return weka(str(file), sessions, turns, lanes=16, turns_min=turns_min, step_ms=step_ms)


@cache
def begun(requests: int, skip: int, step_ms: int = 0) -> Workload:
    """The same, stopped after so many requests: none of them is of a session after those that are taken."""
    whole = agents(step_ms=step_ms)
    where = f" after {skip} sessions" if skip else ""
    pauses = f"pauses as recorded, if a step takes {step_ms} ms" if step_ms else "no thinking time"
    return evolve(
        whole,
        name=f"the first {requests} requests of coding agents{where}",
        about=f"the first {requests} requests of coding agents{where}, {whole.lanes} at once; {pauses}",
        sessions=whole.sessions[skip : skip + SESSIONS_BEGUN_MAX],
        requests_max=requests,
    )


@cache
def chats(requests: int = REQUESTS) -> Workload:
    """The first requests of the conversation trace, one at a time."""
    return mooncake(str(FOLDER / "mooncake_fast25_conversation_trace.jsonl.xz"), requests)


def _begun(
    requests: int, skip: int, policy: str, expected: float | None, *arms: str, spans: bool = True, step_ms: int = 0
) -> Case:
    """As many requests as were published to have been served, from a session on; then the lanes stop."""
    name = "a cache without end" if arms == ("infinite",) else policy
    where = f" after {skip} sessions" if skip else ""
    where += f" with pauses, {step_ms} ms a step" if step_ms else ""
    setting = Setting(begun(requests, skip, step_ms), SERVER, policy_of(policy))
    return Case(f"the first {requests} requests{where}, {name}", setting, expected, arms, spans)


def _first_agents(policy: str, *arms: str) -> Case:
    """As many turns of each of them: no lane is idle until nearly the end."""
    name = "a cache without end" if arms == ("infinite",) else policy
    setting = Setting(agents(SESSIONS, TURNS, TURNS), SERVER, policy_of(policy))
    return Case(f"the first {TURNS} turns of {SESSIONS} sessions, {name}", setting, None, arms)


def _chats(policy: str, expected: float | None, *arms: str) -> Case:
    name = "a cache without end" if arms == ("infinite",) else policy
    return Case(name, Setting(chats(), CHAT_SERVER, policy_of(policy)), expected, arms)


def _few_chats(policy: str, *arms: str) -> Case:
    setting = Setting(chats(100), CHAT_SERVER, policy_of(policy))
    return Case(f"the first 100 requests, {policy}", setting, None, arms)


BOTH = ("ranges", "retention")
ALL = ("ranges", "stock", "retention")
UNPUBLISHED = "found by another simulation, whose hits were checked against vLLM's manager"
PREFIX = "a conversation's own earlier turns; answers are text of their own, since no trace records them"
NO_SUB_AGENTS = "what sub-agents asked is left out"
NO_THINKING = "no thinking time"
SET = (
    "710 of the 739 sessions are public, the longest ones are not; which revision of the set was used was not published"
)
INTERVAL = "retention=32768+scratch"
INTERVAL_ONLY = "retention=32768+interval-only+scratch"
STEP_MS = 200
"""About what a step took: half an hour for 560 prompts of 121k tokens of which 74 % hit, 2,048 tokens a step."""
PROMPTS = (
    "how long prompts are depends on where the lanes begin; the published ones were 123k tokens before, 121k after"
)

FIGURES = (
    Figure(
        "14",
        "agent traces, 16 lanes, before",
        "0.0 %",
        REPORT,
        Accepts.EXACT,
        (
            _begun(BEFORE, 0, "dense", 0.0, *BOTH),
            _begun(BEFORE, SKIPPED, "dense", 0.0, "ranges"),
            _begun(BEFORE, 100, "dense", None, "ranges"),
            _begun(BEFORE, 300, "dense", None, "ranges"),
            Case("all sessions to their end, dense", Setting(agents(), SERVER, policy_of("dense")), arms=("ranges",)),
            _first_agents("dense", "ranges"),
            _first_agents("masked", "ranges"),
        ),
        (
            POOL,
            f"the published run was ended after half an hour, when {BEFORE} requests had been served: so are these; "
            "which sessions it began with was not published, and expected are 0.0 % in the file's order, and where "
            "prompts are as long as the published ones",
            PROMPTS,
            "the shorter the prompts, the sooner a lane sends its next turn, while its last one is still in the pool: "
            "so there are hits after 300 sessions; if all sessions are served to their end, some lanes have nothing "
            "left to send at last, and a lane without competition hits nearly always",
            SET,
            NO_SUB_AGENTS,
            NO_THINKING,
        ),
    ),
    Figure(
        "15",
        "agent traces, 16 lanes, retention",
        "74.3 %",
        REPORT,
        Accepts.BRACKET,
        (
            _begun(AFTER, 0, INTERVAL, None, *BOTH),
            _begun(AFTER, SKIPPED, INTERVAL, None, *BOTH),
            *(
                _begun(AFTER, skip, policy, None, "ranges", spans=policy == INTERVAL, step_ms=step_ms)
                for policy, times in ((INTERVAL, (STEP_MS // 2, STEP_MS, STEP_MS * 2)), (INTERVAL_ONLY, (0, STEP_MS)))
                for step_ms in times
                for skip in (0, SKIPPED)
            ),
            *(_first_agents(policy, "ranges") for policy in (INTERVAL, "retention=0+scratch")),
            _begun(AFTER, 0, "dense", None, "infinite", spans=False),
            _begun(AFTER, SKIPPED, "dense", None, "infinite", spans=False),
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
        ),
        (
            POOL,
            f"the published run was ended after half an hour, when {AFTER} requests had been served: so are the first "
            "cases",
            PROMPTS,
            f"the others are the first {TURNS} turns of {SESSIONS} sessions: no lane is idle until nearly the end, and "
            "with few turns per session the rate is lower",
            "another simulation reported 94 to 96 %, and 78 to 84 % without the replay boundary",
            SET,
            NO_SUB_AGENTS,
            f"without thinking time, or with pauses as recorded: half an hour for {AFTER} prompts is about {STEP_MS} "
            "ms a step, so half and double stand next to it",
            "no release leaves out the replay boundary; with the interval alone the figure lies between the cases",
            PREFIX,
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
            _chats(INTERVAL, 18.02, "ranges"),
            _chats("dense+pinned", None, "ranges"),
            _few_chats("dense", *ALL),
            _few_chats(INTERVAL, *BOTH),
        ),
        (
            POOL,
            "the expectation is what another simulation reported",
            "one request at a time, 8,192 tokens a step",
            PREFIX,
        ),
    ),
)
