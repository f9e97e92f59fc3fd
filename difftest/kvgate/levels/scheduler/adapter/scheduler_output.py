"""What a step of vLLM's scheduler tells its worker, in the gate's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.batch import All, Due, Told
from kvgate.levels.scheduler.clients import Said
from kvreference.population import Population

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs


def told_by(output: SchedulerOutput) -> Mapping[int, Told]:
    """Per request, what a step tells of it."""
    tokens, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    told = {}
    for data in output.scheduled_new_reqs:
        told[number_in(data.req_id)] = Told(
            tokens.get(data.req_id, 0),
            data.num_computed_tokens,
            _table(data.block_ids),
            whole=True,
            new=True,
            drafts=tuple(drafts.get(data.req_id, ())),
            prompt=tuple(data.prompt_token_ids or ()),
        )
    known = output.scheduled_cached_reqs
    more = iter(known.new_token_ids)
    columns = (known.req_ids, known.new_block_ids, known.num_computed_tokens, known.num_output_tokens)
    for name, blocks, start, answered in zip(*columns, strict=True):
        every = known.all_token_ids.get(name)
        told[number_in(name)] = Told(
            tokens.get(name, 0),
            start,
            None if blocks is None else _table(blocks),
            whole=name in known.resumed_req_ids,
            new=False,
            drafts=tuple(drafts.get(name, ())),
            answered=answered,
            every=None if every is None else tuple(every),
            more=tuple(next(more)) if known.new_token_ids else None,
        )
    return told


def all_told_by(output: SchedulerOutput, groups: int) -> All:
    """What a step tells of all requests together; newer releases do not tell what they share in their groups."""
    preempted = frozenset(map(number_in, output.preempted_req_ids or ()))
    shared = tuple(output.num_common_prefix_blocks) or (0,) * groups
    return All(output.total_num_scheduled_tokens, shared, preempted)


def said_in(outputs: Mapping[int, EngineCoreOutputs]) -> list[tuple[int, int, Said]]:
    """What a step's output tells the clients: to whom, of which request, what."""
    return [
        (
            client,
            number_in(each.request_id),
            Said(
                tuple(each.new_token_ids),
                None if each.finish_reason is None else str(each.finish_reason),
                each.stop_reason,
            ),
        )
        for client, told in outputs.items()
        for each in told.outputs
    ]


def ended_in(output: SchedulerOutput) -> list[int]:
    """Who ended since the step before."""
    return sorted(map(number_in, output.finished_req_ids))


def due_in(output: SchedulerOutput, scheduler: Any, population: Population, sure: bool) -> Mapping[int, Due]:
    """Per request, what was granted in a step that was just scheduled.

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
            prompt=tuple(ours.tokens[: ours.prompt_tokens]),
            answered=len(ours.tokens) - ours.prompt_tokens if counted else None,
            every=tuple(ours.tokens[: request.num_tokens]),
        )
    return due


def _table(blocks: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group) for group in blocks)
