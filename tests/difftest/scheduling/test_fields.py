"""Every field that a scheduler fills, and every call of its connector, is compared.

Goal: nothing that a scheduler sends (to its worker, its clients, its connector, in statistics and events) can be wrong
unnoticed. Method: the fields are listed from the installed vLLM, from the types of the messages down to those of their
fields, and the calls from the connector's interface. Each is changed once in a run of the real scheduler, in a message
in which it has a value, and the checker that is listed reports it. A field that is not compared has a reason.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any, get_args

import pytest

pytest.importorskip("vllm")

from kvgate.kernel.difference import Divergence
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import GrammarReady, Operation, ResetCache, Serve, Stage
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Abort, Arrive, Run, Transferred
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
    "GrammarOutput": {"structured_output_request_ids": BATCH},
    "MultiModalFeatureSpec": dict.fromkeys(("data", "modality", "identifier", "mm_position", "mm_hash"), BATCH),
    "PlaceholderRange": dict.fromkeys(("offset", "length", "is_embed"), BATCH),
    "LoRARequest": dict.fromkeys(("lora_name", "lora_int_id", "lora_path"), BATCH),
    "EngineCoreEvent": {"type": CLIENTS},
    "LogprobsLists": dict.fromkeys(
        ("logprob_token_ids", "logprobs", "sampled_token_ranks", "cu_num_generated_tokens"), CLIENTS
    ),
    "KVEventBatch": {"events": STATISTICS},
    "BlockStored": dict.fromkeys(
        (
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "extra_keys",
            "group_idx",
        ),
        STATISTICS,
    ),
    "BlockRemoved": dict.fromkeys(("block_hashes", "medium", "group_idx"), STATISTICS),
}
"""Per kind of message: the checker that compares each field."""
REASONS: Mapping[tuple[str, str], str] = {
    ("EngineCoreOutputs", "timestamp"): "It is what the clock says.",
    ("EngineCoreEvent", "timestamp"): "It is what the clock says.",
    ("KVEventBatch", "ts"): "It is what the clock says.",
    ("KVEventBatch", "data_parallel_rank"): "A publisher enters it, and none is run.",
    ("GrammarOutput", "grammar_bitmask"): "No grammar is compiled: the requests that it masks are compared.",
    ("LoRARequest", "base_model_name"): "The scheduler passes on the client's object, and no request sets it.",
    ("LoRARequest", "tensorizer_config_dict"): "The scheduler passes on the client's object, and no request sets it.",
    ("LoRARequest", "load_inplace"): "The scheduler passes on the client's object, and no request sets it.",
}
"""Fields that are not compared, and why they do not matter here."""
WHOLE: Mapping[str, str] = {
    "SamplingParams": "The client's own object: it equals a copy of what was submitted.",
    "PoolingParams": "The client's own object: it equals a copy of what was submitted.",
    "LogprobsTensors": "A word stands for it, which is compared.",
    "CUDAGraphStat": "A word stands for it, which is compared.",
    "PerfStats": "The field that would have it is compared to have nothing: no performance is measured.",
    "KVCacheEvictionEvent": "The field that would have it is compared to have nothing: no residency is measured.",
    "UtilityOutput": "The field that would have it is compared to have nothing: no utility is called.",
}
"""Kinds of which no field is compared by itself, and why."""
EMPTY: Mapping[tuple[str, str], tuple[str, Callable[[], Any]]] = {
    ("SchedulerOutput", "num_invalid_spec_tokens"): ("No grammar rejects drafts.", lambda: {_STRANGER: 1}),
    ("SchedulerOutput", "ec_connector_metadata"): ("No encoder connector is configured.", lambda: _metadata()),
    ("NewRequestData", "prefill_token_ids"): ("It is for the second version of the model runner.", lambda: [1, 2]),
    ("CachedRequestData", "new_token_ids"): ("It is for workers in several stages.", lambda: [[1] * 65] * 8),
    ("PlaceholderRange", "is_embed"): ("All tokens of an item are embeddings.", lambda: _tensor()),
    ("EngineCoreOutput", "routed_experts"): ("No experts are returned.", lambda: _tensor().numpy()),
    ("LogprobsLists", "cu_num_generated_tokens"): ("A slice of one request has none.", lambda: [0]),
    ("EngineCoreOutputs", "engine_index"): ("There is one engine.", lambda: 1),
    ("EngineCoreOutputs", "utility_output"): ("No utility is called.", lambda: _engine().UtilityOutput(1)),
    ("EngineCoreOutputs", "wave_complete"): ("Engines of a group say it.", lambda: 1),
    ("EngineCoreOutputs", "start_wave"): ("Engines of a group say it.", lambda: 1),
    ("SchedulerStats", "step_counter"): ("Engines of a group say it.", lambda: 1),
    ("SchedulerStats", "current_wave"): ("Engines of a group say it.", lambda: 1),
    ("SchedulerStats", "kv_cache_eviction_events"): (
        "No residency is measured.",
        lambda: [_stats().KVCacheEvictionEvent(1.0, 1.0, ())],
    ),
    ("SchedulerStats", "waiting_lora_adapters"): ("The client's side counts adapters.", lambda: {"adapter-1": 1}),
    ("SchedulerStats", "running_lora_adapters"): ("The client's side counts adapters.", lambda: {"adapter-1": 1}),
    ("SchedulerStats", "perf_stats"): ("No performance is measured.", lambda: _performance()),
}
"""Compared fields that have no value in any run, why, and what is put there: a value of the field's own kind."""

CALLS: Mapping[str, Mapping[str, str]] = {
    "get_num_new_matched_tokens": {"request": CONNECTOR, "num_computed_tokens": CONNECTOR},
    "update_state_after_alloc": {"request": CONNECTOR, "blocks": CONNECTOR, "num_external_tokens": CONNECTOR},
    "request_finished_all_groups": {"request": CONNECTOR, "block_ids": CONNECTOR},
    "build_connector_meta": {"scheduler_output": CONNECTOR},
    "update_connector_output": {"connector_output": CONNECTOR},
    "take_events": {},
    "get_kv_connector_stats": {},
    "reset_cache": {},
    "bind_gpu_block_pool": {"gpu_block_pool": CONNECTOR},
}
"""The calls of a connector that are due: per parameter, the checker that compares it. That each is made once is too."""
FINDERS: Mapping[str, str] = {"get_kv_connector_stats": STATISTICS, "reset_cache": "scheduler"}
"""The checker that reports a missing or doubled call, where that is not the connector's."""
_WORKER = "The worker's half has it, and no worker is run."
_ENGINE = "The engine calls it when it starts, and none is run."
OTHER_CALLS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "bind_connector_metadata",
            "build_connector_worker_meta",
            "clear_connector_metadata",
            "get_block_ids_with_load_errors",
            "get_finished",
            "get_handshake_metadata",
            "get_kv_connector_kv_cache_events",
            "handle_preemptions",
            "has_connector_metadata",
            "register_cross_layers_kv_cache",
            "register_kv_caches",
            "save_kv_layer",
            "set_host_xfer_buffer_ops",
            "start_load_kv",
            "wait_for_layer_load",
            "wait_for_save",
        ),
        _WORKER,
    ),
    **dict.fromkeys(
        (
            "get_finished_count",
            "get_required_kvcache_layout",
            "prefer_cross_layer_blocks",
            "requires_piecewise_for_cudagraph",
            "role",
            "set_xfer_handshake_metadata",
        ),
        _ENGINE,
    ),
    "build_kv_connector_stats": "The client's side calls it for its log.",
    "build_prom_metrics": "The client's side calls it for its metrics.",
    "request_finished": "It is for connectors of one group. A call is reported: the one that is run takes all groups.",
    "shutdown": "The engine calls it when it ends, and none is run.",
}
"""The other public methods of a connector, and why they are not compared."""

ROOTS = (
    "vllm.v1.core.sched.output:SchedulerOutput",
    "vllm.v1.core.sched.output:GrammarOutput",
    "vllm.v1.engine:EngineCoreOutputs",
    "vllm.distributed.kv_events:KVEventBatch",
)


@cache
def kinds() -> dict[str, type]:
    """Every kind of message, and of what is in its fields, as the installed vLLM has them."""
    found: dict[str, type] = {}
    for root in ROOTS:
        module, _, name = root.partition(":")
        __import__(module)
        _follow(getattr(sys.modules[module], name), found)
    return found


def _follow(kind: type, found: dict[str, type]) -> None:
    if kind.__name__ in found or not kind.__module__.startswith("vllm.") or not fields_of(kind):
        return
    found[kind.__name__] = kind
    for field in fields_of(kind) if kind.__name__ not in WHOLE else ():
        for inner in _types_of(_annotation(kind, field)):
            _follow(inner, found)


def _types_of(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for each in get_args(annotation):
        yield from _types_of(each)


def _annotation(kind: type, field: str) -> Any:
    """The type of a field as its source has it: where vLLM does not import a type at run time, it is ``object``."""
    owner = next(each for each in kind.__mro__ if field in vars(each).get("__annotations__", {}))
    module = sys.modules[owner.__module__]
    tree = ast.parse(inspect.getsource(module))
    names = dict(vars(module))
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            imports: list[ast.stmt] = [each for each in node.body if isinstance(each, (ast.Import, ast.ImportFrom))]
            exec(ast.unparse(ast.Module(imports, [])), names)
    (written,) = (
        each.annotation
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__
        for each in node.body
        if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == field
    )
    text = ast.literal_eval(written) if isinstance(written, ast.Constant) else ast.unparse(written)
    return eval(text, names)


def fields_of(kind: Any) -> set[str]:
    """The fields of a dataclass, a struct or a named tuple."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return set(getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ()))


def test_every_field_is_compared_or_has_a_reason() -> None:
    """And no other is listed: a kind or a field that a new vLLM adds, or drops, shows here."""
    assert set(COMPARED) | set(WHOLE) == set(kinds())
    for name in COMPARED:
        without = {field for message, field in REASONS if message == name}
        assert set(COMPARED[name]) | without == fields_of(kinds()[name]), name
        assert not set(COMPARED[name]) & without
    assert {name for name, _ in REASONS} | {name for name, _ in EMPTY} <= set(COMPARED)
    assert all(field in COMPARED[name] for name, field in EMPTY)


def test_every_call_of_a_connector_is_compared_or_has_a_reason() -> None:
    """Every public method of a connector's interface, and every one that the scheduler calls; and their parameters."""
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA
    from vllm.v1.core.sched import scheduler

    methods = {name for owner in (KVConnectorBase_V1, SupportsHMA) for name in dir(owner) if not name.startswith("_")}
    called = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(scheduler)))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self.connector", "connector")
    }
    assert {"get_num_new_matched_tokens", "build_connector_meta", "bind_gpu_block_pool"} <= called
    assert set(CALLS) | set(OTHER_CALLS) == methods | called
    assert not set(CALLS) & set(OTHER_CALLS)
    for name in CALLS:
        owner = next((each for each in (KVConnectorBase_V1, SupportsHMA) if hasattr(each, name)), None)
        if owner is not None:
            parameters = set(inspect.signature(getattr(owner, name)).parameters) - {"self"}
            assert set(CALLS[name]) == parameters, name


# Runs in which every field has a value

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
FEATURES: tuple[Operation, ...] = (
    Serve(Arrive(0, (Run(0, 40),), Keys(lora="adapter-1")), 12),
    Serve(Arrive(1, (Run(1000, 40),), Keys(media=(Media("an image", 4, 20),))), 4),
    Serve(Arrive(2, (Run(0, 40),), Keys(lora="adapter-1")), 12),
    Serve(Arrive(3, (Run(3000, 20),)), 1, pools=True),
    *steps(3),
    Serve(Arrive(5, (Run(5000, 60),), Keys(media=(Media("another image", 4, 30),))), 4),
    *steps(3),
    Serve(Arrive(6, (Run(6000, 120),)), 4),
    *steps(20),
    ResetCache(connector=True),
    Serve(Arrive(7, (Run(0, 40),)), 1),
    # Its last token ends it by itself.
    Step((Reply(ends=True),)),
    *steps(2),
)
SMALL: tuple[Operation, ...] = (
    serve(0, 48, 60, family=0),
    serve(1, 48, 60, family=0),
    *steps(50),
    *(Step((Reply(ends=True),)) for _ in range(3)),
)


def engines() -> Iterator[tuple[Engine, tuple[Operation, ...]]]:
    """Runs in some of which every field has a value."""
    yield Engine(HYBRID, Stage(8, connector=True)), OPERATIONS
    stage = Stage(8, connector=True, adapters_max=2, encoder_budget=64, encoder_cache=40)
    yield Engine(full(14, tells_events=True), stage), FEATURES
    yield Engine(full(10), Stage(8, connector=True)), SMALL
    # The events of an embedded prompt name no tokens.
    embedded = Serve(Arrive(0, (Run(4000, 20),)), 4, embedded=True)
    yield Engine(full(10, tells_events=False), Stage(8)), (embedded, *steps(4))
    yield Engine(STATES, Stage(8)), (serve(0, 40), *steps(4))
    yield (
        Engine(full(20), Stage(8, asynchronous=True)),
        (serve(0, 20, structured=True), GrammarReady(0), *steps(4)),
    )


def has_value(message: Any, field: str) -> bool:
    """Whether a field differs from its empty value."""
    value = getattr(message, field)
    if value is None or hasattr(value, "shape"):
        return value is not None
    if dataclasses.is_dataclass(message):
        of = next(each for each in dataclasses.fields(message) if each.name == field)
        if of.default_factory is not dataclasses.MISSING:
            return bool(value != of.default_factory())
        if of.default is not dataclasses.MISSING:
            return bool(value != of.default)
        return value not in ("", [], {}, set(), (), 0)
    optional = getattr(message, "__struct_defaults__", ())
    if optional and field in (late := message.__struct_fields__[-len(optional) :]):
        return bool(value not in ([], optional[late.index(field)]))
    return value not in ("", [], {}, set(), (), 0)


def within(message: Any) -> Iterator[tuple[Any, Any, str]]:
    """A message and those in its fields: each with the one that has it, and the field."""
    if isinstance(message, (list, tuple)) and not hasattr(message, "_fields"):
        for each in message:
            if kinds().get(type(each).__name__) is type(each):
                yield each, None, ""
            yield from within(each)
    if kinds().get(type(message).__name__) is not type(message) or type(message).__name__ in WHOLE:
        return
    for field in sorted(fields_of(type(message))):
        inner = getattr(message, field)
        if kinds().get(type(inner).__name__) is type(inner):
            yield inner, message, field
        yield from within(inner)


# Changes

_STRANGER = "kvgate-request-77"


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, enum.Enum):
        return next(each for each in type(value) if each is not value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return type(value)(value + 1)
    if isinstance(value, str):
        return _STRANGER if value.startswith("kvgate-request-") else value + "?"
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if isinstance(value, (list, tuple)):
        # Of messages, the last one is left out.
        return type(value)(value[:-1] if fields_of(type(value[-1])) else [*value[:-1], other(value[-1])])
    if isinstance(value, set):
        return {_STRANGER} if value != {_STRANGER} else {"kvgate-request-78"}
    if isinstance(value, dict):
        return {key: other(each) for key, each in value.items()}
    if hasattr(value, "shape"):
        return value + 1
    changed = copy(value)
    field = next(each for each in sorted(fields_of(type(value))) if isinstance(getattr(value, each), (int, str)))
    object.__setattr__(changed, field, other(getattr(value, field)))
    return changed


UNCHANGED = object()
CHANGES: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("SchedulerOutput", "scheduled_cached_reqs"): lambda value: (
        type(value).make_empty() if value.req_ids else UNCHANGED
    ),
    ("SchedulerOutput", "kv_connector_metadata"): lambda value: type(value)(),
    ("NewRequestData", "sampling_params"): lambda value: _params(value, max_tokens=77),
    ("NewRequestData", "pooling_params"): lambda value: _params(value, dimensions=77),
    ("NewRequestData", "lora_request"): lambda value: type(value)("adapter-77", 77, "/nowhere"),
    ("EngineCoreOutput", "new_logprobs"): lambda value: value._replace(logprobs=value.logprobs + 1),
    ("CachedRequestData", "new_block_ids"): lambda value: (
        [*value[:-1], None] if value and value[-1] is not None else UNCHANGED
    ),
}
"""How a field is changed where another value of its kind cannot be had from this one."""


def _params(value: Any, **changed: Any) -> Any:
    value = copy(value)
    for name, each in changed.items():
        setattr(value, name, each)
    return value


def _tensor() -> Any:
    return __import__("torch").ones(3, 1)


def _engine() -> Any:
    return __import__("vllm.v1.engine").v1.engine


def _stats() -> Any:
    return __import__("vllm.v1.metrics.stats").v1.metrics.stats


def _performance() -> Any:
    return __import__("vllm.v1.metrics.perf").v1.metrics.perf.PerfStats()


def _metadata() -> Any:
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorMetadata

    return type("Metadata", (ECConnectorMetadata,), {})()


class Change:
    """Changes one field in the first message of a kind in which it has a value, or gives it one if it never has."""

    def __init__(self, name: str, field: str) -> None:
        self.name, self.field = name, field
        self.done = False
        self.valued: set[tuple[str, str]] = set()
        """The fields that had a value in some message."""

    def change(self, message: Any) -> None:
        """Change the field in a message or in one within it, if it is the first."""
        for each, owner, place in [*within(message), (message, None, "")]:
            kind = type(each).__name__
            if kind in COMPARED:
                self.valued |= {(kind, field) for field in COMPARED[kind] if has_value(each, field)}
            if kind == self.name and not self.done:
                self._change(each, owner, place)

    def _change(self, message: Any, owner: Any, place: str) -> None:
        place_of = self.name, self.field
        if place_of in EMPTY:
            changed = EMPTY[place_of][1]()
            if isinstance(changed, list) and self.name == "CachedRequestData":
                changed = changed[: len(message.req_ids)]
                if not changed:
                    return
        elif has_value(message, self.field):
            changed = CHANGES.get(place_of, other)(getattr(message, self.field))
        else:
            return
        if changed is UNCHANGED:
            return
        self.done = True
        if hasattr(message, "_replace"):
            setattr(owner, place, message._replace(**{self.field: changed}))
        elif dataclasses.is_dataclass(message):
            # Some are frozen.
            object.__setattr__(message, self.field, changed)
        else:
            setattr(message, self.field, changed)


def intercept(engine: Engine, change: Change) -> None:
    """Every message of an engine passes by before it is checked."""
    scheduler, publisher = engine.scheduler, engine.publisher
    schedule, update, publish = scheduler.schedule, scheduler.update_from_output, publisher.publish
    bitmask = scheduler.get_grammar_bitmask

    def changed_schedule() -> Any:
        output = schedule()
        change.change(output)
        # The connector's input is changed as well.
        engine.connector_check.begin()
        engine.connector_check.shown_step(output)
        return output

    def changed_update(*arguments: Any) -> Any:
        outputs = update(*arguments)
        for each in outputs.values():
            change.change(each)
        return outputs

    def changed_bitmask(output: Any) -> Any:
        masked = bitmask(output)
        if masked is not None:
            change.change(masked)
        return masked

    def changed_publish(batch: Any) -> None:
        change.change(batch)
        publish(batch)

    scheduler.schedule, scheduler.update_from_output = changed_schedule, changed_update
    scheduler.get_grammar_bitmask = changed_bitmask
    vars(publisher)["publish"] = changed_publish


def found_in(engine: Engine, operations: tuple[Operation, ...]) -> list[Divergence]:
    """The findings of a run, without those declared of vLLM itself."""
    return [each for each in run(engine, operations) if each.difference.statement != "KV-LEAK-02"]


@pytest.mark.ci
def test_unchanged_nothing_is_found_and_every_field_has_a_value() -> None:
    """The control: the same runs, with the same detours. Fields without a value in all of them are listed
    with a reason.
    """
    change = Change("", "")
    for engine, operations in engines():
        assert engine.scheduler.ec_connector is None
        intercept(engine, change)
        assert [] == found_in(engine, operations)
    compared = {(name, field) for name, fields in COMPARED.items() for field in fields}
    assert compared - change.valued == set(EMPTY)


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
    """By the checker that is listed, in the run in which it is made."""
    for engine, operations in engines():
        change = Change(name, field)
        intercept(engine, change)
        found = found_in(engine, operations)
        if change.done:
            assert found, "it is not compared"
            assert detector == found[0].detector, found[0].difference
            return
    pytest.fail("it never has a value")


@pytest.mark.parametrize(
    ("name", "field", "empty"),
    [
        ("EngineCoreOutputs", "start_wave", 0),
        ("EngineCoreOutputs", "wave_complete", 0),
        ("EngineCoreOutput", "kv_transfer_params", {}),
        ("SchedulerStats", "perf_stats", 0),
    ],
)
def test_an_empty_value_is_not_none(name: str, field: str, empty: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty value where none is due, or another one, is found as well."""
    monkeypatch.setitem(EMPTY, (name, field), ("", lambda: empty))
    test_a_change_is_found(name, field, COMPARED[name][field])


# Calls


def called_wrong(name: str, wrong: Callable[[Callable[..., Any], Any], Any]) -> Divergence | None:
    """The findings if one call of a connector is changed."""
    for engine, operations in engines():
        connector = engine.scheduler.connector
        calls: list[str] = []
        if connector is None:
            continue
        original = getattr(connector, name)

        def changed(*arguments: Any, original: Any = original, calls: list[str] = calls) -> Any:
            calls.append(name)
            return wrong(original, arguments) if len(calls) == 1 else original(*arguments)

        setattr(connector, name, changed)
        if name == "bind_gpu_block_pool":
            # The scheduler has done so when it was built.
            connector.pools.clear()
            changed(engine.scheduler.kv_cache_manager.block_pool)
        found = found_in(engine, operations)
        if calls:
            return found[0] if found else None
    return pytest.fail("it is never called")


_ANSWERS: Mapping[str, Any] = {
    "get_num_new_matched_tokens": (0, False),
    "request_finished_all_groups": (False, None),
    "reset_cache": True,
}


@pytest.mark.ci
@pytest.mark.parametrize("name", CALLS)
def test_a_missing_call_is_found(name: str) -> None:
    """The connector does not get it, and the scheduler gets an answer that it may get."""
    found = called_wrong(name, lambda _original, _arguments: _ANSWERS.get(name))
    assert found is not None
    # Anything built in it is missing in the step, too.
    assert found.detector == FINDERS.get(name, CONNECTOR), found.difference


@pytest.mark.ci
@pytest.mark.parametrize("name", CALLS)
def test_a_doubled_call_is_found(name: str) -> None:
    """The connector gets it twice, and the scheduler the second answer."""

    def twice(original: Callable[..., Any], arguments: Any) -> Any:
        original(*arguments)
        return original(*arguments)

    found = called_wrong(name, twice)
    assert found is not None
    assert found.detector == FINDERS.get(name, CONNECTOR), found.difference


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "parameter", "detector"),
    [
        pytest.param(name, parameter, detector, id=f"{name}({parameter})")
        for name, parameters in CALLS.items()
        for parameter, detector in parameters.items()
    ],
)
def test_a_call_with_something_else_is_found(name: str, parameter: str, detector: str) -> None:
    """A copy of what it is to be, or with a block too few, or a token too many."""
    place = list(CALLS[name]).index(parameter)

    def changed(original: Callable[..., Any], arguments: Any) -> Any:
        value = arguments[place]
        if parameter == "blocks":
            value = copy(value)
            value.blocks = tuple(group[:-1] for group in value.blocks)
        elif parameter == "block_ids":
            value = tuple(group[:-1] for group in value)
        else:
            value = value + 1 if isinstance(value, int) else copy(value)
        return original(*arguments[:place], value, *arguments[place + 1 :])

    found = called_wrong(name, changed)
    assert found is not None
    assert detector == found.detector, found.difference


@pytest.mark.ci
def test_an_incomplete_step_is_found() -> None:
    """The connector is shown the step itself, and what is entered in it later is compared."""

    def incomplete(original: Callable[..., Any], arguments: Any) -> Any:
        (output,) = arguments
        tokens, output.num_scheduled_tokens = output.num_scheduled_tokens, {}
        shown = original(output)
        output.num_scheduled_tokens = tokens
        return shown

    found = called_wrong("build_connector_meta", incomplete)
    assert found is not None
    assert (CONNECTOR, "KV-OP-24") == (found.detector, found.difference.statement)
