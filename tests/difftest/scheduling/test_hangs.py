"""Hangs of vLLM 0.20.2's scheduler as published, and of schedulers broken as others were.

Goal: a hang is reported a step or two after it began, by a monitor that has no clock, with its wait graph. Method: the
shortest runs into the reported hangs; and for those that 0.20.2 does not have, the same mistake.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from kvgate.findings import explain_engine
from kvgate.findings.register import FOLDER, all_findings
from kvgate.kernel.difference import Difference, Divergence
from kvgate.levels.registry import read
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import GrammarReady, Lost, Operation, PauseEngine, Stage
from kvgate.levels.scheduler.queue_order_monitor import Line
from kvgate.levels.scheduler.statistics_check import StatisticsCheck
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run, Transferred
from kvreference.population import Request, Status
from kvreference.settings import Settings

from .stage import full, run, serve, steps, undeclared

CONNECTED = Stage(connector=True)
DRAFTING = Settings(
    Geometry((Group("full", 16, lookahead=True),)), blocks=8, tokens_max=256, chunk_tokens=128, drafts_max=1
)
ALIGNED = Settings(
    Geometry((Group("full", 16), Group("mamba", 16, states="align"))), blocks=40, tokens_max=200, chunk_tokens=64
)
LOADED = {"external_tokens": 368, "loads": True}

Hang = tuple[Settings, Stage, tuple[Operation, ...], tuple[int, ...], tuple[int, ...]]
NO_ROOM, NOT_ASKED = "023-parked-loads-leave-no-room", "024-refused-before-whoever-loaded"
DECLARED = {
    "loads that leave no room": NO_ROOM,
    "loads that leave no look-ahead slot": NO_ROOM,
    "a load that fits after one that does not": NOT_ASKED,
    "a load after one that waits for more": NOT_ASKED,
}
HANGS: dict[str, Hang] = {
    # vllm-project/vllm#35541: never is not distinguished from not now.
    "a request that can never fit": (full(9), Stage(), (serve(0, 200), serve(1, 20), *steps(5)), (0, 1), ()),
    # vllm-project/vllm#45388: what is left to compute after a load is not reserved.
    "loads that leave no room": (
        full(65, full_sequence_must_fit=False),
        CONNECTED,
        (serve(0, 800, **LOADED), serve(1, 700, **LOADED), *steps(1), Transferred(0), Transferred(1), *steps(5)),
        (0, 1),
        (0, 1),
    ),
    # The same report, with the gate: the second would fit, and is never asked.
    "a load that fits after one that does not": (
        full(65),
        CONNECTED,
        (serve(0, 800, **LOADED), serve(1, 592, **LOADED), *steps(1), Transferred(0), Transferred(1), *steps(5)),
        (0, 1),
        (0, 1),
    ),
    # vllm-project/vllm#57841: one rejected request ends the search for those that have loaded.
    "a load after one that waits for more": (
        full(9, tokens_max=128, chunk_tokens=128),
        CONNECTED,
        (
            serve(0, 80, 1, undecided=1),
            serve(1, 64, 1, external_tokens=64, loads=True),
            *steps(1),
            Transferred(1),
            *steps(5),
        ),
        (0, 1),
        (0, 1),
    ),
    # vllm-project/vllm#57104: the look-ahead slot is asked for after the load.
    "loads that leave no look-ahead slot": (
        DRAFTING,
        CONNECTED,
        (
            serve(0, 64, external_tokens=64, loads=True),
            serve(1, 48, external_tokens=48, loads=True),
            *steps(1),
            Transferred(0),
            Transferred(1),
            *steps(5),
        ),
        (0, 1),
        (0, 1),
    ),
    # vllm-project/vllm#40707: a chunk that may not reach a block's end is rounded down to nothing.
    "chunks shorter than a block of states": (
        ALIGNED,
        Stage(long_prefill_tokens=10),
        (serve(0, 150), *steps(5)),
        (0,),
        (),
    ),
    "a transfer that never ends": (
        full(65),
        CONNECTED,
        (serve(0, 800, **LOADED), *steps(1), Lost(0), *steps(5)),
        (0,),
        (),
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", HANGS)
@pytest.mark.parametrize("with_reference", [True, False])
def test_a_hang_of_published_code_is_reported(name: str, with_reference: bool) -> None:
    """Within three steps of the last progress, with the stuck requests and their cycle."""
    settings, stage, operations, stuck, circle = HANGS[name]
    engine = Engine(settings, stage, with_reference=with_reference)
    known = DECLARED.get(name)
    engine.lockstep.known.findings = tuple(each for each in engine.lockstep.known.findings if each.id != known)
    (found,) = run(engine, operations)
    assert ("progress", "KV-LIVE-03") == (found.detector, found.difference.statement)
    waiting = engine.progress.waiting
    assert waiting is not None
    assert (stuck, circle, waiting.describe()) == (waiting.stuck(), waiting.circle(), found.difference.got)
    assert engine.steps <= 4
    assert explain_engine(found, engine) is None


@pytest.mark.few(2)
@pytest.mark.parametrize("name", DECLARED)
def test_a_known_hang_is_counted_and_the_run_continues(name: str) -> None:
    """All operations are performed, the requests are aborted, and nothing remains."""
    settings, stage, operations, _, _ = HANGS[name]
    engine = Engine(settings, stage)
    assert [] == [each for each in run(engine, operations) if explain_engine(each, engine) is None]
    assert engine.lockstep.known.times[DECLARED[name]] >= 1
    assert "KV-LIVE-03" == engine.lockstep.known.first[DECLARED[name]].statement
    assert engine.steps > 4


@pytest.mark.few(3)
@pytest.mark.parametrize("name", HANGS)
def test_without_the_hanging_request_it_continues(name: str) -> None:
    """The monitor reports only the hang: the first request is aborted, and the others are served."""
    settings, stage, operations, _, _ = HANGS[name]
    engine = Engine(settings, stage)
    others = [each for each in operations if not isinstance(each, Lost)]
    last = next(index for index, each in enumerate(others) if each == steps(1)[0])
    assert [] == undeclared(engine, (*others[: last + 1], Abort(0), *others[last + 1 :]))


def test_a_load_whose_end_is_lost_is_neither_023_nor_024(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 023 and 024 excuse no scheduler that forgets a load. Method: a run of 024 without its record."""
    from vllm.v1.core.sched.scheduler import Scheduler

    settings, stage, operations, _, _ = HANGS["a load after one that waits for more"]
    original = Scheduler._update_from_kv_xfer_finished

    def forgets(scheduler: Any, output: Any) -> None:
        original(scheduler, output)
        scheduler.finished_recving_kv_req_ids.clear()

    monkeypatch.setattr(Scheduler, "_update_from_kv_xfer_finished", forgets)
    engine = Engine(settings, stage)
    (found,) = undeclared(engine, operations)
    assert ("KV-LIVE-03", None) == (found.difference.statement, explain_engine(found, engine))


def test_the_wait_graph_is_data() -> None:
    """Each edge of a graph: which request, why, for which request, and how many blocks that one holds."""
    settings, stage, operations, _, _ = HANGS["loads that leave no room"]
    engine = Engine(settings, stage)
    engine.lockstep.known.findings = ()
    run(engine, operations)
    assert engine.progress.waiting is not None
    edges = [(each.request, each.reason, each.holder, each.blocks) for each in engine.progress.waiting.edges]
    assert [(0, Reason.BLOCKS, 1, 23), (1, Reason.LINE, 0, 0)] == edges


def test_a_request_that_waits_in_a_pause_is_not_stuck() -> None:
    """Goal: a pause is not part of a hang, since it ends. Method: the trace of 035, and a request during a pause."""
    (path,) = FOLDER.glob("f035*/trace.jsonl")
    case = read(path).case
    submitted, first, *others = case.operations
    engine = Engine(evolve(case.settings, requests_max=2), evolve(case.stage, running_max=2))
    operations = (submitted, first, PauseEngine(steps=3), serve(9, 1), *others, *steps(1))
    assert [] == [each for each in run(engine, operations) if explain_engine(each, engine) is None]
    assert engine.progress.waiting is not None
    assert {Reason.NO_REQUEST, Reason.RESUMED} == {each.reason for each in engine.progress.waiting.edges}
    assert "035-next-item-has-no-room" in engine.lockstep.known.times


# As others were broken


def look_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off other checks, some of which would see this a step before any request waits in vain."""
    monkeypatch.setattr(StatisticsCheck, "check", lambda *_: None)
    monkeypatch.setattr(Line, "end", lambda *_: None)
    monkeypatch.setattr(Line, "observe", lambda *_: None)


def ignores_the_skipped(original: Any, scheduler: Any) -> Any:
    """As in vllm-project/vllm-ascend#10559: the second queue is never scanned again."""
    skipped, scheduler.skipped_waiting = scheduler.skipped_waiting, type(scheduler.skipped_waiting)()
    output = original(scheduler)
    scheduler.skipped_waiting.extend(skipped)
    return output


def counts_waiting_loads(original: Any, scheduler: Any) -> Any:
    """As in vllm-project/vllm#53130: a request that ever waited for remote KV takes a running place permanently."""
    parked = scheduler.__dict__.setdefault("ever_parked", set())
    parked |= {each.request_id for each in scheduler.skipped_waiting}
    places, scheduler.max_num_running_reqs = scheduler.max_num_running_reqs, 4 - min(4, len(parked))
    output = original(scheduler)
    scheduler.max_num_running_reqs = places
    return output


def forgets_the_last_token(original: Any, scheduler: Any, request: Any) -> None:
    """After a load of the whole prompt nothing is left to compute, and so the request is never answered."""
    original(scheduler, request)
    if request.num_computed_tokens == request.num_tokens - 1:
        request.num_computed_tokens += 1


def puts_back(original: Any, scheduler: Any, request: Any) -> bool:
    """A request that has loaded is treated as one that still loads, and put back again and again."""
    del original, scheduler, request
    return False


LOADS_ALL: tuple[Operation, ...] = (serve(0, 64, external_tokens=64, loads=True), *steps(1), Transferred(0), *steps(8))
PARKED = tuple(serve(number, 100, external_tokens=64, loads=True) for number in range(4))
BROKEN: dict[str, tuple[str, Any, Stage, tuple[Operation, ...], set[str]]] = {
    "a queue that is never scanned": (
        "schedule",
        ignores_the_skipped,
        Stage(),
        (serve(0, 40, structured=True), *steps(2), GrammarReady(0), *steps(4)),
        {"KV-LIVE-03"},
    ),
    "a limit that waiting loads use up": (
        "schedule",
        counts_waiting_loads,
        Stage(4, connector=True),
        (*PARKED, *steps(1), *steps(1), *map(Abort, range(4)), serve(4, 32), *steps(6)),
        {"KV-LIVE-03"},
    ),
    "a loaded prompt without a last token": (
        "_update_waiting_for_remote_kv",
        forgets_the_last_token,
        CONNECTED,
        LOADS_ALL,
        {"KV-SYS-01", "KV-SYS-02"},
    ),
    "a load that is over, put back": (
        "_try_promote_blocked_waiting_request",
        puts_back,
        CONNECTED,
        LOADS_ALL,
        {"KV-LIVE-03"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing before it is broken; then it is found, and within seconds."""
    from vllm.v1.core.sched.scheduler import Scheduler

    method, replacement, stage, operations, statements = BROKEN[name]
    assert [] == undeclared(Engine(full(200), stage), operations)
    original = getattr(Scheduler, method)
    monkeypatch.setattr(Scheduler, method, lambda *all_of_them: replacement(original, *all_of_them))
    look_away(monkeypatch)
    found = run(Engine(full(200), stage, with_reference=False), operations)
    assert found[0].difference.statement in statements


def test_a_request_passed_over_permanently_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered in every step, so the engine makes progress; the bound is what all live requests need."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def passes_over_the_first(scheduler: Any) -> Any:
        first = [each for each in scheduler.waiting if each.request_id.endswith("-0")]
        scheduler.waiting.remove_requests(first)
        output = original(scheduler)
        for each in first:
            scheduler.waiting.add_request(each)
        return output

    operations: list[Operation] = [serve(0, 16, answers=1)]
    for number in range(1, 40):
        operations += [serve(number, 16, answers=2), *steps(2)]
    assert [] == undeclared(Engine(full(100), Stage()), operations)
    monkeypatch.setattr(Scheduler, "schedule", passes_over_the_first)
    look_away(monkeypatch)
    (found,) = run(Engine(full(100), Stage(), with_reference=False), operations)
    assert ("progress", "KV-LIVE-02", "request 0") == (
        found.detector,
        found.difference.statement,
        found.difference.subject,
    )
    assert "request 0 waits for no other request" in found.difference.got


@pytest.mark.parametrize("lost", [False, True])
def test_two_that_take_turns_next_to_a_transfer_may_go_on(lost: bool) -> None:
    """Each is preempted for itself, since a third holds blocks for another node: a hang only if that node is gone."""
    one, two = (
        evolve(serve(number, 33, 1), arrival=Arrive(number, (Run(1000 * number, 33),), Keys(lora=f"adapter-{number}")))
        for number in (1, 2)
    )
    stage = Stage(running_max=3, connector=True, adapters_max=1, long_prefill_tokens=32)
    gone = [Lost(0)] if lost else []
    engine = Engine(full(6, full_sequence_must_fit=False), stage)
    found = undeclared(engine, (serve(0, 33, 1, sends=True), one, two, *steps(2), *gone, *steps(8)))
    assert ["KV-LIVE-03"] * lost == [each.difference.statement for each in found]


@pytest.mark.parametrize(
    ("third", "known"),
    [(None, True), (Wait(2, Reason.LINE, 0), True), (Wait(2, Reason.NO_REQUEST), False)],
    ids=["two", "one waits in the queue", "one is passed over"],
)
def test_023_excuses_no_other_request(third: Wait | None, known: bool) -> None:
    """Goal: each of those without progress is held up by what has loaded and waits. Method: ten blocks, of which
    request 1 holds four; request 0 needs seven, and is preempted and runs again; request 2 needs one.
    """
    finding = next(each for each in all_findings() if each.id.startswith("023"))
    tokens = {0: (100, Status.RUNNING), 1: (70, Status.WAITING), 2: (1, Status.WAITING)}
    alive = {
        number: Request(number, [0] * length, Keys(), True, status=status)
        for number, (length, status) in tokens.items()
        if number < 2 or third is not None
    }
    waits = [Wait(1, Reason.BLOCKS, 0, 6), *([] if third is None else [third])]
    population = _Alive(alive)
    engine: Any = SimpleNamespace(
        settings=full(11),
        followed=SimpleNamespace(
            population=population, snapshot=lambda: SimpleNamespace(tables={1: [[1, 2, 3, 4]]}, blocks_free=0)
        ),
        nodes=SimpleNamespace(under_way=list),
        progress=SimpleNamespace(waiting=WaitFor(tuple(waits))),
    )
    assert finding.explains_engine is not None
    hang = Divergence(0, None, "progress", Difference("KV-LIVE-03", "progress", "some", "none"))
    assert known is finding.explains_engine(hang, engine)


class _Alive(dict[int, Request]):
    """Requests by number, all of them alive."""

    @property
    def alive(self) -> _Alive:
        return self
