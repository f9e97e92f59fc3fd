"""Reported bugs that block requests permanently: in one block manager, around a scheduler, and on two nodes."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate.levels.pair.operations import Acknowledged, Ask, Node, Operation, PairStage, StepOn
from kvgate.levels.scheduler.operations import GrammarReady, Lost, Serve, Stage
from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.scenario import Blocks, Engines, Pairs, full, of, states, tokens, window
from kvgate_mutants.mutants import allocation, native_0_33_0, reintroduced
from kvgate_mutants.mutants.scheduler import scheduling
from kvreference.holdings import freed_late
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Arrive, Transferred
from kvreference.operations import Transferred as Loaded
from kvreference.rules import Rules
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

# Requests that wait permanently.

_OTHER = 1_000_000

_LONG = Settings(of(full(), window(64), window(128)), 60, tokens_max=1024, chunk_tokens=64)
"""A prompt of 512 tokens takes 32 blocks of full attention; its windows take 9 and 13 at a time."""
_RECYCLED = Blocks(evolve(_LONG, tells_events=False), (Arrive(0, tokens(0, 512)), Admit(0, 64)))
_NEVER_ADMITTED = Engines(
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

BLOCK_MANAGER_HANGS = (
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
                (allocation.gate_ignores_the_window,),
                why_mutant="0.20.2 caps what the gate asks for; the cap is taken away",
            ),
            Trial(
                "stock",
                _NEVER_ADMITTED,
                ("KV-LIVE-03", "KV-LIVE-01"),
                (allocation.gate_ignores_the_window,),
                why_mutant="the same, seen by its effect: no request is admitted",
            ),
        ),
    ),
    Bug(
        21,
        "oversize-request-blocks-queue",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/pull/35570",
        "A request that can never fit is retried permanently and blocks all later ones.",
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
        "The admission gate of vLLM-Ascend asks for room for all tokens in every group, and prompts wait permanently.",
        "vLLM-Ascend 0.20 before 2026-05-26",
        (
            Trial(
                "ascend",
                _STARTUP,
                ("KV-OP-03",),
                (reintroduced.ascend_gate_without_caps,),
                why_mutant=(
                    "the published 0.20.2rc1 is fixed; it still falls back to no caps if it does not get the chunk"
                ),
            ),
        ),
    ),
)

# Requests that wait permanently because of other nodes, or of how a step is cut: seen around a scheduler.

_CONNECTED = Stage(connector=True)


def _steps(count: int) -> tuple[Step, ...]:
    return tuple(Step() for _ in range(count))


def _serve(number: int, prompt: int, **more: Any) -> Serve:
    return Serve(Arrive(number, tokens(number * _OTHER, prompt)), **more)


def _both_loaded(settings: Settings, first: Serve, second: Serve) -> Engines:
    """Two requests of which both loads end before either takes a step."""
    loaded = Transferred(0), Transferred(1)
    return Engines(settings, _CONNECTED, (first, second, *_steps(2), *loaded, *_steps(12)))


def _remaining_prefill(pool_blocks: int) -> Engines:
    """Two loads that leave too little room for what either has still to compute."""
    settings = Settings(of(full()), pool_blocks, tokens_max=1024, chunk_tokens=256)
    first = _serve(0, 800, external_tokens=368, loads=True)
    return _both_loaded(settings, first, _serve(1, 592, external_tokens=368, loads=True))


def _lookahead_block(pool_blocks: int) -> Engines:
    """Two loads that fill the pool to its last block, and a draft layer that needs one more for each."""
    settings = Settings(of(full(eagle=True)), pool_blocks, tokens_max=256, chunk_tokens=64, drafts_max=1)
    first = _serve(0, 64, external_tokens=64, loads=True, answers_max=2)
    return _both_loaded(settings, first, _serve(1, 48, external_tokens=48, loads=True, answers_max=2))


def _loading() -> Engines:
    """Two requests that load, and one that needs nothing but a place."""
    return Engines(
        Settings(of(full()), 100, tokens_max=256, chunk_tokens=64),
        Stage(running_max=2, connector=True),
        (
            _serve(0, 64, external_tokens=32, loads=True),
            _serve(1, 64, external_tokens=32, loads=True),
            *_steps(2),
            _serve(2, 32),
            *_steps(3),
            Transferred(0),
            Transferred(1),
            *_steps(6),
        ),
    )


_SPLIT = Engines(
    Settings(of(full(), states()), 40, tokens_max=256, chunk_tokens=64, tells_events=False),
    Stage(),
    (Submit(Arrive(0, tokens(0, 100))), *_steps(8)),
)

_SMALLEST_UNIT = Engines(
    Settings(of(full(32), states(32), window(64, 16)), 60, tokens_max=256, chunk_tokens=56),
    Stage(),
    (Submit(Arrive(0, tokens(0, 120))), *_steps(5)),
)

_SET_ASIDE = Engines(
    Settings(of(full()), 100, tokens_max=256, chunk_tokens=64),
    Stage(),
    (_serve(0, 40, structured=True), *_steps(2), GrammarReady(0), *_steps(6)),
)


def _abandoned(ends: bool) -> Engines:
    """A request is aborted while it loads; whether the load ever ends."""
    over = Transferred(0) if ends else Lost(0)
    return Engines(
        Settings(of(full()), 65, tokens_max=1024, chunk_tokens=256),
        _CONNECTED,
        (_serve(0, 800, external_tokens=368, loads=True), *_steps(2), Abort(0), over, *_steps(5)),
    )


def _failed(fails: bool) -> Engines:
    return Engines(
        Settings(of(full(), window(64)), 60, tokens_max=256, chunk_tokens=128),
        _CONNECTED,
        (_serve(0, 200, external_tokens=96, **({"fails_from_block": 2} if fails else {})), *_steps(5)),
    )


def _in_flight(asynchronous: bool) -> Engines:
    """A request ends while its next step is computed, and another takes its blocks."""
    return Engines(
        Settings(of(full()), 8, tokens_max=128, chunk_tokens=64),
        Stage(asynchronous=asynchronous, connector=True),
        (
            _serve(0, 40, answers_max=20),
            # What ends it is known when the next step of it is under way.
            Step((Reply(token=7, ends=True),)),
            Step(),
            _serve(1, 100, external_tokens=90, loads=True),
            Step(),
            Transferred(1),
            *_steps(4),
        ),
    )


SCHEDULER_HANGS = (
    Bug(
        8,
        "blocks-freed-while-async-step-in-flight",
        Kind.WRONG_HIT,
        "https://github.com/vllm-project/vllm/pull/45357",
        "The blocks of a request that ended are given to another while a step of the first still writes into them.",
        "up to 0.23.0 with asynchronous scheduling and a consumer of remote blocks",
        (
            Trial(
                "stock",
                _in_flight(True),
                ("KV-MEM-01",),
                otherwise=Control("steps one by one", "stock", _in_flight(False)),
            ),
        ),
    ),
    Bug(
        14,
        "mamba-split-uses-min-group-block-size",
        Kind.MISALIGNED,
        "https://github.com/vllm-project/vllm/pull/54076",
        "Chunks end at multiples of the smallest block of any group, where states are kept at those of another.",
        "0.20 to 0.28 and later, where groups have blocks of several sizes",
        (
            Trial(
                "stock",
                _SMALLEST_UNIT,
                ("KV-SYS-06",),
                (reintroduced.smallest_block_is_the_unit,),
                why_mutant="the engine's core, which is not run here, sets the smallest block of all groups as the "
                "unit after start-up; the mutant sets what it sets",
            ),
        ),
    ),
    Bug(
        16,
        "aborted-remote-load-never-reclaimed",
        Kind.LEAK,
        "https://github.com/vllm-project/vllm/issues/46283",
        "The blocks of a request that is aborted while it loads are held permanently if the other node is gone.",
        "0.14 to 0.33.0",
        (
            Trial(
                "stock",
                _abandoned(False),
                ("KV-LEAK-01",),
                otherwise=Control("a load that ends", "stock", _abandoned(True)),
            ),
        ),
    ),
    Bug(
        22,
        "async-load-remaining-prefill-not-reserved",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/issues/45388",
        "Requests hold what they loaded and lack room for the rest, and none of them can be preempted.",
        "up to 0.30.0",
        (
            Trial(
                "stock",
                _remaining_prefill(65),
                ("KV-LIVE-03", "KV-LIVE-01", "KV-LIVE-02"),
                otherwise=Control("a pool for both", "stock", _remaining_prefill(100)),
            ),
        ),
    ),
    Bug(
        23,
        "mtp-lookahead-block-after-async-load",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/pull/57104",
        "Loads fill the pool, and the block that a draft layer needs before the first step is missing to all of them.",
        "up to 0.30.0",
        (
            Trial(
                "stock",
                _lookahead_block(8),
                ("KV-LIVE-03", "KV-LIVE-01", "KV-LIVE-02"),
                otherwise=Control("a pool with two blocks more", "stock", _lookahead_block(10)),
            ),
        ),
    ),
    Bug(
        24,
        "running-plus-deferred-reaches-max-num-seqs",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/issues/53130",
        "Requests that are set aside count as running, and if they never come back, no other request is admitted.",
        "0.27.1",
        (
            Trial(
                "stock",
                _loading(),
                ("KV-LIVE-01", "KV-LIVE-03"),
                (reintroduced.set_aside_counts_as_running,),
                why_mutant="0.20.2 counts those that run; the count of 0.27.1 is put back",
            ),
        ),
    ),
    Bug(
        25,
        "mamba-split-floors-to-zero",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/issues/40707",
        "A chunk that is capped below one block of states is rounded down to no token in every step, so the request "
        "never finishes.",
        "0.17 to 0.27.1",
        (
            Trial(
                "stock",
                _SPLIT,
                ("KV-LIVE-03", "KV-LIVE-01", "KV-LIVE-02"),
                (reintroduced.ten_tokens_a_step,),
                why_mutant=(
                    "the reported cause of the cap is a full encoder cache, and this engine has no encoder: "
                    "the mutant caps the chunk, and 0.20.2's own code rounds it down to nothing"
                ),
            ),
        ),
    ),
    Bug(
        27,
        "ascend-scheduler-ignores-skipped-waiting",
        Kind.HANG,
        "https://github.com/vllm-project/vllm-ascend/pull/10559",
        "A scheduler that was copied does not look at the queue of those that were set aside.",
        "vLLM-Ascend 0.18 to 0.21",
        (
            Trial(
                "stock",
                _SET_ASIDE,
                ("KV-LIVE-01", "KV-LIVE-03"),
                (scheduling.skipped_are_never_looked_at,),
                why_mutant="its schedulers import the device's runtime; vLLM's own is made to look as little",
                elsewhere=True,
            ),
        ),
    ),
    Bug(
        32,
        "load-failure-unpack-on-hybrid",
        Kind.CRASH,
        "https://github.com/vllm-project/vllm/pull/50388",
        "When a load fails, a request's block tables are taken for one table, and with two groups the engine dies.",
        "0.11 to 0.28",
        (
            Trial(
                "stock",
                _failed(True),
                ("KV-SYS-01",),
                words="too many values to unpack",
                otherwise=Control("a load that does not fail", "stock", _failed(False)),
            ),
        ),
    ),
)

# Blocks that are freed when the steps in flight are over.


def _frees_group_by_group(manager: Manager) -> None:
    """What is freed late is freed in the order of KV-OP-07, and not in that of the release."""
    rules = manager.holdings.rules
    manager.holdings.rules = Rules([each for each in rules.deltas if each.rule != freed_late.__name__])


_FREED_LATE = Engines(
    Settings(of(full(), window(32)), 40, tokens_max=128, chunk_tokens=64, scratch_first=True),
    Stage(asynchronous=True, connector=True),
    (
        _serve(0, 48, answers_max=20),
        # What ends it is known when the next step of it is under way.
        Step((Reply(token=7, ends=True),)),
        *_steps(3),
    ),
    adapts=_frees_group_by_group,
)
_FENCED = Engines(
    Settings(of(full()), 7, tokens_max=82, chunk_tokens=82, drafts_max=1, scratch_first=True),
    Stage(running_max=2, asynchronous=True, connector=True),
    # With a block for each 16 tokens, the pool has none left for the 81st token of the first request.
    (_serve(0, 79, answers_max=2), _serve(1, 1), *_steps(3)),
)

LATE_FREES = (
    Bug(
        39,
        "deferred-free-mixes-groups",
        Kind.OVER_EVICTION,
        "https://github.com/vllm-project/vllm/issues/48489",
        "Blocks that are freed when a step is over are queued in another order of groups than blocks freed at once.",
        "0.33.0, and others since blocks wait for the steps in flight, with a consumer of remote blocks",
        (
            Trial(
                "native@0.33.0",
                _FREED_LATE,
                ("KV-OP-07",),
                otherwise=Control(
                    "freed group by group",
                    "native@0.33.0",
                    _FREED_LATE,
                    (reintroduced.tables_stay_apart, reintroduced.tables_are_freed_apart),
                    Contrast.REPAIR,
                ),
                remark="The reference of 0.33.0 takes over this order as a choice of the release, so kvgate check is "
                "silent; here it frees group by group, as KV-OP-07 says.",
            ),
        ),
    ),
    Bug(
        40,
        "preemption-of-fenced-requests",
        Kind.HANG,
        "https://github.com/vllm-project/vllm/pull/49675",
        "A request is preempted for its blocks although they become free only when the steps in flight are over.",
        "after 0.23.0, fixed in 0.33.0, with a consumer of remote blocks",
        (
            Trial(
                "native@0.33.0",
                _FENCED,
                ("KV-SYS-02",),
                (native_0_33_0.named("preempted-although-nothing-is-freed"),),
                why_mutant="0.33.0 has the fix, and no release that defers frees without it is described here: its "
                "condition is taken away",
                remark=(
                    "What is seen first is that the answer in flight of the preempted request is lost; that "
                    "nothing was gained by the preemption is not a violation by itself."
                ),
            ),
        ),
    ),
    Bug(
        41,
        "idle-engine-keeps-delayed-frees",
        Kind.LEAK,
        "https://github.com/vllm-project/vllm/pull/46579",
        "After the last request has ended, the client takes no further step, and blocks that a connector has to store "
        "are held until the next request comes.",
        "0.22.0 as reported, with a connector that delays frees and an engine in the client's process",
        not_caught="What stops is the loop of the engine's client, which asks whether a step is to be taken. No client "
        "runs here: a scheduler is given steps until every transfer is over, and then frees the blocks, as 0.33.0's "
        "does.",
    ),
)

# Requests that wait permanently on two nodes: what one holds for the other is never asked for.

_PREFILL, _DECODE = StepOn(Node.PREFILL), StepOn(Node.DECODE)


def _ask(number: int, prompt: int) -> Ask:
    return Ask(Arrive(number, tokens(number * _OTHER, prompt)), answers_max=2)


_UNTIL_LOADED: tuple[Operation, ...] = (
    _ask(0, 64),
    _ask(1, 48),
    _PREFILL,
    # The decode node admits both, and its seven blocks are used up.
    _DECODE,
    Loaded(0),
    Loaded(1),
    Acknowledged(0),
    Acknowledged(1),
    _PREFILL,
)
_MORE_COME: tuple[Operation, ...] = (_ask(2, 64), _ask(3, 64), _ask(4, 64), _PREFILL)
_BOTH_GO_ON: tuple[Operation, ...] = (_DECODE, _PREFILL, _DECODE, _PREFILL, _DECODE, _PREFILL)

PREFILLED_NEVER_DECODED = Pairs(
    Settings(of(full(eagle=True)), 8, tokens_max=256, chunk_tokens=128, drafts_max=1),
    PairStage(prefill_blocks=10, prefill_chunk_tokens=128),
    (*_UNTIL_LOADED, *_MORE_COME, *_BOTH_GO_ON),
    # The repair rejects what the reference would grant.
    with_reference=False,
)
"""Prompts are computed, and the decode node, full of loaded blocks, answers no request. Then the prefill node, which
holds what the decode node does not read, computes no more prompts either."""

PAIR_HANGS = (
    Bug(
        38,
        "prefilled-and-never-decoded",
        Kind.HANG,
        "https://github.com/vllm-project/vllm-ascend/pull/10193",
        "With a prefill and a decode node prompts are computed, and the decode node loops permanently and answers no "
        "request.",
        "vLLM-Ascend 0.20.2rc with this pull request, as reported; the cause shown here is in vLLM up to 0.28",
        (
            Trial(
                "stock",
                PREFILLED_NEVER_DECODED,
                ("KV-LIVE-03",),
                words="on the prefill node waits for its blocks to be read by",
                otherwise=Control(
                    "loads leave room for a step",
                    "stock",
                    PREFILLED_NEVER_DECODED,
                    (reintroduced.loads_leave_room_for_a_step,),
                    Contrast.REPAIR,
                ),
                remark="The report is a comment that names the symptom and the deployment, and no cause. Of what vLLM "
                "0.20.2 has published, this brings it about, with the draft layers that such deployments have: "
                "vllm-project/vllm#57104 on the decode node. On 0.23.0 the same run shows it too, and on 0.33.0, "
                "which has that fix, it continues. Another candidate, boundaries that the pull request once offered "
                "anew in "
                "every decode step, slows the loop and does not stop it: KV-WORK-01, and a mutant of the plug-in.",
            ),
        ),
    ),
)
