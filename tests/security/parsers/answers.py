"""Answers of a server, values of environment variables, and words of a command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from kvgate.adapters.releases import release_named
from kvgate.cli.check import parse_duration
from kvgate.explain.serving import speculation_of
from kvgate.kernel import shadow_switch
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import load
from kvgate.kernel.versions import version_of
from kvgate.live.metrics import held_at_rest
from kvgate.live.server import Asked, Server, first_model
from kvgate.live.shadow_metrics import shadows_of
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.policy import policy_of
from swa_retention import config
from swa_retention.additional_config import switches_of
from swa_retention.config import ConfigurationError

from .parser import Form, Parser

_COMPLETION = {
    "choices": [
        {
            "text": "a b",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -1.5], "top_logprobs": [{"a": -0.5}, None]},
        }
    ],
    "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}},
}
_MODELS = {"data": [{"id": "a/model", "max_model_len": 600}]}
_METRICS = b"""# HELP vllm:num_requests_running how many
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 0.0
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.25
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 12.0
kvgate_shadow_calls_total{engine="e",mode="check"} 7.0
kvgate_shadow_checked_total{engine="e",mode="check"} 7.0
"""
_SHADOW = (b"check\0shadow\x001048576\x000.5\x008", b"record\0\0\x000.25\x003\x0065536\x00", b"strict\0d\0\x001")
_SWITCHES = (b"4096\x001\x0016\x001\x0064\x0032", b"auto\0true\0\0auto\0\0", b"0\0off\x001\x00128\x00\x00128")
_KEYS = {"swa_retention": {"retention_interval": "auto", "pins": True, "pin_min_drop_size": 2, "partial_hits": 64}}
_WORDS = (b"gemma-hybrid+eagle+retention=64+scratch", b"compressed+partial+min=64", b"swa+masked+pinned=2+transfers")
_ASKED = (b"replays:tokens=20,others=1", b"prefixes:rounds=2", b"repeat-rate:input_tokens=64,rate=0.5,warm=no,lanes=2")


def _server(data: bytes, path: str = "") -> Server:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=data if request.url.path.endswith(path) else b"{}")

    http = httpx.Client(base_url="http://pretended", transport=httpx.MockTransport(answer))
    return Server("http://pretended", http, "a", 600)


def _completed(data: bytes, _folder: Path) -> object:
    server = _server(data)
    with server.http:
        return server.complete(Asked("a", "salt", 2))


def _models(data: bytes, _folder: Path) -> object:
    server = _server(data)
    with server.http:
        return first_model(server)


def _metrics(data: bytes, _folder: Path) -> object:
    server = _server(data)
    with server.http:
        samples = server.metrics()
        held_at_rest(lambda: samples, 0)
        return shadows_of(samples)


def _keys(data: bytes, _folder: Path) -> object:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        # vLLM rejects it.
        return None
    return switches_of(parsed)


def _environment(names: tuple[str, ...], read: Callable[[dict[str, str]], object]) -> Callable[[bytes, Path], object]:
    """Values of variables, each ended by a zero, as an environment could hold them."""

    def take(data: bytes, _folder: Path) -> object:
        values = data.decode("utf-8", "surrogateescape").split("\0")
        return read(dict(zip(names, values, strict=False)))

    return take


def _typed(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    """A word of a command line."""
    return lambda data, _folder: read(data.decode("utf-8", "surrogateescape").replace("\0", ""))


def _fixed(*seeds: bytes) -> Callable[[Path], tuple[bytes, ...]]:
    return lambda _folder: seeds


def _spoken(document: Any) -> Callable[[Path], list[bytes]]:
    return lambda _folder: [json.dumps(document).encode()]


_UNAVAILABLE = (UsageError, SystemUnavailableError)
_VARIABLES = tuple(
    shadow_switch.variable_of(name)
    for name in ("mode", "dir", "max_bytes", "sample", "dumps", "ring_bytes", "queue_bytes")
)

TYPED_OR_ANSWERED = (
    Parser("completion", "a server's answer", Form.JSON, _spoken(_COMPLETION), _completed, _UNAVAILABLE),
    Parser("models", "a server's list of models", Form.JSON, _spoken(_MODELS), _models, _UNAVAILABLE),
    Parser("metrics", "a server's /metrics", Form.BYTES, _fixed(_METRICS), _metrics, _UNAVAILABLE),
    Parser(
        *("shadow-switch", "KVGATE_SHADOW and its like", Form.WORDS),
        *(_fixed(*_SHADOW), _environment(_VARIABLES, shadow_switch.read)),
    ),
    Parser(
        *("plug-in-switch", "the plug-in's VLLM_ variables", Form.WORDS),
        *(_fixed(*_SWITCHES), _environment(config.VARIABLES, config.read), (ConfigurationError,)),
    ),
    Parser(
        *("plug-in-keys", "the plug-in's keys of additional_config", Form.JSON),
        *(_spoken(_KEYS), _keys, (ConfigurationError,)),
    ),
    Parser("model-name", "the name of a model", Form.WORDS, _fixed(*_WORDS), _typed(load)),
    Parser("workload-name", "a workload in words", Form.WORDS, _fixed(*_ASKED), _typed(workload_of), one_in=8),
    Parser("policy-name", "a policy in words", Form.WORDS, _fixed(b"masked+partial=64+min=9"), _typed(policy_of)),
    Parser("version", "a version of vLLM", Form.WORDS, _fixed(b"v0.23.0rc1.dev3+g1a2b"), _typed(version_of)),
    Parser("release", "a release to fetch", Form.WORDS, _fixed(b"native@0.23.0", b"ascend"), _typed(release_named)),
    Parser("duration", "a time budget", Form.WORDS, _fixed(b"90s", b"1.5h"), _typed(parse_duration)),
    Parser(
        *("speculation", "--speculative-config", Form.JSON),
        *(_spoken({"method": "mtp", "num_speculative_tokens": 2, "model": "a-eagle3"}), _typed(speculation_of)),
    ),
)
"""All of them."""
