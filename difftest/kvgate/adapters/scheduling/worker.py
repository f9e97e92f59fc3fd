"""What a scheduler is told from outside: what the worker computed, and who gave up. The worker computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvgate.adapters.scheduling.names import name_of


def answer(scheduled: Sequence[str], sampled: Mapping[int, Sequence[int]]) -> Any:
    """What a model runner returns for a step: per request, the drafts that hold and one token; or nothing yet."""
    from vllm.v1.outputs import ModelRunnerOutput

    by_name = {name_of(number): list(tokens) for number, tokens in sampled.items()}
    return ModelRunnerOutput(
        req_ids=list(scheduled),
        req_id_to_index={name: index for index, name in enumerate(scheduled)},
        sampled_token_ids=[by_name.get(name, []) for name in scheduled],
    )


def drafts(proposed: Mapping[int, Sequence[int]]) -> Any:
    """What a draft layer proposes behind the tokens of a step."""
    from vllm.v1.outputs import DraftTokenIds

    return DraftTokenIds([name_of(number) for number in proposed], [list(tokens) for tokens in proposed.values()])


def abort(scheduler: Any, number: int) -> None:
    """A client gave up."""
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests(name_of(number), RequestStatus.FINISHED_ABORTED)
