"""Requests, as vLLM's scheduler is given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kvgate.adapters.stock import hasher_of
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.clients import asks_logprobs, client_of, trace_headers_of
from kvgate.levels.scheduler.operations import Serve
from kvreference.content import Keys
from kvreference.operations import spell
from kvreference.scheduler.operations import Submit
from kvreference.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.request import Request

STOP = 999_999_999
"""The token after which every request ends."""


def arguments_of(settings: Settings, submit: Submit) -> dict[str, Any]:
    """What vLLM's request is made from for a submission; it is hashed by vLLM's own hasher."""
    import torch
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.pooling_params import PoolingParams
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    arrival, serve = submit.arrival, submit if isinstance(submit, Serve) else Serve(submit.arrival)
    tokens = spell(arrival.prompt)
    return {
        "request_id": name_of(arrival.request),
        "prompt_token_ids": None if serve.embedded else tokens,
        "prompt_embeds": torch.tensor(tokens)[:, None] if serve.embedded else None,
        "mm_features": [
            MultiModalFeatureSpec(
                # A word stands for a tensor.
                cast("Any", f"pixels of {item.identifier}"),
                "image",
                item.identifier,
                PlaceholderRange(offset=item.offset_tokens, length=item.length_tokens),
                mm_hash=f"hash of {item.identifier}",
            )
            for item in arrival.keys.media
        ],
        "lora_request": adapter_of(arrival.keys),
        "sampling_params": None
        if serve.pools
        else SamplingParams(
            max_tokens=submit.answers_max,
            min_tokens=min(serve.answers_min, submit.answers_max),
            ignore_eos=True,
            stop_token_ids=[STOP],
            skip_reading_prefix_cache=not arrival.reads_cache,
            structured_outputs=StructuredOutputsParams(regex=".*") if serve.structured else None,
            logprobs=1 if asks_logprobs(arrival.request) else None,
        ),
        "pooling_params": PoolingParams(task="embed", skip_reading_prefix_cache=not arrival.reads_cache)
        if serve.pools
        else None,
        "cache_salt": arrival.keys.salt,
        "block_hasher": hasher_of(settings),
        "priority": serve.priority,
        # Among equal priorities, in the order in which they come; and not as the clock has it.
        "arrival_time": float(arrival.request),
        "client_index": client_of(arrival.request),
        "trace_headers": trace_headers_of(arrival.request),
        **({"resumable": True} if serve.resumable else {}),
    }


ADAPTERS_MAX = 100
"""More adapters than there are names for."""


def adapter_of(keys: Keys) -> Any:
    """An adapter; the number in its name distinguishes it from others, and its version from others of that name."""
    from vllm.lora.request import LoRARequest

    if keys.lora is None:
        return None
    name, version = keys.lora, keys.lora_version
    return LoRARequest(name, 1 + int(name.rpartition("-")[2]) + version * ADAPTERS_MAX, f"/adapters/{name}/{version}")


def request_of(arguments: dict[str, Any]) -> Request:
    """vLLM's request."""
    from vllm.v1.request import Request

    return Request(**arguments)


def new_request(settings: Settings, submit: Submit) -> Request:
    """The request that a submission stands for."""
    return request_of(arguments_of(settings, submit))
