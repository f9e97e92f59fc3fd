"""Chapters 04, 11 and 13: what the running population says of a request: how much it computes, and what may be taken
back.

A request may be of any length: its tokens and its drafts are known by how many they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, validators

from kvreference import ahead, population
from kvreference import manager as manager_module
from kvreference.ahead import PopulationAhead
from kvreference.answers import Done, Granted
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    CommonPrefix,
    Continue,
    Dispatch,
    Finish,
    LookUp,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.population import Population, Request, Status
from kvreference.settings import Settings
from kvspec.loops import edited
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.progress.counted import least, most
from kvspec.proofs.attention_kinds import reads
from kvspec.proofs.running_pool import books, holdings_over, manager_over
from kvspec.proofs.running_tables import on_lengths, table_of
from kvspec.running import fresh
from kvspec.stand_in import group
from kvspec.symbolic import Term, current_path, either, expression_of, formula_of, implies

BOOKS, AHEAD = "kvreference.population:Population", "kvreference.ahead"


class Tokens:
    """Tokens of which only the number is known."""

    def __init__(self, length: Any) -> None:
        self.length = length
        self.room: Any = None
        """How many more are added at most; None if any number is."""

    def __len__(self) -> Any:
        return self.length

    def __iadd__(self, more: list[Any]) -> Tokens:
        count: Any = sum(each.length if isinstance(each, Tokens) else 1 for each in more)
        return Tokens(self.length + (count if self.room is None else either(count < self.room, count, self.room)))

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            if place.stop is not None:
                # As one element of a list, which stands for all of them.
                return [Tokens(either(self.length < place.stop, self.length, place.stop))]
            return Tokens(either(self.length > place.start, self.length - place.start, 0))
        assert place == -1, "only the last is asked for, to make up others after it"
        return 0

    def __delitem__(self, which: slice) -> None:
        # From the front, or all after some.
        left = which.start if which.stop is None else self.length - which.stop
        self.length = either(self.length < left, self.length, left)


class Longest:
    """The most tokens that a request may have.

    What is more than that is cut from a list of tokens. Here a part of the list stands for many: so it is not cut, and
    when it is added to the tokens no more are than there is room for.
    """

    def __init__(self, most: Any, tokens: Tokens) -> None:
        self.most, self.tokens = most, tokens

    def __sub__(self, length: Any) -> int:
        self.tokens.room = self.most - length
        return sys.maxsize


CHUNK: dict[str, Unknown] = {
    "tokens": Count(1),
    "drafts": Count(0),
    "computed": Count(0),
    "budget": Count(1),
    "chunk": Count(1),
    "longest": Count(2),
}
"""A request, and how many tokens a step may compute of it."""


def request_of(u: Any, status: Status, **others: Any) -> Any:
    """A request with so many tokens, of which so many are computed."""
    made = Request(0, [], None, True, status=status, tokens_computed=u.computed)  # type: ignore[arg-type]  # no keys
    made.tokens = Tokens(u.tokens)  # type: ignore[assignment]  # it stands for a list
    for name, value in others.items():
        setattr(made, name, value)
    return made


NO_STATES = SimpleNamespace(state_block_tokens=None, fences=False)
"""A geometry in which chunks may end anywhere."""


def _computes(u: Any) -> Any:
    its = books(Population, chunk_tokens=u.chunk, tokens_max=u.longest, geometry=NO_STATES)
    runs = bool(u.runs == 1)
    request = request_of(u, Status.RUNNING if runs else Status.WAITING, drafts=Tokens(u.drafts))
    with on_lengths(population):
        got = its.tokens_to_schedule(request, u.budget)
    limits = [u.tokens + u.drafts - u.computed, u.budget, u.chunk, *([u.longest - 1 - u.computed] if runs else [])]
    within, is_one = True, False
    for limit in limits:
        within, is_one = within & (got <= limit), is_one | (got == limit)
    return within & is_one


COMPUTES = Obligation(
    id="scheduler-progress.running-step-stops-at-the-longest",
    statements=("KV-MEM-02", "KV-LIVE-02"),
    title="A step computes of a request as many tokens as are pending, within its budget and its chunk; a running one "
    "is never computed beyond the token before its longest, so that its last token is never computed.",
    unknowns={
        **CHUNK,
        "runs": Count(0, 1),
    },
    claim=_computes,
    witnesses={
        "it reaches its longest": lambda u: (u.runs == 1) & (u.tokens == u.longest) & (u.computed == u.tokens - 1),
        "drafts beyond it": lambda u: (
            (u.runs == 1)
            & (u.computed == u.tokens - 1)
            & (u.tokens == u.longest - 2)
            & (u.drafts == 3)
            & (u.chunk >= 4)
        ),
    },
    mutants=(
        only(
            "drafts-are-not-pending",
            "Drafts are never computed.",
            f"{BOOKS}.tokens_from",
            lambda self, request, computed, budget: min(
                request.tokens.length - computed,
                budget,
                self.settings.chunk_tokens,
                *([self.settings.tokens_max - 1 - computed] if request.status is Status.RUNNING else []),
            ),
        ),
        only(
            "computes-its-last-token",
            "The last token of the longest request is computed.",
            f"{BOOKS}.tokens_from",
            lambda self, request, computed, budget: min(
                request.tokens.length + request.drafts.length - computed, budget, self.settings.chunk_tokens
            ),
        ),
    ),
)


def _stops_at_the_last_state(u: Any) -> Any:
    geometry = SimpleNamespace(state_block_tokens=u.block, lookahead_tokens=u.lookahead, fences=True)
    its = books(Population, chunk_tokens=u.chunk, tokens_max=u.longest, drafts_max=1, geometry=geometry)
    request = request_of(u, Status.WAITING, drafts=Tokens(0), prompt_tokens=u.tokens)
    with on_lengths(population):
        got = its.tokens_to_schedule(request, u.budget)
    last = u.blocks * u.block
    return implies(u.computed < last, u.computed + got <= last) & (got >= 1)


LAST_STATE = Obligation(
    id="attention-kinds.running-chunk-stops-at-the-last-state",
    statements=("KV-OP-26",),
    title="Where states are kept at block ends only, and tokens are drafted, no chunk of a prompt passes the last "
    "block end that a replay of it can hit, with the look-ahead that must match after it: so that state is kept.",
    unknowns={**CHUNK, "drafts": Count(0, 0), "block": Count(2), "lookahead": Count(0), "blocks": Count(0)},
    assumes=lambda u: (
        (u.computed < u.tokens - 1)
        & (u.blocks * u.block + u.lookahead <= u.tokens)
        & (u.tokens < (u.blocks + 1) * u.block + u.lookahead)
    ),
    claim=_stops_at_the_last_state,
    witnesses={
        "the look-ahead does not fit after the last block end": lambda u: (
            (u.block == 4)
            & (u.lookahead == 3)
            & (u.tokens == 10)
            & (u.blocks == 1)
            & (u.chunk == 16)
            & (u.budget == 16)
        ),
        "all of it is behind": lambda u: (u.computed > u.blocks * u.block) & (u.blocks == 2),
    },
    mutants=(
        only(
            "cut-at-no-state",
            "A chunk of a prompt ends wherever the budget does.",
            "kvreference.population:tokens_to_a_state",
            lambda tokens, computed, serves, block, answers: tokens,
        ),
    ),
)

OF_ANSWER: dict[str, Unknown] = {
    "tokens": Count(1),
    "verified": Count(0),
    "accepted": Count(0),
    "room": Count(1),
}
"""A request that is answered, the drafts that were verified, and how many more tokens it may have."""


def _counts_what_holds(u: Any) -> Any:
    request = request_of(
        SimpleNamespace(tokens=u.tokens, computed=u.tokens + u.verified),
        Status.RUNNING,
        drafts=Tokens(u.verified),
        drafts_in_flight=u.verified,
    )
    its = books(Population, tokens_max=Longest(u.tokens + u.room, request.tokens), geometry=NO_STATES)
    with on_lengths(population):
        its._answer(request, SimpleNamespace(accepted=u.accepted, beyond=0, token=7, drafts=1))
    gained = request.tokens.length - u.tokens
    right = gained == either(u.accepted + 1 < u.room, u.accepted + 1, u.room)
    # All but the last token are computed: it was sampled, and none has computed it.
    right = right & (request.tokens_computed == request.tokens.length - 1)
    return right & (request.drafts_in_flight == 0) & (len(request.drafts) == 1)


ANSWERS = Obligation(
    id="eagle.running-answer-takes-back-what-failed",
    statements=("KV-MEM-01", "KV-MEM-02"),
    title="After an answer exactly the drafts that hold, however many, and the token that follows them, are the "
    "request's, up to its longest; all but the last token count as computed, and so nothing of a draft that failed.",
    unknowns=OF_ANSWER,
    assumes=lambda u: u.accepted <= u.verified,
    claim=_counts_what_holds,
    witnesses={
        "one of two drafts holds": lambda u: (u.verified == 2) & (u.accepted == 1) & (u.room == 4),
        "the end is reached": lambda u: (u.verified == 2) & (u.accepted == 2) & (u.room == 1),
    },
    mutants=(
        only(
            "failed-drafts-count",
            "Drafts that failed count as computed.",
            f"{BOOKS}._answer",
            lambda self, request, operation: _keeps(request, operation),
        ),
    ),
)


def _keeps(request: Any, operation: Any) -> None:
    before = request.tokens_computed
    _ANSWER(books(Population, tokens_max=Longest(10**6, request.tokens)), request, operation)
    request.tokens_computed = before


_ANSWER = Population._answer

LAYER, HASHED, MODEL, ELSEWHERE = range(4)
"""What drafts: a layer of a group, one that hashes cover, a model of its own in the same blocks, or none of them."""


def _model_that_drafts(u: Any) -> Settings:
    """Settings of a model with full attention and states, which drafts.

    Raises:
        ValueError: the classes of the reference reject it.
    """
    how, mode = u.how.__index__(), StateMode.ALIGN if u.aligned == 1 else StateMode.ALL
    full, states = group(Kind.FULL, 4, lookahead=how == LAYER), group(Kind.MAMBA, u.size, states=mode)
    with validators.disabled():
        states = evolve(states, draft_states=u.draft_states)
        geometry = Geometry((full, states), 1 if how == HASHED else 0)
        settings = Settings(geometry, 2, drafts_max=u.drafts_max, draft_model=how == MODEL)
    # These say what is rejected besides what is no int.
    none: Any = None
    states._states_fit_kind(none, u.draft_states)
    settings._drafts_have_states(none, u.drafts_max)
    return settings


def _drafts_have_slots(u: Any) -> Any:
    """A request is answered, more is proposed, and the next step verifies it."""
    try:
        settings = _model_that_drafts(u)
    except ValueError:
        return (u.drafts_max > u.draft_states) | ((u.aligned == 1) & (u.size < 2 * u.draft_states + 2))
    request = request_of(
        SimpleNamespace(tokens=u.tokens, computed=u.tokens + u.verified),
        Status.RUNNING,
        drafts=Tokens(u.verified),
        drafts_in_flight=u.verified,
        awaited=[u.verified],
    )
    longest = Longest(u.tokens + u.room, request.tokens)
    ahead_too = bool(u.ahead == 1)
    its = books(
        PopulationAhead if ahead_too else Population,
        tokens_max=longest,
        drafts_max=settings.drafts_max,
        geometry=NO_STATES,
    )
    its.alive = {request.number: request}
    with on_lengths(population), validators.disabled():
        answer = its.resolve(Sample(request.number, u.accepted, 7, u.proposed))
    proposed = least(u.proposed, u.drafts_max)
    fine = (answer.drafts == proposed) & (answer.accepted == least(u.accepted, u.verified))
    slots = settings.lookahead_tokens
    fine = fine & (slots == (0 if u.how == ELSEWHERE else u.drafts_max)) & (u.drafts_max <= u.draft_states)
    if ahead_too:
        return fine
    with (
        on_lengths(population),
        patch.object(population, "list", lambda numbers: numbers, create=True),
        patch.object(population, "range", lambda first, end: Tokens(end - first), create=True),
    ):
        its.settle(answer, Done())
        its.settings.tokens_max, its.settings.chunk_tokens = u.longest, u.chunk
        computes = its.tokens_to_schedule(request, u.budget)
    verified = request.tokens_computed + computes - request.tokens.length
    fine = fine & (request.drafts.length == proposed) & (verified <= proposed)
    return fine & (computes == 1 + verified) & implies(u.aligned == 1, computes < u.size)


def _keeps_one_more(self: Population, request: Request, operation: Sample) -> None:
    _ANSWER(self, request, operation)
    request.drafts += [7]


DRAFTS = Obligation(
    id="eagle.running-drafts-have-slots",
    statements=("KV-MEM-02", "KV-OP-26"),
    title="With an answer no more drafts are proposed than the settings say. If the layer or the model that drafts "
    "keeps what it computes in the blocks, look-ahead has as many slots. The next step computes one token and verifies "
    "at most these drafts; a group of states has as many draft states, and where states are kept at block ends only, "
    "the step is shorter than a block of states. Other settings are rejected.",
    unknowns={
        **OF_ANSWER,
        "how": Count(0, ELSEWHERE),
        **{name: Count(0, 1) for name in ("aligned", "ahead")},
        **{name: Count(0) for name in ("proposed", "drafts_max", "draft_states")},
        **{name: Count(1) for name in ("size", "budget", "chunk")},
        "longest": Count(2),
    },
    # The request has not reached its longest.
    assumes=lambda u: (u.accepted + 1 < u.room) & (u.tokens + u.accepted + 1 < u.longest),
    claim=_drafts_have_slots,
    witnesses={
        "more is proposed than may be": lambda u: (
            (u.how == LAYER) & (u.proposed == 5) & (u.drafts_max == 3) & (u.draft_states == 3) & (u.size == 8)
        ),
    },
    mutants=(
        only(
            "keeps-a-draft-more",
            "A draft more is kept than may be proposed.",
            f"{BOOKS}._answer",
            _keeps_one_more,
        ),
        only(
            "hashed-layer-gets-no-slots",
            "Only a layer for which hits match a unit more gets look-ahead slots.",
            "kvreference.geometry:Geometry.has_draft_layer",
            property(lambda self: self.lookahead_tokens > 0),
        ),
        only(
            "states-of-fewer-drafts",
            "More may be drafted than a group has draft states.",
            "kvreference.settings:Settings._drafts_have_states",
            lambda self, attribute, drafts_max: None,
        ),
    ),
)


class Several(Term):
    """Any number of entries of a list of numbers, by their sum, which stand there for themselves.

    What adds one to each of them adds how many they are.
    """

    __slots__ = ("count",)

    def __init__(self, total: Any, count: Any) -> None:
        super().__init__(expression_of(total))
        self.count = count

    def __radd__(self, other: Any) -> Any:
        return Term(self.z3) + (self.count if isinstance(other, int) and other == 1 else other)


class OldestAndOthers(list[Any]):
    """A list of numbers: the oldest, until it is taken, any number of others (``Several``), and what was added since.

    It may be gone through as a whole, and at both ends what is known be asked for or taken: code that asks for another
    one raises, and so refutes what is claimed. Of the first so many the sum is any that they may have.
    """

    @property
    def length(self) -> Any:
        """How many numbers it has."""
        return sum(each.count if isinstance(each, Several) else 1 for each in self)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice) and place.start is None and place.stop >= 1:
            *oldest, others = self
            some, count = fresh("some"), least(others.count, place.stop - len(oldest))
            are_all = implies(others.count == count, some == others)
            current_path().fact(formula_of((some >= 0) & (some <= others) & implies(count == 0, some == 0) & are_all))
            return [*oldest, Several(some, count)]
        if place not in (0, -1) or isinstance(super().__getitem__(place), Several):
            raise LookupError(f"only what is known at the ends may be asked for, and {place} is")
        return super().__getitem__(place)

    def pop(self, place: Any = -1) -> Any:
        """What stands there."""
        taken = self[place]
        del self[place]
        return taken


def _in_flight(u: Any) -> list[Any]:
    if isinstance(u.first, Term):
        return OldestAndOthers([u.first, Several(u.others, u.steps)])
    return [u.first, *_numbers(u)]


def _numbers(u: Any) -> list[int]:
    """So many numbers with that sum, all of it in the newest."""
    return [*(0,) * (u.steps - 1), u.others] if u.steps > 0 else []


STEPS: dict[str, Unknown] = {"first": Count(0), "others": Count(0), "steps": Count(0)}
"""Of steps in flight: how many tokens the oldest computes, or drafts it verifies, and all others, however many."""


def _no_others(u: Any) -> Any:
    return implies(u.steps == 0, u.others == 0)


def _leaves_nothing_unsure(u: Any) -> Any:
    request = request_of(u, Status.RUNNING, drafts_in_flight=u.drafts, in_flight=_in_flight(u))
    out_of_turn = bool(u.out_of_turn == 1)
    sure = u.computed - ahead.tokens_unsure(request, out_of_turn)
    # Where the oldest step in flight begins; it may have been scheduled before the request was preempted.
    begins = u.computed - sum(_in_flight(u))
    fine = (sure >= 0) & (sure <= u.computed - u.drafts)
    if not out_of_turn:
        return fine & (sure == u.computed - u.drafts)
    rest = u.computed - u.drafts
    lesser = (sure <= begins) & (sure <= rest) & ((sure == begins) | (sure == rest))
    return fine & implies(begins >= 0, lesser) & implies(begins < 0, sure == 0)


UNSURE = Obligation(
    id="attention-kinds.running-window-waits-for-what-is-unsure",
    statements=("KV-MEM-01", "KV-MEM-04", "KV-OP-06"),
    title="A window releases what no token after the sure ones reads: not sure is what drafts in flight may take back; "
    "and, where another node writes out of turn, what the steps in flight compute, however many, and no more than "
    "that.",
    unknowns={"tokens": Count(1), "computed": Count(0), "drafts": Count(0), "out_of_turn": Count(0, 1), **STEPS},
    assumes=lambda u: (u.drafts <= u.computed) & _no_others(u),
    claim=_leaves_nothing_unsure,
    witnesses={
        "three steps": lambda u: (
            (u.out_of_turn == 1) & (u.first == 4) & (u.others == 2) & (u.steps == 2) & (u.computed == 20)
        ),
        "preempted since": lambda u: (u.out_of_turn == 1) & (u.first == 30) & (u.computed == 4),
    },
    mutants=(
        only(
            "of-two-steps-alone",
            "What more than two steps in flight compute is sure.",
            f"{AHEAD}:tokens_unsure",
            lambda request, out_of_turn: max(
                request.drafts_in_flight, min(sum(request.in_flight[:2]), request.tokens_computed) if out_of_turn else 0
            ),
        ),
        only(
            "nothing-is-sure",
            "Where another node writes out of turn, no token is sure.",
            f"{AHEAD}:tokens_unsure",
            lambda request, out_of_turn: request.tokens_computed if out_of_turn else request.drafts_in_flight,
        ),
        only(
            "always-all",
            "What steps in flight compute is never sure.",
            f"{AHEAD}:tokens_unsure",
            lambda request, out_of_turn: max(
                request.drafts_in_flight, min(sum(request.in_flight), request.tokens_computed)
            ),
        ),
    ),
)


def _takes_back(u: Any) -> Any:
    """Of the steps ahead one is answered, and no draft holds; then the others are awaited as it was before."""
    its = books(PopulationAhead, tokens_max=u.tokens + 5, drafts_max=5, geometry=NO_STATES)
    awaited = _in_flight(u)
    drafts = u.first + u.others
    request = request_of(
        SimpleNamespace(tokens=u.tokens, computed=u.tokens + drafts + u.steps),
        Status.RUNNING,
        awaited=awaited,
        drafts=Tokens(drafts + u.steps + 1),
    )
    before = request.tokens_computed
    with on_lengths(ahead):
        ahead._count_drafts(request)
        unsure = request.drafts_in_flight
        its._answer(request, SimpleNamespace(accepted=0, beyond=0, token=7))
    # The tokens still unsure and those taken back are those that were unsure at first.
    fine = before - request.tokens_computed + request.drafts_in_flight == unsure
    again = request.tokens_computed == request.tokens.length + u.others + u.steps - 1
    return fine & again & (request.tokens.length == u.tokens + 1) & implies(u.steps == 0, request.drafts_in_flight == 0)


def _takes_nothing_back(request: Any) -> None:
    request.awaited.pop(0)
    request.tokens = Tokens(request.tokens.length + 1)
    ahead._count_drafts(request)


TAKES_BACK = Obligation(
    id="attention-kinds.running-answers-take-back-what-is-unsure",
    statements=("KV-MEM-01", "KV-OP-06"),
    title="If no draft of the steps in flight holds, however many, their answers take back exactly as many tokens as a "
    "window counted as not sure before: each answer takes back those of its step, and the rest is still not sure.",
    unknowns={"tokens": Count(1), **STEPS},
    assumes=_no_others,
    claim=_takes_back,
    witnesses={"each has drafts": lambda u: (u.first == 1) & (u.others == 5) & (u.steps == 2)},
    mutants=(
        only(
            "of-the-next-answer-alone",
            "Only the drafts of the oldest step are not sure.",
            f"{AHEAD}:_count_drafts",
            lambda request: setattr(request, "drafts_in_flight", sum(request.awaited[:1])),
        ),
        only(
            "of-two-steps-alone",
            "Only the drafts of the two oldest steps are not sure.",
            f"{AHEAD}:_count_drafts",
            lambda request: setattr(request, "drafts_in_flight", sum(request.awaited[:2])),
        ),
        only(
            "nothing-is-taken-back",
            "Drafts that failed count as computed.",
            f"{AHEAD}:PopulationAhead._answer",
            lambda self, request, operation: _takes_nothing_back(request),
        ),
    ),
)


def _answers_late(u: Any) -> Any:
    request = request_of(u, Status.RUNNING, awaited=[u.verified], drafts=Tokens(u.verified + 1))
    its = books(PopulationAhead, tokens_max=Longest(u.tokens + u.room, request.tokens), geometry=NO_STATES)
    ranged = patch.object(ahead, "range", lambda first, end: [Tokens(end - first)], create=True)
    with on_lengths(ahead), ranged:
        its._answer(request, SimpleNamespace(accepted=u.accepted, beyond=0, token=7))
    gained = request.tokens.length - u.tokens
    fine = (gained == either(u.accepted + 1 < u.room, u.accepted + 1, u.room)) & (len(request.awaited) == 0)
    # The step that is answered computed up to its last draft. Less is there if the request was preempted since.
    is_anew, holds = u.computed < u.tokens + u.verified, u.tokens + u.accepted
    kept = either(is_anew, either(u.computed < holds, u.computed, holds), u.computed - (u.verified - u.accepted))
    return fine & (request.tokens_computed == kept)


LATE = Obligation(
    id="eagle.running-late-answer-takes-back-what-failed",
    statements=("KV-MEM-01", "KV-MEM-02"),
    title="An answer to a step ahead adds the drafts that hold, however many, and a token, up to the request's "
    "longest. It takes back the drafts that failed. If the request was preempted since, what it computed anew stays "
    "computed, up to the last draft that holds.",
    unknowns={**OF_ANSWER, "computed": Count(0)},
    assumes=lambda u: u.accepted <= u.verified,
    claim=_answers_late,
    witnesses={
        "two of three drafts hold": lambda u: (u.verified == 3) & (u.accepted == 2) & (u.computed == u.tokens + 5),
        "a draft that fails was computed anew": lambda u: (
            (u.verified == 3) & (u.accepted == 1) & (u.computed == u.tokens + 2)
        ),
        "it has computed little since": lambda u: (u.verified == 3) & (u.tokens == 9) & (u.computed == 4),
    },
    mutants=(
        only(
            "all-is-taken-back",
            "As much is taken back as if the request had not been preempted.",
            f"{AHEAD}:PopulationAhead._answer",
            lambda self, request, operation: _answer_in_turn(self, request, operation),
        ),
    ),
)


def _answer_in_turn(self: PopulationAhead, request: Any, operation: Any) -> None:
    before, drafts = request.tokens_computed, request.awaited[0]
    _ANSWER_AHEAD(self, request, operation)
    request.tokens_computed = before - (drafts - operation.accepted)


_ANSWER_AHEAD = PopulationAhead._answer


class Most(Term):
    """How many drafts are proposed at most: a list of one token may be repeated so often, and once more."""

    __slots__ = ()

    def __radd__(self, other: Any) -> Any:
        return Most((Term(self.z3) + other).z3)

    def __rmul__(self, other: Any) -> Any:
        assert len(other) == 1, "one token"
        return [Tokens(Term(self.z3))]


def _is_in_step(u: Any, request: Any, awaited: Any) -> Any:
    """Whether what is awaited is all that is computed of what is not known, but for a last token; drafts follow it.

    Or nothing is awaited, and the request has known tokens to compute, and no drafts.
    """
    follows = (request.tokens_computed == request.tokens.length + awaited - 1) & (
        request.drafts.length == awaited + u.drafts_max
    )
    known = (awaited == 0) & (request.drafts.length == 0) & (request.tokens_computed < request.tokens.length)
    return follows | known


def _in_turn(u: Any) -> Any:
    """A request with answers that are awaited, or none."""
    awaited = _in_flight(u) if u.awaits == 1 else []
    return request_of(u, Status.RUNNING, drafts=Tokens(u.drafts), awaited=awaited, in_flight=[])


def _stays_in_step(u: Any) -> Any:
    """Of a request one more step is scheduled ahead, or the oldest is answered."""
    request = _in_turn(u)
    its = books(PopulationAhead, chunk_tokens=u.chunk, drafts_max=Most(expression_of(u.drafts_max)), geometry=NO_STATES)
    its.settings.tokens_max = u.longest
    if u.answers == 1:
        its.settings.tokens_max = Longest(u.longest, request.tokens)
        ranged = patch.object(ahead, "range", lambda first, end: [Tokens(end - first)], create=True)
        with on_lengths(ahead), ranged:
            its._answer(request, SimpleNamespace(accepted=u.accepted, beyond=0, token=7))
        return _is_in_step(u, request, ahead.tokens_awaited(request.awaited))
    with on_lengths(population), on_lengths(ahead):
        its._compute(request, u.budget, Granted(0, (), 0))
    computes = request.tokens_computed - u.computed
    awaited = ahead.tokens_awaited(request.awaited)
    if request.answers_step:
        drafts = request.awaited[-1]
        fine = (drafts <= u.drafts_max) & _is_in_step(u, request, awaited)
    else:
        # A chunk of known tokens that leaves some of them.
        drafts, fine = 0, _is_in_step(u, request, awaited)
    return fine & ((computes == 1 + drafts) | (request.drafts_in_flight == 0))


def _is_in_turn(u: Any) -> Any:
    request = _in_turn(u)
    legal = (u.computed < u.longest - 1) & (u.tokens + u.accepted + 1 <= u.longest)
    answers = implies(u.answers == 1, (u.awaits == 1) & (u.accepted <= u.first))
    return _is_in_step(u, request, ahead.tokens_awaited(request.awaited)) & legal & answers & _no_others(u)


def _expects_more(self: PopulationAhead, request: Any, budget: int, granted: Granted) -> None:
    _COMPUTE_AHEAD(self, request, budget, granted)
    request.drafts += [ahead.EXPECTED] if request.answers_step else []


def _keeps_what_was_expected(self: PopulationAhead, request: Any, operation: Any) -> None:
    before = request.drafts.length
    _ANSWER_AHEAD(self, request, operation)
    request.drafts = Tokens(before)


_COMPUTE_AHEAD, _FROM_AHEAD = PopulationAhead._compute, PopulationAhead.tokens_from
"""What they do, where nothing is broken."""

IN_STEP = Obligation(
    id="attention-kinds.running-steps-ahead-compute-their-drafts",
    statements=("KV-MEM-01", "KV-MEM-02", "KV-OP-26"),
    title="Where steps are ahead of answers, however many, each step of a request that awaits no answer from before it "
    "was preempted computes one token and its drafts, no more than the settings say, or known tokens only, and then no "
    "token that it has computed may be taken back. So it is again once the step is scheduled, and once the oldest is "
    "answered.",
    unknowns={
        **CHUNK,
        **STEPS,
        **{name: Count(0, 1) for name in ("awaits", "answers")},
        **{name: Count(0) for name in ("drafts_max", "accepted")},
    },
    assumes=_is_in_turn,
    claim=_stays_in_step,
    witnesses={
        "a second step with drafts": lambda u: (
            (u.awaits == 1)
            & (u.answers == 0)
            & (u.first == 2)
            & (u.steps == 2)
            & (u.drafts_max == 2)
            & (u.budget == 9)
            & (u.chunk == 9)
            & (u.longest == 99)
        ),
        "one of three is answered": lambda u: (
            (u.answers == 1) & (u.first == 2) & (u.accepted == 1) & (u.steps == 2) & (u.drafts_max == 2)
        ),
        "a chunk of a prompt": lambda u: (
            (u.awaits == 0) & (u.drafts == 0) & (u.drafts_max == 2) & (u.computed == 8) & (u.tokens == 40)
        ),
    },
    mutants=(
        only(
            "a-step-expects-a-draft-more",
            "A step expects a draft more than may be proposed.",
            f"{AHEAD}:PopulationAhead._compute",
            _expects_more,
        ),
        only(
            "expected-before-are-kept",
            "What was expected of the step before is expected once more.",
            f"{AHEAD}:PopulationAhead._answer",
            _keeps_what_was_expected,
        ),
    ),
)


def _counts_alike(u: Any) -> Any:
    """A request is scheduled or admitted, where steps are ahead of answers and where they are not."""
    runs, made = bool(u.runs == 1), []
    geometry = NO_STATES
    if u.states == 1:
        geometry = SimpleNamespace(state_block_tokens=u.block, lookahead_tokens=u.lookahead, fences=True)
    for kind in (Population, PopulationAhead):
        goes_ahead = kind is PopulationAhead
        request = request_of(
            u,
            Status.RUNNING if runs else Status.WAITING,
            # What a request that waits still expects of steps from before is none of its drafts.
            drafts=Tokens(u.drafts if runs or goes_ahead else 0),
            prompt_tokens=u.prompt,
            awaited=_in_flight(u) if goes_ahead and u.awaits == 1 else [],
            in_flight=[],
        )
        its = books(kind, chunk_tokens=u.chunk, tokens_max=u.longest, geometry=geometry)
        its.settings.drafts_max, its.alive = Most(expression_of(u.drafts_max)), {0: request}
        answer = Granted(u.hit, (), u.external, bool(u.loads == 1))
        with ExitStack() as stack:
            stack.enter_context(validators.disabled())
            for module in (population, ahead):
                stack.enter_context(on_lengths(module))
                for name, by in {"min": least, "max": most}.items():
                    stack.enter_context(patch.object(module, name, by, create=True))
            asked = its.tokens_from(request, u.computed + u.hit + u.external, u.budget)
            its.settle(Schedule(0, u.budget) if runs else Admit(0, u.budget), answer)
        made.append((asked, request))
    (one, other), (asked, asked_ahead) = [each for _, each in made], [each for each, _ in made]
    fine = (asked == asked_ahead) & (one.tokens_computed == other.tokens_computed)
    # Without steps ahead, all that counts and is not known is of drafts.
    if one.status is Status.RUNNING:
        fine = fine & (one.drafts_in_flight == most(one.tokens_computed - one.tokens.length, 0))
    return fine & (one.status is other.status) & (one.tokens.length == other.tokens.length)


def _may_count(u: Any) -> Any:
    awaited = either(u.awaits == 1, u.first + u.others + u.steps + 1, 0)
    waits = (u.drafts <= awaited) & (u.computed + u.hit + u.external <= u.tokens) & (u.computed < u.tokens)
    runs = (u.computed < u.tokens + u.drafts) & (u.computed < u.longest - 1) & (u.hit == 0) & (u.external == 0)
    return implies(u.runs == 0, waits) & implies(u.runs == 1, runs & (u.loads == 0)) & _no_others(u)


COUNTS_ALIKE = Obligation(
    id="content-and-cached-map.running-steps-ahead-count-alike",
    statements=("KV-MEM-01",),
    title="A step or an admission of a request computes, and makes count as computed, the same tokens where steps are "
    "ahead of answers, however many are awaited, as where each is answered first; a request that waits computes none "
    "that is awaited. Where each is answered first, those that are not known are in flight as drafts.",
    unknowns={
        **CHUNK,
        **STEPS,
        **{name: Count(0, 1) for name in ("awaits", "runs", "loads", "states")},
        **{name: Count(0) for name in ("drafts_max", "hit", "external", "prompt", "lookahead")},
        "block": Count(1),
    },
    assumes=_may_count,
    claim=_counts_alike,
    witnesses={
        "a second step ahead": lambda u: (
            (u.runs == 1) & (u.awaits == 1) & (u.steps == 1) & (u.tokens == 9) & (u.computed == 11) & (u.drafts == 5)
        ),
        "admitted again while answers are awaited": lambda u: (
            (u.runs == 0) & (u.awaits == 1) & (u.drafts == 3) & (u.hit == 4) & (u.tokens == 9)
        ),
    },
    mutants=(
        only(
            "awaited-tokens-are-computed-again",
            "A preempted request computes the tokens that are awaited in its first step.",
            f"{AHEAD}:PopulationAhead.tokens_from",
            lambda self, request, computed, budget: Population.tokens_from(self, request, computed, budget),
        ),
        only(
            "drafts-are-sure",
            "Of the drafts that a step computes, none may be taken back.",
            f"{BOOKS}._compute",
            lambda self, request, budget, granted: _takes_none_back(self, request, budget, granted),
        ),
        only(
            "the-answer-counts",
            "The token that a step answers counts as computed with it.",
            f"{AHEAD}:PopulationAhead._compute",
            lambda self, request, budget, granted: _counts_the_answer(self, request, budget, granted),
        ),
    ),
)


def _takes_none_back(self: Population, request: Any, budget: int, granted: Granted) -> None:
    _COMPUTE(self, request, budget, granted)
    request.drafts_in_flight = 0


_COMPUTE = Population._compute


def _counts_the_answer(self: PopulationAhead, request: Any, budget: int, granted: Granted) -> None:
    _COMPUTE_AHEAD(self, request, budget, granted)
    request.tokens_computed += int(request.answers_step)


class Awaited(Term):
    """How many tokens are awaited, of which a list is made."""

    __slots__ = ()

    def __rmul__(self, other: Any) -> Any:
        assert other == [ahead.EXPECTED], "nothing is known of them"
        return Tokens(Term(self.z3))


def _waits_for_answers(u: Any) -> Any:
    """A request with states is preempted while it awaits answers, or takes the oldest of them since."""
    its = books(PopulationAhead, drafts_max=1, geometry=SimpleNamespace(fences=True, keeps_states=bool(u.states == 1)))
    # A list is empty only if it has no entry, and so none that stands for no number.
    awaited = [] if u.awaits == 0 else _in_flight(u) if u.steps > 0 else OldestAndOthers([u.first])
    waits = request_of(u, Status.RUNNING if u.runs == 1 else Status.WAITING, drafts=Tokens(u.drafts), awaited=awaited)
    its.alive = {0: waits}
    if waits.status is Status.RUNNING:
        count = ahead.tokens_awaited
        with patch.object(ahead, "tokens_awaited", lambda numbers: Awaited(expression_of(count(numbers)))):
            its.settle(Preempt(0), Done())
    elif awaited:
        its.settings.tokens_max = Longest(u.longest, waits.tokens)
        ranged = patch.object(ahead, "range", lambda first, end: [Tokens(end - first)], create=True)
        with on_lengths(ahead), ranged:
            its._answer(waits, SimpleNamespace(accepted=u.accepted, beyond=0, token=7))
    left, may = ahead.tokens_awaited(waits.awaited), its.may(Admit, waits)
    if u.states == 0:
        return may
    if may:
        return len(waits.awaited) == 0 and waits.drafts.length == 0
    return (left > 0) & (waits.drafts.length == left) & (waits.tokens_computed == 0)


def _may_wait_for_answers(u: Any) -> Any:
    count = implies(u.awaits == 1, u.drafts == u.first + u.others + u.steps + 1) & implies(u.awaits == 0, u.drafts == 0)
    legal = (u.accepted <= u.first) & (u.tokens + u.accepted + 1 <= u.longest)
    return legal & _no_others(u) & implies(u.runs == 0, (u.computed == 0) & count)


ANSWERED_FIRST = Obligation(
    id="attention-kinds.running-states-wait-for-answers",
    statements=("KV-MEM-01", "KV-MEM-02", "KV-OP-26"),
    title="Where states are kept, a preempted request is admitted if and only if it awaits no answer of the steps that "
    "it was part of, however many; then it has no drafts.",
    unknowns={
        **CHUNK,
        **STEPS,
        "accepted": Count(0),
        **{name: Count(0, 1) for name in ("awaits", "runs", "states")},
    },
    assumes=_may_wait_for_answers,
    claim=_waits_for_answers,
    witnesses={
        "two are awaited": lambda u: (
            (u.awaits == 1) & (u.runs == 1) & (u.steps == 1) & (u.first == 1) & (u.states == 1)
        ),
        "the last is answered": lambda u: (
            (u.awaits == 1) & (u.runs == 0) & (u.steps == 0) & (u.first == 2) & (u.accepted == 1) & (u.states == 1)
        ),
        "without states": lambda u: (u.awaits == 1) & (u.runs == 1) & (u.steps == 1) & (u.states == 0),
    },
    mutants=(
        only(
            "admitted-before-it-is-answered",
            "A preempted request is admitted whatever it awaits.",
            f"{AHEAD}:PopulationAhead.may",
            lambda self, kind, request: Population.may(self, kind, request),
        ),
        only(
            "waits-without-states",
            "A preempted request waits for its answers where no states are kept, too.",
            f"{AHEAD}:PopulationAhead.may",
            lambda self, kind, request: not request.awaited and Population.may(self, kind, request),
        ),
    ),
)


def _goes_ahead(u: Any) -> Any:
    """A step is scheduled while the answers of others are awaited; then it is withdrawn, or dispatched and over."""
    its = books(PopulationAhead, chunk_tokens=u.chunk, tokens_max=u.longest, drafts_max=1, geometry=NO_STATES)
    awaited, runs = _in_flight(u) if u.awaits == 1 else [], bool(u.runs == 1)
    own = [1 + each for each in awaited]
    its.settings.steps_in_flight_max = 2 + u.steps
    request = request_of(
        u,
        Status.RUNNING if runs else Status.WAITING,
        drafts=Tokens(u.drafts),
        awaited=_in_flight(u) if awaited else [],
        in_flight=list(own),
    )
    its.alive = {0: request}
    drafts, hit, provided = request.drafts, 0 if runs else u.hit, 0 if runs else u.provided
    with on_lengths(population), on_lengths(ahead):
        its.tokens_to_schedule(request, u.budget)
        if request.drafts is not drafts:
            # To ask forgets nothing.
            return False
        its._compute(request, u.budget, Granted(hit, (), provided))
        computes = request.tokens_computed - u.computed - hit - provided
        expected = u.tokens + sum(1 + each for each in awaited)
        # Where it begins again, it computes none of the tokens that are awaited.
        pending = u.tokens + u.drafts - u.computed - hit - provided - (0 if runs else expected - u.tokens)
        answers = request.tokens_computed >= expected
        fine = (len(request.in_flight) == 1 + len(awaited)) & (request.in_flight[-1] == computes)
        fine = fine & (computes <= pending) & (computes <= u.budget)
        # Of what it counts as computed, only drafts may be taken back.
        verifies = sum(request.awaited)
        fine = fine & (request.drafts_in_flight == least(most(0, request.tokens_computed - u.tokens), verifies))
        fine = fine & ((len(request.awaited) == 1 + len(awaited)) == answers)
        if len(request.awaited) > len(awaited):
            # It verifies the drafts after the token that was known, or is awaited.
            fine = fine & (request.awaited[-1] == request.tokens_computed - expected)
        on_its_way = not its.candidates(Schedule) and not its.candidates(ReleaseSkipped)
        if u.goes == 0:
            its.withdraw(0)
            as_before = len(request.awaited) == len(awaited) == len(request.in_flight)
            if not (on_its_way and as_before and not request.undispatched):
                return False
            for left, count in zip((*request.awaited, *request.in_flight), (*awaited, *own), strict=True):
                fine = fine & (left == count)
            return fine
        its.settle(Dispatch(), Done())
        may_answer = (its.candidates(Sample) == [0]) == bool(request.awaited)
        its.settings.steps_in_flight_max = getattr(request.awaited, "length", len(request.awaited))
        may_answer = may_answer and its.candidates(Schedule) == []
        # A step that computes nothing is none of those that are counted.
        its.returned([])
        fine = fine & (its.over == 0 and len(request.in_flight) == 1 + len(awaited))
        # The oldest is over; those that are left are the others, in their order.
        left = [*own, computes][1:]
        its.returned([0])
        for still, count in zip(request.in_flight, left, strict=False):
            fine = fine & (still == count)
    over = (its.dispatched == 1) and (its.over == 1) and len(request.in_flight) == len(left)
    return fine & (on_its_way and may_answer and over and not request.undispatched)


def _asks_and_forgets(self: PopulationAhead, request: Any, computed: Any, budget: Any) -> Any:
    tokens = _FROM_AHEAD(self, request, computed, budget)
    request.drafts = []
    return tokens


GOES_AHEAD = Obligation(
    id="scheduler-progress.running-steps-ahead",
    statements=("KV-MEM-04", "KV-LIVE-02", "KV-SYS-03"),
    bound="one draft at most proposed: they are a list",
    title="A step that is scheduled ahead counts as in flight with exactly the tokens that it computes, after a hit "
    "and what another node provides, and answers if and only if it reaches the tokens that are known or awaited; only "
    "drafts may be taken back. Withdrawn, it is neither awaited nor in flight, and dispatched it is in flight until it "
    "is over. A preempted request computes in its first step no token that is awaited. None is "
    "scheduled for a request of which as many answers are awaited as may be.",
    unknowns={
        **CHUNK,
        **STEPS,
        **{name: Count(0) for name in ("hit", "provided")},
        **{name: Count(0, 1) for name in ("awaits", "runs", "goes")},
    },
    assumes=lambda u: (
        (u.computed < u.tokens + u.drafts)
        & implies(u.runs == 1, u.computed < u.longest - 1)
        & implies(u.awaits == 1, u.drafts >= 1 + u.first + u.others + u.steps)
        & _no_others(u)
        & implies(u.runs == 0, u.computed + u.hit + u.provided + 1 <= u.tokens)
    ),
    claim=_goes_ahead,
    witnesses={
        "it verifies a draft": lambda u: (
            (u.awaits == 1)
            & (u.runs == 1)
            & (u.goes == 1)
            & (u.first == 0)
            & (u.drafts == 2)
            & (u.computed == u.tokens)
        )
    },
    mutants=(
        only(
            "asked-and-forgotten",
            "To ask how much a preempted request computes forgets the tokens that it awaits.",
            f"{AHEAD}:PopulationAhead.tokens_from",
            _asks_and_forgets,
        ),
        only(
            "drafts-are-not-counted",
            "A step counts no drafts as ones that may be taken back.",
            f"{AHEAD}:_count_drafts",
            lambda request: None,
        ),
        only(
            "hit-is-in-flight",
            "What is hit or provided counts as computed by the step.",
            f"{AHEAD}:PopulationAhead._compute",
            lambda self, request, budget, granted: (
                _COMPUTE_AHEAD(self, request, budget, granted),
                request.in_flight.append(request.in_flight.pop() + granted.hit_tokens + granted.external_tokens),
            )[0],
        ),
        only(
            "withdrawn-stays-in-flight",
            "A step that was withdrawn counts as in flight.",
            f"{AHEAD}:PopulationAhead.withdraw",
            lambda self, number: setattr(self.alive[number], "undispatched", False),
        ),
        only(
            "awaited-tokens-are-computed-again",
            "A preempted request computes the tokens that are awaited in its first step.",
            f"{AHEAD}:PopulationAhead.tokens_from",
            lambda self, request, computed, budget: Population.tokens_from(self, request, computed, budget),
        ),
        only(
            "every-step-is-counted",
            "A step that computes nothing counts as one that was dispatched and is over.",
            f"{BOOKS}.returned",
            lambda self, numbers: setattr(self, "over", self.over + 1),
        ),
        only(
            "never-over",
            "A step stays in flight.",
            f"{AHEAD}:PopulationAhead.returned",
            lambda self, numbers: None,
        ),
    ),
)

OF_REQUEST: tuple[type[Operation], ...] = (
    *(Abort, Admit, CommonPrefix, Continue, Finish, LookUp, Pause, Preempt),
    *(ReleaseSkipped, Rewind, Sample, Schedule, Transferred),
)
"""All operations on a request that is there."""


def _waits_for_its_load(u: Any) -> Any:
    """What may happen to a request that loads, or has ended since; and what its end does to its blocks."""
    kind, ahead_ = OF_REQUEST[u.kind.__index__()], bool(u.steps > 1)
    ended, undispatched = bool(u.ended == 1), bool(u.undispatched == 1)
    its = books(
        PopulationAhead if ahead_ else Population,
        **{"geometry": ANY_STATES, "steps_in_flight_max": u.steps, "chunk_tokens": 1, "tokens_max": u.tokens + 2},
    )
    request = request_of(
        SimpleNamespace(tokens=u.tokens, computed=u.computed),
        Status.ENDING if ended else Status.LOADING,
        undispatched=undispatched,
        awaited=[u.first] if ahead_ and u.awaits == 1 else [],
        in_flight=[u.first] if u.awaits == 1 else [],
    )
    its.alive = {0: request}
    with on_lengths(population), on_lengths(ahead):
        may = its.may(kind, request)
    answers = kind is Sample and ahead_ and not ended and bool(u.awaits == 1)
    named = kind is Transferred or (not ended and kind in (Abort, Rewind)) or answers
    if not may or kind is not Abort:
        return not may or named
    freed: list[Any] = []
    holdings: Any = SimpleNamespace(release_all=freed.append, release_passed=lambda *_: freed.append(0))
    manager = manager_over(holdings)
    holdings.defer = lambda *_: freed.append(0)
    manager.population, manager.settings = its, SimpleNamespace(loads_out_of_turn=True)
    manager._end(Abort(0))
    its.settle(Abort(0), Done())
    return named and freed == [] and request.status is Status.ENDING and its.alive == {0: request}


ANY_STATES = SimpleNamespace(state_block_tokens=None, fences=False, keeps_states=False)


LOADS = Obligation(
    id="external-tokens.running-load-is-left-alone",
    statements=("KV-MEM-04", "KV-MEM-01", "KV-OP-25"),
    title="A request that loads is not computed, continued, preempted or finished, and no window of it is released; "
    "an abort keeps its blocks. Of its earlier steps it takes the answers. Until the transfer is over, nothing else "
    "happens to it but that a part of the load fails.",
    unknowns={
        "kind": Count(0, len(OF_REQUEST) - 1),
        "steps": Count(1),
        **{name: Count(0, 1) for name in ("ended", "undispatched", "awaits")},
        **{name: Count(0) for name in ("first", "computed")},
        "tokens": Count(1),
    },
    claim=_waits_for_its_load,
    witnesses={
        "it is aborted": lambda u: (u.kind == OF_REQUEST.index(Abort)) & (u.ended == 0) & (u.undispatched == 0),
        "a step ahead is answered": lambda u: (
            (u.kind == OF_REQUEST.index(Sample)) & (u.steps == 2) & (u.awaits == 1) & (u.ended == 0)
        ),
    },
    mutants=(
        *(
            only(
                f"{name}-while-it-loads",
                f"A request that loads may be {name}.",
                "kvreference.population:_ELIGIBLE",
                {**population._ELIGIBLE, kind: lambda _population, _request: True},
            )
            for kind, name in (
                (Admit, "admitted"),
                (Schedule, "computed"),
                (Preempt, "preempted"),
                (ReleaseSkipped, "released"),
            )
        ),
        only(
            "an-abort-frees",
            "An abort frees what another node still writes.",
            "kvreference.manager:holds_on",
            lambda _request, _operation: False,
        ),
    ),
)


class _Session(Tokens):
    """The tokens of a session."""

    def __setitem__(self, after: slice, more: Any) -> None:
        self.length = after.start + more.length


def _starts_anew(u: Any) -> Any:
    """A request is preempted, or it is a session of which another part came, with an item in it."""
    preempts = bool(u.preempts == 1)
    earlier = Media("earlier", 1, 1)
    request = request_of(
        u,
        Status.RUNNING if preempts else Status.PAUSED,
        drafts=Tokens(u.drafts),
        drafts_in_flight=u.drafts,
        preemptions=u.times,
        keys=Keys(media=(earlier,)),
    )
    request.tokens = _Session(u.tokens)
    its = books(Population)
    its.alive = {0: request}
    with (
        validators.disabled(),
        patch.object(population, "spell", lambda _prompt: Tokens(u.part)),
        on_lengths(population),
    ):
        item = Media("later", u.offset, 1)
        its.settle(Preempt(0) if preempts else Continue(0, (), media=(item,)), Done())
    waits = request.status is Status.WAITING
    if preempts:
        nothing = (request.tokens_computed == 0) & (request.drafts_in_flight == 0) & (len(request.drafts) == 0)
        return nothing & (request.preemptions == u.times + 1) & (request.tokens.length == u.tokens) & waits
    first, second = request.keys.media
    placed = (second.offset_tokens == u.computed + u.offset) & (first is earlier)
    fine = (request.tokens.length == u.computed + u.part) & (request.prompt_tokens == request.tokens.length)
    return fine & placed & (request.tokens_computed == u.computed) & (waits and request.parts == 2)


_SETTLE, _SETTLE_AHEAD = Population.settle, PopulationAhead.settle


def _goes_on_after_the_answer(self: Population, operation: Any, answer: Any) -> None:
    if isinstance(operation, Continue):
        self.alive[operation.request].tokens_computed += 1
    _SETTLE(self, operation, answer)


ANEW = Obligation(
    id="content-and-cached-map.running-request-waits-again",
    statements=("KV-MEM-01", "KV-OP-13"),
    title="A preempted request waits with nothing computed and no drafts, and is known as one that was preempted. The "
    "next part of a session follows its computed tokens, and a multimodal item in it the part's own start.",
    unknowns={
        "tokens": Count(1),
        **{name: Count(0) for name in ("computed", "drafts", "times", "part", "offset")},
        "preempts": Count(0, 1),
    },
    claim=_starts_anew,
    witnesses={
        "preempted again": lambda u: (u.preempts == 1) & (u.times == 2) & (u.computed == 9),
        "another part": lambda u: (u.preempts == 0) & (u.computed == 9) & (u.part == 5) & (u.offset == 2),
    },
    mutants=(
        only(
            "part-follows-the-answer",
            "The next part of a session follows its last answer, which is not computed.",
            f"{BOOKS}.settle",
            lambda self, operation, answer: _goes_on_after_the_answer(self, operation, answer),
        ),
    ),
)


SET_BACK = (Kind.FULL, Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL)
"""The kinds of groups of a request that a failed load sets back."""


def _in_order(u: Any, *sides: list[Any]) -> list[list[Any]]:
    """Of two groups that are observed, either may be the first."""
    return [side[::-1] if u.is_last == 1 else side for side in sides]


def _lacks(u: Any) -> Any:
    """What a group of some kind has released; of another one it may be any block that is read first."""
    kind = SET_BACK[u.kind.__index__()]
    window = None if kind is Kind.FULL else u.window
    other = SimpleNamespace(blocks_unread=lambda _tokens: u.other_unread)
    tables = [table_of(), table_of()]
    tables[0].dead, tables[1].dead = u.dead, u.other_dead
    groups, tables = _in_order(u, [group(kind, u.block, window), other], tables)
    if manager_module.lacks_blocks(groups, tables, u.kept):
        first = {
            Kind.FULL: 0,
            Kind.SLIDING_WINDOW: either(u.kept < u.window, 0, u.kept - u.window + 1),
            Kind.CHUNKED_LOCAL: u.kept // u.window * u.window,
        }
        return (u.other_dead > u.other_unread) | (first[kind] // u.block < u.dead)
    is_read = (kind is Kind.FULL) | (u.position == u.at) | reads(kind, u, u.at, u.position)
    return (u.other_dead <= u.other_unread) & implies(is_read, u.position // u.block >= u.dead)


LACKS = Obligation(
    id="external-tokens.running-asks-what-was-released",
    statements=("KV-MEM-01", "KV-MEM-02"),
    title="If a request is to continue after its valid tokens, in any number of groups of any kind but states, then no "
    "block is released that the next token or a later one reads, or is written to. If it is not to continue, then "
    "in one of the groups the block is released that the next token reads first.",
    unknowns={
        **{name: Count(0) for name in ("kept", "at", "position", "dead", "other_dead", "other_unread")},
        "block": Count(1),
        "window": Count(2),
        "kind": Count(0, len(SET_BACK) - 1),
        "is_last": Count(0, 1),
    },
    assumes=lambda u: (u.kept <= u.at) & (u.position <= u.at),
    claim=_lacks,
    witnesses={
        "a window released what is read": lambda u: (
            (u.kind == 1) & (u.kept == 32) & (u.window == 32) & (u.block == 16) & (u.dead == 1) & (u.other_dead == 0)
        ),
        "a window released what is not read": lambda u: (
            (u.kind == 1) & (u.kept == 47) & (u.window == 32) & (u.block == 16) & (u.dead == 1) & (u.other_dead == 0)
        ),
    },
    mutants=(
        only(
            "reads-what-was-released",
            "A request continues in its blocks, whatever its windows have released (finding 034).",
            "kvreference.manager:lacks_blocks",
            lambda groups, tables, tokens: False,
        ),
        only(
            "never-continues",
            "A request does not continue, though no block that is read was released.",
            "kvreference.manager:lacks_blocks",
            lambda groups, tables, tokens: True,
        ),
        only(
            "first-group-alone",
            "What the other groups have released is not asked.",
            "kvreference.manager:lacks_blocks",
            lambda groups, tables, tokens: tables[0].dead > groups[0].blocks_unread(tokens),
        ),
        only(
            "the-token-after-it",
            "It is asked what the token after the next one reads.",
            "kvreference.manager:lacks_blocks",
            lambda groups, tables, tokens: any(
                table.dead > group.blocks_unread(tokens + 1) for group, table in zip(groups, tables, strict=True)
            ),
        ),
    ),
)


def _goes_back(u: Any) -> Any:
    """A part of what a request loaded, or loads, is missing, while steps with it are in flight."""
    goes_ahead, loads = bool(u.ahead == 1), bool(u.loads == 1)
    request = request_of(
        u,
        Status.LOADING if loads else Status.RUNNING,
        drafts=Tokens(u.drafts),
        drafts_in_flight=u.drafts,
        awaited=_in_flight(u) if goes_ahead else [],
        in_flight=_in_flight(u) if goes_ahead else [],
    )
    in_flight = len(request.in_flight)
    its = books(PopulationAhead if goes_ahead else Population, geometry=ANY_STATES)
    its.alive, its.dispatched = {0: request}, u.dispatched
    # Which block of a group is read first is proved above: here it is any, of the token after the valid ones.
    asked, evicted = list[Any](), list[Any]()

    def first_read(first: Any) -> Any:
        def blocks_unread(tokens: Any) -> Any:
            asked.append(tokens)
            return first

        return SimpleNamespace(block_size_tokens=1, blocks_unread=blocks_unread)

    def evict(block: Any) -> tuple[()]:
        evicted.append(block)
        return ()

    groups: list[Any] = [first_read(u.unread), first_read(u.other_unread)]
    tables = [table_of(u.held), table_of()]
    tables[0].dead, tables[1].dead = u.dead, u.other_dead
    groups, tables = _in_order(u, groups, tables)
    freed, registered = list[Any](), list[Any]()

    def register(*arguments: Any) -> list[Any]:
        registered.append(arguments)
        return []

    pool = SimpleNamespace(evict=evict, end=freed.extend, give_up=freed.extend)
    geometry = SimpleNamespace(groups=groups)
    manager = manager_over(holdings_over(SimpleNamespace(pool=pool), geometry))
    manager.geometry, manager.population, manager.prefixes = geometry, its, {0: []}
    manager.settings = SimpleNamespace(loads_out_of_turn=bool(u.out_of_turn == 1))
    manager.cache = SimpleNamespace(register=register)
    manager.holdings.tables = {0: tables}

    def stands(status: Status, *held: Any) -> bool:
        """Where it stands, which tables it has, and that nothing was cached of it."""
        return request.status is status and [*manager.tables.values()] == [*held] and registered == []

    with validators.disabled(), on_lengths(population):
        manager.perform(Rewind(0, u.kept))
        answers = goes_ahead and its.candidates(Sample) != []
        fine = (request.tokens.length == u.tokens) & (request.drafts_in_flight == 0)
        fine = fine & (request.drafts == [] and request.awaited == [] and not answers)
        fine = fine & (len(request.in_flight) == in_flight) & all(tokens == u.kept for tokens in asked)
        # The block that is held is the first of its table: it holds a token.
        fine = fine & ((evicted == [u.held]) if u.kept == 0 else evicted == [])
        if (u.dead <= u.unread) & (u.other_dead <= u.other_unread):
            as_before = stands(Status.LOADING if loads else Status.RUNNING, tables) and freed == []
            return fine & (request.tokens_computed == u.kept) & as_before
        if loads:
            fine = fine & (request.tokens_computed == 0) & (stands(Status.LOADING, tables) and freed == [])
            manager.perform(Transferred(0, bool(u.succeeded == 1)))
    is_late = goes_ahead and bool(u.out_of_turn == 1)
    waits = manager.holdings.deferred == ([(u.dispatched, tables)] if is_late else [])
    return fine & (request.tokens_computed == 0) & (stands(Status.WAITING) and waits and freed == [u.held])


def _frees_while_it_loads(self: Manager, operation: Rewind) -> Done:
    self._rewind(operation)
    self.population.settle(Rewind(operation.request, 0), Done())
    return self._preempt(Preempt(operation.request))


def _keeps_after_its_load(self: Manager, operation: Transferred) -> Done:
    if not operation.succeeded:
        self._free(operation.request)
    return Done()


def _keeps_drafts(self: Population, operation: Any, answer: Any) -> None:
    request = self.alive[operation.request]
    drafts = request.drafts
    _SETTLE(self, operation, answer)
    request.drafts = drafts


GOES_BACK = Obligation(
    id="external-tokens.running-goes-back",
    statements=("KV-MEM-01", "KV-MEM-04", "KV-OP-25"),
    title="A request of which a part of a load failed counts as computed what comes before that part, and stays in its "
    "blocks. But if it has released what is read then, in any group, nothing counts, and it frees its blocks: at "
    "once; or when the transfer that writes them is over; or, where another node may write out of turn, when its steps "
    "are over. It has no drafts then. The answers of its steps in flight, however many, are not awaited any more, "
    "since they rest on what is missing; but the steps are still in flight.",
    unknowns={
        **{name: Count(1) for name in ("tokens", "held")},
        **{name: Count(0) for name in ("computed", "drafts", "kept", "dispatched")},
        **{name: Count(0) for name in ("dead", "unread", "other_dead", "other_unread")},
        **{name: Count(0, 1) for name in ("ahead", "loads", "succeeded", "out_of_turn", "is_last")},
        **STEPS,
    },
    assumes=lambda u: (u.kept <= u.computed) & _no_others(u),
    claim=_goes_back,
    witnesses={
        "three steps are in flight": lambda u: (
            (u.ahead == 1) & (u.steps == 2) & (u.kept == 4) & (u.dead == u.unread) & (u.other_dead == 0)
        ),
        "it frees its blocks when its steps are over": lambda u: (
            (u.ahead == 1) & (u.steps == 2) & (u.out_of_turn == 1) & (u.loads == 0) & (u.dead > u.unread)
        ),
        "it loads": lambda u: (u.loads == 1) & (u.succeeded == 1) & (u.kept == 4) & (u.other_dead > u.other_unread),
    },
    mutants=(
        only(
            "what-is-missing-stays-cached",
            "What a load did not bring stays known to the cache if its request starts anew.",
            "kvreference.manager:Manager._start_anew",
            edited(manager_module.Manager._start_anew, "self._rewind(operation)", "pass"),
        ),
        only(
            "asks-for-what-is-computed",
            "It is asked what the token after the computed ones reads, and not after the valid ones.",
            "kvreference.manager:Manager.perform",
            edited(
                manager_module.Manager.perform,
                "self.geometry.groups, tables, operation.tokens)",
                "self.geometry.groups, tables, self.population[operation.request].tokens_computed)",
            ),
        ),
        only(
            "answers-are-awaited",
            "Answers of steps that read what is missing become tokens of the request.",
            f"{AHEAD}:PopulationAhead.settle",
            Population.settle,
        ),
        only(
            "drafts-stay",
            "The drafts that follow what is missing stay.",
            f"{BOOKS}.settle",
            lambda self, operation, answer: _keeps_drafts(self, operation, answer),
        ),
        only(
            "stays-in-its-blocks",
            "A request continues in its blocks, whatever its windows have released (finding 034).",
            "kvreference.manager:lacks_blocks",
            lambda groups, tables, tokens: False,
        ),
        only(
            "freed-while-it-loads",
            "The blocks are freed while another node still writes them.",
            "kvreference.manager:Manager._start_anew",
            _frees_while_it_loads,
        ),
        only(
            "held-after-its-load",
            "A load of which nothing counts leaves its blocks held.",
            "kvreference.manager:_PERFORM",
            {**manager_module._PERFORM, Transferred: _keeps_after_its_load},
        ),
    ),
)


def _is_dispatched(u: Any) -> Any:
    """A step is dispatched, of which each of three requests may be a part: one runs, one may load, one may run."""
    its = books(PopulationAhead, geometry=ANY_STATES)
    its.dispatched = u.dispatched
    parts = [bool(part == 1) for part in (u.first, u.second, u.third)]
    statuses = (Status.RUNNING, Status.LOADING if u.loads == 1 else Status.RUNNING, Status.RUNNING)
    its.alive = {
        number: request_of(u, status, undispatched=part)
        for number, (status, part) in enumerate(zip(statuses, parts, strict=True))
    }
    its.settle(Dispatch(), Done())
    computes = any(part and status is Status.RUNNING for status, part in zip(statuses, parts, strict=True))
    is_left = any(request.undispatched for request in its.alive.values())
    return (its.dispatched == u.dispatched + int(computes)) & (not is_left)


def _counts(steps: Callable[[int], int]) -> Callable[..., None]:
    """What follows a dispatch counts so many steps, by how many requests it computes."""

    def settle(self: PopulationAhead, operation: Any, answer: Any) -> None:
        computing = sum(each.undispatched and each.status is Status.RUNNING for each in self.alive.values())
        before = self.dispatched
        _SETTLE_AHEAD(self, operation, answer)
        self.dispatched = before + steps(computing)

    return settle


DISPATCHED = Obligation(
    id="blocks-and-references.running-counts-a-step-once",
    statements=("KV-LEAK-01", "KV-MEM-04", "KV-OP-07"),
    title="A step that is dispatched counts as one in flight, whichever requests it computes, and not if it computes "
    "none; then no request is part of a step that is still to be dispatched.",
    unknowns={
        **{name: Count(0, 1) for name in ("first", "second", "third", "loads")},
        **{name: Count(0) for name in ("dispatched", "computed")},
        "tokens": Count(1),
    },
    claim=_is_dispatched,
    witnesses={"two of three": lambda u: (u.first == 1) & (u.third == 1) & (u.second == 0) & (u.dispatched == 3)},
    mutants=(
        only(
            "each-request-counts",
            "A step counts once for each request that it computes.",
            f"{AHEAD}:PopulationAhead.settle",
            _counts(lambda computing: computing),
        ),
        only(
            "every-step-counts",
            "A step that computes nothing counts, too.",
            f"{AHEAD}:PopulationAhead.settle",
            _counts(lambda _computing: 1),
        ),
    ),
)

OBLIGATIONS = (
    COMPUTES,
    LAST_STATE,
    ANSWERS,
    DRAFTS,
    UNSURE,
    TAKES_BACK,
    LATE,
    IN_STEP,
    DISPATCHED,
    COUNTS_ALIKE,
    ANSWERED_FIRST,
    GOES_AHEAD,
    LOADS,
    ANEW,
    LACKS,
    GOES_BACK,
)
