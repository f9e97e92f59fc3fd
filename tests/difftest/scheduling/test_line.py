"""The line before a scheduler.

Goal: whoever is passed over, left out, or preempted before its turn is seen; whoever may be passed is not. Method: the
line told by hand what happens.
"""

from __future__ import annotations

import pytest

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.operations import PauseEngine, Serve, Stage
from kvgate.levels.scheduler.queue_order_monitor import Line
from kvreference.answers import Done, Granted, Hit, Refused
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Admit, Arrive, Finish, LookUp, Preempt, Run
from kvreference.population import Population, Status
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=40)
LET_IN = Granted(0, ((1,),))
LOADS = Granted(0, ((1,),), external_tokens=8, loads=True)


class Told:
    """A line, and the requests that stand in it."""

    def __init__(
        self,
        *requests: Serve,
        running_max: int = 8,
        by_priority: bool = False,
        connector: bool = True,
        holders_first: bool = False,
        adapters_max: int | None = None,
        may_split: bool = True,
        padded_tokens: int = 1,
        provided_tokens: int = 0,
    ) -> None:
        self.population = Population(SETTINGS)
        stage = Stage(running_max, by_priority=by_priority, connector=connector, adapters_max=adapters_max)
        self.line = Line(stage, 64, may_split, holders_first, padded_tokens, 64, lambda _number: provided_tokens)
        for request in requests:
            self.population.settle(request.arrival, Done())
            self.line.submitted(request.arrival.request, request)
        self.line.begin()

    def let_in(self, number: int, answer: Granted | Refused = LET_IN) -> Difference | None:
        """A request is asked for."""
        return self.line.observe(Admit(number, 8), answer)

    def end(self, tokens: int = 8) -> Difference | None:
        """The step has so many tokens."""
        return self.line.end(tokens, self.population)


def serve(
    number: int, priority: int = 0, structured: bool = False, undecided: int = 0, adapter: str | None = None
) -> Serve:
    """A request."""
    arrival = Arrive(number, (Run(100 * number, 8),), Keys(lora=adapter))
    return Serve(arrival, priority=priority, structured=structured, undecided=undecided)


def violated(found: Difference | None) -> str:
    """What it violates, and what is expected."""
    assert found is not None
    return f"{found.statement}: {found.expected}"


def test_first_come_first_served() -> None:
    """In order nothing is found; the second before the first is."""
    told = Told(serve(0), serve(1))
    assert [None, None] == [told.let_in(0), told.let_in(1)]
    assert "KV-LIVE-01: request 0 is asked for first" == violated(Told(serve(0), serve(1)).let_in(1))


def test_the_most_urgent_first() -> None:
    """By priority, and of the same priority who came first."""
    told = Told(serve(0, 2), serve(1, 1), serve(2, 1), by_priority=True)
    assert [None, None, None] == [told.let_in(1), told.let_in(2), told.let_in(0)]
    assert "KV-LIVE-01: request 1 is asked for first" == violated(
        Told(serve(0, 2), serve(1, 1), by_priority=True).let_in(0)
    )


def test_who_is_set_aside_may_be_passed() -> None:
    """It loads, waits for its grammar, or its connector is undecided; and whoever comes back passes the others."""
    told = Told(serve(0), serve(1))
    assert [None, None] == [told.let_in(0, LOADS), told.let_in(1)]
    assert Told(serve(0, structured=True), serve(1)).let_in(1) is None
    told = Told(serve(0, undecided=1), serve(1))
    told.line.undecided(0)
    assert told.let_in(1) is None
    told = Told(serve(0), serve(1), serve(2, structured=True))
    told.line.compiled(2)
    assert told.let_in(2) is None


def test_who_was_set_aside_first_comes_back_first() -> None:
    """And before all others; whoever is not ready yet is passed again, and keeps its place."""

    def set_aside() -> Told:
        told = Told(serve(0), serve(1), serve(2, structured=True), serve(3))
        assert [None, None] == [told.let_in(0, LOADS), told.let_in(1, LOADS)]
        told.line.compiled(2)
        told.line.arrived(1)
        return told

    first = "KV-LIVE-01: request 2 is asked for first"
    assert first == violated(set_aside().let_in(1))
    assert first == violated(set_aside().let_in(3))
    told = set_aside()
    assert (0, 1, 3) == told.line.lengths
    assert [None, None, None] == [told.let_in(2), told.let_in(1), told.let_in(3)]
    assert (3, 0, 1) == told.line.lengths
    assert first == violated(set_aside().let_in(1, Refused(0, gate=True)))


def test_who_is_not_there_is_not_asked_for() -> None:
    """Nor preempted."""
    assert "KV-LIVE-01: a waiting request" == violated(Told(serve(0)).let_in(1))
    assert "KV-LIVE-02: a running request" == violated(Told(serve(0)).line.observe(Preempt(0), Done()))


def test_the_last_is_preempted_and_is_first_in_line() -> None:
    """The first before the last is a violation."""
    told = Told(serve(0), serve(1), serve(2))
    assert [None, None] == [told.let_in(0), told.let_in(1)]
    assert told.line.observe(Preempt(1), Done()) is None
    assert "KV-LIVE-01: request 1 is asked for first" == violated(told.let_in(2))
    told = Told(serve(0), serve(1))
    assert [None, None] == [told.let_in(0), told.let_in(1)]
    assert "KV-LIVE-02: request 1 is preempted" == violated(told.line.observe(Preempt(0), Done()))


def test_the_least_urgent_is_preempted() -> None:
    """By priority; a reset preempts from the last that came to the first, whoever is more urgent."""
    told = Told(serve(0, 2), serve(1, 1), by_priority=True)
    assert [None, None] == [told.let_in(1), told.let_in(0)]
    assert "KV-LIVE-02: request 0 is preempted" == violated(told.line.observe(Preempt(1), Done()))
    for resets, expected in ((False, None), (True, "KV-LIVE-02: request 1 is preempted")):
        told = Told(serve(0, 2), by_priority=True)
        assert told.let_in(0) is None
        told.line.submitted(1, serve(1, 1))
        assert told.let_in(1) is None
        told.line.resets = resets
        found = told.line.observe(Preempt(0), Done())
        assert expected == (found and violated(found))


def test_who_is_ready_is_asked_for() -> None:
    """As long as there is room; not asked is left out."""
    asked = "KV-LIVE-01: it is asked for"
    assert asked == violated(Told(serve(0)).end())
    told = Told(serve(0))
    assert told.let_in(0) is None
    assert told.end() is None
    told = Told(serve(0))
    assert told.line.observe(LookUp(0), Hit(0, ((),))) is None
    assert told.end() is None


def test_without_room_nobody_is_left_out() -> None:
    """No tokens are left, no place, or somebody was refused or preempted; or its grammar is not compiled."""
    assert Told(serve(0)).end(tokens=64) is None
    told = Told(serve(0), serve(1), running_max=1)
    assert [None, None] == [told.let_in(0), told.end()]
    told = Told(serve(0), serve(1))
    assert [None, None] == [told.let_in(0, Refused(0, gate=True)), told.end()]
    assert Told(serve(0, structured=True)).end() is None
    compiled = Told(serve(0, structured=True))
    compiled.line.compiled(0)
    assert compiled.end() is not None


def test_who_ends_is_out_of_line() -> None:
    """While it waits, and while it runs."""
    told = Told(serve(0), serve(1), running_max=1)
    assert told.line.observe(Abort(0), Done()) is None
    assert [None, None] == [told.let_in(1), told.line.observe(Finish(1), Done())]
    told.population.alive.clear()
    assert told.end() is None


def test_where_holders_come_first() -> None:
    """Whoever has loaded is let in before the more urgent, there and nowhere else; whoever holds nothing is not."""
    for holders_first in (True, False):
        told = Told(serve(0, priority=1), by_priority=True, holders_first=holders_first)
        assert told.let_in(0, LOADS) is None
        late = serve(1)
        told.population.settle(late.arrival, Done())
        told.line.submitted(1, late)
        told.line.arrived(0)
        found = told.let_in(0)
        assert holders_first == (found is None)
    told = Told(serve(0, priority=1), serve(1), by_priority=True, holders_first=True)
    assert told.let_in(0) is not None


def test_what_holds_blocks_is_admitted_while_the_engine_is_paused() -> None:
    """There alone, and not if those that run are paused, too; a request that holds nothing waits."""
    for holders_first, running, expected in ((True, False, True), (True, True, False), (False, False, False)):
        told = Told(serve(0), serve(1), holders_first=holders_first)
        assert told.let_in(0, LOADS) is None
        told.population.alive[0].status = Status.LOADING
        told.line.arrived(0)
        told.line.begin(PauseEngine(running))
        found = told.end()
        assert expected == (found is not None and "request 0, in line" == found.subject)
        assert expected == (found is not None)
        assert not expected or (None, None) == (told.let_in(0), told.end())


def test_without_a_slot_for_its_adapter_it_is_passed() -> None:
    """Only then; and it is the first to come back, once there is one."""
    requests = serve(0, adapter="one"), serve(1, adapter="two"), serve(2), serve(3, adapter="one")
    told = Told(*requests, adapters_max=1)
    assert [None, None, None, None] == [told.let_in(0), told.let_in(2), told.let_in(3), told.end()]
    assert (3, 0, 1) == told.line.lengths
    for roomy in (Told(*requests, adapters_max=2), Told(*requests, adapters_max=1)):
        assert "KV-LIVE-01: request 0 is asked for first" == violated(roomy.let_in(2))
    told = Told(*requests, adapters_max=2)
    assert told.let_in(0) is None
    assert "KV-LIVE-01: request 1 is asked for first" == violated(told.let_in(2))
    told = Told(*requests, adapters_max=1)
    assert [None, None, None] == [told.let_in(0), told.let_in(2), told.let_in(3)]
    told.line.begin()
    assert told.let_in(1) is None


def test_who_is_passed_first_comes_back_first() -> None:
    """One lacks a slot for its adapter, and the connector of the next is undecided: they come back in that order."""
    requests = serve(0, adapter="one"), serve(1, adapter="two"), serve(2, undecided=1)
    told = Told(*requests, adapters_max=1)
    assert told.let_in(0) is None
    told.line.undecided(2)
    told.line.observe(LookUp(2), Hit(0, ()))
    told.line.begin()
    assert [None, None] == [told.let_in(1), told.let_in(2)]


def test_nobody_after_a_chunk_of_nothing_is_looked_at() -> None:
    """By priority: who is less urgent than the request whose chunk is nothing is not set aside for its adapter."""
    requests = serve(0, adapter="one"), serve(1, priority=2, adapter="two"), serve(2, priority=1)
    told = Told(*requests, by_priority=True, adapters_max=1, may_split=False)
    assert told.let_in(0) is None
    told.line.observe(LookUp(2), Hit(0, ()))
    assert told.end() is None
    assert (1, 2, 0) == told.line.lengths


@pytest.mark.parametrize(
    ("hit", "provided", "tokens", "left_out"),
    [(7, 0, 59, True), (7, 0, 60, False), (6, 0, 60, True), (0, 0, 60, True), (2, 5, 60, False), (2, 4, 60, True)],
)
def test_a_request_with_one_token_left_waits_for_room_for_its_drafts(
    hit: int, provided: int, tokens: int, left_out: bool
) -> None:
    """Of eight tokens seven were hit, or come from another node within the step: it needs room for five.

    With more to compute, or with room, it is left out.
    """
    line = Told(serve(0), serve(1), padded_tokens=5, provided_tokens=provided)
    assert line.line.observe(LookUp(0), Hit(hit, ())) is None
    found = line.end(tokens)
    assert left_out == (found is not None)
