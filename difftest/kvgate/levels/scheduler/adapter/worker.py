"""What a scheduler gets from outside: what the worker computed, and which clients aborted. The worker computes
nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from kvgate.levels.scheduler import grammar
from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.levels.scheduler.batch import Masked
from kvgate.levels.scheduler.clients import corrupted_of, logprobs_of, pooled_of, prompt_logprobs_of
from kvgate.levels.scheduler.nodes import Signals


class InOrder(set[str]):
    """A set of names, read in one order: Python's depends on the process, and vLLM frees blocks in that order."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


def answer(
    scheduled: Sequence[str],
    sampled: Mapping[int, Sequence[int]],
    signals: Signals | None = None,
    connector_statistics: Any = None,
    pooled: Collection[int] = (),
) -> Any:
    """What a model runner returns for a step: per request, the drafts that hold and one token; or nothing yet.

    It carries what a connector reports of transfers.
    """
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

    by_name = {name_of(number): list(tokens) for number, tokens in sampled.items()}
    # Words stand for tensors, which the scheduler passes on as they are.
    prompts: dict[str, Any] = {name_of(number): pooled_of(number) for number in pooled}
    reported: dict[str, Any] = {name_of(number): prompt_logprobs_of(number) for number in sampled}
    return ModelRunnerOutput(
        req_ids=list(scheduled),
        req_id_to_index={name: index for index, name in enumerate(scheduled)},
        sampled_token_ids=[by_name.get(name, []) for name in scheduled],
        logprobs=_logprobs([by_name.get(name, []) for name in scheduled]),
        prompt_logprobs_dict=reported,
        cudagraph_stats=graph_of(len(scheduled)),
        num_nans_in_logits={name_of(number): corrupted_of(number) for number in (*sampled, *pooled)},
        pooler_output=[prompts.get(name) for name in scheduled] if pooled else None,
        kv_connector_output=None
        if signals is None
        else KVConnectorOutput(
            finished_sending=InOrder(map(name_of, signals.sent)),
            finished_recving=InOrder(map(name_of, signals.received)),
            invalid_block_ids=set(signals.invalid),
            kv_connector_stats=connector_statistics,
        ),
    )


def performance_of(scheduler: Any, output: Any) -> Any:
    """How much a step computes, by vLLM's own count, made anew."""
    from vllm.v1.metrics.perf import ModelMetrics

    return ModelMetrics(scheduler.vllm_config).get_step_perf_stats_per_gpu(output)


def graph_of(requests: int) -> Any:
    """What the worker reports about how it ran a step: any value that differs will do."""
    return f"a graph of {requests} requests"


def connector_statistics(step: int) -> Any:
    """What the worker's half of a connector counted."""
    from kvgate.levels.scheduler.adapter.connector import Counted

    return Counted({"step": step})


class Publisher:
    """Publishes nothing, and remembers it."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.closed = 0
        """How often it was shut down."""

    def publish(self, batch: Any) -> None:
        """Events are to be published."""
        self.batches.append(batch.events)

    def take(self) -> list[list[Any]]:
        """The events of every batch since the last call."""
        batches, self.batches = self.batches, []
        return batches

    def shutdown(self) -> None:
        """Nothing was begun."""
        self.closed += 1


def _logprobs(sampled: Sequence[Sequence[int]]) -> Any:
    """What the worker reports for every token that it sampled, of one request after the other."""
    import numpy as np
    from vllm.v1.outputs import LogprobsLists

    rows = logprobs_of(token for tokens in sampled for token in tokens)
    tokens, values, ranks = zip(*rows, strict=True) if rows else ((), (), ())
    starts = [0, *accumulate(map(len, sampled))]
    return LogprobsLists(np.array(tokens)[:, None], np.array(values)[:, None], np.array(ranks), starts)


def drafts(proposed: Mapping[int, Sequence[int]]) -> Any:
    """What a draft layer proposes after the tokens of a step."""
    from vllm.v1.outputs import DraftTokenIds

    return DraftTokenIds([name_of(number) for number in proposed], [list(tokens) for tokens in proposed.values()])


def abort(scheduler: Any, numbers: Sequence[int] | None) -> list[tuple[int, int]]:
    """Clients abort requests, one or several, or None for all: each that was alive, with its client."""
    from vllm.v1.request import RequestStatus

    # Not the scheduler's own wrapper, which ends requests one by one.
    finish, names = type(scheduler).finish_requests, None if numbers is None else [*map(name_of, numbers)]
    ended = finish(scheduler, names, RequestStatus.FINISHED_ABORTED)
    # Newer releases return the requests.
    pairs = (each if isinstance(each, tuple) else (each.request_id, each.client_index) for each in ended or ())
    return [(number_in(name), client) for name, client in pairs]


def pause(scheduler: Any, running: bool | None) -> None:
    """Pause those that wait, or also those that run; None: resume."""
    from vllm.v1.core.sched.interface import PauseState

    states = {None: PauseState.UNPAUSED, False: PauseState.PAUSED_NEW, True: PauseState.PAUSED_ALL}
    scheduler.set_pause_state(states[running])


def reset_cache(scheduler: Any, preempts: bool, connector: bool) -> bool:
    """Reset the prefix cache, and what the connector keeps; returns whether that was done."""
    return bool(scheduler.reset_prefix_cache(reset_running_requests=preempts, reset_connector=connector))


def masked(scheduler: Any, output: Any) -> Masked:
    """The requests whose grammars mask the tokens of a step, each with the drafts that are masked as well."""
    asked: list[Masked] = []

    def grammar_bitmask(_requests: Any, names: Sequence[str], drafts: Mapping[str, Sequence[int]]) -> None:
        # The mask itself is made of grammars, and is passed on as it is.
        asked.append(tuple((number_in(name), tuple(drafts.get(name, ()))) for name in names))

    scheduler.structured_output_manager.grammar_bitmask = grammar_bitmask
    found = scheduler.get_grammar_bitmask(output)
    if found is None:
        return ()
    (mask,) = asked or [()]
    numbers = map(number_in, found.structured_output_request_ids)
    named = tuple((number, dict(mask).get(number, ())) for number in numbers)
    # What is masked and what the worker is sent must be of the same requests; else it equals nothing that is due.
    return mask if mask == named else (*mask, *named)


class Grammar:
    """A compiled grammar: it allows some tokens, and records those that it was given."""

    def __init__(self, answers_max: int | None) -> None:
        self.left = answers_max
        """How many tokens more it accepts; None: all."""
        self._accepted: list[int] = []

    def accept_tokens(self, _request: str, tokens: Sequence[int]) -> bool:
        """A request was answered these tokens; whether all of them are allowed."""
        self._accepted += tokens
        if self.left is None:
            return True
        self.left -= len(tokens)
        return self.left >= 0

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The drafts before the first that is not allowed."""
        return list(tokens[: grammar.allowed(tokens)])

    def take(self) -> tuple[int, ...]:
        """The tokens that it was given since they were taken last."""
        accepted, self._accepted = tuple(self._accepted), []
        return accepted


def grammar_ready(request: Any, answers_max: int | None) -> Grammar:
    """The grammar of a request is compiled."""
    from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

    # Some releases assert that it is one of theirs.
    StructuredOutputGrammar.register(Grammar)
    request.structured_output_request.grammar = compiled = Grammar(answers_max)
    return compiled


def ends_by_number(scheduler: Any) -> None:
    """Have requests that end together, since their loads failed, end by their numbers.

    vLLM ends them in the order of a set of strings, which differs from process to process: so would the free queue.
    """

    def finish(request_ids: Any, *rest: Any, **more: Any) -> list[Any]:
        if request_ids is None or isinstance(request_ids, str):
            return type(scheduler).finish_requests(scheduler, request_ids, *rest, **more) or []
        return [each for name in sorted(request_ids, key=number_in) for each in finish(name, *rest, **more)]

    scheduler.finish_requests = finish
