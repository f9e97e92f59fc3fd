"""What a step of vLLM's scheduler sends to its worker, in the gate's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from kvgate.adapters.translate import to_statistics
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.batch import All, Due, SentRequest
from kvgate.levels.scheduler.clients import ClientOutput, Rest, without_nothing
from kvreference.population import Population

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs


def parse_scheduler_output(output: SchedulerOutput) -> Mapping[int, SentRequest]:
    """Per request, what a step sends of it."""
    tokens, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    reported = {}
    for data in output.scheduled_new_reqs:
        reported[number_in(data.req_id)] = SentRequest(
            tokens.get(data.req_id, 0),
            data.num_computed_tokens,
            _table(data.block_ids),
            whole=True,
            new=True,
            drafts=tuple(drafts.get(data.req_id, ())),
            prompt=tuple(data.prompt_token_ids or ()),
            rest=given(vars(data)),
        )
    known = output.scheduled_cached_reqs
    more = iter(known.new_token_ids)
    columns = (known.req_ids, known.new_block_ids, known.num_computed_tokens, known.num_output_tokens)
    for name, blocks, start, answered in zip(*columns, strict=True):
        every, sent = known.all_token_ids.get(name), next(more, None)
        reported[number_in(name)] = SentRequest(
            tokens.get(name, 0),
            start,
            None if blocks is None else _table(blocks),
            whole=name in known.resumed_req_ids,
            new=False,
            drafts=tuple(drafts.get(name, ())),
            answered=answered,
            every=None if every is None else tuple(every),
            more=None if sent is None else tuple(sent),
        )
    return reported


def strays_in(output: SchedulerOutput) -> list[str]:
    """Requests that a step mentions without computing them, or that it sends as running."""
    running = output.scheduled_cached_reqs
    columns = {
        "scheduled_spec_decode_tokens": set(output.scheduled_spec_decode_tokens) - set(output.num_scheduled_tokens),
        "all_token_ids": set(running.all_token_ids) - set(running.req_ids),
        "resumed_req_ids": set(running.resumed_req_ids) - set(running.req_ids),
    }
    return [f"{name} of request {number_in(stray)}" for name, strays in columns.items() for stray in sorted(strays)]


def parse_whole_step(output: SchedulerOutput, groups: int) -> All:
    """What a step sends of all requests together; newer releases do not send what they share in their groups."""
    preempted = frozenset(map(number_in, output.preempted_req_ids or ()))
    shared = tuple(output.num_common_prefix_blocks) or (0,) * groups
    rest: dict[str, object] = {name: getattr(output, name, None) for name in _AS_IT_IS}
    return All(
        output.total_num_scheduled_tokens,
        shared,
        preempted,
        tuple(output.new_block_ids_to_zero or ()),
        output.has_structured_output_requests,
        without_nothing(rest),
    )


def media_in(output: SchedulerOutput) -> tuple[Mapping[int, tuple[int, ...]], tuple[str, ...]]:
    """By request, the places of the items that the encoder is to compute; and what the worker forgets of it."""
    media = {number_in(name): tuple(items) for name, items in output.scheduled_encoder_inputs.items()}
    return media, tuple(output.free_encoder_mm_hashes)


_AS_IT_IS = (
    "pending_structured_output_tokens",
    "num_invalid_spec_tokens",
    "kv_connector_metadata",
    "ec_connector_metadata",
)
"""What else a step sends; it is compared as it is."""


EMBEDDED = 1 << 32
"""What an embedding stands for is a token from here on."""


def given(of: Mapping[str, Any]) -> Rest:
    """What a worker is given of a new request besides its tokens and blocks: of a submission's arguments, or a step."""
    rest = {name: deepcopy(of.get(name)) for name in ("sampling_params", "pooling_params", "prefill_token_ids")}
    lora, embeds = of.get("lora_request"), of.get("prompt_embeds")
    # Adapters of one name are equal to vLLM.
    rest["lora_request"] = None if lora is None else (lora.lora_name, lora.lora_int_id, lora.lora_path)
    rest["mm_features"] = tuple(
        (item.identifier, item.modality, item.mm_hash, item.data, *astuple(item.mm_position))
        for item in of.get("mm_features") or ()
    )
    rest["prompt_embeds"] = None if embeds is None else tuple(embeds[:, 0].tolist())
    return without_nothing(rest)


def parse_client_outputs(outputs: Mapping[int, EngineCoreOutputs]) -> list[tuple[int, int, ClientOutput]]:
    """What a step's output sends to the clients: to which client, of which request, what."""
    return [
        (
            client,
            number_in(each.request_id),
            ClientOutput(
                tuple(each.new_token_ids),
                None if each.finish_reason is None else str(each.finish_reason),
                each.stop_reason,
                _said_besides(each),
            ),
        )
        for client, reported in outputs.items()
        for each in reported.outputs
    ]


def client_fields() -> frozenset[str]:
    """What a client can receive of a request."""
    from vllm.v1.engine import EngineCoreOutput

    return frozenset(EngineCoreOutput.__struct_fields__)


def _said_besides(output: Any) -> Rest:
    rest = {name: getattr(output, name) for name in output.__struct_fields__ if name not in _SAID}
    rest["events"] = tuple(event.type.name for event in rest["events"] or ())
    logprobs, prefill, experts = rest["new_logprobs"], rest.get("prefill_stats"), rest.get("routed_experts")
    if experts is not None:
        rest["routed_experts"] = experts.tolist()
    if logprobs is not None:
        columns = logprobs.logprob_token_ids[:, 0], logprobs.logprobs[:, 0], logprobs.sampled_token_ranks
        rows = tuple(zip(*(column.tolist() for column in columns), strict=True))
        # Where the tokens of each request begin is for those that have several.
        rest["new_logprobs"] = rows if logprobs.cu_num_generated_tokens is None else (rows, logprobs)
    if prefill is not None:
        rest["prefill_stats"] = tuple(vars(prefill).values())
    return without_nothing(rest)


_SAID = ("request_id", "new_token_ids", "finish_reason", "stop_reason")


def parse_outputs_to_all(outputs: Mapping[int, EngineCoreOutputs]) -> tuple[Mapping[int, frozenset[int]], Rest]:
    """Per client, the requests that are reported to it as ended; and what else a step's output sends to clients."""
    ended = {
        client: frozenset(map(number_in, reported.finished_requests or ())) for client, reported in outputs.items()
    }
    rest = {
        f"{name} for client {client}": getattr(reported, name)
        for client, reported in outputs.items()
        for name in reported.__struct_fields__
        if name not in ("outputs", "finished_requests", "scheduler_stats", "timestamp")
    }
    return {client: numbers for client, numbers in ended.items() if numbers}, without_nothing(rest)


def statistics_in(outputs: Mapping[int, EngineCoreOutputs]) -> list[Rest]:
    """What a step's output reports of the scheduler, if anything."""
    reported = [vars(each.scheduler_stats) for each in outputs.values() if each.scheduler_stats is not None]
    return [{name: _PLAIN.get(name, _as_it_is)(value) for name, value in each.items()} for each in reported]


def _of_connectors(counted: Any) -> object:
    """What connectors counted, without the counts of the plug-in, which ride there too."""
    if not counted or "swa_retention" not in counted:
        return counted
    return {name: value for name, value in counted.items() if name != "swa_retention"} or None


def _as_it_is(value: Any) -> object:
    return value


def _counted(taken: Any) -> object:
    return None if taken is None else to_statistics(taken)


_PLAIN: Mapping[str, Callable[[Any], object]] = {
    "prefix_cache_stats": _counted,
    "connector_prefix_cache_stats": _counted,
    "kv_connector_stats": _of_connectors,
    "spec_decoding_stats": lambda reported: (
        reported and tuple(tuple(value) if isinstance(value, list) else value for value in vars(reported).values())
    ),
    "kv_cache_eviction_events": lambda reported: tuple(
        len(each.reuse_gaps_seconds) for each in reported if min(each.idle_seconds, each.lifetime_seconds) >= 0
    ),
}


def ended_in(output: SchedulerOutput) -> list[int]:
    """Who ended since the step before."""
    return sorted(map(number_in, output.finished_req_ids))


def due_in(
    output: SchedulerOutput, scheduler: Any, population: Population, submitted: Mapping[int, Rest], sure: bool
) -> Mapping[int, Due]:
    """Per request, what was granted in a step that was just scheduled, and what it was ``submitted`` with.

    ``sure``: whether the output of every step before it is known, so that it is known which drafts this one computes.
    """
    due = {}
    for name, tokens in output.num_scheduled_tokens.items():
        number, request = number_in(name), scheduler.requests[name]
        ours = population.alive.get(number)
        table = _table(scheduler.kv_cache_manager.get_block_ids(name))
        if ours is None:
            due[number] = Due(tokens, request.num_computed_tokens - tokens, table)
            continue
        start = (ours.tokens_computed if sure else request.num_computed_tokens) - tokens
        # Where drafts are in flight, the scheduler counts those with the answers that do not hold.
        counted = sure or not population.settings.drafts_max
        due[number] = Due(
            tokens,
            start,
            table,
            drafts=tuple(ours.drafts[: ours.drafts_in_flight]) if sure else None,
            prompt=() if "prompt_embeds" in submitted[number] else tuple(ours.tokens[: ours.prompt_tokens]),
            answered=len(ours.tokens) - ours.prompt_tokens if counted else None,
            every=_as_sent(ours.tokens[: request.num_tokens]),
            rest=submitted[number],
        )
    return due


def _as_sent(tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens as they are sent to the worker: where an embedding stands, the token is 0."""
    # Prompts are long, and few have embeddings.
    if max(tokens, default=0) < EMBEDDED:
        return tuple(tokens)
    return tuple(0 if token >= EMBEDDED else token for token in tokens)


def _table(blocks: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group) for group in blocks)
