"""A scope: how small a world is, and the operations that the explorer tries in it.

What was not explored lies beyond, so a scope can describe its bounds. The menu of operations is short, so that all of
their orders can be tried. The answers of the model follow from the position. A request continues along its track, and
changes to the other one where a draft was rejected, because then the model answered something else. So two requests of
one family may write the same conversation, and one may be sent again with the other's answers in its prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from attrs import field, frozen
from attrs.validators import ge, min_len

from kvgate.explore.canonical import TRACKS, Prompt, family_of, token_at, track_of
from kvgate.kernel.text import counted
from kvreference.block_pool import NULL
from kvreference.geometry import Group
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
from kvreference.settings import Settings

T = TypeVar("T")


@frozen
class Menu:
    """What is tried. Budgets and external tokens are in tokens; a move that is not legal in a state is not tried
    there."""

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
    """How many drafts it may propose after an answer."""
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


@frozen
class Scope:
    """Settings, and the operations that are tried in them."""

    settings: Settings
    menu: Menu

    @property
    def bounds(self) -> Mapping[str, str]:
        """The bounds by what they bound."""
        settings, menu = self.settings, self.menu
        families = "1 family" if menu.families == 1 else f"{menu.families} families"
        return {
            "groups": "; ".join(map(_group, settings.geometry.groups)),
            "pool": f"{counted(settings.blocks - 1, 'block')} and the null block",
            "requests": f"at most {settings.requests_max} at once, of at most {counted(settings.tokens_max, 'token')}",
            "prompts": f"of {_listed(menu.prompts)} tokens; {families}",
            "steps": f"of at most {_listed(min(each, settings.chunk_tokens) for each in menu.budgets_tokens)} tokens",
            "answers": _answers(menu),
            "operations": ", ".join(_operations(menu)),
            "switches": ", ".join(_switches(settings)) or "as they are by default",
        }


def _listed(things: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(map(str, things)))


def _group(group: Group) -> str:
    window = "" if group.window_tokens is None else f" of {group.window_tokens}"
    flags = "".join(
        (
            "" if group.compress_ratio == 1 else f", {group.compress_ratio} tokens a slot",
            f", hits at multiples of {group.unit}" if group.copies else "",
            "" if group.states is None else f", states {group.states.value}",
            ", look-ahead" if group.lookahead else "",
        )
    )
    return f"{group.kind.value.replace('_', ' ')}{window}, blocks of {counted(group.block_size_tokens, 'token')}{flags}"


def _answers(menu: Menu) -> str:
    if not menu.samples:
        return "none"
    drafts = "" if menu.drafts == (0,) else f", {_listed(menu.drafts)} drafts proposed, any number of them accepted"
    return f"{menu.tracks} at each position{drafts}"


def _operations(menu: Menu) -> list[str]:
    """The operations on the menu by name."""
    tried = {
        "admit": True,
        "schedule": True,
        "sample": menu.samples,
        "finish": True,
        "preempt": menu.preempts,
        "abort": menu.aborts,
        "release skipped": menu.releases,
        "evict": menu.evicts,
        "reset": menu.resets,
        "dispatch": menu.dispatches,
        "load": menu.loads,
        "send": menu.sends,
        "look up": menu.asks,
        "common prefix": menu.asks,
    }
    external = [f"{_listed(menu.external_tokens)} external tokens"] if menu.external_tokens != (0,) else []
    return [name for name, is_tried in tried.items() if is_tried] + external


def _switches(settings: Settings) -> list[str]:
    """The settings that are not as they are by default."""
    interval_tokens, drop_blocks = settings.retention_interval_tokens, settings.pin_drop_blocks_min
    turned = {
        "no prefix caching": not settings.caches,
        "only the first chunk must fit": not settings.full_sequence_must_fit,
        f"retention interval {interval_tokens}": interval_tokens is not None,
        "junctions kept": settings.keeps_junctions,
        "scratch first": settings.scratch_first,
        f"{settings.steps_in_flight_max} steps in flight": settings.steps_in_flight_max > 1,
        "loads out of turn": settings.loads_out_of_turn,
        f"drops of {drop_blocks} blocks pinned": drop_blocks is not None,
    }
    return [name for name, is_turned in turned.items() if is_turned]
