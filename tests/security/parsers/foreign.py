"""Parsers of foreign files: models, the configurations of published ones, dumps, reports, public traces of requests."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

from kvgate.explain.explanation import case_of, explain
from kvgate.explain.load import load as layout_of
from kvgate.explain.reports import read as read_report
from kvgate.explain.serving import Serving, Speculation
from kvgate.kernel.models import load
from kvgate.report.document import to_json
from kvgate.report.explanation import report_of
from kvgate.report.text import text_report
from kvgate.simulation.traces.mooncake import mooncake
from kvgate.simulation.traces.requests import requests_log
from kvgate.simulation.traces.weka import weka

from .parser import Form, Parser, from_file

_MODEL = {
    "groups": [
        {"kind": "full", "block_size_tokens": 16},
        {"kind": "sliding_window", "block_size_tokens": 16, "window_tokens": 64, "lookahead": True},
        {"kind": "mamba", "block_size_tokens": 16, "states": "align", "draft_states": 2},
        {"kind": "full", "block_size_tokens": 64, "compress_ratio": 4, "unit_tokens": 32, "whole_slots": True},
    ]
}
_DEEPSEEK = {
    **{"model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 12, "num_attention_heads": 8},
    **{"num_key_value_heads": 1, "head_dim": 512, "sliding_window": 128, "compress_ratios": [0, 4, 128] * 4},
    **{"index_head_dim": 128, "num_nextn_predict_layers": 1, "max_position_embeddings": 16384},
}
_PUBLISHED = Path(__file__).parents[2] / "difftest" / "explain"
"""Configurations of published models in small, and reports, which the tests of explanations are about."""
_DUMP = {
    **{"format": "kvgate-kv-cache-config", "version": 1, "vllm": "0.20.2", "num_blocks": 4000, "block_bytes": 524288},
    "groups": [
        {"kind": "full", "block_size_tokens": 16, "layers": 8},
        {"kind": "sliding_window", "block_size_tokens": 16, "layers": 8, "window_tokens": 1024, "lookahead": True},
        {"kind": "mamba", "block_size_tokens": 64, "states": "align", "draft_states": 1, "label": "states"},
    ],
}
_CHATS = (
    {"timestamp": 0, "input_length": 1000, "output_length": 7, "hash_ids": [4, 5]},
    {"timestamp": 9, "input_length": 1536, "output_length": 0, "hash_ids": [4, 5, 9]},
)


_REQUESTS = (
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "max_tokens": 9},
    {"body": {"prompt": [1, 2, 3], "max_completion_tokens": 4}, "usage": {"completion_tokens": 2}},
)
_SESSION = {
    "id": "a",
    "bs": 64,
    "requests": [
        {"t": 0.0, "i": 130, "o": 5, "h": [[1, 2]]},
        {"t": 1.0, "type": "subagent", "requests": []},
        {"t": 2.0, "i": 256, "o": 9, "h": [[1, 2], [7, 2]]},
    ],
}


def _documents(*documents: object) -> Callable[[Path], list[bytes]]:
    return lambda _folder: [json.dumps(each).encode() for each in documents]


def _published(files: str, *documents: object) -> Callable[[Path], list[bytes]]:
    there = sorted(_PUBLISHED.glob(files))
    return lambda folder: [*_documents(*documents)(folder), *(path.read_bytes() for path in there)]


def _lines(*documents: object) -> Callable[[Path], list[bytes]]:
    return lambda _folder: [b"".join(json.dumps(each).encode() + b"\n" for each in documents)]


def _packed(*documents: object) -> Callable[[Path], list[bytes]]:
    return lambda folder: [lzma.compress(each, preset=0) for each in _lines(*documents)(folder)]


def _explained(path: Path) -> None:
    """All that ``kvgate explain`` does; with drafts, too, for files whose first byte says so."""
    drafts = Speculation("mtp", 2) if path.read_bytes()[-2:-1] == b" " else None
    explanation = explain(case_of(lambda serving: layout_of(str(path), serving), Serving(speculation=drafts)))
    report = report_of(explanation)
    text_report(report)
    to_json(report)


def _geometry(path: Path) -> object:
    return load(str(path))


def _chats(path: Path) -> object:
    return mooncake(str(path))


def _sessions(path: Path) -> object:
    return weka(str(path))


def _requests(path: Path) -> object:
    return requests_log(str(path))


def _reported(path: Path) -> None:
    report = read_report(path)
    for with_prompts in (False, True):
        explain(report.case(with_prompts))


def _slow(name: str, what: str, seeds: Callable[[Path], list[bytes]], take: Callable[[bytes, Path], object]) -> Parser:
    """An explanation takes ten times as long as most of what is read."""
    return Parser(name, what, Form.JSON, seeds, take, one_in=8)


FOREIGN = (
    Parser("model", "geometry of a model", Form.JSON, _documents(_MODEL), from_file(_geometry, "m.json")),
    _slow(
        "config",
        "config.json of a published model, explained",
        _published("configs/*/config.json", _DEEPSEEK),
        from_file(_explained, "config.json"),
    ),
    _slow("dump", "dump of a KVCacheConfig, explained", _documents(_DUMP), from_file(_explained, "dump.json")),
    _slow("report", "report of a zero rate, explained", _published("reports/*.json"), from_file(_reported)),
    Parser("mooncake", "requests in Mooncake's format", Form.LINES, _lines(*_CHATS), from_file(_chats)),
    Parser("weka", "sessions of coding agents", Form.LINES, _lines(_SESSION), from_file(_sessions)),
    Parser("requests", "log of requests to OpenAI's API", Form.LINES, _lines(*_REQUESTS), from_file(_requests)),
    Parser("xz", "either of these, packed", Form.BYTES, _packed(*_CHATS), from_file(_chats)),
)
"""All of them."""
