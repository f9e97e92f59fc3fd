"""What a step of vLLM's scheduler tells its worker, in the gate's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvgate.adapters.scheduling.names import number_in
from kvgate.scheduling.batch import Due, Told
from kvreference.population import Population

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput


def told_by(output: SchedulerOutput) -> Mapping[int, Told]:
    """Per request, what a step tells of it."""
    tokens, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    told = {}
    for data in output.scheduled_new_reqs:
        told[number_in(data.req_id)] = Told(
            tokens.get(data.req_id, 0), data.num_computed_tokens, _table(data.block_ids), whole=True, new=True
        )
    known = output.scheduled_cached_reqs
    for name, blocks, start in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
        told[number_in(name)] = Told(
            tokens.get(name, 0),
            start,
            None if blocks is None else _table(blocks),
            whole=name in known.resumed_req_ids,
            new=False,
            drafts=tuple(drafts.get(name, ())),
        )
    return told


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
        if sure and ours is not None:
            drafts = tuple(ours.drafts[: ours.drafts_in_flight])
            due[number] = Due(tokens, ours.tokens_computed - tokens, table, drafts)
        else:
            due[number] = Due(tokens, request.num_computed_tokens - tokens, table)
    return due


def _table(blocks: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group) for group in blocks)
