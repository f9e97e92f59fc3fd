"""Sessions under a scheduler: requests of which the client sends the prompt in parts.

Goal: a part that is lost, mixed up, or answered wrongly is seen, and so is a session that never ends. Method: runs of
vLLM's own scheduler by hand, and the scheduler broken, one thing at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.findings.register import FOLDER, all_findings
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvgate.levels.registry import read
from kvgate.levels.scheduler.adapter.arrivals import arguments_of, request_of
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.adapter.worker import answer
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Close, Operation, Serve, Stage, describe_engine
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Continue, Run
from kvreference.population import Request, Status
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

from .stage import full, serve, steps, undeclared

ENDS = Step((Reply(ends=True),))
PARTS: tuple[Operation, ...] = (
    serve(0, 40, 4, resumable=True),
    ENDS,
    Continue(0, (Run(1000, 20),)),
    *steps(1),
    # Two come early: they wait for the part before them, in order.
    Continue(0, (Run(2000, 20),)),
    Continue(0, (Run(3000, 20),)),
    *steps(1),
    ENDS,
    ENDS,
    Close(0),
    ENDS,
    serve(1, 20, 4),
    *steps(6),
)


def engine() -> Engine:
    return Engine(full(20), Stage(4))


def perform(world: Engine, *operations: Operation) -> None:
    """Perform operations, in which nothing is found."""
    for operation in operations:
        assert world.perform(operation) is None


def test_parts_are_answered_one_after_the_other() -> None:
    """Nothing is found; the parts follow what was computed of each other."""
    world = engine()
    perform(world, *PARTS[:7])
    session = world.followed.population[0]
    assert (2, 2) == (session.parts, len(world.sessions.open[0].waiting))
    assert [*range(40), *range(1000, 1020)] == session.tokens[:60]
    assert [] == undeclared(engine(), PARTS)


def test_a_closed_session_ends() -> None:
    """At once if it waits for its client, else with the parts that have come."""
    idle = engine()
    perform(idle, serve(0, 8, 1, resumable=True), *steps(1), Close(0))
    assert {} == idle.followed.population.alive
    busy = engine()
    perform(busy, serve(0, 8, 2, resumable=True), *steps(1), Close(0), Continue(0, (Run(1000, 1),)))
    assert busy.followed.population[0].status is Status.RUNNING
    busy.perform(ENDS)
    assert {} == busy.followed.population.alive


@pytest.mark.parametrize("length", [900, 400])
def test_a_part_that_never_fits_is_left_out(length: int) -> None:
    """It is longer than a request may become, or than the pool holds."""
    world = engine()
    perform(world, serve(0, 8, 1, resumable=True), *steps(1), Continue(0, (Run(1000, length),)))
    assert world.followed.population[0].status is Status.PAUSED


def test_in_words() -> None:
    """The description says that a request is the first part of a session."""
    assert "it is the first part of a session" in describe_engine(serve(0, 1, resumable=True))


def test_sessions_are_drawn() -> None:
    """In some cases of a model; and none where steps are asynchronous or states are kept."""
    cases = [SCHEDULER.draw(load("full"), "hostile", str(seed)) for seed in range(30)]
    with_sessions = [case for case in cases if any(getattr(each, "resumable", False) for each in case.operations)]
    assert len(with_sessions) >= 3
    assert not any(case.stage.asynchronous for case in with_sessions)
    states = SCHEDULER.draw(load("mamba-align"), "hostile", "0", needs=("sessions",))
    assert not any(isinstance(each, Serve) and each.resumable for each in states.operations)


# Asynchronous steps (069)


AHEAD: tuple[Operation, ...] = (serve(0, 1, 2, resumable=True), ENDS, *steps(3))


def test_an_answer_after_the_end_of_a_part_is_found() -> None:
    """By the comparison of the counts; and without the reference, when the client is sent it."""
    for with_reference, seen in ((True, ("scheduler", "KV-SYS-02")), (False, ("clients", "KV-SYS-05"))):
        divergences = undeclared(Engine(full(9), Stage(1, asynchronous=True), with_reference=with_reference), AHEAD)
        assert seen == (divergences[0].detector, divergences[0].difference.statement)


@pytest.mark.parametrize("with_reference", [True, False])
def test_a_scheduler_that_drops_what_follows_a_part_is_followed(
    with_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: vLLM's, corrected for one session; a further part comes when the dropped step is over."""
    from vllm.v1.core.sched.scheduler import Scheduler

    ends, takes = Scheduler._handle_stopped_request, Scheduler.update_from_output

    def takes_back(scheduler: Any, request: Any) -> bool:
        request.num_computed_tokens -= request.num_output_placeholders
        request.num_output_placeholders = 0
        return ends(scheduler, request)

    def drops(scheduler: Any, output: Any, answers: Any) -> Any:
        paused = [each for each in scheduler.requests.values() if each.status.name == "WAITING_FOR_STREAMING_REQ"]
        names = {each.request_id for each in paused}
        kept = {name: tokens for name, tokens in output.num_scheduled_tokens.items() if name not in names}
        output.num_scheduled_tokens = kept
        return takes(scheduler, output, answers)

    monkeypatch.setattr(Scheduler, "_handle_stopped_request", takes_back)
    monkeypatch.setattr(Scheduler, "update_from_output", drops)
    world = Engine(full(9), Stage(1, asynchronous=True), with_reference=with_reference)
    assert [] == undeclared(world, (*AHEAD, Continue(0, (Run(1000, 20),)), *steps(4)))
    assert world.sessions.parts == 1


# Faults are seen


def keeps_the_last_answer(original: Any, scheduler: Any, session: Any, update: Any) -> None:
    """The last answer stays before the next part."""
    last = session._all_token_ids[session.num_computed_tokens :]
    update.prompt_token_ids = [*last, *update.prompt_token_ids]
    original(scheduler, session, update)


def drops_the_part(original: Any, scheduler: Any, session: Any, update: Any) -> None:
    """Of a part, only the first token counts."""
    update.prompt_token_ids = update.prompt_token_ids[:1]
    original(scheduler, session, update)


def latest_first(original: Any, scheduler: Any, request: Any) -> bool:
    """Of several parts the latest is next."""
    if request.streaming_queue:
        request.streaming_queue.rotate(1)
    answer: bool = original(scheduler, request)
    return answer


def never_ends(_original: Any, scheduler: Any, request: Any) -> bool:
    """A session waits for its client although that has closed it."""
    from vllm.v1.request import RequestStatus

    if not request.resumable:
        return True
    request.status = RequestStatus.WAITING_FOR_STREAMING_REQ
    scheduler.num_waiting_for_streaming_input += 1
    scheduler._enqueue_waiting_request(request)
    return False


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "the last answer stays": ("_update_request_as_session", keeps_the_last_answer),
    "a part is cut": ("_update_request_as_session", drops_the_part),
    "the latest part first": ("_handle_stopped_request", latest_first),
    "never ends": ("_handle_stopped_request", never_ends),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run by hand in which nothing is found of published code."""
    from vllm.v1.core.sched.scheduler import Scheduler

    method, replacement = BROKEN[name]
    original = getattr(Scheduler, method)
    monkeypatch.setattr(Scheduler, method, lambda *arguments: replacement(original, *arguments))
    assert undeclared(engine(), (*PARTS, Abort(1)))


@pytest.mark.parametrize(
    ("first", "second", "session", "reason", "known"),
    [
        (100, 100, Status.WAITING, Reason.BLOCKS, True),
        (96, 100, Status.WAITING, Reason.BLOCKS, False),
        (100, 96, Status.WAITING, Reason.BLOCKS, True),
        (100, 161, Status.WAITING, Reason.BLOCKS, False),
        (100, 100, Status.PAUSED, Reason.BLOCKS, False),
        (100, 100, Status.WAITING, Reason.NO_REQUEST, False),
    ],
    ids=[
        "neither can end",
        "the older can",
        "the younger can",
        "one never could",
        "the session waits for its client",
        "one is passed over",
    ],
)
def test_043_is_of_requests_that_sessions_leave_no_room(
    first: int, second: int, session: Status, reason: Reason, known: bool
) -> None:
    """Goal: another hang next to a session is not excused. Method: ten blocks, of which a waiting session holds four;
    two requests run, and 96 tokens fit into the other six.
    """
    finding = next(each for each in all_findings() if each.id.startswith("043"))
    runs = {
        number: Request(number, [0] * tokens, Keys(), True, status=Status.RUNNING)
        for number, tokens in enumerate((first, second))
    }
    population = SimpleNamespace(alive={**runs, 2: Request(2, [0] * 70, Keys(), True, status=session)})
    engine: Any = SimpleNamespace(
        settings=Settings(Geometry((Group("full", 16),)), blocks=11, tokens_max=256, chunk_tokens=256),
        followed=SimpleNamespace(
            population=population, snapshot=lambda: SimpleNamespace(tables={2: [[1, 2, 3, 4]]}, blocks_free=0)
        ),
        sessions=SimpleNamespace(open={2: None}),
        nodes=SimpleNamespace(under_way=list),
        progress=SimpleNamespace(waiting=WaitFor((Wait(0, reason),), 0, ())),
    )
    assert finding.explains_engine is not None
    hang = Divergence(0, None, "progress", Difference("KV-LIVE-03", "progress", "some", "none"))
    assert known is finding.explains_engine(hang, engine)


def test_what_054_caches_is_hit() -> None:
    """Goal: finding 054 serves a wrong state. Method: vLLM's scheduler alone, and a request with the session's prefix.

    It is known as the state after 16 tokens; the steps that wrote it ended after 1 token and after 32.
    """
    case = read(FOLDER / "f054_part_inside_a_state_block" / "trace.jsonl").case
    subject = SUBJECTS["stock"]
    subject.install()
    with subject.while_built(case.settings):
        scheduler = subject.build(case.settings, case.stage)

    def stepped(arrival: Arrive, **given: object) -> Any:
        submit = Serve(arrival, resumable=arrival.request == 0)
        scheduler.add_request(request_of({**arguments_of(case.settings, submit), **given}))
        output = scheduler.schedule()
        names = tuple(output.num_scheduled_tokens)
        scheduler.update_from_output(output, answer(names, {arrival.request: [500]}, None, None, set()))
        return output

    begun = stepped(Arrive(0, (Run(0, 1),)))
    assert [1] == list(begun.num_scheduled_tokens.values())
    past_the_end = stepped(Arrive(0, (Run(1, 31),)), block_hasher=None)
    assert [31] == list(past_the_end.num_scheduled_tokens.values())
    (hit,) = stepped(Arrive(1, (Run(0, 17),))).scheduled_new_reqs
    assert 16 == hit.num_computed_tokens
