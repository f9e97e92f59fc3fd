"""vLLM's own scheduler on its own block manager; the reference follows every decision.

Goal: the scheduler calls its block manager as the gate's adapter does, its bookkeeping is right, and every request
makes progress. If not, this is seen and reported with the holders of the blocks. Method: generated runs of the real
scheduler, in which only declared findings may differ; and the scheduler broken, one thing at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.findings import explain_engine
from kvgate.gate.level import Case
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.adapter.worker import ends_by_number
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import OPERATIONS, GrammarReady, Lost, Operation, Serve, Stage
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

from .stage import found, full, keeps_rejected, run, serve, steps, undeclared

AGREED = (
    "full",
    "gemma-hybrid",
    "gemma-hybrid+eagle",
    "gpt-oss-hybrid",
    "mixed-blocks+mtp",
    "two-windows",
    "local",
    "mamba-all",
    "mamba-align",
)
"""Models on which nothing differs that is not declared."""
PLUGGED_IN = (
    "gemma-hybrid+retention+scratch",
    "gpt-oss-hybrid+retention+scratch+pinned",
    "mixed-blocks+partial",
    "mixed-blocks+mtp+retention+scratch+partial",
)
"""The same with the plug-in."""
CASES = 2


def differences(cases: Iterable[Case], subject: str = "stock") -> tuple[Counter[str], int]:
    """What differs in generated runs, by statement, apart from declared findings; and how many operations
    were followed.
    """
    found, followed = Counter[str](), 0
    for case in cases:
        engine = Engine(case.settings, case.stage, subject)
        for divergence in run(engine, case.operations):
            found[explain_engine(divergence, engine) or f"undeclared {divergence.difference.statement}"] += 1
        followed += len(engine.lockstep.performed)
    return found, followed


def drawn(model: str) -> list[Case]:
    """Cases of a model under every preset."""
    presets = ("tiny", "hostile", "legal")
    return [SCHEDULER.draw(load(model), preset, str(seed)) for preset in presets for seed in range(CASES)]


@pytest.mark.few(2)
@pytest.mark.parametrize("model", AGREED)
def test_the_reference_follows(model: str) -> None:
    """Nothing that is not declared of vLLM itself, and something was followed."""
    found, followed = differences(drawn(model))
    assert {} == {name: count for name, count in found.items() if name.startswith("undeclared")}
    assert followed > 300


@pytest.mark.ci
@pytest.mark.parametrize("model", PLUGGED_IN)
def test_the_reference_follows_the_plug_in(model: str) -> None:
    """The same on the plug-in's block manager, with retention, a pinned tier, and hits that end inside blocks."""
    found, followed = differences(drawn(model), "retention")
    assert {} == {name: count for name, count in found.items() if name.startswith("undeclared")}
    assert followed > 300


def test_everything_is_drawn() -> None:
    """Every kind of operation, and both sides of every switch of a stage; no case twice."""
    cases = [SCHEDULER.draw(load("full"), "hostile", str(seed)) for seed in range(40)]
    assert len(set(cases)) == len(cases)
    operations = {type(each) for case in cases for each in case.operations}
    # Lost transfers have cases of their own, and a served request has a ``Serve``.
    assert set(OPERATIONS) - {Lost, Submit} == operations
    switches = ("asynchronous", "by_priority", "connector", "failed_loads_end")
    assert all({True, False} == {getattr(case.stage, switch) for case in cases} for switch in switches)
    served = [each for case in cases for each in case.operations if isinstance(each, Serve)]
    what = (
        "loads",
        "sends",
        "structured",
        "priority",
        "undecided",
        "external_tokens",
        "fails_from_block",
        *("pools", "embedded"),
    )
    assert len({each.arrival.keys.lora for each in served}) > 2
    assert len({each.arrival.keys.media for each in served}) > 2
    assert all(len({getattr(each, name) for each in served}) > 1 for name in what)


def test_what_a_manager_does_not_have_is_rejected() -> None:
    """As on the level below, and as vLLM's own scheduler asserts."""
    case = SCHEDULER.draw(load("gemma-hybrid+retention"), "tiny", "1")
    with pytest.raises(ValueError, match="retention"):
        Engine(case.settings, Stage())
    with pytest.raises(UsageError, match="mode align"):
        Engine(SCHEDULER.draw(load("mamba-align"), "tiny", "0").settings, Stage(connector=True))


SETTINGS = Settings(
    Geometry((Group("full", 16), Group("sliding_window", 16, 32))), blocks=14, tokens_max=160, chunk_tokens=64
)
PROMPTS = (Submit(Arrive(0, (Run(0, 40),)), 30), Submit(Arrive(1, (Run(1000, 50),)), 30))
STEPS: tuple[Operation, ...] = (*PROMPTS, *(Step((Reply(token=5000 + step),)) for step in range(40)))


def broken(monkeypatch: pytest.MonkeyPatch, name: str, replacement: Callable[..., Any], settings: Settings) -> Any:
    """An engine whose scheduler has one method replaced."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = getattr(Scheduler, name)
    monkeypatch.setattr(Scheduler, name, lambda *arguments, **more: replacement(original, *arguments, **more))
    return Engine(settings, Stage(8))


def test_as_it_is_nothing_is_found() -> None:
    """The run that the breaks are tried on: two requests that need more blocks than are free, and preempt
    each other.
    """
    engine = Engine(SETTINGS, Stage(8))
    assert [] == undeclared(engine, STEPS)
    assert "Preempt" in {type(operation).__name__ for operation in engine.lockstep.performed}


def counts_one_too_many(original: Any, scheduler: Any, output: Any) -> None:
    """After each step, one token more counts as computed than was."""
    original(scheduler, output)
    for name in output.num_scheduled_tokens:
        scheduler.requests[name].num_computed_tokens += 1


def ends_without_freeing(_original: Any, scheduler: Any, request: Any) -> None:
    """A finished request keeps its blocks."""
    del scheduler.requests[request.request_id]


def preempts_without_freeing(original: Any, scheduler: Any, request: Any, timestamp: float) -> None:
    """A preempted request keeps its blocks."""
    free = scheduler.kv_cache_manager.free
    scheduler.kv_cache_manager.free = lambda _request: None
    original(scheduler, request, timestamp)
    scheduler.kv_cache_manager.free = free


def frees_twice(original: Any, scheduler: Any, request: Any, timestamp: float) -> None:
    """The block manager preempts a preempted request again."""
    original(scheduler, request, timestamp)
    scheduler.kv_cache_manager.free(request)


BROKEN: dict[str, tuple[str, Callable[..., Any], str]] = {
    "counts one too many": ("_update_after_schedule", counts_one_too_many, "KV-SYS-02"),
    "ends without freeing": ("_free_blocks", ends_without_freeing, "KV-SYS-05"),
    "preempts without freeing": ("_preempt_request", preempts_without_freeing, "KV-SYS-03"),
    "frees twice": ("_preempt_request", frees_twice, "KV-SYS-02"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", BROKEN)
def test_broken_it_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thing at a time, each named by what it violates."""
    method, replacement, statement = BROKEN[name]
    found = run(broken(monkeypatch, method, replacement, SETTINGS), STEPS)
    assert statement in {each.difference.statement for each in found}


def test_drafts_that_were_rejected_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that keeps them is found."""
    geometry = Geometry((Group("full", 16, lookahead=True),))
    settings = Settings(geometry, blocks=40, tokens_max=160, chunk_tokens=64, drafts_max=2)
    steps: tuple[Operation, ...] = (
        PROMPTS[0],
        *(Step((Reply(accepted=step % 2, token=5000 + 10 * step, drafts=2),)) for step in range(8)),
    )
    assert [] == undeclared(Engine(settings, Stage(8)), steps)
    found = run(broken(monkeypatch, "update_from_output", keeps_rejected, settings), steps)
    assert {"KV-SYS-02"} == {each.difference.statement for each in found}


def test_a_gate_that_never_opens_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the second step by a monitor that has no clock, and reported with the waiting requests and the free
    blocks.
    """
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    monkeypatch.setattr(KVCacheManager, "can_fit_full_sequence", lambda *_all, **_more: False)
    engine = Engine(SETTINGS, Stage(8), with_reference=False)
    (found,) = run(engine, STEPS)
    assert ("progress", "KV-LIVE-03", 2) == (found.detector, found.difference.statement, engine.steps)
    expected = "13 blocks are free; request 0 waits (waiting), 0 of 40 tokens computed, holds 0 blocks; request 1 waits"
    assert found.difference.got.startswith(expected)


def test_a_request_that_can_never_fit_is_a_hang() -> None:
    """vLLM 0.20.2 accepts it, and then serves no request after it (vllm-project/vllm#35541)."""
    steps: tuple[Operation, ...] = (
        Submit(Arrive(0, (Run(0, 150),)), 5),
        Submit(Arrive(1, (Run(1000, 10),)), 5),
        Step(),
        Step(),
        Step(),
    )
    settings = Settings(Geometry((Group("full", 16),)), blocks=5, tokens_max=160, chunk_tokens=64)
    (found,) = run(Engine(settings, Stage(8)), steps)
    assert ("progress", "KV-LIVE-03") == (found.detector, found.difference.statement)
    assert "4 blocks are free; request 0 waits (waiting), 0 of 150 tokens computed" in found.difference.got


def test_an_abort_lets_others_on() -> None:
    """What it held up makes progress again: a hang that is over is not reported."""
    settings = Settings(Geometry((Group("full", 16),)), blocks=5, tokens_max=160, chunk_tokens=64)
    steps: tuple[Operation, ...] = (
        Submit(Arrive(0, (Run(0, 150),)), 5),
        Submit(Arrive(1, (Run(1000, 10),)), 2),
        Step(),
        Abort(0),
    )
    engine = Engine(settings, Stage(8))
    assert [] == undeclared(engine, (*steps, *(Step((Reply(token=7),)) for _ in range(4))))
    assert {} == engine.scheduler.requests


def masks_chunks(_scheduler: Any, output: Any) -> Any:
    """Masks the tokens of every request, of those that are not answered in this step too."""
    from vllm.v1.core.sched.output import GrammarOutput

    mask: Any = None
    return GrammarOutput([*output.num_scheduled_tokens], mask)


@pytest.mark.parametrize("chunk_tokens", [64, 24])
def test_a_request_with_a_grammar_is_masked(monkeypatch: pytest.MonkeyPatch, chunk_tokens: int) -> None:
    """Goal: a grammar masks the request that is answered. Method: a prompt in one step, and in chunks."""
    settings = full(9, chunk_tokens=chunk_tokens)
    asked: list[Operation] = [serve(1, 40, structured=True), GrammarReady(1)]
    assert found(settings, Stage(), [*asked, *steps(6)]) is None
    monkeypatch.setattr("vllm.v1.core.sched.scheduler.Scheduler.get_grammar_bitmask", masks_chunks)
    expected = None if chunk_tokens == 64 else ("batch", "KV-SYS-03")
    assert expected == found(settings, Stage(), [*asked, *steps(6)])


def test_a_request_without_a_slot_is_set_aside_where_states_are_kept_too() -> None:
    """Goal: no false alarm of the statistics. Method: two adapters, one slot, chunks that end at blocks of states."""
    settings = Settings(load("mamba-align").geometry, blocks=7, tokens_max=2, chunk_tokens=48)
    serves = [Serve(Arrive(each, (Run(each, 1),), Keys(lora=f"adapter-{each}"))) for each in range(2)]
    assert found(settings, Stage(running_max=2, adapters_max=1), [*serves, Step()]) is None


def test_requests_that_end_together_end_by_number() -> None:
    """Goal: the same run in every process. Method: a set of names, one name, and all."""
    ended: list[Any] = []

    class Recorded:
        def finish_requests(self, names: Any, status: str) -> list[Any]:
            ended.append((names, status))
            return [names]

    scheduler: Any = Recorded()
    ends_by_number(scheduler)
    numbers = (2, 10, 1)
    assert [name_of(number) for number in sorted(numbers)] == scheduler.finish_requests({*map(name_of, numbers)}, "x")
    scheduler.finish_requests(name_of(7), "y")
    scheduler.finish_requests(None, "z")
    assert [*((name_of(number), "x") for number in sorted(numbers)), (name_of(7), "y"), (None, "z")] == ended


def test_a_model_that_drafts_may_have_as_many_requests_as_tokens_in_a_step() -> None:
    """vLLM would leave out a token for each request, and reject a step that has none left."""
    settings = full(40, tokens_max=64, chunk_tokens=4, drafts_max=2, draft_model=True)
    engine = Engine(settings, Stage(running_max=4))
    assert [] == undeclared(engine, (serve(0, 8), *steps(6)))
