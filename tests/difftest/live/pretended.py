"""A stand-in server: the OpenAI protocol over words, with a prefix cache by salt, right or wrong as configured."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

BLOCK_WORDS = 16


@define(eq=False)
class Pretended:
    """The server's behaviour, and its counters."""

    forgets_last_word: bool = False
    """Whether a block is known without its last word, so that another one's answer is given."""
    is_noisy: bool = False
    """Whether no two answers are the same."""
    leaks: bool = False
    """Whether an aborted request runs on without end."""
    ignores_salt: bool = False
    """Whether requests with different salts share what is in the cache."""
    tells_cached: bool = True
    """Whether an answer says how many words came from the cache."""
    tells_metrics: bool = True
    """Whether it has counters."""
    shadows: dict[tuple[str, str], dict[str, int]] = field(factory=dict)
    """The reported shadow metrics, by engine and mode."""
    follows: tuple[str, str] | None = None
    """The active shadow: it observes, and checks if its mode says so, one call per request."""
    follows_until: int = 10**9
    """After so many requests that shadow is dead."""
    models: Any = field(factory=lambda: {"data": [{"id": "pretended", "max_model_len": 600}]})
    hits: int = 0
    given_up: int = 0
    asked: int = 0
    cached: dict[tuple[str, str], str] = field(factory=dict)
    """By salt and the words of the whole blocks: the answer's state after them."""
    lock: Any = field(factory=threading.Lock)
    api_key: str = ""
    """Requests without it are rejected."""
    hangs_after: int = 10**9
    """After so many requests it answers no more."""
    capacity_tokens: int = 0
    """The size of its cache, as reported."""
    preempted: int = 0
    """The number of preemptions, as reported, one per request."""
    choices: tuple[str, ...] = ()
    """Its answer where it is to choose; nothing if it rejects that."""
    generated: dict[str, int] = field(factory=dict)
    """By engine, how many tokens it has generated."""

    def state_after(self, words: list[str], salt: str) -> tuple[str, int]:
        """The state that all later answers depend on, and how many words were known."""
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
            state, hit = self.state_after(words, "" if self.ignores_salt else body["cache_salt"])
            self.hits += hit
            self.follow()
        if self.is_noisy:
            state = hashlib.sha256(f"{state}{self.asked}".encode()).hexdigest()
        tokens = [f" {state[place % 64]}" for place in range(body["max_tokens"])]
        if "structured_outputs" in body:
            tokens = [f" {self.choices[int(state, 16) % len(self.choices)]}"]
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
            ]
            * body.get("n", 1),
            "usage": {
                "prompt_tokens": len(words),
                "prompt_tokens_details": {"cached_tokens": hit} if self.tells_cached else None,
            },
        }

    def follow(self) -> None:
        """The shadow's work at a request."""
        if self.follows is None or self.asked > self.follows_until:
            return
        counts = self.shadows.setdefault(self.follows, {"calls": 0, "judged": 0, "differences": 0, "lost": 0})
        counts["calls"] += 1
        counts["judged"] += self.follows[1] == "check"

    def metrics(self) -> str:
        """The counters."""
        if not self.tells_metrics:
            return ""
        lines = {
            "vllm:prefix_cache_hits_total": self.hits,
            "vllm:num_requests_running": self.given_up if self.leaks else 0,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0,
        }
        if self.capacity_tokens:
            lines["vllm:num_preemptions_total"] = self.preempted and self.asked
        exported = [f'{name}{{engine="0"}} {value}\n' for name, value in lines.items()]
        exported += [
            f'vllm:generation_tokens_total{{engine="{name}"}} {count}\n' for name, count in self.generated.items()
        ]
        if self.capacity_tokens:
            exported.append(f'vllm:cache_config_info{{block_size="1",num_gpu_blocks="{self.capacity_tokens}"}} 1\n')
        for (engine, mode), counts in self.shadows.items():
            index, _, name = engine.rpartition("/")
            labels = f'engine="{index}",shadow="{name}",mode="{mode}"' if index else f'engine="{name}",mode="{mode}"'
            exported += [f"kvgate_shadow_{name}_total{{{labels}}} {count}\n" for name, count in counts.items()]
        return "".join(exported)


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
            is_known = self.headers.get("Authorization", "") == (pretended.api_key and f"Bearer {pretended.api_key}")
            if not is_known or ("structured_outputs" in body and not pretended.choices):
                self.send_error(400 if is_known else 401)
                return
            if pretended.asked >= pretended.hangs_after:
                time.sleep(3)
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
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
