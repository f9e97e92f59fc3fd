"""The line before a scheduler.

Goal: a request that is passed over, left out, or preempted before its turn is seen; passing is accepted where it is
allowed. Method: the monitor observes by hand what happens.
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
GRANTED = Granted(0, ((1,),))
LOADS = Granted(0, ((1,),), external_tokens=8, loads=True)


class Observed:
    """A waiting queue, and its requests."""

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

    def admit(self, number: int, answer: Granted | Refused = GRANTED) -> Difference | None:
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
    """The violated guarantee, and the expected value."""
    assert found is not None
    return f"{found.statement}: {found.expected}"


def test_first_come_first_served() -> None:
    """In order nothing is found; the second before the first is."""
    observed = Observed(serve(0), serve(1))
    assert [None, None] == [observed.admit(0), observed.admit(1)]
    assert "KV-LIVE-01: request 0 is asked for first" == violated(Observed(serve(0), serve(1)).admit(1))


def test_the_most_urgent_first() -> None:
    """By priority, and then by arrival."""
    observed = Observed(serve(0, 2), serve(1, 1), serve(2, 1), by_priority=True)
    assert [None, None, None] == [observed.admit(1), observed.admit(2), observed.admit(0)]
    assert "KV-LIVE-01: request 1 is asked for first" == violated(
        Observed(serve(0, 2), serve(1, 1), by_priority=True).admit(0)
    )


def test_a_request_set_aside_may_be_passed() -> None:
    """It loads, waits for its grammar, or its connector is undecided; a request that comes back passes the others."""
    observed = Observed(serve(0), serve(1))
    assert [None, None] == [observed.admit(0, LOADS), observed.admit(1)]
    assert Observed(serve(0, structured=True), serve(1)).admit(1) is None
    observed = Observed(serve(0, undecided=1), serve(1))
    observed.line.undecided(0)
    assert observed.admit(1) is None
    observed = Observed(serve(0), serve(1), serve(2, structured=True))
    observed.line.compiled(2)
    assert observed.admit(2) is None


def test_the_first_request_set_aside_comes_back_first() -> None:
    """And before all others; a request that is not ready yet is passed again, and keeps its place."""

    def set_aside() -> Observed:
        observed = Observed(serve(0), serve(1), serve(2, structured=True), serve(3))
        assert [None, None] == [observed.admit(0, LOADS), observed.admit(1, LOADS)]
        observed.line.compiled(2)
        observed.line.arrived(1)
        return observed

    first = "KV-LIVE-01: request 2 is asked for first"
    assert first == violated(set_aside().admit(1))
    assert first == violated(set_aside().admit(3))
    observed = set_aside()
    assert (0, 1, 3) == observed.line.lengths
    assert [None, None, None] == [observed.admit(2), observed.admit(1), observed.admit(3)]
    assert (3, 0, 1) == observed.line.lengths
    assert first == violated(set_aside().admit(1, Refused(0, gate=True)))


def test_a_missing_request_is_not_asked_for() -> None:
    """Nor preempted."""
    assert "KV-LIVE-01: a waiting request" == violated(Observed(serve(0)).admit(1))
    assert "KV-LIVE-02: a running request" == violated(Observed(serve(0)).line.observe(Preempt(0), Done()))


def test_the_last_is_preempted_and_is_first_in_line() -> None:
    """The first before the last is a violation."""
    observed = Observed(serve(0), serve(1), serve(2))
    assert [None, None] == [observed.admit(0), observed.admit(1)]
    assert observed.line.observe(Preempt(1), Done()) is None
    assert "KV-LIVE-01: request 1 is asked for first" == violated(observed.admit(2))
    observed = Observed(serve(0), serve(1))
    assert [None, None] == [observed.admit(0), observed.admit(1)]
    assert "KV-LIVE-02: request 1 is preempted" == violated(observed.line.observe(Preempt(0), Done()))


def test_the_least_urgent_is_preempted() -> None:
    """By priority; a reset preempts from the last to the first, regardless of priority."""
    observed = Observed(serve(0, 2), serve(1, 1), by_priority=True)
    assert [None, None] == [observed.admit(1), observed.admit(0)]
    assert "KV-LIVE-02: request 0 is preempted" == violated(observed.line.observe(Preempt(1), Done()))
    for resets, expected in ((False, None), (True, "KV-LIVE-02: request 1 is preempted")):
        observed = Observed(serve(0, 2), by_priority=True)
        assert observed.admit(0) is None
        observed.line.submitted(1, serve(1, 1))
        assert observed.admit(1) is None
        observed.line.resets = resets
        found = observed.line.observe(Preempt(0), Done())
        assert expected == (found and violated(found))


def test_a_ready_request_is_asked_for() -> None:
    """While the budget lasts; a ready request that is not asked for is left out."""
    asked = "KV-LIVE-01: it is asked for"
    assert asked == violated(Observed(serve(0)).end())
    observed = Observed(serve(0))
    assert observed.admit(0) is None
    assert observed.end() is None
    observed = Observed(serve(0))
    assert observed.line.observe(LookUp(0), Hit(0, ((),))) is None
    assert observed.end() is None


def test_without_room_no_request_is_left_out() -> None:
    """No tokens are left, no place, or a request was rejected or preempted; or its grammar is not compiled."""
    assert Observed(serve(0)).end(tokens=64) is None
    observed = Observed(serve(0), serve(1), running_max=1)
    assert [None, None] == [observed.admit(0), observed.end()]
    observed = Observed(serve(0), serve(1))
    assert [None, None] == [observed.admit(0, Refused(0, gate=True)), observed.end()]
    assert Observed(serve(0, structured=True)).end() is None
    compiled = Observed(serve(0, structured=True))
    compiled.line.compiled(0)
    assert compiled.end() is not None


def test_a_request_that_ends_leaves_the_queue() -> None:
    """While it waits, and while it runs."""
    observed = Observed(serve(0), serve(1), running_max=1)
    assert observed.line.observe(Abort(0), Done()) is None
    assert [None, None] == [observed.admit(1), observed.line.observe(Finish(1), Done())]
    observed.population.alive.clear()
    assert observed.end() is None


def test_where_holders_come_first() -> None:
    """A request that has loaded is admitted before the more urgent, there and nowhere else; one that holds nothing is
    not.
    """
    for holders_first in (True, False):
        observed = Observed(serve(0, priority=1), by_priority=True, holders_first=holders_first)
        assert observed.admit(0, LOADS) is None
        late = serve(1)
        observed.population.settle(late.arrival, Done())
        observed.line.submitted(1, late)
        observed.line.arrived(0)
        found = observed.admit(0)
        assert holders_first == (found is None)
    observed = Observed(serve(0, priority=1), serve(1), by_priority=True, holders_first=True)
    assert observed.admit(0) is not None


def test_what_holds_blocks_is_admitted_while_the_engine_is_paused() -> None:
    """There alone, and not if those that run are paused, too; a request that holds nothing waits."""
    for holders_first, running, expected in ((True, False, True), (True, True, False), (False, False, False)):
        observed = Observed(serve(0), serve(1), holders_first=holders_first)
        assert observed.admit(0, LOADS) is None
        observed.population.alive[0].status = Status.LOADING
        observed.line.arrived(0)
        observed.line.begin(PauseEngine(running))
        found = observed.end()
        assert expected == (found is not None and "request 0, in line" == found.subject)
        assert expected == (found is not None)
        assert not expected or (None, None) == (observed.admit(0), observed.end())


def test_without_a_slot_for_its_adapter_it_is_passed() -> None:
    """Only then; and it is the first to come back, once there is one."""
    requests = serve(0, adapter="one"), serve(1, adapter="two"), serve(2), serve(3, adapter="one")
    observed = Observed(*requests, adapters_max=1)
    assert [None, None, None, None] == [observed.admit(0), observed.admit(2), observed.admit(3), observed.end()]
    assert (3, 0, 1) == observed.line.lengths
    for roomy in (Observed(*requests, adapters_max=2), Observed(*requests, adapters_max=1)):
        assert "KV-LIVE-01: request 0 is asked for first" == violated(roomy.admit(2))
    observed = Observed(*requests, adapters_max=2)
    assert observed.admit(0) is None
    assert "KV-LIVE-01: request 1 is asked for first" == violated(observed.admit(2))
    observed = Observed(*requests, adapters_max=1)
    assert [None, None, None] == [observed.admit(0), observed.admit(2), observed.admit(3)]
    observed.line.begin()
    assert observed.admit(1) is None


def test_the_first_request_passed_comes_back_first() -> None:
    """One lacks a slot for its adapter, and the connector of the next is undecided: they come back in that order."""
    requests = serve(0, adapter="one"), serve(1, adapter="two"), serve(2, undecided=1)
    observed = Observed(*requests, adapters_max=1)
    assert observed.admit(0) is None
    observed.line.undecided(2)
    observed.line.observe(LookUp(2), Hit(0, ()))
    observed.line.begin()
    assert [None, None] == [observed.admit(1), observed.admit(2)]


def test_after_an_empty_chunk_no_request_is_checked() -> None:
    """By priority: a request less urgent than the one with an empty chunk is not set aside for its adapter."""
    requests = serve(0, adapter="one"), serve(1, priority=2, adapter="two"), serve(2, priority=1)
    observed = Observed(*requests, by_priority=True, adapters_max=1, may_split=False)
    assert observed.admit(0) is None
    observed.line.observe(LookUp(2), Hit(0, ()))
    assert observed.end() is None
    assert (1, 2, 0) == observed.line.lengths


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
    line = Observed(serve(0), serve(1), padded_tokens=5, provided_tokens=provided)
    assert line.line.observe(LookUp(0), Hit(hit, ())) is None
    found = line.end(tokens)
    assert left_out == (found is not None)
