"""The encoder and its cache under a scheduler.

Goal: an item that is computed late, twice, or beyond the limits, or is evicted while it is needed, is seen. Method:
generated runs of vLLM's own scheduler on requests with items, and its cache broken, one thing at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from vllm.v1.core.sched.scheduler import Scheduler

from kvgate.findings.register import FOLDER, all_findings
from kvgate.gate.case_runner import run_case
from kvgate.gate.level import Case
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvgate.levels.registry import read
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.encoder import EncoderCheck, Kept
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Serve, Stage
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvreference.answers import Done
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.population import Population, Request, Status
from kvreference.scheduler.operations import Step
from kvreference.settings import Settings

from .stage import found

CASES = 160
CACHE, ENGINE = "vllm.v1.core.encoder_cache_manager:EncoderCacheManager", "vllm.v1.core.sched.scheduler:Scheduler"


def cases() -> list[Case]:
    """Runs with an encoder."""
    drawn = (SCHEDULER.draw(load("full"), "hostile", str(seed)) for seed in range(CASES))
    return [case for case in drawn if case.stage.encoder_budget is not None and not case.stage.asynchronous]


def found_by(all_cases: list[Case]) -> set[str]:
    """The detector that finds an undeclared difference."""
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    runs = (run_case(bench, case).found() for case in all_cases)
    return {each.divergence.detector for found in runs for each in found if each.finding is None}


def forgets_the_user(original: Any, cache: Any, request: Any, place: int) -> bool:
    """A cached item is used without recording its user."""
    users = {item: set(each) for item, each in cache.cached.items()}
    answer: bool = original(cache, request, place)
    cache.cached.update(users)
    return answer


def one_item_more(original: Any, cache: Any, request: Any, place: int, budget: int, before: int) -> bool:
    """The budget is that of a whole step for every item."""
    del budget
    answer: bool = original(cache, request, place, 1 << 30, before)
    return answer


def latest_goes(original: Any, cache: Any, request: Any, place: int, budget: int, before: int) -> bool:
    """The item released last is evicted first."""
    cache.freeable = type(cache.freeable)(reversed(cache.freeable.items()))
    answer: bool = original(cache, request, place, budget, before)
    return answer


def tells_again(original: Any, cache: Any) -> list[str]:
    """What was sent is sent twice."""
    freed: list[str] = original(cache)
    cache.freed = list(freed)
    return freed


def never_frees(_original: Any, _scheduler: Any, _request: Any) -> None:
    """A passed item is kept for the request that passed it."""


def frees_all(_original: Any, scheduler: Any, request: Any) -> None:
    """All items of a request are evicted."""
    scheduler.encoder_cache_manager.free(request)


BROKEN: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "users are forgotten": (CACHE, "check_and_update_cache", forgets_the_user),
    "no budget": (CACHE, "can_allocate", one_item_more),
    "the latest goes": (CACHE, "can_allocate", latest_goes),
    "sent again": (CACHE, "get_freed_mm_hashes", tells_again),
    "never freed": (ENGINE, "_free_encoder_inputs", never_frees),
    "freed too early": (ENGINE, "_free_encoder_inputs", frees_all),
}


@pytest.mark.ci
def test_nothing_is_found_of_published_code() -> None:
    """The control, with items of all kinds."""
    assert len(cases()) >= 5
    assert set() == found_by(cases())


@pytest.mark.ci
@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the encoder check, or by the scheduler's own assertions."""
    import importlib

    place, method, replacement = BROKEN[name]
    module, _, owner = place.partition(":")
    kind = getattr(importlib.import_module(module), owner)
    original = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda *arguments: replacement(original, *arguments))
    assert found_by(cases())


def test_without_drafts_a_draft_layer_reads_no_further() -> None:
    """Goal: no false alarm about the tokens of a step. Method: an item at the end of a prompt has no room."""
    media = (Media("a", 2, 1), Media("b", 4, 32), Media("c", 36, 1))
    serve = Serve(Arrive(0, (Run(0, 37),), Keys(media=media)))
    stage = Stage(encoder_budget=33, encoder_cache=33)
    geometry = Geometry((Group("full", 16, lookahead=True),))
    assert found(Settings(geometry, blocks=12, tokens_max=64, chunk_tokens=64), stage, [serve, Step()]) is None


def test_an_item_lost_by_another_cause_is_not_finding_048(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 048 excuses what it says alone. Method: its own run; and one in which steps forget every item."""
    (path,) = FOLDER.glob("f048*/trace.jsonl")
    case = read(path).case
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    assert ["048-item-of-a-victim-counts-as-computed"] == [each.finding for each in run_case(bench, case).found()]

    def forgets(scheduler: Scheduler, *arguments: Any) -> Any:
        output = schedule(scheduler, *arguments)
        output.scheduled_encoder_inputs.clear()
        return output

    schedule = Scheduler.schedule
    monkeypatch.setattr(Scheduler, "schedule", forgets)
    first, *later = case.operations
    early = evolve(first, arrival=evolve(first.arrival, keys=Keys(media=(Media("image-4-0", 2, 4),))))
    found = run_case(bench, evolve(case, operations=(early, *later))).found()
    assert [("encoder", None)] == [(each.divergence.detector, each.finding) for each in found]


def test_an_item_of_a_draft_layer_lost_by_another_cause_is_not_finding_049(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 049 excuses what it says alone. Method: its own run; a step that does not say which items it computes, and
    the model itself reads one; and one that does not look for what the draft layer alone reads, without room for it.
    """
    (path,) = FOLDER.glob("f049*/trace.jsonl")
    case = read(path).case
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    known, new = [("encoder", "049-next-item-of-a-draft-layer")], [("encoder", None)]

    def seen(case: Case) -> list[tuple[str, str | None]]:
        run = run_case(bench, case)
        return [(each.divergence.detector, each.finding) for each in (*run.known(), *run.found())]

    assert known == seen(case)
    schedule, looks = Scheduler.schedule, Scheduler._try_schedule_encoder_inputs
    serve, step = case.operations
    inside = evolve(serve, arrival=evolve(serve.arrival, keys=Keys(media=(Media("image-0-0", 31, 4),))))

    def forgets(scheduler: Scheduler, *arguments: Any) -> Any:
        output = schedule(scheduler, *arguments)
        output.scheduled_encoder_inputs.clear()
        return output

    with monkeypatch.context() as broken:
        broken.setattr(Scheduler, "schedule", forgets)
        assert new == seen(evolve(case, operations=(inside, step)))
    with monkeypatch.context() as broken:
        # In the same step, something else that the check of the encoder sees.
        broken.setattr(Scheduler, "_free_encoder_inputs", lambda *_: None)
        passed = (Media("image-1-0", 2, 4), Media("image-0-0", 32, 4))
        both = evolve(serve, arrival=evolve(serve.arrival, keys=Keys(media=passed)))
        assert {*known, *new} == {*seen(evolve(case, operations=(both, step)))}
    two = evolve(serve, arrival=evolve(serve.arrival, keys=Keys(media=(Media("a", 0, 30), Media("b", 32, 4)))))
    full = evolve(case, operations=(two, step))
    assert [] == seen(full)
    monkeypatch.setattr(Scheduler, "_try_schedule_encoder_inputs", lambda *given, shift_computed_tokens: looks(*given))
    assert new == seen(full)


def test_an_item_that_a_failed_load_sets_back_to_has_no_room() -> None:
    """Goal: 050 is what it says. Method: its own run; one whose load succeeds; one whose cache has room for both items;
    and one in which the failed load is set back to the second item.
    """
    (path,) = FOLDER.glob("f050*/trace.jsonl")
    case = read(path).case
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    serve, *steps = case.operations
    loaded = evolve(serve, fails_from_block=None)
    later = evolve(serve, external_tokens=48, fails_from_block=2)
    runs = {
        "its own": case,
        "loaded": evolve(case, operations=(loaded, *steps)),
        "room": evolve(case, stage=evolve(case.stage, encoder_cache=64)),
        "later": evolve(case, operations=(later, *steps)),
    }
    seen = {name: run_case(bench, run) for name, run in runs.items()}
    hangs = {name: [each.divergence.difference.statement for each in run.known()] for name, run in seen.items()}
    assert {"its own"} == {name for name, statements in hangs.items() if "KV-LIVE-03" in statements}
    assert not any(each.finding is None for run in seen.values() for each in run.found())


@pytest.mark.parametrize(("length", "known"), [(32, True), (33, False)])
def test_050_excuses_no_other_request_without_room(length: int, known: bool) -> None:
    """Goal: all that run would have room. Method: of two that run, one waits for an item as large, or larger."""
    finding = next(each for each in all_findings() if each.id.startswith("050"))
    items = {0: (Media("a", 0, 32), Media("b", 32, 32)), 1: (Media("c", 0, length),)}
    requests = {
        number: Request(
            number, [0] * 65, Keys(media=media), True, status=Status.RUNNING, tokens_computed=16 - 16 * number
        )
        for number, media in items.items()
    }
    kept = Kept(32)
    kept.keep(0, items[0][1])
    encoder = SimpleNamespace(kept=kept, cut={0: 0, 1: 0}, anew={0})
    engine: Any = SimpleNamespace(followed=SimpleNamespace(population=SimpleNamespace(alive=requests)), encoder=encoder)
    hang = Divergence(0, None, "progress", Difference("KV-LIVE-03", "progress", "some", "none"))
    assert finding.explains_engine is not None
    assert known is finding.explains_engine(hang, engine)


@pytest.mark.parametrize(
    ("statement", "length", "third", "known"),
    [
        ("KV-LIVE-03", 2, None, True),
        ("KV-LIVE-03", 3, None, False),
        ("KV-LIVE-03", 2, Reason.NO_REQUEST, False),
        ("KV-LIVE-03", 2, Reason.BLOCKS, True),
        ("KV-LIVE-02", 2, None, False),
    ],
    ids=["would have room", "would have none", "one is passed over", "one waits for blocks", "it is another one"],
)
def test_035_excuses_no_other_request(statement: str, length: int, third: Reason | None, known: bool) -> None:
    """Goal: each of those without progress waits for the next item. Method: next to a request at such a border, one
    whose item would have room without what that request keeps, or not, and one that waits.
    """
    finding = next(each for each in all_findings() if each.id.startswith("035"))
    items = {0: (Media("a", 0, 32), Media("b", 32, 1)), 1: (Media("c", 16, length),), 2: ()}
    at = {0: (Status.RUNNING, 31), 1: (Status.RUNNING, 15), 2: (Status.WAITING, 0)}
    requests = {
        number: Request(number, [0] * 65, Keys(media=media), True, status=at[number][0], tokens_computed=at[number][1])
        for number, media in items.items()
    }
    if third is None:
        del requests[2]
    kept = Kept(32)
    kept.keep(0, items[0][0])
    kept.keep(9, Media("kept by another", 0, 30))
    waits = [Wait(0, Reason.NO_REQUEST), Wait(1, Reason.NO_REQUEST)]
    waits += [] if third is None else [Wait(2, third, 0 if third is Reason.BLOCKS else None)]
    engine: Any = SimpleNamespace(
        followed=SimpleNamespace(population=_Alive(requests)),
        encoder=SimpleNamespace(kept=kept, cut={0: 32, 1: 16}, shift=1),
        progress=SimpleNamespace(waiting=WaitFor(tuple(waits))),
    )
    subject = "request 1" if statement == "KV-LIVE-02" else "progress"
    hang = Divergence(0, None, "progress", Difference(statement, subject, "some", "none"))
    assert finding.explains_engine is not None
    assert known is finding.explains_engine(hang, engine)


class _Alive(dict[int, Request]):
    """Requests by number, all of them alive."""

    @property
    def alive(self) -> _Alive:
        return self


SET_BACK = {
    "into an item that was loaded": (
        (Media("a", 32, 32),),
        Stage(connector=True, encoder_budget=39, encoder_cache=65),
        65,
        64,
        3,
    ),
    "to the end of an item that comes again": (
        (Media("a", 0, 32), Media("a", 32, 32), Media("a", 64, 32)),
        Stage(connector=True, encoder_budget=34, encoder_cache=59),
        96,
        33,
        2,
    ),
}
"""Items, the scheduler, the prompt's length, how much of it another node offers, and which block fails first."""


@pytest.mark.parametrize("name", SET_BACK)
def test_a_request_that_is_set_back_computes_its_items_anew(name: str) -> None:
    """Goal: no false alarm after a failed load. Method: runs that raised one."""
    media, stage, tokens, offered, fails = SET_BACK[name]
    serve = Serve(Arrive(0, (Run(0, tokens),), Keys(media=media)), 1, external_tokens=offered, fails_from_block=fails)
    settings = Settings(Geometry((Group("full", 16),)), blocks=20, tokens_max=128, chunk_tokens=128)
    assert found(settings, stage, [serve, *[Step()] * 8]) is None


def test_a_request_keeps_what_it_found_until_it_is_asked_for() -> None:
    """Goal: nothing else is excused. Method: the check by itself: an item is found, then the request is rejected."""
    population = Population(Settings(Geometry((Group("full", 16),)), blocks=9, tokens_max=64, chunk_tokens=64))
    arrival = Arrive(0, (Run(0, 40),), Keys(media=(Media("a", 0, 4),)))
    population.settle(arrival, Done())
    found: list[Difference | None] = []
    check = EncoderCheck(8, 8, 0, population, lambda _by, difference: found.append(difference))
    request = SimpleNamespace(request_id=name_of(0), mm_features=())
    check.kept.keep(1, Media("a", 0, 4))
    check._check_and_update_cache(True, request, 0)
    check.rest()
    waits = [each for each in found if each and each.subject == "items that request 0 keeps while it waits"]
    assert not waits
    check.asked_for(0)
    check.rest()
    assert "items that request 0 keeps while it waits" in [each.subject for each in found if each]


def test_items_of_a_request_that_is_over() -> None:
    """Goal: it is a divergence, not an error of the gate. Method: the check by itself, with an unknown request."""
    population = Population(Settings(Geometry((Group("full", 16),)), blocks=9))
    found: list[Difference | None] = []

    def stop(_by: str, difference: Difference | None) -> None:
        found.append(difference)
        raise LookupError

    request = SimpleNamespace(request_id=name_of(7), mm_features=())
    with pytest.raises(LookupError):
        EncoderCheck(8, 8, 0, population, stop)._check_and_update_cache(True, request, 0)
    assert [Difference("KV-SYS-02", "request 7, of which items are looked for", "alive", "over")] == found
