"""What clients receive: the answered tokens of their requests, and once, when and why each request ended.

A client waits for its outputs, and knows nothing else. They are compared with what the model answered, up to the token
that ends the request, and with what was done for it meanwhile. A client that aborts receives nothing. If a load fails
and ends the request, its client receives that; which requests these are, the scheduler's own bookkeeping says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from attrs import evolve, field, frozen

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler import finish_check
from kvgate.levels.scheduler.operations import Options
from kvreference.answers import Answer, Granted
from kvreference.operations import Abort, Admit, Continue, Finish, OfRequest, Operation, Preempt
from kvreference.population import Population

STATEMENT = "KV-SYS-05"
CLIENTS = 2
"""How many clients there are."""
STOPPED, LENGTH, ERROR = "stop", "length", "error"

Rest: TypeAlias = Mapping[str, object]
"""By vLLM's field, what a message says beyond its tokens; what it says nothing of is left out."""


@frozen
class ClientOutput:
    """What a client receives of one request after one step."""

    tokens: tuple[int, ...]
    ended: str | None = None
    """Why it ended; None: it continues."""
    stop: object = None
    """The token that stopped it."""
    rest: Rest = field(factory=dict)


def reported_stop(stop: object, earlier: object) -> object:
    """Which token stopped a part of a session, as its client is sent; ``earlier`` stopped a part before."""
    del earlier
    return stop


def client_of(number: int) -> int:
    """Who sent a request."""
    return number % CLIENTS


# What a request asks for, and what the worker says of it, beyond tokens: any values that differ will do.


def trace_headers_of(number: int) -> dict[str, str]:
    """What the client traces a request by."""
    return {"traceparent": f"trace-{number}"}


def asks_logprobs(number: int) -> bool:
    """Whether a request asks for the probabilities of its tokens."""
    return number % 2 == 0


def logprobs_of(tokens: Iterable[int]) -> tuple[tuple[int, float, int], ...]:
    """Those: the token, its probability, its rank."""
    return tuple((token, -float(token), token % 7) for token in tokens)


def prompt_logprobs_of(number: int) -> str:
    """What the worker says of the tokens of a prompt."""
    return f"those of request {number}"


def corrupted_of(number: int) -> int:
    """How many values the worker could not compute."""
    return number % 3


def pooled_of(number: int) -> str:
    """What the prompt of a request is, to the worker."""
    return f"the prompt of request {number}"


def transfer_parameters(number: int) -> dict[str, object]:
    """What a connector says of a request that another node reads."""
    return {"read": number}


def connector_counted(times: int) -> dict[str, object]:
    """What the scheduler's half of a connector has counted when it is asked so many times."""
    return {"asked": times} if times % 3 else {}


class Correspondence:
    """What clients are due beyond tokens: what happened to their requests since their last output."""

    def __init__(self, fields: Collection[str], options: Options) -> None:
        self.fields = fields
        """What the release's messages have."""
        self.options = options
        self._events: dict[int, list[str]] = {}
        self._prefill: dict[int, tuple[int, ...] | None] = {}
        """Of a request that was not answered yet: how long its prompt is, how many tokens were computed, cached in all,
        cached here, and came from other nodes."""
        self._ended: dict[int, set[int]] = {}
        """Per client, its requests that ended."""

    def submitted(self, number: int) -> None:
        """A request came."""
        self._events[number] = ["QUEUED"]
        self._prefill[number] = (0,) * 5

    def observe(self, operation: Operation, answer: Answer, population: Population) -> None:
        """Something was done for a request; the ``population`` is as it was before."""
        if not isinstance(operation, OfRequest):
            return
        number = operation.request
        if isinstance(operation, Admit) and isinstance(answer, Granted):
            request = population[number]
            if request.tokens_computed == 0 and self._prefill.get(number) is not None:
                here, there, prompt = answer.hit_tokens, answer.external_tokens, request.prompt_tokens
                self._prefill[number] = prompt, prompt - here - there, here + there, here, there
            if not answer.loads:
                self._events[number].append("SCHEDULED")
        elif isinstance(operation, Preempt):
            self._events[number].append("PREEMPTED")
        elif isinstance(operation, Continue):
            self._events[number].append("QUEUED")
        elif isinstance(operation, (Finish, Abort)):
            self._ended.setdefault(client_of(number), set()).add(number)

    def of_answer(self, number: int, said: ClientOutput, is_read: bool, is_pooled: bool = False) -> ClientOutput:
        """What is said of a request that is answered, by tokens or by what its prompt is."""
        rest = {
            "pooling_output": pooled_of(number) if is_pooled else None,
            "events": self._take(number),
            "prefill_stats": self._prefill.get(number),
            "trace_headers": trace_headers_of(number),
            "num_nans_in_logits": corrupted_of(number),
            "new_prompt_logprobs_tensors": None if is_pooled else prompt_logprobs_of(number),
            "new_logprobs": logprobs_of(said.tokens) if asks_logprobs(number) and said.tokens else None,
            "kv_transfer_params": transfer_parameters(number) if is_read and said.ended else None,
        }
        self._prefill[number] = None
        return evolve(said, rest=self._known(rest))

    def of_failure(self, number: int, said: ClientOutput) -> ClientOutput:
        """What is said of a request that ends without an answer."""
        rest = {"events": self._take(number), "trace_headers": trace_headers_of(number)}
        return evolve(said, rest=self._known(rest))

    def ended(self) -> Mapping[int, frozenset[int]]:
        """Per client, its requests that ended since the last call."""
        ended, self._ended = self._ended, {}
        reported = {} if self.options.without_ends else ended
        return {client: frozenset(numbers) for client, numbers in reported.items()}

    def _known(self, rest: Rest) -> Rest:
        return {name: value for name, value in without_nothing(rest).items() if name in self.fields}

    def _take(self, number: int) -> tuple[str, ...]:
        events = () if self.options.without_statistics else tuple(self._events[number])
        self._events[number] = []
        return events


_SAYS_NOTHING: Rest = {
    "engine_index": 0,
    "num_nans_in_logits": 0,
    "current_wave": 0,
    "step_counter": 0,
    "waiting_lora_adapters": {},
    "running_lora_adapters": {},
    "pending_structured_output_tokens": False,
}
"""Fields that have this value, and not None, where there is nothing to say."""


def without_nothing(rest: Rest) -> Rest:
    """Without what says nothing; of a field for one client, the name begins with that of the field."""

    def says(name: str, value: object) -> bool:
        nothing = _SAYS_NOTHING.get(name.partition(" ")[0])
        return value is not None and (nothing is None or type(value) is not type(nothing) or value != nothing)

    return {name: value for name, value in rest.items() if says(name, value)}


def due(
    before: Mapping[int, finish_check.Books], sampled: Mapping[int, Sequence[int]], stop: int, failed: Iterable[int]
) -> dict[int, ClientOutput]:
    """Per request, what is to be sent; ``failed`` are those that end because their load failed."""
    said = {number: ClientOutput((), ERROR) for number in failed}
    for number, books in before.items():
        tokens, ended = finish_check.due(books, sampled[number], stop)
        answered = tuple(sampled[number][: tokens - books.tokens])
        stopped = ended and answered[-1] == stop and len(answered) >= books.answers_missing
        why = ERROR if finish_check.is_rejected(books, answered) else STOPPED if stopped else LENGTH
        said[number] = ClientOutput(answered, why if ended else None, stop if stopped else None)
    return said


def check(expected: Mapping[int, ClientOutput], reported: Iterable[tuple[int, int, ClientOutput]]) -> Difference | None:
    """Compare with what is sent: to which client, of which request, what."""
    left = dict(expected)
    for client, number, got in reported:
        where = f"request {number}, as sent to its client"
        if client != client_of(number):
            return Difference(STATEMENT, where, f"sent to client {client_of(number)}", f"sent to client {client}")
        ours = left.pop(number, None)
        if ours is None:
            return Difference(STATEMENT, where, "nothing more", _words(got))
        if evolve(ours, rest={}) != evolve(got, rest={}):
            return Difference(STATEMENT, where, _words(ours), _words(got))
        found = differs(STATEMENT, where, ours.rest, got.rest)
        if found is not None:
            return found
    for number, ours in left.items():
        return Difference(STATEMENT, f"request {number}, as sent to its client", _words(ours), "nothing")
    return None


def check_all(
    ended: Mapping[int, frozenset[int]], reported: Mapping[int, frozenset[int]], rest: Rest
) -> Difference | None:
    """Compare the ends sent to all clients with the requests of each that ended; nothing else is sent to all."""
    if ended != reported:
        return Difference(STATEMENT, "the requests that ended, by client", str(dict(ended)), str(dict(reported)))
    return differs(STATEMENT, "what clients receive", {}, rest)


def differs(statement: str, where: str, ours: Rest, theirs: Rest) -> Difference | None:
    """The first field in which two messages differ."""
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            return Difference(statement, f"{where} ({name})", str(ours.get(name)), str(theirs.get(name)))
    return None


def _words(said: ClientOutput) -> str:
    end = "continues" if said.ended is None else f"ends ({said.ended})"
    return f"{list(said.tokens)}, {end}" + ("" if said.stop is None else f" with {said.stop}")
