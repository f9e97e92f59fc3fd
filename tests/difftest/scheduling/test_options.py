"""Options of an engine, pauses, and grammars that reject a token.

Goal: their effects are followed, and everything else stays as it is. Method: small runs of vLLM's scheduler, with an
option and without; and the expected results, by hand.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from tests.difftest.scheduling.stage import HYBRID, full, run, serve, steps, undeclared

from kvgate.kernel.errors import UsageError
from kvgate.levels.scheduler.encoder import elsewhere
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import (
    OPTIONS,
    GrammarReady,
    Operation,
    Options,
    PauseEngine,
    Stage,
    describe_stage,
)
from kvgate.levels.scheduler.residency_check import Residency
from kvgate.monitors.wait_graph import Reason, Wait
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

RESCHEDULES = {"encoder_connector", "whole_prompts", "whole_items"}
"""The options that change what is scheduled."""
STAGE = Stage(3, connector=True, encoder_budget=40, encoder_cache=60)


def with_items(number: int, tokens: int, *items: Media) -> Operation:
    submit = serve(number, tokens)
    return evolve(submit, arrival=evolve(submit.arrival, keys=Keys(media=items)))


RUN: tuple[Operation, ...] = (
    serve(0, 100),
    serve(1, 60, external_tokens=32),
    with_items(2, 90, Media("image-a", 10, 30), Media("image-b", 50, 35)),
    *steps(3),
    serve(3, 70, family=0),
    *steps(12),
)


def scheduled(settings: Settings, stage: Stage) -> list[dict[int, int]]:
    """How many tokens of which requests each step of the run computes."""
    engine = Engine(settings, stage)
    seen = []
    for operation in RUN:
        assert engine.perform(operation) is None
        seen.append(dict(engine.scheduled))
    assert [] == [each for each in engine.close() if each.difference.statement != "KV-LEAK-02"]
    return seen


@pytest.mark.parametrize("option", sorted(OPTIONS.keys() - RESCHEDULES))
def test_an_option_does_not_change_what_is_scheduled(option: str) -> None:
    """Each is followed to the end."""
    settings = full(14, chunk_tokens=96)
    # No experts were chosen for tokens from other nodes.
    stage = evolve(STAGE, connector=option != "returns_experts")
    plain, changed = (
        scheduled(settings, evolve(stage, options=Options(**options))) for options in ({}, {option: True})
    )
    assert plain == changed


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_described(option: str) -> None:
    """With the stage."""
    assert describe_stage(Stage(options=Options(**{option: True}))).endswith(OPTIONS[option].words)


def test_an_item_that_other_nodes_have_is_not_computed() -> None:
    """It takes nothing of the encoder's budget, so the second item is read in the same step."""
    names = sorted(("image-a", "image-b"), key=elsewhere, reverse=True)
    items = (Media(names[0], 10, 30), Media(names[1], 50, 30))
    for connects, tokens in [(False, 50), (True, 90)]:
        options = Options(encoder_connector=connects)
        engine = Engine(full(40), Stage(1, encoder_budget=40, encoder_cache=60, options=options))
        assert None is engine.perform(with_items(0, 90, *items)) is engine.perform(steps(1)[0])
        assert {0: tokens} == engine.scheduled


def test_an_item_is_computed_whole_or_not_yet() -> None:
    """Of 64 tokens, the 20 before an item that the step could only begin."""
    settings = full(40, chunk_tokens=64)
    for whole, tokens in [(False, 64), (True, 20)]:
        engine = Engine(settings, Stage(1, encoder_budget=50, encoder_cache=50, options=Options(whole_items=whole)))
        assert engine.perform(with_items(0, 100, Media("image-a", 20, 50))) is None
        assert engine.perform(steps(1)[0]) is None
        assert {0: tokens} == engine.scheduled


def test_a_prompt_is_computed_whole_or_not_yet() -> None:
    """The second of two waits, since not all of it fits; without the option some of it is computed."""
    settings = full(90, chunk_tokens=400, tokens_max=400)
    for whole, tokens in [(False, {0: 300, 1: 100}), (True, {0: 300})]:
        engine = Engine(settings, Stage(2, options=Options(whole_prompts=whole)))
        assert None is engine.perform(serve(0, 300)) is engine.perform(serve(1, 200)) is engine.perform(steps(1)[0])
        assert tokens == engine.scheduled


@pytest.mark.parametrize(("running", "computed"), [(False, [{0: 1}]), (True, [{}])])
def test_a_paused_engine_admits_no_request(running: bool, computed: list[dict[int, int]]) -> None:
    """Those that run go on, or not; and when it is resumed, all do."""
    engine = Engine(full(40), Stage(2))
    begin: tuple[Operation, ...] = (serve(0, 20, 9), *steps(1), PauseEngine(running, steps=2), serve(1, 20))
    for operation in (*begin, *steps(2)):
        assert engine.perform(operation) is None
    assert computed == [dict(engine.scheduled)]
    assert engine.perform(steps(1)[0]) is None
    assert {0: 1, 1: 20} == engine.scheduled


def test_a_pause_may_abort_all() -> None:
    """Also what loads, and a session that waits for its client."""
    asks = (serve(0, 20), serve(1, 40, external_tokens=32, loads=True), serve(2, 20, 1, resumable=True))
    engine = Engine(full(40), Stage(3, connector=True))
    assert [] == undeclared(engine, (*asks, *steps(2), PauseEngine(aborts=True), *steps(2)))
    assert not engine.scheduler.requests


@pytest.mark.parametrize(("accepts", "answers"), [(0, 1), (2, 3), (None, 4)])
def test_a_grammar_ends_a_request(accepts: int | None, answers: int) -> None:
    """With the first token that it rejects."""
    engine = Engine(full(40), Stage(1))
    ask: tuple[Operation, ...] = (serve(0, 20, structured=True, grammar_answers=accepts), GrammarReady(0))
    for operation in (*ask, *steps(answers)):
        assert 0 in engine.followed.population.alive or not engine.submitted
        assert engine.perform(operation) is None
    assert 0 not in engine.followed.population.alive


def test_a_stop_before_the_shortest_answer_does_not_count() -> None:
    """If a grammar rejects the token with which a request may not stop yet, no stop is reported."""
    ask = serve(0, 20, 6, structured=True, grammar_answers=0, answers_min=3)
    engine = Engine(full(40), Stage(1))
    assert [] == undeclared(engine, (ask, GrammarReady(0), Step((Reply(ends=True),))))


@pytest.mark.parametrize("accepts", [None, 3])
def test_drafts_come_after_their_step(accepts: int | None) -> None:
    """Where steps are asynchronous, a grammar rejects drafts of a step that was sent before."""
    draft_layer = Geometry((Group("full", 16, lookahead=True),))
    settings = Settings(draft_layer, blocks=60, tokens_max=512, chunk_tokens=64, drafts_max=3)
    engine = Engine(settings, Stage(2, asynchronous=True))
    ask = serve(0, 40, 30, structured=True, grammar_answers=accepts)
    completed = engine.scheduler.update_draft_token_ids_in_output
    seen: list[dict[str, int]] = []

    def complete(drafts: Any, output: Any) -> None:
        completed(drafts, output)
        seen.append(output.num_invalid_spec_tokens)

    engine.scheduler.update_draft_token_ids_in_output = complete
    assert [] == undeclared(engine, (ask, serve(1, 30, 30), GrammarReady(0), *steps(12)))
    assert any(seen)


@pytest.mark.parametrize("other", [Keys(lora="adapter-1"), Keys(lora="adapter-0", lora_version=1)])
def test_a_request_waits_for_a_slot_of_an_adapter(other: Keys) -> None:
    """It waits for those that have the slots, and not for no request."""
    engine = Engine(full(40), Stage(4, adapters_max=1))
    for number, keys in enumerate((Keys(lora="adapter-0"), other, Keys())):
        submit = serve(number, 20)
        assert engine.perform(evolve(submit, arrival=evolve(submit.arrival, keys=keys))) is None
    assert engine.perform(steps(1)[0]) is None
    assert {0: 20, 2: 20} == engine.scheduled
    assert (Wait(1, Reason.TURN, 0),) == engine.progress.wait_for(engine.scheduled).edges


@pytest.mark.parametrize("option", ["context_parallel", "one_group_connector", "encoder_connector", "whole_items"])
def test_an_option_that_is_impossible_is_rejected(option: str) -> None:
    """Before anything is built."""
    with pytest.raises(UsageError, match=option):
        Engine(Settings(HYBRID, blocks=20), Stage(1, options=Options(**{option: True})))


def test_residency_is_counted() -> None:
    """Uses of a block since it was allocated; a block that was never reused, and a reset, report nothing."""

    class Pool:
        def get_new_blocks(self, count: int) -> list[Any]:
            return [SimpleNamespace(block_id=number + 1) for number in range(count)]

        def touch(self, blocks: Any) -> None: ...
        def evict_blocks(self, blocks: Any) -> None: ...
        def reset_prefix_cache(self) -> bool:
            return True

    pool: Any = Pool()
    residency = Residency(pool, caches=True)
    first, second = pool.get_new_blocks(2)
    assert () == residency.take()
    for _ in range(6):
        pool.touch([first])
    pool.touch([second, SimpleNamespace(block_id=7)])
    pool.evict_blocks([1])
    pool.get_new_blocks(2)
    assert (3, 0) == residency.take()
    pool.evict_blocks([1])
    pool.reset_prefix_cache()
    pool.get_new_blocks(2)
    assert () == residency.take()


def test_options_go_together() -> None:
    """All but those that have prompts wait and connectors left out; the remaining differences are declared
    (001, 055).
    """
    apart = {"whole_prompts", "returns_experts"}
    options = Options(**{name: name not in apart for name in OPTIONS})
    found = run(Engine(full(60, chunk_tokens=96), evolve(STAGE, options=options)), RUN)
    assert {"KV-LEAK-02"} >= {each.difference.statement for each in found}
