"""Chapters 01 and 07: whole operations of the running manager, performed with the population that runs.

What holds blocks, and what is cached, stands for itself here: it notes what is asked of it, in order, and raises if it
is asked for anything else. What each of these functions does is proved by itself (``kvspec.kernel``), and
``kvspec.simulation`` puts the two together. An operation that may not happen now is not performed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, fields, validators

from kvreference import ahead, population
from kvreference import manager as manager_module
from kvreference.ahead import PopulationAhead
from kvreference.answers import Hit, Statistics
from kvreference.choices import Choices
from kvreference.content import Keys
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Arrive,
    CommonPrefix,
    Continue,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    OfRequest,
    Pause,
    Preempt,
    ReleaseSkipped,
    Reset,
    Rewind,
    Sample,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Population, Request, Status
from kvspec.obligation import AMap, Count, Mutant, Obligation, Unknown, only
from kvspec.pool.induction import ANY_STATE, before, is_sound_at
from kvspec.pool.state import MAPS, Operands, State
from kvspec.pool.transitions import DRAFT, Compute, Drop, Filled, Provide, TakeBack
from kvspec.progress.counted import least, most
from kvspec.proofs.running_pool import books, manager_over
from kvspec.proofs.running_requests import AHEAD, ANY_STATES, BOOKS, STEPS, Longest, Tokens, _in_flight, request_of
from kvspec.proofs.running_steps import KEPT, Replayed
from kvspec.proofs.running_tables import OTHER, OWNER, on_lengths
from kvspec.symbolic import either, implies, negated

MANAGER, PERFORMS = "kvreference.manager:Manager", "kvreference.manager:_PERFORM"
NEW = 3
"""The request that arrives."""
STATUSES = tuple(Status)
RETURNED = "a step in flight is over"
KINDS: Mapping[str, Callable[[Any], Any]] = {
    "preempt": lambda _u: Preempt(OWNER),
    "finish": lambda _u: Finish(OWNER),
    "finish and send": lambda _u: Finish(OWNER, sends=True),
    "abort": lambda _u: Abort(OWNER),
    "arrived": lambda _u: Transferred(OWNER, succeeded=True),
    "failed": lambda _u: Transferred(OWNER, succeeded=False),
    "release": lambda _u: ReleaseSkipped(OWNER),
    RETURNED: lambda _u: None,
    "arrive": lambda _u: Arrive(NEW, ()),
    "look up": lambda _u: LookUp(OWNER),
    "pause": lambda _u: Pause(OWNER),
    "continue": lambda _u: Continue(OWNER, ()),
    "common prefix": lambda _u: CommonPrefix(OWNER),
    "evict": lambda u: Evict(u.block),
    "dispatch": lambda _u: Dispatch(),
    "reset": lambda _u: Reset(),
    "events": lambda _u: TakeEvents(),
    "statistics": lambda _u: TakeStatistics(),
}
"""All but an admission, a step, an answer and a part of a load that failed."""
RELEASE, OTHERS = tuple(KINDS)[:8], tuple(KINDS)[8:]
"""Those that release what a request holds, or register what it has loaded; and those that do neither."""


class _Session(Tokens):
    """The tokens of a session: what is put in the place of the last ones."""

    def __setitem__(self, after: slice, more: Any) -> None:
        self.kept = after.start
        self.length = after.start + more.length


class _Tables:
    """The tables of any number of requests: only that one has some may be asked, and which."""

    def __init__(self, holds: bool) -> None:
        self.holds, self.own = holds, object()

    def __contains__(self, number: int) -> bool:
        assert number in (OWNER, NEW), "of the request that is named"
        return self.holds and number == OWNER

    def __getitem__(self, number: int) -> Any:
        assert number in self, "it has some"
        return self.own


def _noting(u: Any, holds: bool = True) -> tuple[Any, list[Any]]:
    """A manager whose holders and cache note what they are asked, and what they noted."""
    asked: list[Any] = []

    def noted(name: str, answer: Any = None) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            asked.append((name, *arguments))
            return answer

        return note

    names = ("release_all", "release_passed", "defer", "steps_over")
    manager = manager_over(SimpleNamespace(**{name: noted(name) for name in names}))
    held = manager.holdings
    held.tables, held.dispatch, held.leading_shared = _Tables(holds), noted("dispatch", ()), noted("leading_shared", [])
    held.pool = SimpleNamespace(evict=noted("evict", []), reset=noted("reset", True))
    cache = {name: noted(name, answer) for name, answer in (("register", []), ("dispatched", None), ("shared", ()))}
    manager.cache = SimpleNamespace(**cache, look_up=noted("look up", Hit(0, ())), statistics=Statistics())
    manager.geometry = SimpleNamespace(hashed_ahead_tokens=0)
    manager.settings = SimpleNamespace(
        loads_out_of_turn=u.out_of_turn == 1,
        drafts_max=1,
        steps_in_flight_max=2 if u.ahead == 1 else 1,
        tells_events=False,
    )
    manager.prefixes = {OWNER: [], OTHER: []}
    manager._interned = SimpleNamespace(extend=lambda *_: None)
    return manager, asked


def _population(u: Any, manager: Any, request: Any, **settings: Any) -> tuple[Any, Any]:
    """The request, and another one; both are there."""
    its = books(PopulationAhead if u.ahead == 1 else Population, geometry=ANY_STATES, **settings)
    other = Request(OTHER, [1], Keys(), True, undispatched=True)
    request.number, request.keys = OWNER, Keys()
    its.alive, its.arrived = {OWNER: request, OTHER: other}, 0
    manager.population = its
    return its, other


def _fields(request: Request) -> dict[str, Any]:
    return {each.name: getattr(request, each.name) for each in fields(Request)}


def _same(first: Any, second: Any) -> Any:
    """Whether two lists of what was asked are the same, argument by argument."""
    fine: Any = len(first) == len(second)
    for one, other in zip(first, second, strict=False):
        if len(one) != len(other):
            return False
        for each, wanted in zip(one, other, strict=True):
            fine = fine & ((each is wanted) or each == wanted)
    return fine


def _performs(u: Any, which: str) -> Any:
    """One operation, on a request that stands anywhere if it names one."""
    manager, asked = _noting(u)
    with validators.disabled():
        operation = KINDS[which](u)
    of_request = isinstance(operation, OfRequest) and not isinstance(operation, Arrive)
    status = STATUSES[u.status.__index__()] if of_request else Status.RUNNING
    request = request_of(
        u, status, drafts=Tokens(u.unsure), drafts_in_flight=u.unsure, prompt_tokens=u.prompt, parts=u.parts
    )
    request.tokens = _Session(u.tokens)
    its, other = _population(u, manager, request, chunk_tokens=1, tokens_max=u.tokens + 2)
    its.dispatched, its.over = u.dispatched, u.over
    with (
        on_lengths(population),
        on_lengths(ahead),
        on_lengths(manager_module),
        patch.object(population, "spell", lambda _prompt: Tokens(u.part)),
    ):
        if of_request and not its.may(type(operation), request):
            return True
        flies = which in RELEASE and isinstance(its, PopulationAhead) and bool(u.flies == 1)
        request.in_flight = _in_flight(u) if flies else []
        was, prefixes = _fields(other), dict(manager.prefixes)
        expected, computed, is_over = _must(u, which, status, request, manager, flies)
        if operation is None:
            manager.returned([OWNER] if flies else [])
        else:
            manager.perform(operation)
    fine = _same(asked, expected)
    if any(each[0] == "release_all" for each in asked):
        fine = fine & _may_drop(u, which)
    fine = fine & (_fields(other) == {**was, "undispatched": which != "dispatch"})
    fine = fine & all(manager.prefixes[number] is prefixes[number] for number in its.alive if number != NEW)
    if is_over or OWNER not in its.alive:
        return fine & (is_over and list(its.alive) == [OTHER] and list(manager.prefixes) == [OTHER])
    fine = fine & (its.alive[OWNER] is request) & (request.tokens_computed == computed)
    fine = fine & (request.drafts_in_flight == (0 if which == "preempt" else u.unsure))
    if which == "pause" and request.drafts != []:
        return False
    if which == "continue":
        # Only what it does not count is replaced.
        return fine & (request.tokens.kept == u.computed)
    return fine & (request.tokens.length == u.tokens)


def _entry(u: Any) -> Operands:
    return Operands(u.at_block, u.at_entry)


def _may_drop(u: Any, which: str) -> Any:
    """Whether an entry of the request may drop its block now; when a transfer is over, the other node is done."""
    state, at = before(u), _entry(u)
    return Drop.guard(Filled.effect(state, at) if which in ("arrived", "failed") else state, at)


def _is_as_recorded(u: Any) -> Any:
    """What the population records of the request whose entry names a block, and of the steps that use it.

    Another node fills blocks of a request that loads, or has ended since, only. A step uses a block for one of its
    holders, and is over before the next operation unless it is ahead, when its request has it in flight.
    """
    block = u.at_block
    fills = (u.status == STATUSES.index(Status.LOADING)) | (u.status == STATUSES.index(Status.ENDING))
    used = (u.uses.count(block) >= 1) | (u.owed[block] != 0)
    own = (u.ahead == 1) & (u.flies == 1)
    return implies(u.filled[block] != 0, fills) & implies(used, own | (u.refs[block] != 1))


def _must(u: Any, which: str, status: Status, request: Any, manager: Any, flies: bool) -> tuple[list[Any], Any, bool]:
    """What must be asked, how many tokens count as computed then, and whether the request is over."""
    pool, own = manager.holdings.pool, manager.prefixes[OWNER]

    def free() -> list[Any]:
        # What a step in flight uses waits for it, where another node may write it before.
        return [("defer", OWNER, u.dispatched)] if flies and u.out_of_turn == 1 else [("release_all", OWNER)]

    def leave() -> list[Any]:
        in_flight = flies and u.out_of_turn == 1
        unsure = most(u.unsure, least(u.first + u.others, u.computed)) if in_flight else u.unsure
        return [("release_passed", OWNER, u.computed, unsure)]

    if which == "preempt":
        return free(), 0, False
    if which in ("finish", "finish and send", "abort"):
        keeps = status is Status.LOADING or which == "finish and send"
        return (leave() if keeps and status is Status.RUNNING else [] if keeps else free()), u.computed, not keeps
    if which in ("arrived", "failed"):
        # A load of which nothing counts, since a window lacks what it would be read with, is freed.
        if status is Status.LOADING and which == "arrived" and u.computed > 0:
            arrived = ("register", pool, request, own, manager.tables[OWNER], u.computed, None)
            return [arrived], least(u.computed, u.tokens - 1), False
        return free(), 0, status is Status.ENDING
    if which == "release":
        return leave(), u.computed, False
    others: dict[str, list[Any]] = {
        "look up": [("look up", pool, request, own)],
        "common prefix": [("leading_shared", OWNER), ("shared", [])],
        "evict": [("evict", u.block)],
        "dispatch": [("dispatched",), ("dispatch",)],
        "reset": [("reset",)],
        RETURNED: [("steps_over", u.over + int(flies))],
    }
    return others.get(which, []), u.computed, False


OF_OPERATION: Mapping[str, Unknown] = {
    "status": Count(0, len(STATUSES) - 1),
    "tokens": Count(1),
    **{name: Count(0) for name in ("computed", "unsure", "prompt", "part", "block", "dispatched", "over")},
    "parts": Count(1),
    **{name: Count(0, 1) for name in ("ahead", "flies", "out_of_turn")},
    **STEPS,
}
"""A request that stands anywhere, with steps in flight or without."""


def _stands(u: Any) -> Any:
    return (u.unsure <= u.computed) & implies(u.steps == 0, u.others == 0) & (u.prompt <= u.tokens)


def _is(which: str, status: Status = Status.RUNNING) -> Callable[[Any], Any]:
    kinds = RELEASE if which in RELEASE else OTHERS
    return lambda u: (u.kind == kinds.index(which)) & (u.status == STATUSES.index(status))


_SETTLE, _PERFORM = Population.settle, Manager.perform


def _settles(kind: type, change: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """The running one, which changes something more after an operation of one kind."""

    def settle(self: Population, operation: Any, answer: Any) -> None:
        _SETTLE(self, operation, answer)
        if isinstance(operation, kind):
            change(self, self.alive[OWNER])

    return settle


def _only_settles(name: str, story: str, kind: type, change: Callable[[Any, Any], Any]) -> Mutant:
    return only(name, story, f"{BOOKS}.settle", _settles(kind, change))


RELEASES = Obligation(
    id="blocks-and-references.running-releases-as-a-whole",
    statements=("KV-MEM-01", "KV-MEM-04", "KV-OP-06", "KV-OP-07"),
    title="A request that is preempted, ends or loses its load, performed as a whole, frees all that it holds, once, "
    "and not while another node fills it; at once only if no step with it counts as in flight, or no other node may "
    "write before that is over. So each of its entries may drop its block, if only requests that load are filled, and "
    "a step in flight uses a block for a holder that has it in flight. What has arrived is registered as far as its "
    "request counts it. What another node is to read, and a request that is asked to, releases what no token after the "
    "sure ones reads. A step that is over releases what waited for it. Nothing else is asked of holders and cache. The "
    "request counts as computed what it did before, or nothing, or all but its last token; another one is not touched.",
    unknowns={
        "kind": Count(0, len(RELEASE) - 1),
        **OF_OPERATION,
        **ANY_STATE,
        "at_block": Count(0),
        "at_entry": Count(0),
    },
    assumes=lambda u: _stands(u) & Drop.precondition(before(u), _entry(u)) & _is_as_recorded(u),
    claim=lambda u: _performs(u, RELEASE[u.kind.__index__()]),
    witnesses={
        "preempted in flight": lambda u: (
            _is("preempt")(u) & (u.ahead == 1) & (u.flies == 1) & (u.out_of_turn == 1) & (u.steps == 2)
        ),
        "it arrived": lambda u: _is("arrived", Status.LOADING)(u) & (u.computed == u.tokens) & (u.tokens == 9),
    },
    mutants=(
        only(
            "freed-in-flight",
            "What a step in flight writes is freed at once, though another node may write it before.",
            "kvreference.manager:is_fenced",
            lambda request: False,
        ),
        only(
            "a-failed-load-is-kept",
            "A request whose load failed keeps its blocks.",
            f"{MANAGER}._free",
            lambda self, request: None,
        ),
        only(
            "a-failed-load-is-cached",
            "What did not arrive is registered.",
            PERFORMS,
            {
                **manager_module._PERFORM,
                Transferred: lambda self, operation: Manager._transferred(self, Transferred(operation.request, True)),
            },
        ),
        only(
            "arrived-beyond-what-is-counted",
            "A token more is registered than has arrived.",
            f"{MANAGER}._register",
            lambda self, request, tokens, begun: self.cache.register(
                self.pool, request, self.prefixes[OWNER], self.tables[OWNER], tokens + 1, begun
            ),
        ),
        _only_settles(
            "preempted-and-counted",
            "A preempted request counts a token as computed.",
            Preempt,
            lambda _its, request: setattr(request, "tokens_computed", 1),
        ),
        only(
            "released-a-step-early",
            "What waits for steps in flight is released a step early.",
            f"{MANAGER}.returned",
            lambda self, requests: (
                self.population.returned(requests),
                self.holdings.steps_over(self.population.over + 1),
            ),
        ),
        only(
            "freed-before-it-is-cancelled",
            "What a load that failed was to fill is freed though the other node still writes it.",
            "kvspec.pool.transitions:Filled.effect",
            staticmethod(lambda state, at: state),
        ),
        only(
            "all-is-sure",
            "A window leaves what steps in flight still read.",
            f"{MANAGER}._unsure",
            lambda self, request: 0,
        ),
    ),
)

LEAVES_ALONE = Obligation(
    id="blocks-and-references.running-others-as-a-whole",
    statements=("KV-MEM-01", "KV-OP-10", "KV-OP-11", "KV-OP-19"),
    title="An arrival, a look-up, a pause, the next part of a session, a common prefix, and what is taken of events "
    "and statistics, performed as a whole, ask no holder and no cache for a change; a dispatch asks to release the "
    "sources of copies and nothing else, an eviction to forget its block, and a reset to forget all. Each request "
    "counts as computed what it did before, and what it counts stays as it is: the next part of a session comes after "
    "it.",
    unknowns={"kind": Count(0, len(OTHERS) - 1), **OF_OPERATION},
    assumes=_stands,
    claim=lambda u: _performs(u, OTHERS[u.kind.__index__()]),
    witnesses={
        "the next part of a session": lambda u: (
            _is("continue", Status.PAUSED)(u) & (u.computed == 8) & (u.tokens == 9) & (u.part == 4)
        ),
        "a dispatch ahead": lambda u: _is("dispatch")(u) & (u.ahead == 1),
    },
    mutants=(
        _only_settles(
            "a-pause-counts-the-answer",
            "A session that pauses counts its last answer as computed.",
            Pause,
            lambda _its, request: setattr(request, "tokens_computed", request.tokens_computed + 1),
        ),
        _only_settles(
            "another-is-counted",
            "With a look-up another request counts a token as computed.",
            LookUp,
            lambda its, _request: setattr(its.alive[OTHER], "tokens_computed", 1),
        ),
        only(
            "a-look-up-frees",
            "A look-up frees what its request holds.",
            f"{MANAGER}.perform",
            lambda self, operation: _and_frees(self, operation, LookUp),
        ),
        only(
            "a-dispatch-keeps-its-sources",
            "The sources of copies are never released.",
            PERFORMS,
            {**manager_module._PERFORM, Dispatch: lambda self, _operation: self.cache.dispatched()},
        ),
        _only_settles(
            "a-part-replaces-what-is-counted",
            "The next part of a session replaces its last computed token.",
            Continue,
            lambda its, request: request.tokens.__setitem__(slice(request.tokens_computed - 1, None), Tokens(1)),
        ),
    ),
)


def _and_frees(self: Manager, operation: Any, kind: Any) -> Any:
    answer = _PERFORM(self, operation)
    if isinstance(operation, kind):
        self.holdings.release_all(operation.request)
    return answer


# Answers


def _awaits(u: Any, manager: Manager, status: Status) -> Any:
    """A request that awaits an answer, of a step that verifies drafts; if it goes ahead, of later ones, too."""
    goes_ahead = bool(u.ahead == 1)
    manager.choices = Choices(caches_answers=bool(u.caches == 1))
    awaited = _in_flight(u) if goes_ahead else []
    request = request_of(u, status, drafts=Tokens(u.first), awaited=awaited, undispatched=bool(u.undispatched == 1))
    if goes_ahead:
        with on_lengths(ahead):
            ahead._count_drafts(request)
    else:
        request.drafts_in_flight = u.first
    _population(u, manager, request, tokens_max=Longest(u.tokens + u.room, request.tokens))
    return request


def _is_answered(u: Any, manager: Manager, request: Any) -> bool:
    """Perform the answer, if it may happen; returns whether it may."""
    with validators.disabled():
        operation = Sample(OWNER, u.accepted, 7, 1)
    ranged = patch.object(ahead, "range", lambda first, end: [Tokens(end - first)], create=True)
    with on_lengths(population), on_lengths(ahead), on_lengths(manager_module), ranged:
        may = manager.population.may(Sample, request)
        if may:
            manager.perform(operation)
    return may


def _is_awaited(u: Any) -> Any:
    """Drafts that hold were proposed; without steps ahead, all that is proposed is computed."""
    counted = implies(u.ahead == 0, u.computed == u.tokens + u.first)
    return (u.accepted <= u.first) & implies(u.steps == 0, u.others == 0) & counted


def _answers(u: Any) -> Any:
    """The model answers: of its tokens, one is looked at that the request counted as computed, or not."""
    goes_ahead, status = bool(u.ahead == 1), STATUSES[u.status.__index__()]
    manager, asked = _noting(u, holds=bool(u.holds == 1))
    request = _awaits(u, manager, status)
    other = manager.population.alive[OTHER]
    unsure, was = request.drafts_in_flight, _fields(other)
    if not _is_answered(u, manager, request):
        return True
    if request.undispatched:
        return False
    after, still_unsure = request.tokens_computed, request.drafts_in_flight
    counted, counts = u.at < u.computed, u.at < after
    # What is taken back is of drafts that failed, or is beyond its longest; and each of those is.
    holds = u.tokens + least(u.accepted, u.room - 1)
    failed = (u.at >= holds) & (u.at < u.tokens + u.first)
    fine = implies(counted & negated(counts), u.at >= u.computed - unsure)
    fine = fine & implies(negated(counted), negated(counts)) & (_fields(other) == was)
    if not goes_ahead:
        fine = fine & ((counted & negated(counts)) == failed) & (still_unsure == 0)
    caches = goes_ahead or bool(u.caches == 1)
    if not (caches and u.holds == 1 and status is not Status.LOADING):
        return fine & (asked == [])
    if len(asked) != 1:
        return False
    ((name, pool, of, prefixes, tables, till, begun),) = asked
    own = name == "register" and pool is manager.pool and of is request and begun is None
    own = own and prefixes is manager.prefixes[OWNER] and tables is manager.tables[OWNER]
    # All that is registered is counted for sure, and is of tokens that it has; the answer itself is not computed.
    sure = (till <= after - still_unsure) & (till <= request.tokens.length - 1)
    return fine & own & sure & ((till == after) | (till == request.tokens.length - 1))


_ANSWER, _MAY = Population._answer, PopulationAhead.may


def _takes_back_one_less(self: Population, request: Any, operation: Any) -> None:
    _ANSWER(self, request, operation)
    request.tokens_computed += 1


_A_FAILED_DRAFT_COUNTS = only(
    "a-failed-draft-counts", "A draft that failed counts as computed.", f"{BOOKS}._answer", _takes_back_one_less
)
_DRAFTS_ARE_REGISTERED = only(
    "drafts-are-registered",
    "What drafts in flight may take back is registered.",
    "kvreference.manager:tokens_answered",
    lambda request: request.tokens_computed,
)
ANSWER_OF: Mapping[str, Unknown] = {
    **{name: Count(0) for name in ("computed", "accepted", "at")},
    **STEPS,
    **{name: Count(1) for name in ("tokens", "room")},
    **{name: Count(0, 1) for name in ("ahead", "holds", "caches", "undispatched")},
    "out_of_turn": Count(0, 0),
    "status": Count(0, len(STATUSES) - 1),
}

ANSWERED = Obligation(
    id="eagle.running-answer-as-a-whole",
    statements=("KV-MEM-01",),
    title="An answer, performed as a whole, takes back of what its request counts as computed only what drafts in "
    "flight are, and counts nothing more. Where no step is ahead, that is exactly the drafts that failed, or are "
    "beyond its longest, and nothing is unsure then. It asks the cache to register only what is counted for sure, of "
    "tokens that the request has, and never the answer itself; not while it loads, nor if it holds no blocks. It "
    "touches no block, and no other request. None comes while a step with its request is not dispatched.",
    unknowns=ANSWER_OF,
    assumes=_is_awaited,
    claim=_answers,
    witnesses={
        "one of two drafts failed": lambda u: (
            (u.ahead == 0)
            & (u.status == 1)
            & (u.first == 2)
            & (u.accepted == 1)
            & (u.at == u.tokens + 1)
            & (u.room == 4)
        ),
        "steps are ahead": lambda u: (
            (u.ahead == 1)
            & (u.status == 1)
            & (u.first == 1)
            & (u.accepted == 0)
            & (u.others == 2)
            & (u.steps == 2)
            & (u.computed == u.tokens + 6)
            & (u.holds == 1)
        ),
    },
    mutants=(
        _A_FAILED_DRAFT_COUNTS,
        only(
            "takes-all-back",
            "An answer takes back what was computed before.",
            f"{AHEAD}:PopulationAhead._answer",
            lambda self, request, operation: setattr(request, "tokens_computed", 0),
        ),
        _DRAFTS_ARE_REGISTERED,
        only(
            "registered-while-it-loads",
            "What is not loaded yet is registered with an answer to an earlier step.",
            "kvreference.manager:Status",
            SimpleNamespace(LOADING=None),
        ),
        only(
            "answered-before-its-step-is-dispatched",
            "An answer is taken while the next step with its request is not dispatched yet.",
            f"{AHEAD}:PopulationAhead.may",
            lambda self, kind, request: _MAY(self, kind, evolve(request, undispatched=False)),
        ),
        only(
            "an-answer-frees",
            "An answer frees what its request holds.",
            f"{MANAGER}.perform",
            lambda self, operation: _and_frees(self, operation, Sample),
        ),
    ),
)

# What an answer does to a slot


def _failed(u: Any) -> Any:
    """Whether it is a draft that failed, or was to come after one."""
    return (u.accepted < u.first) & (u.at >= u.tokens + u.accepted)


def _is_another(u: Any) -> Any:
    """Whether its place is that of another token now: later steps compute theirs in places of drafts that failed."""
    later = u.computed - (u.tokens + u.first)
    return (u.ahead == 1) & _failed(u) & (u.at < u.tokens + u.accepted + later)


def _stands_in_its_slot(u: Any, state: State, counts: Any, own: Any, tokens: Any) -> Any:
    """A token that counts is in the block that its table names, and is not sure if it is not known. In the slot of one
    that does not count is nothing, or the same from before it was lost."""
    has, counted = state.has[u.at_entry], either(counts, u.at_block, 0)
    fine = (state.named[u.at_entry] == u.at_block) & (state.counts[u.at_entry] == counted)
    unsure = either(counts & (u.at >= tokens), 1, 0)
    fine = fine & implies(counts, has == own) & implies(negated(counts), (has == 0) | ((has == own) & (u.at < tokens)))
    return fine & (state.tentative[u.at_entry] == unsure)


def _counts_in_its_slot(u: Any, computed: Any) -> Any:
    """Whether the token counts there, if so many are computed: none does that another node is still to bring."""
    return (u.at < computed) & (u.filled[u.at_block] == 0)


def _answers_in_a_slot(u: Any) -> Any:
    """What an answer takes back and counts in the slot of a token, as transitions."""
    manager, asked = _noting(u)
    request = _awaits(u, manager, STATUSES[u.status.__index__()])
    was_sure = u.computed - request.drafts_in_flight
    if not _is_answered(u, manager, request):
        return True
    counted, counts = _counts_in_its_slot(u, u.computed), _counts_in_its_slot(u, request.tokens_computed)
    length, its = request.tokens.length, Replayed(u)
    another, at = _is_another(u), Operands(u.at_block, u.at_entry)
    fine = implies(counts, negated(_failed(u)) | another)
    if counted & (negated(counts) | another):
        its.happens(TakeBack, at)
        fine = fine & (u.at >= u.tokens)
    own = either(another, u.other, u.own)
    if counts & (another | ((u.at >= u.tokens) & (u.at < length))):
        its.happens(Compute, evolve(at, content=own, other=either(u.at >= length, DRAFT, 0)))
    fine = fine & its.could & _stands_in_its_slot(u, its.state, counts, own, length)
    # What is registered then is counted there, and sure.
    for name, *_others, till, _begun in asked:
        sure = (its.state.counts[u.at_entry] == u.at_block) & (its.state.tentative[u.at_entry] == 0)
        fine = fine & (name == "register") & implies(u.at < till, sure)
    # What is sure stays so: also a state, which is at hand for good once it is.
    return fine & (was_sure <= request.tokens_computed - request.drafts_in_flight)


def _may_be_answered(u: Any) -> Any:
    state, at = before(u), Operands(u.at_block, u.at_entry)
    fine = is_sound_at(u, lambda _state: [at], KEPT) & _is_awaited(u)
    fine = fine & _stands_in_its_slot(u, state, _counts_in_its_slot(u, u.computed), u.own, u.tokens)
    # What another node fills counts no token that is not known.
    loads = u.status == STATUSES.index(Status.LOADING)
    return fine & implies(state.filled[u.at_block] != 0, loads) & implies(loads, u.computed <= u.tokens)


IN_ITS_SLOT = Obligation(
    id="eagle.running-answer-in-a-slot",
    statements=("KV-MEM-01", "KV-MEM-02"),
    title="What an answer does to the slot of any token, with any number of steps ahead, are transitions where they "
    "can happen. The drafts that failed are taken back. Where a later step computes another token in the place of one, "
    "the "
    "other one counts there, in the block that its table names for that place. A draft that holds is sure then, where "
    "it is. What is registered then is sure, and nothing that was sure is so no more.",
    unknowns={
        "blocks": Count(1),
        **{name: AMap(arity) for name, arity in MAPS.items()},
        **{name: Count(1) for name in ("at_block", "at_entry", "own", "other")},
        **{name: unknown for name, unknown in ANSWER_OF.items() if name != "holds"},
        "holds": Count(1, 1),
    },
    assumes=_may_be_answered,
    claim=_answers_in_a_slot,
    witnesses={
        "another token is in the place of a draft": lambda u: (
            (u.ahead == 1)
            & (u.status == 1)
            & (u.first == 3)
            & (u.accepted == 1)
            & (u.steps == 1)
            & (u.others == 0)
            & (u.computed == u.tokens + 4)
            & (u.at == u.tokens + 1)
            & (u.room == 9)
            & (u.own != u.other)
        ),
        "a draft holds": lambda u: (
            (u.status == 1)
            & (u.first == 3)
            & (u.accepted == 2)
            & (u.at == u.tokens + 1)
            & (u.room == 9)
            & (u.ahead == 0)
        ),
        "a draft fails": lambda u: (
            (u.status == 1)
            & (u.first == 3)
            & (u.accepted == 1)
            & (u.at == u.tokens + 2)
            & (u.room == 9)
            & (u.ahead == 0)
        ),
    },
    mutants=(
        _A_FAILED_DRAFT_COUNTS,
        _DRAFTS_ARE_REGISTERED,
        only(
            "takes-back-one-more",
            "With the drafts that failed, a token that was sure is taken back.",
            f"{BOOKS}._answer",
            lambda self, request, operation: _takes_back(self, request, operation),
        ),
    ),
)


def _takes_back(self: Population, request: Any, operation: Any) -> None:
    _ANSWER(self, request, operation)
    request.tokens_computed -= 2


# What a load does to a slot


def _loads_in_a_slot(u: Any) -> Any:
    """A load has arrived, or a part of it was lost: what that brings, and takes back, in the slot of a token."""
    arrives, status = bool(u.arrives == 1), STATUSES[u.status.__index__()]
    manager, asked = _noting(u)
    manager.geometry = SimpleNamespace(groups=(), hashed_ahead_tokens=0)
    # What is known of these blocks is forgotten: ``external-tokens.running-rewind``.
    manager._forget_after = lambda *_: []
    request = request_of(u, status, drafts=Tokens(u.unsure), drafts_in_flight=u.unsure)
    its, _ = _population(u, manager, request)
    its.settings.geometry = SimpleNamespace(fences=False, keeps_states=False)
    with validators.disabled():
        operation = Transferred(OWNER, succeeded=True) if arrives else Rewind(OWNER, u.kept)
    # If a group lacks blocks, the request starts anew: ``external-tokens.running-goes-back``.
    continues = patch.object(manager_module, "lacks_blocks", lambda *_: False)
    with on_lengths(population), on_lengths(ahead), on_lengths(manager_module), continues:
        if not its.may(type(operation), request):
            return True
        manager.perform(operation)
    if any(name == "release_all" for name, *_ in asked):
        return arrives and ((status is Status.ENDING) | (u.computed == 0))
    replayed, at = Replayed(u), Operands(u.at_block, u.at_entry, content=u.own)
    counted, fills = _counts_in_its_slot(u, u.computed), u.filled[u.at_block] != 0
    if arrives and fills:
        counted = u.at < u.computed
        if counted:
            replayed.happens(Provide, at)
        replayed.happens(Filled, at)
    fine: Any = True
    for name, *_others, till, _begun in asked:
        # What is registered then is there.
        fine = fine & (name == "register") & implies(u.at < till, replayed.state.counts[u.at_entry] == u.at_block)
    counts = u.at < request.tokens_computed
    if not arrives:
        counts = counts & negated(fills)
    if counted & negated(counts):
        replayed.happens(TakeBack, at)
    stands = _stands_in_its_slot(u, replayed.state, counts, u.own, request.tokens.length)
    return fine & replayed.could & stands & (request.tokens_computed <= u.computed)


def _may_load(u: Any) -> Any:
    state, at = before(u), Operands(u.at_block, u.at_entry)
    loads, fills = u.status == STATUSES.index(Status.LOADING), state.filled[u.at_block] != 0
    fine = is_sound_at(u, lambda _state: [at], KEPT) & (u.kept <= u.computed) & (u.kept <= u.tokens)
    fine = fine & _stands_in_its_slot(u, state, _counts_in_its_slot(u, u.computed), u.own, u.tokens)
    # What another node fills is known, and it writes after the steps in flight, if it does not write out of turn.
    fine = fine & implies(fills, loads & (state.has[u.at_entry] == 0)) & implies(loads, u.computed <= u.tokens)
    return fine & ((state.out_of_turn != 0) | (state.late[u.at_block] == 0) | negated(fills))


IN_A_LOAD = Obligation(
    id="external-tokens.running-load-in-a-slot",
    statements=("KV-MEM-01", "KV-OP-24"),
    title="What the end of a load, and the loss of a part of it, do to the slot of any token are transitions where "
    "they can happen. What arrives counts in the block that the table names for it, and is there when it is "
    "registered; the last token counts no longer if all have arrived. What was lost counts no longer, and the same is "
    "computed there again.",
    unknowns={
        "blocks": Count(1),
        **{name: AMap(arity) for name, arity in MAPS.items()},
        **{name: Count(1) for name in ("at_block", "at_entry", "own", "tokens")},
        **{name: Count(0) for name in ("computed", "at", "kept", "unsure")},
        **{name: Count(0, 1) for name in ("ahead", "arrives", "out_of_turn")},
        "status": Count(0, len(STATUSES) - 1),
    },
    assumes=_may_load,
    claim=_loads_in_a_slot,
    witnesses={
        "it arrives": lambda u: (
            (u.arrives == 1) & (u.status == 2) & (u.filled[u.at_block] == 1) & (u.at == 7) & (u.computed == 9)
        ),
        "all have arrived": lambda u: (
            ((u.arrives == 1) & (u.status == 2) & (u.filled[u.at_block] == 1) & (u.at == 8) & (u.computed == 9))
            & (u.tokens == 9)
        ),
        "it was lost": lambda u: (
            (u.arrives == 0) & (u.status == 1) & (u.kept == 4) & (u.at == 7) & (u.computed == 9) & (u.tokens == 10)
        ),
    },
    mutants=(
        only(
            "what-was-lost-counts",
            "A token that was lost counts.",
            f"{BOOKS}.settle",
            _settles(Rewind, lambda its, request: setattr(request, "tokens_computed", request.tokens_computed + 1)),
        ),
        only(
            "more-counts-than-was-loaded",
            "A token more counts than another node has brought.",
            f"{BOOKS}._transferred",
            lambda self, request, succeeded: _counts_one_more(self, request, succeeded),
        ),
    ),
)
_TRANSFERRED = Population._transferred
"""What it does, where nothing is broken."""


def _counts_one_more(self: Population, request: Any, succeeded: bool) -> None:
    loaded = request.tokens_computed
    _TRANSFERRED(self, request, succeeded)
    request.tokens_computed = loaded + 1


OBLIGATIONS = (RELEASES, LEAVES_ALONE, ANSWERED, IN_ITS_SLOT, IN_A_LOAD)
