"""Workloads: what is sent, in which order, and how it is written.

Goal: the workloads are those that were published, and every arm is asked the same. Method: known numbers of the
benchmarks, the clients played by hand, and names that do not fit.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.simulation.catalogue import WORKLOADS as NAMED
from kvgate.simulation.catalogue import options, workload_of
from kvgate.simulation.clients import Clients
from kvgate.simulation.generators import agents, fractions, repeat_rate, replays
from kvgate.simulation.policy import Policy, Serving, policy_of
from kvgate.simulation.workload import Session, Turn, Workload, common_tokens, single
from kvreference.compressed import dsv4_flash_ascend
from kvreference.operations import Run, spell

from .made_workloads import WORKLOADS


def test_the_published_benchmark() -> None:
    """Goal: 8192 tokens at a rate of 0.9 share 7372 in prompts of 8196. Method: compare the prompts."""
    workload = repeat_rate(8192, 1024, 32, 0.9)
    prompts = [session.turns[0].prompt for session in workload.sessions]
    assert 128 == len(prompts)
    assert {8196} == {session.turns[0].prompt_tokens for session in workload.sessions}
    # The template begins before the prefix, with one token.
    assert 1 + 7372 == common_tokens(prompts[0], prompts[1])
    (warm,) = workload.warm_up
    assert 7376 == warm.turns[0].prompt_tokens
    assert 1 + 7372 == common_tokens(warm.turns[0].prompt, prompts[0])
    assert () == repeat_rate(8192, 1024, 32, warm=False).warm_up


def test_long_prompts_are_cheap_to_say() -> None:
    """Goal: a million tokens are a run. Method: the parts of a fraction and of a replay."""
    workload = fractions(1_000_000, prompts=14, percent=30)
    assert 14 == len(workload.sessions) == len(workload.warm_up)
    first, again = workload.warm_up[3].turns[0], workload.sessions[3].turns[0]
    assert 300_000 == common_tokens(first.prompt, again.prompt)
    whole = replays(1_000_000, others=2)
    assert (3, 1) == (len(whole.warm_up), len(whole.sessions))
    assert whole.warm_up[0].turns[0].prompt == whole.sessions[0].turns[0].prompt


def test_agents_quote_what_was_said() -> None:
    """Goal: every turn begins with the one before and its answers. Method: compare turns; two seeds, one seed twice."""
    workload = agents(3, 4, 2, seed=5)
    for session in workload.sessions:
        for before, after in zip(session.turns, session.turns[1:], strict=False):
            assert before.tokens == common_tokens(before.runs, after.prompt)
    assert workload == agents(3, 4, 2, seed=5)
    assert workload != agents(3, 4, 2, seed=6)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_token_is_the_stop_token(name: str) -> None:
    """Goal: nothing ends before its answers are over. Method: every token of every workload."""
    tokens = [
        run.first + run.length for session in WORKLOADS[name].sessions for turn in session.turns for run in turn.runs
    ]
    assert max(tokens) < 999_999_999


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        ((Run(0, 9),), (Run(0, 9),), 9),
        ((Run(0, 9),), (Run(0, 4), Run(4, 5)), 9),
        ((Run(0, 4), Run(7, 3)), (Run(0, 9),), 4),
        ((Run(0, 3),), (Run(1, 3),), 0),
        ((Run(0, 3),), (Run(0, 2), Run(2, 1), Run(9, 9)), 3),
    ],
)
def test_runs_are_compared_by_what_they_spell(ours: tuple[Run, ...], theirs: tuple[Run, ...], shared: int) -> None:
    """Goal: a prefix is a matter of tokens. Method: the same tokens in other runs; both directions."""
    assert shared == common_tokens(ours, theirs) == common_tokens(theirs, ours)
    assert spell(ours)[:shared] == spell(theirs)[:shared]


def turn(first: int) -> Turn:
    """A turn of two tokens and an answer."""
    return Turn((Run(first, 2),), Run(first + 2, 1))


def test_lanes_take_sessions_in_order() -> None:
    """Goal: as many at once as lanes, and a turn after the one before. Method: end them out of order."""
    talks = (single(turn(0))[0], agents(1, 3, 1).sessions[0], single(turn(30))[0])
    clients = Clients(Workload("x", talks, lanes=2))
    assert [(0, 0, 0), (1, 1, 0)] == [(each.number, each.session, each.turn) for each in clients.send()]
    assert [] == clients.send()
    clients.end(1)
    assert [(2, 1, 1)] == [(each.number, each.session, each.turn) for each in clients.send()]
    clients.end(0)
    assert [(3, 2, 0)] == [(each.number, each.session, each.turn) for each in clients.send()]
    clients.end(3)
    assert [] == clients.send()
    clients.end(2)
    assert [(4, 1, 2)] == [(each.number, each.session, each.turn) for each in clients.send()]
    assert not clients.over
    clients.end(4)
    assert clients.over


def test_a_turn_waits_for_its_pause() -> None:
    """Goal: so many steps after the turn before. Method: two lanes; where both pause, the steps are left out."""
    talk = evolve(turn(10), pause_steps=2), evolve(turn(20), pause_steps=9)
    clients = Clients(Workload("x", (Session((turn(0), *talk)), *single(turn(30))), lanes=2))
    assert [0, 1] == [each.number for each in clients.send()]
    clients.end(0)
    assert [[], [2], []] == [[each.number for each in clients.send()] for _ in range(3)]
    clients.end(1)
    clients.end(2)
    # No request is served: in the next step the pause is over.
    assert [3] == [each.number for each in clients.send()]
    clients.end(3)
    assert clients.over


def test_what_is_counted_waits_for_the_warm_up() -> None:
    """Goal: the cache is measured with all that the warm-up left. Method: two lanes, a warm-up of three."""
    clients = Clients(Workload("x", single(turn(0)), 2, single(turn(10), turn(20), turn(30))))
    assert [False, False] == [each.counted for each in clients.send()]
    clients.end(1)
    assert [False] == [each.counted for each in clients.send()]
    clients.end(2)
    assert [] == clients.send()
    assert clients.warming
    clients.end(0)
    assert not clients.warming
    assert [(3, True)] == [(each.number, each.counted) for each in clients.send()]


def test_clients_stop_after_so_many_requests() -> None:
    """Goal: a benchmark is over when its time is, in the middle of sessions. Method: two lanes, three turns."""
    talks = (*agents(1, 3, 1).sessions, *single(turn(0), turn(30)))
    clients = Clients(Workload("x", talks, 2, single(turn(60)), requests_max=3))
    assert 1 + 3 == clients.workload.requests
    (warm,) = clients.send()
    clients.end(warm.number)
    assert [(1, 0), (2, 0)] == [(each.session, each.turn) for each in clients.send()]
    clients.end(1)
    clients.end(2)
    # Both lanes have something left to send, and one of them may.
    assert [(1, 1)] == [(each.session, each.turn) for each in clients.send()]
    assert not clients.over
    clients.end(3)
    assert ([], True) == (clients.send(), clients.over)
    # As many as there are, or more: no request is stopped.
    assert 5 == Workload("x", talks, requests_max=5).requests == Workload("x", talks, requests_max=9).requests
    with pytest.raises(ValueError, match="'requests_max' must be >= 1"):
        Workload("x", talks, requests_max=0)


# Names


def test_workloads_by_name() -> None:
    """Goal: the command offers the workloads that the generators make. Method: call one with and without values."""
    for text, made in (
        ("repeat-rate", repeat_rate()),
        ("repeat-rate:input_tokens=512,lanes=2,rate=0.5,warm=no", repeat_rate(512, lanes=2, rate=0.5, warm=False)),
    ):
        assert evolve(made, name=text) == workload_of(text)
    for name in NAMED:
        assert options(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("repeats", "no workload 'repeats': there are repeat-rate"),
        ("agents:turns", "'turns' is nothing that agents takes: sessions=int"),
        ("agents:lane=3", "'lane=3' is nothing that agents takes"),
        ("agents:turns=3,turns=4", "turns is given twice"),
        ("agents:turns=many", "turns must be int, not 'many'"),
        ("repeat-rate:warm=perhaps", "warm must be bool"),
        ("repeat-rate:rate=1.0", "too few or too many"),
        ("fractions:percent=0", "give 1 to 100"),
        ("agents:lanes=0", "lanes"),
        ("repeat-rate:prefixes=0", "0 prefixes: give at least 1"),
        ("repeat-rate:rate=inf", "infinity"),
    ],
)
def test_workloads_that_do_not_exist(text: str, message: str) -> None:
    """Goal: a message that says what to write. Method: names and values that do not fit."""
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        workload_of(text)


def test_policies_by_name() -> None:
    """Goal: policies are words. Method: some that exist."""
    assert Policy("dense") == policy_of("dense")
    assert Policy("masked+scratch", masked=True, scratch_first=True) == policy_of("masked+scratch")
    assert Policy("retention=auto", interval_tokens=32768) == policy_of("retention=auto")
    junctions = Policy("retention=0+junctions", interval_tokens=0, keeps_junctions=True)
    assert junctions == policy_of("retention=0+junctions")
    assert Policy("partial+min=64+pinned", None, False, False, 16, 128, 64) == policy_of("partial+min=64+pinned")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no word ''"),
        ("sparse", "no word 'sparse': there are dense, masked"),
        ("masked+retention=4", "give one of the two"),
        ("dense+masked", "dense caching leaves nothing out"),
        ("masked=3", "'masked' takes no number"),
        ("retention", "needs a number of tokens"),
        ("retention=few", "a number of tokens or auto"),
        ("pinned=0", "at least 1"),
        ("min=64", "it needs 'partial'"),
        ("scratch+scratch", "given twice"),
        ("junctions", "what a retention interval leaves out"),
    ],
)
def test_policies_that_do_not_exist(text: str, message: str) -> None:
    """Goal: a message that says what to write. Method: words that do not exist, or do not go together."""
    with pytest.raises(UsageError, match=message):
        policy_of(text)


def test_a_policy_that_does_not_fit_the_server() -> None:
    """Goal: it is reported before anything runs. Method: an interval that is not a multiple of the alignment."""
    serving = Serving("ascend", dsv4_flash_ascend(128), 4000)
    with pytest.raises(UsageError, match=r"policy 'retention=100' does not fit ascend: .* multiple"):
        policy_of("retention=100").settings(serving, 1)
