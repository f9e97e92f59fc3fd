"""The live requests and the state of each, as the scheduler knows them.

A scheduler drives the block manager. It knows which requests wait and which run, how many of their tokens are computed,
and which drafts are in flight. This module is that knowledge only; it holds no blocks. It decides which operations are
legal, and follows the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum

from attrs import define, evolve, field

from kvreference.answers import Answer, Granted
from kvreference.content import Keys
from kvreference.mamba import tokens_to_boundary
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Continue,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    OfRequest,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Run,
    Sample,
    Schedule,
    Transferred,
    spell,
)
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings


class Status(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    LOADING = "loading"
    """Its blocks are filled by another node; nothing is computed for it."""
    PAUSED = "paused"
    """A session between two parts of its prompt: it keeps its blocks."""
    ENDING = "ending"
    """It is over, but another node still reads or fills its blocks."""


@define
class Request:
    """One request. All counts are in tokens."""

    number: int
    tokens: list[int]
    keys: Keys
    reads_cache: bool
    prompt_tokens: int = 0
    """How many tokens it had when it arrived, or when its session had last continued."""
    status: Status = Status.WAITING
    tokens_computed: int = 0
    drafts: list[int] = field(factory=list)
    """Draft tokens proposed after ``tokens``, not verified yet."""
    drafts_in_flight: int = 0
    """How many of the drafts were scheduled: their slots hold state that may have to be taken back."""
    preemptions: int = 0
    """How often it lost its blocks."""
    parts: int = 1
    """In how many parts its prompt came so far: more than one if it is a session that continued."""
    undispatched: bool = False
    """Whether it is part of a step that did not go to the worker yet."""
    awaited: list[int] = field(factory=list)
    """Where steps are scheduled ahead: per step whose answer is awaited, oldest first, how many drafts it verifies."""
    in_flight: list[int] = field(factory=list)
    """There, of each step in flight with it, oldest first, how many of its tokens that computes."""
    answers_step: bool = False
    """Whether the last step with it is one that answers."""
    junction_tokens: int = 0
    """Where its prompt parted from what was cached when it was last looked up; 0: nowhere, or that is not kept."""

    @property
    def tokens_pending(self) -> int:
        """How many tokens, drafts included, are still to be computed."""
        return len(self.tokens) + len(self.drafts) - self.tokens_computed

    @property
    def answers_next(self) -> bool:
        """Whether all its own tokens are computed, so that the model's answer is the next thing to happen."""
        return self.status is Status.RUNNING and self.tokens_computed >= len(self.tokens)

    def copy(self) -> Request:
        """An independent request in the same state."""
        tokens, drafts = list(self.tokens), list(self.drafts)
        return evolve(self, tokens=tokens, drafts=drafts, awaited=list(self.awaited), in_flight=list(self.in_flight))


def cut(prompt: Iterable[Run], tokens: int) -> tuple[Run, ...]:
    """The first ``tokens`` tokens of a prompt."""
    runs: list[Run] = []
    for run in prompt:
        if tokens > 0:
            runs.append(Run(run.first, min(run.length, tokens)))
        tokens -= run.length
    return tuple(runs)


def tokens_served(tokens: int, lookahead: int, block: int) -> int:
    """Up to where a state can serve a hit, of a request of ``tokens`` tokens."""
    return (tokens - lookahead) // block * block


def tokens_to_a_state(tokens: int, computed: int, serves: int, block: int, answers: bool) -> int:
    """How many of ``tokens`` tokens are computed at once after ``computed`` ones, where states are kept at block ends.

    ``serves`` is the last place where a state serves a hit. If it ``answers``, those are all but the last token of a
    request that was answered before.
    """
    del answers
    return tokens if computed >= serves else min(tokens_to_boundary(computed, tokens, block), serves - computed)


class Population:
    """The requests alive, by number, in the order of arrival."""

    def __init__(self, settings: Settings, rules: Rules = OWN_RULES) -> None:
        self.settings = settings
        self.rules = rules
        self.alive: dict[int, Request] = {}
        self.arrived = 0
        self.dispatched = self.over = 0
        """Where steps are scheduled ahead: how many that compute something were dispatched, and are over."""

    def __getitem__(self, number: int) -> Request:
        return self.alive[number]

    def copy(self) -> Population:
        """An independent population in the same state."""
        other = type(self)(self.settings, self.rules)
        other.alive = {number: request.copy() for number, request in self.alive.items()}
        other.arrived = self.arrived
        other.dispatched, other.over = self.dispatched, self.over
        return other

    def tokens_to_schedule(self, request: Request, budget_tokens: int) -> int:
        """How many tokens the next step computes for ``request``: what is pending, within the budget and the limits."""
        return self.tokens_from(request, request.tokens_computed, budget_tokens)

    def tokens_from(self, request: Request, computed: int, budget_tokens: int) -> int:
        """The same, once ``computed`` tokens are computed.

        The last token that a running request may have is never computed: nothing would follow it. Where states are kept
        at block ends only, the chunks of a prompt end there, up to the last state that can serve a hit. With drafts,
        look-ahead must match after that state.
        """
        pending = len(request.tokens) + len(request.drafts) - computed
        tokens = min(pending, budget_tokens, self.settings.chunk_tokens)
        if request.status is Status.RUNNING:
            tokens = min(tokens, self.settings.tokens_max - 1 - computed)
        block = self.settings.geometry.state_block_tokens
        if block is None or computed >= len(request.tokens) - 1:
            return tokens
        lookahead = self.settings.geometry.lookahead_tokens if self.settings.drafts_max else 0
        serves = self.rules.ask(tokens_served, len(request.tokens), lookahead, block)
        answers = request.prompt_tokens < len(request.tokens) == computed + tokens + 1
        return self.rules.ask(tokens_to_a_state, tokens, computed, serves, block, answers)

    def resolve(self, operation: Operation) -> Operation | None:
        """The legal operation that ``operation`` stands for now, or None if there is none.

        A legal operation stands for itself.
        """
        if isinstance(operation, Arrive):
            return self._resolve_arrival(operation)
        if isinstance(operation, Evict):
            return Evict(1 + (operation.block - 1) % (self.settings.blocks - 1))
        if isinstance(operation, Dispatch):
            return operation if self.dispatches else None
        if not isinstance(operation, OfRequest):
            return operation
        named = self.alive.get(operation.request)
        if named is None or not self.may(type(operation), named):
            candidates = self.candidates(type(operation))
            if not candidates:
                return None
            named = self.alive[candidates[operation.request % len(candidates)]]
            operation = evolve(operation, request=named.number)
        if isinstance(operation, Rewind):
            return evolve(operation, tokens=min(operation.tokens, named.tokens_computed))
        if isinstance(operation, Continue):
            room = self.settings.tokens_max - 1 - named.tokens_computed
            return evolve(operation, prompt=cut(operation.prompt, room)) if room > 0 else None
        if isinstance(operation, Sample):
            accepted = min(operation.accepted, self.drafts_of_answer(named))
            beyond = min(operation.beyond, self.drafts_of_answer(named) - accepted)
            drafts = min(operation.drafts, self.settings.drafts_max)
            return evolve(operation, accepted=accepted, drafts=drafts, beyond=beyond)
        return operation

    def candidates(self, kind: type[Operation]) -> Sequence[int]:
        """The requests that an operation of this kind can name now, or the number of the next request.

        Of a kind that names none, 0. Empty if no operation of this kind is legal.
        """
        if kind is Arrive:
            return [self.arrived] if len(self.alive) < self.settings.requests_max else []
        if kind is Dispatch:
            return [0] if self.dispatches else []
        if not issubclass(kind, OfRequest):
            return [0]
        return [number for number, request in self.alive.items() if self.may(kind, request)]

    def may(self, kind: type[Operation], request: Request) -> bool:
        """Whether an operation of this kind can name the request now."""
        return _ELIGIBLE[kind](self, request)

    @property
    def dispatches(self) -> bool:
        """Whether it matters when a step goes to the worker."""
        return self.settings.geometry.fences

    def drafts_of_answer(self, request: Request) -> int:
        """How many drafts the step verified that the request answers next."""
        return request.drafts_in_flight

    def returned(self, numbers: Collection[int]) -> None:
        """The oldest step in flight, with these requests, is over."""
        self.over += bool(numbers)

    def withdraw(self, number: int) -> None:
        """Take a request out of the step that is being scheduled."""
        self.alive[number].undispatched = False

    def _resolve_arrival(self, operation: Arrive) -> Arrive | None:
        if len(self.alive) >= self.settings.requests_max:
            return None
        # Leaves space for at least one sampled token: a scheduler rejects a longer prompt, and here it is cut.
        prompt = cut(operation.prompt, self.settings.tokens_max - 1)
        return evolve(operation, request=max(operation.request, self.arrived), prompt=prompt)

    def settle(self, operation: Operation, answer: Answer) -> None:
        """Follow what the resolved ``operation`` did, given the manager's ``answer``."""
        if isinstance(operation, Arrive):
            self.arrived = operation.request + 1
            self.alive[operation.request] = Request(
                operation.request,
                tokens := spell(operation.prompt),
                operation.keys,
                operation.reads_cache,
                prompt_tokens=len(tokens),
            )
        elif isinstance(operation, (Admit, Schedule)):
            if isinstance(answer, Granted):
                self._compute(self.alive[operation.request], operation.tokens, answer)
        elif isinstance(operation, Sample):
            self._answer(self.alive[operation.request], operation)
        elif isinstance(operation, Preempt):
            request = self.alive[operation.request]
            request.status = Status.WAITING
            request.tokens_computed = 0
            request.drafts = []
            request.drafts_in_flight = 0
            request.preemptions += 1
        elif isinstance(operation, Rewind):
            request = self.alive[operation.request]
            request.tokens_computed = operation.tokens
            request.drafts, request.drafts_in_flight = [], 0
        elif isinstance(operation, Pause):
            request = self.alive[operation.request]
            request.status, request.drafts = Status.PAUSED, []
        elif isinstance(operation, Continue):
            request = self.alive[operation.request]
            request.status, start = Status.WAITING, request.tokens_computed
            request.tokens[start:] = spell(operation.prompt)
            items = (evolve(item, offset_tokens=start + item.offset_tokens) for item in operation.media)
            request.keys = evolve(request.keys, media=(*request.keys.media, *items))
            request.prompt_tokens = len(request.tokens)
            request.parts += 1
        elif isinstance(operation, (Finish, Abort)):
            self._end(self.alive[operation.request], operation)
        elif isinstance(operation, Transferred):
            self._transferred(self.alive[operation.request], operation.succeeded)
        elif isinstance(operation, Dispatch):
            for request in self.alive.values():
                request.undispatched = False

    def _compute(self, request: Request, budget_tokens: int, granted: Granted) -> None:
        request.tokens_computed += granted.hit_tokens + granted.external_tokens
        request.undispatched = self.settings.geometry.fences
        if granted.loads:
            request.status = Status.LOADING
            return
        request.tokens_computed += self.tokens_to_schedule(request, budget_tokens)
        request.status = Status.RUNNING
        request.drafts_in_flight = max(0, request.tokens_computed - len(request.tokens))

    def _end(self, request: Request, operation: Finish | Abort) -> None:
        if holds_on(request, operation):
            request.status = Status.ENDING
        else:
            del self.alive[request.number]

    def _transferred(self, request: Request, succeeded: bool) -> None:
        if request.status is Status.ENDING:
            del self.alive[request.number]
            return
        request.status = Status.WAITING
        # The model's answer follows from its last token, so that one is computed even if all of them arrived.
        request.tokens_computed = min(request.tokens_computed, len(request.tokens) - 1) if succeeded else 0

    def _answer(self, request: Request, operation: Sample) -> None:
        answered = [*request.drafts[: operation.accepted], operation.token]
        request.tokens += answered[: self.settings.tokens_max - len(request.tokens)]
        # The drafts that hold were computed, those that do not are taken back; the last token is for the next step.
        request.tokens_computed = len(request.tokens) - 1 + operation.beyond
        request.drafts = list(range(operation.token + 1, operation.token + 1 + operation.drafts))
        request.drafts_in_flight = 0


def holds_on(request: Request, operation: Finish | Abort) -> bool:
    """Whether a request that ends keeps its blocks until a transfer is over."""
    return request.status is Status.LOADING or (isinstance(operation, Finish) and operation.sends)


def _waits(_population: Population, request: Request) -> bool:
    return request.status is Status.WAITING


def _looks_up(_population: Population, request: Request) -> bool:
    return request.status is Status.WAITING and request.tokens_computed == 0


def _runs(_population: Population, request: Request) -> bool:
    return request.status is Status.RUNNING


def _rests(_population: Population, request: Request) -> bool:
    """Whether it runs, and no step with it is on its way to the worker."""
    return request.status is Status.RUNNING and not request.undispatched


def _is_verified(_population: Population, request: Request) -> bool:
    """Whether nothing that counts as computed may have to be taken back."""
    session = request.status is Status.PAUSED or (request.status is Status.WAITING and request.parts > 1)
    return session or (_rests(_population, request) and request.drafts_in_flight == 0)


def _transfers(_population: Population, request: Request) -> bool:
    return request.status in (Status.LOADING, Status.ENDING) and not request.undispatched


def _has_work(population: Population, request: Request) -> bool:
    """Whether there is something to compute before the model's answer; a decode step's drafts go with its token."""
    return (
        _rests(population, request)
        and not request.answers_next
        and population.tokens_to_schedule(request, request.tokens_pending) > 0
    )


def _is_filled(population: Population, request: Request) -> bool:
    """Whether it has blocks that a load may have left without their tokens. A state cannot be taken back."""
    states = population.settings.geometry.keeps_states
    return not states and not request.undispatched and request.status in (Status.LOADING, Status.RUNNING)


def _has_answered(_population: Population, request: Request) -> bool:
    """Whether it runs, and its last token is an answer that was not computed."""
    answered = len(request.tokens) > request.prompt_tokens and request.tokens_computed == len(request.tokens) - 1
    return request.status is Status.RUNNING and answered and request.drafts_in_flight == 0


def _is_paused(_population: Population, request: Request) -> bool:
    return request.status is Status.PAUSED


def _answers(_population: Population, request: Request) -> bool:
    return request.answers_next and not request.undispatched


def _ends(_population: Population, request: Request) -> bool:
    return request.status is not Status.ENDING and not request.undispatched


_ELIGIBLE: dict[type, Callable[[Population, Request], bool]] = {
    LookUp: _looks_up,
    Admit: _waits,
    Schedule: _has_work,
    Sample: _answers,
    Preempt: _rests,
    Finish: _rests,
    Abort: _ends,
    Transferred: _transfers,
    Rewind: _is_filled,
    Pause: _has_answered,
    Continue: _is_paused,
    ReleaseSkipped: _is_verified,
    CommonPrefix: _runs,
}
