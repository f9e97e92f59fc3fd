"""Defects of the installed vLLM that no operation of the gate reaches, or that no guarantee excludes.

Goal: the findings' page is true of the named release in "Seen, and not declared yet". Method: vLLM's own block manager
and scheduler, called directly. A test fails when vLLM, or the gate, has moved on: then the page is to be corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Options, Serve, Stage
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

pytestmark = pytest.mark.ci
FULL = Geometry((Group(Kind.FULL, 16),))


def manager(blocks: int = 6) -> Any:
    """vLLM's block manager, for one group in blocks of 16 tokens."""
    utils = pytest.importorskip("vllm.v1.core.kv_cache_utils")
    hashing = pytest.importorskip("vllm.utils.hashing")
    # The hash that every chain begins with: the same for all requests of a test.
    utils.init_none_hash(hashing.sha256)
    system: Any = load_system("stock").factory(Settings(FULL, blocks, tokens_max=256, chunk_tokens=256))
    return system.manager


def request(name: str, tokens: Sequence[int], lora: Any = None) -> Any:
    """A request as the engine makes it."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    return Request(
        request_id=name,
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=4),
        pooling_params=None,
        lora_request=lora,
        block_hasher=get_request_block_hasher(16, sha256),
    )


def admit(of: Any, asked: Any, tokens: int) -> int | None:
    """Look a request up, and allocate for its first tokens; its hit, or None if it is rejected."""
    blocks, hit = of.get_computed_blocks(asked)
    granted = of.allocate_slots(asked, tokens - hit, hit, blocks)
    return None if granted is None else int(hit)


def test_an_adapter_is_known_by_its_name_alone() -> None:
    """One adapter's blocks serve another adapter of the same name; with another name they do not."""
    blocks = manager()
    lora = pytest.importorskip("vllm.lora.request").LoRARequest
    first = request("first", range(33), lora("sql", 1, "/a"))
    assert 0 == admit(blocks, first, 33)
    blocks.free(first)
    assert 32 == blocks.get_computed_blocks(request("reloaded", range(33), lora("sql", 2, "/b")))[1]
    assert 0 == blocks.get_computed_blocks(request("renamed", range(33), lora("other", 2, "/b")))[1]


def test_a_look_up_is_counted_at_every_attempt() -> None:
    """A request that is rejected five times counts as five requests, with five times its tokens."""
    blocks = manager()
    first = request("first", range(33))
    admit(blocks, first, 33)
    blocks.free(first)
    assert 0 == admit(blocks, request("large", range(1000, 1048)), 48)
    blocks.make_prefix_cache_stats()
    waiting = request("waiting", range(80))
    assert [None] * 5 == [admit(blocks, waiting, 80) for _ in range(5)]
    counted = blocks.make_prefix_cache_stats()
    assert (5, 400) == (counted.requests, counted.queries)


def test_a_block_is_reported_as_removed_while_a_copy_of_it_stays() -> None:
    """Two blocks have one content; one is reused, and the content can still be hit."""
    blocks = manager()
    twins = [request(name, range(17)) for name in ("first", "second")]
    # Both are looked up before either has computed anything.
    found = [blocks.get_computed_blocks(twin) for twin in twins]
    for twin, (hit_blocks, hit) in zip(twins, found, strict=True):
        blocks.allocate_slots(twin, 17, hit, hit_blocks)
    (name, again) = (event.block_hashes[0] for event in blocks.take_events())
    assert name == again
    blocks.free(twins[0])
    admit(blocks, request("other", range(500, 540)), 40)
    assert [name] == blocks.take_events()[0].block_hashes
    assert 16 == blocks.get_computed_blocks(request("third", range(17)))[1]


def test_a_transfer_that_is_reported_twice_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is gone after the first report, and the scheduler asserts that it knows it."""
    pytest.importorskip("vllm")
    from vllm.v1.outputs import KVConnectorOutput

    bench = SCHEDULER.bench(load_system("stock"), SCHEDULER.gate)
    settings = Settings(FULL, 9, tokens_max=128, chunk_tokens=64)
    submit = Submit(Arrive(0, (Run(0, 17),)), 1, sends=True)
    case = SCHEDULER.case(settings, (submit, Step((Reply(0, 5, 0),)), Step()), Stage(connector=True, running_max=2))
    engine: Any = bench.build(case)
    assert [None] * 3 == [engine.perform(operation) for operation in case.operations]
    (name,) = engine.scheduler.requests
    # The gate's own worker reports each transfer once.
    monkeypatch.setattr(engine.nodes, "under_way", lambda: ())
    report = KVConnectorOutput(finished_sending={name})
    engine.scheduler._update_from_kv_xfer_finished(report)
    assert {} == engine.scheduler.requests
    with pytest.raises(AssertionError):
        engine.scheduler._update_from_kv_xfer_finished(report)


def session(settings: Settings, stage: Stage) -> tuple[Any, Callable[..., None], Callable[..., list[Any]]]:
    """vLLM's scheduler; how a part of session 0 is sent to it; and how it is given what a step answers."""
    pytest.importorskip("vllm")
    from kvgate.levels.scheduler.adapter.arrivals import arguments_of, request_of
    from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
    from kvgate.levels.scheduler.adapter.worker import answer

    scheduler = SUBJECTS["stock"].build(settings, stage)

    def send(first: int, length: int, answers_max: int, **given: object) -> None:
        part = Serve(Arrive(0, (Run(first, length),)), answers_max, resumable=True)
        scheduler.add_request(request_of({**arguments_of(settings, part), **given}))

    def answered(output: Any, token: int) -> list[Any]:
        by_client = scheduler.update_from_output(output, answer(tuple(output.num_scheduled_tokens), {0: [token]}, None))
        return [
            (each.new_token_ids, str(each.finish_reason)) for outputs in by_client.values() for each in outputs.outputs
        ]

    return scheduler, send, answered


def test_a_session_is_answered_after_its_part_has_stopped() -> None:
    """Where steps are asynchronous: the step in flight still answers a token, and a second end."""
    pytest.importorskip("vllm")
    from kvgate.levels.scheduler.adapter.arrivals import STOP

    settings = Settings(FULL, 9, tokens_max=64, chunk_tokens=64)
    scheduler, send, answered = session(settings, Stage(asynchronous=True, running_max=1))
    send(0, 1, 2)
    first, second = scheduler.schedule(), scheduler.schedule()
    assert [([STOP], "stop")] == answered(first, STOP)
    (request,) = scheduler.requests.values()
    assert "WAITING_FOR_STREAMING_REQ" == request.status.name
    assert [([7], "length")] == answered(second, 7)


def test_a_later_part_is_answered_as_many_tokens_as_the_first() -> None:
    """The first part may be answered one token, and the second one three; it is answered one."""
    settings = Settings(FULL, 9, tokens_max=64, chunk_tokens=64)
    scheduler, send, answered = session(settings, Stage(running_max=1))
    send(0, 1, 1)
    assert [([7], "length")] == answered(scheduler.schedule(), 7)
    send(100, 4, 3, block_hasher=None)
    assert [([8], "length")] == answered(scheduler.schedule(), 8)


def test_a_session_grows_beyond_the_longest_request() -> None:
    """The longest request has 16 tokens; a step computes the tokens 8 to 19 of a session, with blocks for 16."""
    settings = Settings(FULL, 9, tokens_max=16, chunk_tokens=16)
    scheduler, send, answered = session(settings, Stage(running_max=1))
    send(0, 8, 1)
    assert [([7], "length")] == answered(scheduler.schedule(), 7)
    send(100, 12, 1, block_hasher=None)
    output = scheduler.schedule()
    assert [12] == list(output.num_scheduled_tokens.values())
    (sent,) = output.scheduled_new_reqs
    assert (8, 1) == (sent.num_computed_tokens, len(sent.block_ids[0]))


def test_an_item_that_may_not_be_chunked_is_cut_where_a_step_begins() -> None:
    """A step computes 32 tokens, one of them for request 0: of the 32 tokens of an item, 31 in one step."""
    bench = SCHEDULER.bench(load_system("stock"), SCHEDULER.gate)
    settings = Settings(FULL, 9, tokens_max=64, chunk_tokens=32, requests_max=2)
    stage = Stage(running_max=2, encoder_budget=32, encoder_cache=32, options=Options(whole_items=True))
    engine: Any = bench.build(SCHEDULER.case(settings, (), stage))
    keys = Keys(media=(Media("image-32-0", 4, 32),))
    operations = (Serve(Arrive(0, (Run(0, 1),)), 9), Step(), Serve(Arrive(1, (Run(100, 37),), keys), 1))
    assert [None] * 3 == [engine.perform(operation) for operation in operations]
    computed = []
    for _ in range(3):
        assert engine.perform(Step()) is None
        computed.append(engine.scheduled[1])
    assert [4, 31, 2] == computed
