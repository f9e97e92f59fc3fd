"""A running server with the OpenAI protocol: completions that find a cache or miss it, aborted requests, metrics."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.extras import from_a_clone
from kvgate.live.sample import Sample

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS_MAX = 300.0
"""For a whole answer, as far as something of it comes; and for what comes next of it."""
TOGETHER_MAX = 32
"""How many requests are under way at once, at most."""
ANSWER_BYTES_MAX = 2**24
"""The longest answer that is read, unpacked: a server is not trusted to end."""
_WORDS_MAX = 200
_ANSWER_ERRORS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
"""The exceptions that an invalid answer may raise while it becomes a value."""


@frozen
class Place:
    """One token of an answer, and how near the next best was."""

    token: str
    logprob: float
    others: Mapping[str, float]
    """Log-probabilities of the most likely tokens, this one among them if the server says them."""


@frozen
class Reply:
    """What the server answered."""

    text: str
    places: tuple[Place, ...]
    """Empty if the server reports no log-probabilities."""
    prompt_tokens: int
    cached_tokens: int | None
    """None if the server does not report it; vLLM does with ``--enable-prompt-tokens-details``."""


@frozen
class Asked:
    """A request."""

    prompt: str
    salt: str
    """Requests with different salts share nothing in the server's cache."""
    answer_tokens: int
    model: str = ""
    """An adapter that the server offers as a model; nothing for the model itself."""
    further: Mapping[str, Any] = MappingProxyType({})
    """What else its body says."""


class NotOfferedError(Exception):
    """The server rejects what an exercise asks for."""


@define(eq=False)
class Server:
    """A server, by its address. Not more than it says of itself is known about it."""

    url: str
    http: httpx.Client
    model: str
    tokens_max: int
    """The longest request that it takes."""
    adapters: tuple[str, ...] = ()
    """The LoRA adapters that it offers, by the names of their models."""
    _until: float = math.inf
    """When the time of what is done now is over."""
    _limit_seconds: float = ANSWER_SECONDS_MAX
    """How long that was."""
    _unanswered: Counter[str] = field(factory=Counter)
    """The requests under way, by what they ask."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit all requests in this context to so many seconds together."""
        self._until, self._limit_seconds = time.monotonic() + seconds, seconds
        self._unanswered.clear()
        try:
            yield
        finally:
            self._until, self._limit_seconds = math.inf, ANSWER_SECONDS_MAX

    @property
    def unanswered(self) -> int:
        """How many requests were not answered when the time was over."""
        return self._unanswered.total()

    def complete(self, asked: Asked) -> Reply:
        """Ask, and wait for the answer.

        Raises:
            SystemUnavailableError: the server did not answer, or rejected the request.
        """
        return self.several(asked, 1)[0]

    def several(self, asked: Asked, answers: int) -> list[Reply]:
        """Ask for so many answers to one prompt.

        Raises:
            SystemUnavailableError: the server did not answer, or rejected the request.
            NotOfferedError: it rejects what ``asked.further`` says.
        """
        body = self._body(asked) | {"logprobs": 2} | ({"n": answers} if answers > 1 else {})
        self._unanswered[asked.prompt] += 1
        status, content = self._answer("POST", "/v1/completions", body)
        self._unanswered[asked.prompt] -= 1
        if status in _REJECTED and (asked.further or asked.model):
            raise NotOfferedError(content[:_WORDS_MAX].decode(errors="replace"))
        return _replies(self._json("/v1/completions", status, content), answers)

    def together(self, asked: list[Asked]) -> list[Reply]:
        """Ask all at once; the answers in the same order."""
        with ThreadPoolExecutor(max_workers=min(TOGETHER_MAX, max(1, len(asked)))) as pool:
            return list(pool.map(self.complete, asked))

    def abort(self, asked: Asked) -> None:
        """Ask, and close the connection after the first token."""
        import httpx

        body = self._body(asked) | {"stream": True}
        # No line of it is longer than its beginning: that of the first token is in it.
        begun = bytearray()
        deadline = self._deadline()
        try:
            with self._stream("POST", "/v1/completions", body, deadline) as response:
                for piece in response.iter_bytes():
                    self._hurry("/v1/completions", deadline)
                    begun += piece
                    if len(begun) > ANSWER_BYTES_MAX or begun.startswith(b"data:") or b"\ndata:" in begun:
                        return
        except httpx.TimeoutException as error:
            raise self._late("/v1/completions") from error
        except httpx.HTTPError as error:
            raise _unavailable(self.url, error) from error

    def metrics(self) -> tuple[Sample, ...]:
        """The samples at ``/metrics``; none if the server has none there.

        Raises:
            SystemUnavailableError: the server did not answer.
        """
        from prometheus_client.parser import text_string_to_metric_families

        status, content = self._answer("GET", "/metrics")
        if status != _OK:
            return ()
        try:
            return tuple(
                Sample(sample.name, sample.labels, sample.value)
                for family in text_string_to_metric_families(content.decode())
                for sample in family.samples
            )
        except _ANSWER_ERRORS as error:
            raise SystemUnavailableError(f"{self.url}/metrics: no metrics as Prometheus has them: {error!r}") from error

    def _body(self, asked: Asked) -> dict[str, Any]:
        return {
            "model": asked.model or self.model,
            "prompt": asked.prompt,
            "max_tokens": asked.answer_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_salt": asked.salt,
            **asked.further,
        }

    def _sent(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._json(path, *self._answer(method, path, body))

    def _json(self, path: str, status: int, content: bytes) -> Any:
        if status != _OK:
            words = content[:_WORDS_MAX].decode(errors="replace")
            raise SystemUnavailableError(f"{self.url}{path}: the server answered {status}: {words}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise SystemUnavailableError(f"{self.url}{path}: the answer is not valid JSON: {error}") from error

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """The status, and what comes with it, read no further than its limit."""
        import httpx

        content = bytearray()
        deadline = self._deadline()
        try:
            with self._stream(method, path, body, deadline) as response:
                for piece in response.iter_bytes():
                    self._hurry(path, deadline)
                    content += piece
                    if len(content) > ANSWER_BYTES_MAX:
                        raise SystemUnavailableError(
                            f"{self.url}{path}: an answer of more than {ANSWER_BYTES_MAX} bytes"
                        )
                return response.status_code, bytes(content)
        except httpx.TimeoutException as error:
            raise self._late(path) from error
        except httpx.HTTPError as error:
            raise _unavailable(self.url, error) from error

    def _stream(self, method: str, path: str, body: Mapping[str, Any] | None, deadline: float) -> Any:
        return self.http.stream(method, path, json=body, timeout=max(0.01, deadline - time.monotonic()))

    def _deadline(self) -> float:
        return min(self._until, time.monotonic() + ANSWER_SECONDS_MAX)

    def _hurry(self, path: str, deadline: float) -> None:
        """A server that drips is not read without end: httpx's own limit is one for each read."""
        if time.monotonic() > deadline:
            raise self._late(path)

    def _late(self, path: str) -> SystemUnavailableError:
        seconds = min(self._limit_seconds, ANSWER_SECONDS_MAX)
        return SystemUnavailableError(f"{self.url}{path}: no whole answer within {seconds:g} seconds")


_OK = 200
_REJECTED = (400, 404, 422, 501)
"""What a server answers that cannot do what was asked."""


def _unavailable(url: str, error: Exception) -> SystemUnavailableError:
    return SystemUnavailableError(
        f"{url}: {type(error).__name__}: {error}; is a server running there, and does it listen on this address?"
    )


@contextmanager
def connected(url: str, api_key: str | None = None) -> Iterator[Server]:
    """The server at ``url``, with the first model that it serves; ``api_key`` is sent with each request.

    Raises:
        UsageError: ``url`` is not an address of a server.
        SystemUnavailableError: no server answers there, or not with this protocol.
    """
    try:
        import httpx
    except ImportError as error:
        raise SystemUnavailableError(f"--live needs httpx: {from_a_clone('live')}") from error
    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise UsageError(f"--live {url}: give an address that begins with http://, such as http://127.0.0.1:8000")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(base_url=base, timeout=ANSWER_SECONDS_MAX, headers=headers) as http:
        server = Server(base, http, "", 0)
        server.model, server.tokens_max, server.adapters = first_model(server)
        yield server


def first_model(server: Server) -> tuple[str, int, tuple[str, ...]]:
    """The first model that a server serves, the longest request that it takes, and the model's adapters.

    Raises:
        SystemUnavailableError: no server answers, or not with this protocol.
    """
    models = server._sent("GET", "/v1/models")
    try:
        first, *others = models["data"]
        name = str(first["id"])
        adapters = tuple(str(each["id"]) for each in others if each.get("parent") == name)
        return name, int(first.get("max_model_len") or 2048), adapters
    except _ANSWER_ERRORS as error:
        raise SystemUnavailableError(f"{server.url}/v1/models: no list of models: {error!r}") from error


def _replies(plain: Any, answers: int) -> list[Reply]:
    try:
        choices, usage = plain["choices"], plain["usage"]
        if len(choices) != answers:
            raise ValueError(f"{answers} answers were asked for, {len(choices)} came")
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return [
            Reply(
                text=str(choice["text"]),
                places=tuple(_places(choice.get("logprobs"))),
                prompt_tokens=_count(usage["prompt_tokens"], 1),
                cached_tokens=None if cached is None else _count(cached, 0),
            )
            for choice in choices
        ]
    except _ANSWER_ERRORS as error:
        raise SystemUnavailableError(f"the answer is not a completion: {error!r}") from error


def _places(logprobs: Any) -> Iterator[Place]:
    if not logprobs:
        return
    others = logprobs.get("top_logprobs") or [{}] * len(logprobs["tokens"])
    for token, logprob, each in zip(logprobs["tokens"], logprobs["token_logprobs"], others, strict=True):
        yield Place(str(token), _logprob(logprob), {str(name): _logprob(value) for name, value in (each or {}).items()})


def _count(value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"a number of at least {least} is needed, got {value!r:.80}")
    return value


def _logprob(value: object) -> float:
    """A number that can be compared: with NaN, no difference would ever be large."""
    if type(value) not in (int, float) or math.isnan(value):  # type: ignore[arg-type]  # it is one of the two
        raise ValueError(f"a log-probability is needed, got {value!r:.80}")
    return float(value)  # type: ignore[arg-type]  # likewise
