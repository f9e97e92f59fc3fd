"""A server that pretends: the OpenAI protocol over words, with a prefix cache by salt, right or wrong as told."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

BLOCK_WORDS = 16


@define(eq=False)
class Pretended:
    """What the server does, and what it has counted."""

    forgets_last_word: bool = False
    """Whether a block is known without its last word, so that another one's answer is given."""
    is_noisy: bool = False
    """Whether no two answers are the same."""
    leaks: bool = False
    """Whether a request that was given up runs for ever."""
    shadow: dict[str, int] = field(factory=dict)
    models: Any = field(factory=lambda: {"data": [{"id": "pretended", "max_model_len": 600}]})
    hits: int = 0
    given_up: int = 0
    asked: int = 0
    cached: dict[tuple[str, str], str] = field(factory=dict)
    """By salt and the words of the whole blocks: the answer's state behind them."""
    lock: Any = field(factory=threading.Lock)

    def state_after(self, words: list[str], salt: str) -> tuple[str, int]:
        """What all later answers depend on, and how many words were known."""
        state, known, hit = "", True, 0
        for begin in range(0, len(words) - len(words) % BLOCK_WORDS, BLOCK_WORDS):
            block = words[begin : begin + BLOCK_WORDS]
            key = salt, " ".join([*words[:begin], *(block[:-1] if self.forgets_last_word else block)])
            if known and key in self.cached:
                state, hit = self.cached[key], hit + BLOCK_WORDS
                continue
            known = False
            state = hashlib.sha256(f"{state}{block}".encode()).hexdigest()
            self.cached[key] = state
        return hashlib.sha256(f"{state}{words[len(words) - len(words) % BLOCK_WORDS :]}".encode()).hexdigest(), hit

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        words = body["prompt"].split()
        with self.lock:
            self.asked += 1
            state, hit = self.state_after(words, body["cache_salt"])
            self.hits += hit
        if self.is_noisy:
            state = hashlib.sha256(f"{state}{self.asked}".encode()).hexdigest()
        tokens = [f" {state[place % 64]}" for place in range(body["max_tokens"])]
        return {
            "choices": [
                {
                    "text": "".join(tokens),
                    "logprobs": {
                        "tokens": tokens,
                        "token_logprobs": [-0.5] * len(tokens),
                        "top_logprobs": [{token: -0.5, " other": -1.5} for token in tokens],
                    },
                }
            ],
            "usage": {"prompt_tokens": len(words), "prompt_tokens_details": {"cached_tokens": hit}},
        }

    def metrics(self) -> str:
        """The counters."""
        lines = {
            "vllm:prefix_cache_hits_total": self.hits,
            "vllm:num_requests_running": self.given_up if self.leaks else 0,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0,
            **{f"kvgate_shadow_{name}_total": count for name, count in self.shadow.items()},
        }
        return "".join(f'{name}{{engine="0"}} {value}\n' for name, value in lines.items())


@contextmanager
def listening(pretended: Pretended) -> Iterator[str]:
    """Its address, while it listens."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_given: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            text = pretended.metrics() if self.path == "/metrics" else json.dumps(pretended.models)
            self._send(text.encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = pretended.completion(body)
            if body.get("stream"):
                pretended.given_up += 1
                self._send(b"data: {}\n\ndata: {}\n\n")
            else:
                self._send(json.dumps(answer).encode())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
