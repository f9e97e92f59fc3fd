"""A running server behind the OpenAI protocol: completions that find a cache or miss it, given-up requests, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.live.sample import Sample

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS_MAX = 300.0
TOGETHER_MAX = 32
"""How many requests are under way at once, at most."""
_BODY_BYTES_MAX = 2**24
_WORDS_MAX = 200


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
    """Empty if the server tells no log-probabilities."""
    prompt_tokens: int
    cached_tokens: int | None
    """None if the server does not tell; vLLM does with ``--enable-prompt-tokens-details``."""


@frozen
class Asked:
    """A request."""

    prompt: str
    salt: str
    """Requests with different salts share nothing in the server's cache."""
    answer_tokens: int


@define(eq=False)
class Server:
    """A server, by its address. Not more than it says of itself is known about it."""

    url: str
    http: httpx.Client
    model: str
    tokens_max: int
    """The longest request that it takes."""

    def complete(self, asked: Asked) -> Reply:
        """Ask, and wait for the answer.

        Raises:
            SystemUnavailableError: the server did not answer, or refused.
        """
        body = self._body(asked) | {"logprobs": 2}
        return _reply(self._sent("POST", "/v1/completions", body))

    def together(self, asked: list[Asked]) -> list[Reply]:
        """Ask all at once; the answers in the same order."""
        with ThreadPoolExecutor(max_workers=min(TOGETHER_MAX, max(1, len(asked)))) as pool:
            return list(pool.map(self.complete, asked))

    def give_up(self, asked: Asked) -> None:
        """Ask, and close the connection after the first token."""
        import httpx

        body = self._body(asked) | {"stream": True}
        try:
            with self.http.stream("POST", "/v1/completions", json=body) as response:
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        return
        except httpx.HTTPError as error:
            raise _unavailable(self.url, error) from error

    def metrics(self) -> tuple[Sample, ...]:
        """The samples at ``/metrics``; none if the server has none there.

        Raises:
            SystemUnavailableError: the server did not answer.
        """
        import httpx
        from prometheus_client.parser import text_string_to_metric_families

        try:
            response = self.http.get("/metrics")
        except httpx.HTTPError as error:
            raise _unavailable(self.url, error) from error
        if response.status_code != httpx.codes.OK:
            return ()
        return tuple(
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(response.text[:_BODY_BYTES_MAX])
            for sample in family.samples
        )

    def _body(self, asked: Asked) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": asked.prompt,
            "max_tokens": asked.answer_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_salt": asked.salt,
        }

    def _sent(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        import httpx

        try:
            response = self.http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise _unavailable(self.url, error) from error
        if response.status_code != httpx.codes.OK:
            said = response.text[:_WORDS_MAX]
            raise SystemUnavailableError(f"{self.url}{path}: the server answered {response.status_code}: {said}")
        if len(response.content) > _BODY_BYTES_MAX:
            raise SystemUnavailableError(f"{self.url}{path}: an answer of more than {_BODY_BYTES_MAX} bytes")
        return response.json()


def _unavailable(url: str, error: Exception) -> SystemUnavailableError:
    return SystemUnavailableError(
        f"{url}: {type(error).__name__}: {error}; is a server running there, and does it listen on this address?"
    )


@contextmanager
def connected(url: str) -> Iterator[Server]:
    """The server at ``url``, with the first model that it serves.

    Raises:
        UsageError: ``url`` is no address of a server.
        SystemUnavailableError: nobody answers there, or nothing that speaks the protocol.
    """
    try:
        import httpx
    except ImportError as error:
        raise SystemUnavailableError("--live needs httpx: pip install 'kvgate[live]'") from error
    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise UsageError(f"--live {url}: give an address that begins with http://, such as http://127.0.0.1:8000")
    with httpx.Client(base_url=base, timeout=ANSWER_SECONDS_MAX) as http:
        server = Server(base, http, "", 0)
        try:
            first = server._sent("GET", "/v1/models")["data"][0]
            server.model, server.tokens_max = str(first["id"]), int(first.get("max_model_len") or 2048)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SystemUnavailableError(f"{base}/v1/models: no list of models: {error!r}") from error
        yield server


def _reply(plain: Any) -> Reply:
    try:
        choice, usage = plain["choices"][0], plain["usage"]
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
            text=str(choice["text"]),
            places=tuple(_places(choice.get("logprobs"))),
            prompt_tokens=int(usage["prompt_tokens"]),
            cached_tokens=details.get("cached_tokens"),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SystemUnavailableError(f"an answer that is no completion: {error!r}") from error


def _places(logprobs: Any) -> Iterator[Place]:
    if not logprobs:
        return
    others = logprobs.get("top_logprobs") or [{}] * len(logprobs["tokens"])
    for token, logprob, each in zip(logprobs["tokens"], logprobs["token_logprobs"], others, strict=True):
        yield Place(str(token), float(logprob), {str(name): float(value) for name, value in (each or {}).items()})
