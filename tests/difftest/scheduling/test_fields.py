"""Every field that a scheduler fills is compared by somebody.

Goal: nothing that a scheduler tells anybody (its worker, its clients, its connector, whoever counts and listens) can be
wrong unnoticed. Method: the fields are listed from the installed vLLM; each is changed in one message of a run of the
real scheduler, and whoever is to compare it says so. What nobody compares has a reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.kernel.difference import Divergence
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import GrammarReady, Operation, Stage
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Abort, Transferred
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

from .stage import full, run, serve, steps

BATCH, CLIENTS, STATISTICS, CONNECTOR, ENCODER = "batch", "clients", "statistics", "connector", "encoder"

COMPARED: Mapping[str, Mapping[str, str]] = {
    "SchedulerOutput": {"scheduled_encoder_inputs": ENCODER, "free_encoder_mm_hashes": ENCODER}
    | dict.fromkeys(
        (
            "scheduled_new_reqs",
            "scheduled_cached_reqs",
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
            "num_common_prefix_blocks",
            "finished_req_ids",
            "preempted_req_ids",
            "has_structured_output_requests",
            "pending_structured_output_tokens",
            "num_invalid_spec_tokens",
            "kv_connector_metadata",
            "ec_connector_metadata",
            "new_block_ids_to_zero",
        ),
        BATCH,
    ),
    "NewRequestData": dict.fromkeys(
        (
            "req_id",
            "prompt_token_ids",
            "mm_features",
            "sampling_params",
            "pooling_params",
            "block_ids",
            "num_computed_tokens",
            "lora_request",
            "prompt_embeds",
            "prefill_token_ids",
        ),
        BATCH,
    ),
    "CachedRequestData": dict.fromkeys(
        (
            "req_ids",
            "resumed_req_ids",
            "new_token_ids",
            "all_token_ids",
            "new_block_ids",
            "num_computed_tokens",
            "num_output_tokens",
        ),
        BATCH,
    ),
    "EngineCoreOutput": dict.fromkeys(
        (
            "request_id",
            "new_token_ids",
            "new_logprobs",
            "new_prompt_logprobs_tensors",
            "pooling_output",
            "finish_reason",
            "stop_reason",
            "events",
            "kv_transfer_params",
            "trace_headers",
            "prefill_stats",
            "routed_experts",
            "num_nans_in_logits",
        ),
        CLIENTS,
    ),
    "EngineCoreOutputs": {
        **dict.fromkeys(
            ("engine_index", "outputs", "utility_output", "finished_requests", "wave_complete", "start_wave"), CLIENTS
        ),
        "scheduler_stats": STATISTICS,
    },
    "SchedulerStats": dict.fromkeys(
        (
            "num_running_reqs",
            "num_waiting_reqs",
            "num_skipped_waiting_reqs",
            "step_counter",
            "current_wave",
            "kv_cache_usage",
            "prefix_cache_stats",
            "connector_prefix_cache_stats",
            "kv_cache_eviction_events",
            "spec_decoding_stats",
            "kv_connector_stats",
            "waiting_lora_adapters",
            "running_lora_adapters",
            "cudagraph_stats",
            "perf_stats",
        ),
        STATISTICS,
    ),
    "PrefixCacheStats": dict.fromkeys(
        ("reset", "requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits"),
        STATISTICS,
    ),
    "SpecDecodingStats": dict.fromkeys(
        ("num_spec_tokens", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos"),
        STATISTICS,
    ),
    "PrefillStats": dict.fromkeys(
        (
            "num_prompt_tokens",
            "num_computed_tokens",
            "num_cached_tokens",
            "num_local_cached_tokens",
            "num_external_cached_tokens",
        ),
        CLIENTS,
    ),
    "KVEventBatch": {"events": STATISTICS},
    "get_num_new_matched_tokens": {"request": CONNECTOR, "num_computed_tokens": CONNECTOR},
    "update_state_after_alloc": {"request": CONNECTOR, "blocks": CONNECTOR, "num_external_tokens": CONNECTOR},
    "request_finished_all_groups": {"request": CONNECTOR, "block_ids": CONNECTOR},
    "build_connector_meta": {"scheduler_output": CONNECTOR},
    "update_connector_output": {"connector_output": CONNECTOR},
}
"""Per kind of message, and per call of the connector: who compares each field."""
REASONS: Mapping[tuple[str, str], str] = {
    ("EngineCoreOutputs", "timestamp"): "It is what the clock says.",
    ("KVEventBatch", "ts"): "It is what the clock says.",
    ("KVEventBatch", "data_parallel_rank"): "A publisher enters it, and none is run.",
}
"""What nobody compares, and why it does not matter here."""


def kinds() -> dict[str, type]:
    """Every kind of message, as the installed vLLM has it."""
    from vllm.distributed.kv_events import KVEventBatch
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.metrics.stats import PrefillStats, PrefixCacheStats, SchedulerStats
    from vllm.v1.spec_decode.metrics import SpecDecodingStats

    kinds = SchedulerOutput, NewRequestData, CachedRequestData, EngineCoreOutput, EngineCoreOutputs
    more = SchedulerStats, PrefixCacheStats, SpecDecodingStats, PrefillStats, KVEventBatch
    return {kind.__name__: kind for kind in (*kinds, *more)}


def fields_of(kind: Any) -> set[str]:
    """The fields of a dataclass or a struct."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return set(kind.__struct_fields__)


def test_every_field_is_compared_or_has_a_reason() -> None:
    """And no other is listed: a field that a new vLLM adds, or drops, shows here."""
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: F401 (its connectors are those whose calls are listed)

    for name, kind in kinds().items():
        without = {field for message, field in REASONS if message == name}
        assert set(COMPARED[name]) | without == fields_of(kind), name
        assert not set(COMPARED[name]) & without


def test_every_call_of_a_connector_is_compared() -> None:
    """The parameters of each; and every method that the scheduler's half of a connector may have is listed or said."""
    import inspect

    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA

    for name in COMPARED:
        owner = next((each for each in (KVConnectorBase_V1, SupportsHMA) if hasattr(each, name)), None)
        if owner is not None:
            parameters = set(inspect.signature(getattr(owner, name)).parameters) - {"self"}
            assert set(COMPARED[name]) == parameters, name


# A run in which every field says something

HYBRID = Settings(
    Geometry((Group("full", 16, lookahead=True),)),
    blocks=16,
    tokens_max=160,
    chunk_tokens=64,
    drafts_max=2,
    requests_max=8,
)
STATES = Settings(
    Geometry((Group("full", 16), Group("mamba", 16, states=StateMode.ALL))), blocks=24, tokens_max=160, chunk_tokens=64
)
OPERATIONS: tuple[Operation, ...] = (
    serve(0, 40, 30, external_tokens=16),
    serve(1, 40, 3, family=0, sends=True, priority=1),
    serve(2, 60, 30, structured=True),
    serve(3, 20, 30, undecided=1),
    serve(4, 20, 5, family=0, external_tokens=16, loads=True),
    GrammarReady(2),
    *(Step((Reply(2, 500_000 + 10 * step, 2), Reply(0, 700_000 + 10 * step, 2))) for step in range(8)),
    Transferred(4),
    *(Step((Reply(1, 600_000 + 10 * step, 2),)) for step in range(8)),
    Abort(0),
    *steps(4),
)


def engines(field: str) -> Iterator[tuple[Engine, tuple[Operation, ...]]]:
    """Runs in one of which the field says something."""
    yield Engine(HYBRID, Stage(8, connector=True)), OPERATIONS
    if field == "new_block_ids_to_zero":
        yield Engine(STATES, Stage(8)), (serve(0, 40), *steps(4))
    if field == "pending_structured_output_tokens":
        yield Engine(full(20), Stage(8, asynchronous=True)), (serve(0, 20), *steps(4))


def other(value: Any) -> Any:
    """Something else of the same kind, where that is possible."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return type(value)(value + 1)
    if isinstance(value, str):
        return "kvgate-request-77" if value.startswith("kvgate-request-") else value + "?"
    if isinstance(value, (list, tuple)):
        return type(value)([*value[:-1], other(value[-1])]) if value else type(value)([1])
    if isinstance(value, set):
        return {"kvgate-request-77"} if value != {"kvgate-request-77"} else set()
    if isinstance(value, dict):
        return {key: other(each) for key, each in value.items()} if value else {"kvgate-request-77": [1]}
    return None if value is not None else 1


class Change:
    """Changes one field in the first message of a kind in which that makes a difference."""

    def __init__(self, name: str, field: str) -> None:
        self.name, self.field = name, field
        self.done = False

    def change(self, message: Any) -> None:
        """Change the field in a message, if it is one of the kind."""
        if self.done or type(message).__name__ != self.name:
            return
        value = getattr(message, self.field)
        if self.field == "new_token_ids" and self.name == "CachedRequestData":
            # Only a worker in several stages is told.
            changed = [[1] * 65 for _ in message.req_ids] or UNCHANGED
        else:
            changed = CHANGES.get((self.name, self.field), other)(value)
        if changed is not UNCHANGED:
            setattr(message, self.field, changed)
            self.done = True


UNCHANGED = object()
_STRANGER = "kvgate-request-77"


def _first(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change something only where there is something."""
    return lambda value: change(value) if value else UNCHANGED


CHANGES: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("SchedulerOutput", "scheduled_new_reqs"): _first(lambda value: value[1:]),
    ("SchedulerOutput", "scheduled_cached_reqs"): lambda value: (
        type(value).make_empty() if value.req_ids else UNCHANGED
    ),
    ("SchedulerOutput", "num_scheduled_tokens"): _first(lambda value: {name: n + 1 for name, n in value.items()}),
    ("SchedulerOutput", "scheduled_encoder_inputs"): lambda _: {"kvgate-request-1": [0]},
    ("SchedulerOutput", "free_encoder_mm_hashes"): lambda _: ["an image"],
    ("SchedulerOutput", "scheduled_spec_decode_tokens"): _first(other),
    ("SchedulerOutput", "preempted_req_ids"): lambda _: {_STRANGER},
    ("SchedulerOutput", "finished_req_ids"): _first(lambda _: set()),
    ("SchedulerOutput", "new_block_ids_to_zero"): lambda value: [*(value or ()), 1],
    ("SchedulerStats", "spec_decoding_stats"): lambda value: UNCHANGED if value is None else None,
    ("NewRequestData", "prompt_embeds"): lambda _: __import__("torch").ones(3, 1),
    ("NewRequestData", "mm_features"): lambda _: [_media()],
    ("NewRequestData", "lora_request"): lambda _: _adapter(),
    ("CachedRequestData", "req_ids"): _first(lambda value: [_STRANGER, *value[1:]]),
    ("CachedRequestData", "resumed_req_ids"): _first(lambda _: set()),
    ("CachedRequestData", "all_token_ids"): _first(other),
    ("CachedRequestData", "new_block_ids"): lambda value: (
        [*value[:-1], None] if value and value[-1] is not None else UNCHANGED
    ),
    ("CachedRequestData", "num_computed_tokens"): _first(other),
    ("CachedRequestData", "num_output_tokens"): _first(other),
    ("EngineCoreOutput", "finish_reason"): lambda value: __import__("vllm.v1.engine").v1.engine.FinishReason.ABORT,
    ("EngineCoreOutput", "new_logprobs"): lambda value: UNCHANGED if value is None else None,
    ("EngineCoreOutput", "events"): _first(lambda value: value[1:]),
    ("EngineCoreOutput", "prefill_stats"): lambda value: UNCHANGED if value is None else None,
    ("EngineCoreOutput", "kv_transfer_params"): other,
    ("EngineCoreOutputs", "outputs"): _first(lambda value: value[1:]),
    ("EngineCoreOutputs", "finished_requests"): _first(lambda _: None),
    ("EngineCoreOutputs", "scheduler_stats"): lambda _: None,
    ("KVEventBatch", "events"): _first(lambda value: value[1:]),
}
"""How a field is changed where any other value of its kind would not do."""


def _media() -> Any:
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    return MultiModalFeatureSpec(None, "image", "an image", PlaceholderRange(offset=0, length=2))


def _adapter() -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest("an adapter", 1, "/nowhere")


def planted(engine: Engine, change: Change) -> None:
    """Every message of an engine passes by, before anybody sees it; every call of its connector, too."""
    scheduler, connector, publisher = engine.scheduler, engine.scheduler.connector, engine.publisher
    schedule, update, publish = scheduler.schedule, scheduler.update_from_output, publisher.publish

    def changed_schedule() -> Any:
        output = schedule()
        for message in (*output.scheduled_new_reqs, output.scheduled_cached_reqs, output):
            change.change(message)
        return output

    def changed_update(*arguments: Any) -> Any:
        outputs = update(*arguments)
        for told in outputs.values():
            statistics = told.scheduler_stats
            for message in told.outputs:
                change.change(message)
                change.change(message.prefill_stats)
            if statistics is not None:
                for message in (statistics.prefix_cache_stats, statistics.spec_decoding_stats, statistics):
                    change.change(message)
            change.change(told)
        return outputs

    def changed_publish(batch: Any) -> None:
        change.change(batch)
        publish(batch)

    scheduler.schedule, scheduler.update_from_output = changed_schedule, changed_update
    vars(publisher)["publish"] = changed_publish
    if change.name in COMPARED and change.name not in kinds() and connector is not None:
        _plant_call(connector, change)


def _plant_call(connector: Any, change: Change) -> None:
    original = getattr(connector, change.name)
    place = list(COMPARED[change.name]).index(change.field)

    def changed(*arguments: Any) -> Any:
        value = arguments[place]
        if change.field in ("request", "blocks", "scheduler_output", "connector_output"):
            value = __import__("copy").copy(value)
            if change.field == "blocks":
                value.blocks = tuple(group[:-1] for group in value.blocks)
        elif change.field == "block_ids":
            value = tuple(group[:-1] for group in value)
        else:
            value += 1
        return original(*arguments[:place], value, *arguments[place + 1 :])

    setattr(connector, change.name, changed)


def found_in(name: str, field: str) -> Divergence | None:
    """What is found when the field is changed."""
    for engine, operations in engines(field):
        planted(engine, Change(name, field))
        divergences = [each for each in run(engine, operations) if each.difference.statement != "KV-LEAK-02"]
        if divergences:
            return divergences[0]
    return None


@pytest.mark.ci
def test_unchanged_nothing_is_found() -> None:
    """The control: the same runs, with the same detours."""
    for engine, operations in engines(""):
        planted(engine, Change("", ""))
        assert [] == [each for each in run(engine, operations) if each.difference.statement != "KV-LEAK-02"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "field", "detector"),
    [
        pytest.param(name, field, detector, id=f"{name}.{field}")
        for name, fields in COMPARED.items()
        for field, detector in fields.items()
    ],
)
def test_a_change_is_found(name: str, field: str, detector: str) -> None:
    """By the checker that is listed."""
    found = found_in(name, field)
    assert found is not None, "nobody compares it, or it never says anything"
    assert detector == found.detector, found.difference
