"""The operations that an explorer tries: a short menu, so that all of their orders can be tried.

The answers of the model follow from the position: a request goes on along its track, and leaves it for the other one
where a draft was rejected, because then the model said something else. So two requests of one family may write the
same conversation, and one may be sent again with the other's answers in its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import field, frozen
from attrs.validators import ge, min_len

from kvgate.explore.families import TRACKS, Prompt, family_of, token_at, track_of
from kvreference.block_pool import NULL
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.population import Request

T = TypeVar("T")


@frozen
class Menu:
    """What is tried. Budgets and external tokens are in tokens; whatever is not legal in a state is not tried there."""

    prompts: tuple[Prompt, ...] = field(validator=min_len(1))
    families: int = field(default=1, validator=ge(1))
    """How many families of prompts there are, each with all of ``prompts``."""
    budgets_tokens: tuple[int, ...] = (64,)
    """How many tokens a step may compute."""
    samples: bool = True
    """Whether the model answers; without answers a request ends after its prompt."""
    tracks: int = 1
    """How many different answers the model has where no draft decides."""
    drafts: tuple[int, ...] = (0,)
    """How many drafts it may propose behind an answer."""
    external_tokens: tuple[int, ...] = (0,)
    """How many tokens another node's cache may provide."""
    loads: bool = False
    """Whether those may arrive later."""
    sends: bool = False
    """Whether another node may still read the blocks of a request that ends."""
    preempts: bool = True
    aborts: bool = False
    """Whether requests end wherever they stand, not only while they run."""
    releases: bool = False
    evicts: bool = False
    resets: bool = False
    dispatches: bool = False
    asks: bool = False
    """Whether questions are asked that change nothing: the longest hit, the common prefix."""

    def moves(self, manager: Manager) -> Iterator[Operation]:
        """Every operation on the menu that is legal now and stands for itself."""
        resolve = manager.population.resolve
        return (operation for operation in self._offered(manager) if resolve(operation) == operation)

    def _offered(self, manager: Manager) -> Iterator[Operation]:
        population = manager.population
        for family in range(self.families):
            for prompt in self.prompts:
                yield Arrive(population.arrived, prompt.runs(family))
        for request in population.alive.values():
            yield from self._steps(manager, request)
            yield from self._ends(request.number)
        if self.evicts:
            for block, content in enumerate(manager.pool.cached.contents()):
                if block != NULL and content is not None:
                    yield Evict(block)
        if self.dispatches:
            yield Dispatch()
        if self.resets:
            yield Reset()

    def _steps(self, manager: Manager, request: Request) -> Iterator[Operation]:
        """What a request may do next, if it lives on."""
        number = request.number
        for budget in _telling_apart(self.budgets_tokens, lambda budget: min(budget, request.tokens_pending)):
            for external in self.external_tokens:
                yield Admit(number, budget, external)
                if self.loads and external > 0:
                    yield Admit(number, budget, external, loads=True)
        for budget in _telling_apart(
            self.budgets_tokens, lambda budget: manager.population.tokens_to_schedule(request, budget)
        ):
            yield Schedule(number, budget)
        if self.samples and request.answers_next:
            yield from self._answers(request)
        if self.preempts:
            yield Preempt(number)
        if self.releases:
            yield ReleaseSkipped(number)
        if self.asks:
            yield LookUp(number)
            yield CommonPrefix(number)

    def _answers(self, request: Request) -> Iterator[Sample]:
        for accepted in range(request.drafts_in_flight + 1):
            written = [*request.tokens, *request.drafts[:accepted]]
            track = track_of(written[-1])
            if accepted < request.drafts_in_flight:
                tracks = [(track_of(request.drafts[accepted]) + 1) % TRACKS]
            else:
                tracks = [(track + other) % TRACKS for other in range(self.tracks)]
            for each in tracks:
                for drafts in self.drafts:
                    token = token_at(family_of(written[0]), each, len(written))
                    yield Sample(request.number, accepted, token, drafts)

    def _ends(self, number: int) -> Iterator[Operation]:
        yield Finish(number)
        if self.sends:
            yield Finish(number, sends=True)
        if self.aborts:
            yield Abort(number)
        if self.loads or self.sends:
            yield Transferred(number)
            yield Transferred(number, succeeded=False)


def _telling_apart(choices: tuple[T, ...], effect: Callable[[T], int]) -> list[T]:
    """The first of ``choices`` for each effect that any of them has."""
    return list({effect(choice): choice for choice in reversed(choices)}.values())[::-1]
