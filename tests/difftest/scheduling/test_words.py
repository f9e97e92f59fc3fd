"""Descriptions of what happens to an engine.

Goal: every operation is described on one line, with its difference from the plainest of its kind. Method: one of each,
and the lines written out.
"""

from __future__ import annotations

import pytest

from kvgate.levels.scheduler.operations import (
    OPERATIONS,
    Close,
    Collect,
    GrammarReady,
    Lost,
    Operation,
    PauseEngine,
    ResetCache,
    ResetEncoder,
    Serve,
    Stage,
    describe_engine,
    describe_stage,
)
from kvreference.operations import Abort, Arrive, Continue, Run, Transferred
from kvreference.scheduler.operations import Reply, Step, Submit

ARRIVAL = Arrive(3, (Run(0, 20), Run(90, 1)))
DESCRIBED: list[tuple[Operation, str]] = [
    (Submit(ARRIVAL), "Submit request 3: a prompt of 21 tokens, at most 1 answer"),
    (
        Serve(ARRIVAL, 5, 16, loads=True, sends=True, priority=2, structured=True, undecided=1, fails_from_block=2),
        "Submit request 3: a prompt of 21 tokens, at most 5 answers, 16 tokens offered by another node, loaded while "
        "it waits, read by another node at its end, priority 2, its answer follows a grammar, its connector is "
        "undecided 1 time, its load fails after 2 blocks",
    ),
    (
        Serve(ARRIVAL, 5, 16),
        "Submit request 3: a prompt of 21 tokens, at most 5 answers, 16 tokens offered by another "
        "node, loaded within a step",
    ),
    (Step(), "Take a step; the model answers token 0"),
    (
        Step((Reply(2, 7, 3), Reply(ends=True))),
        "Take a step; the model answers token 7, 2 drafts accepted, 3 drafts proposed; token 0, which ends the request",
    ),
    (Step((Reply(),) * 6), f"Take a step; the model answers {'; '.join(['token 0'] * 4)}; and 2 more"),
    (Continue(3, (Run(0, 5),)), "Session 3 continues with 5 tokens: 0..4"),
    (Close(3), "The client of session 3 sends no further part"),
    (Collect(), "The worker returns the oldest step in flight"),
    (Abort(3), "Abort request 3"),
    (Transferred(3), "The transfer of request 3 is over"),
    (Transferred(3, succeeded=False), "The transfer of request 3 fails"),
    (Lost(3), "The other node of request 3 is gone: its transfer never ends"),
    (GrammarReady(3), "The grammar of request 3 is compiled"),
    (ResetCache(), "Reset the prefix cache"),
    (ResetCache(connector=True), "Reset the prefix cache and the connector's cache"),
    (ResetEncoder(), "Reset the encoder's cache"),
    (PauseEngine(), "Pause the engine for 1 step: no request is admitted"),
    (
        PauseEngine(running=True, aborts=True, steps=3),
        "Abort all requests, and pause the engine for 3 steps: no request computes",
    ),
    (ResetCache(preempts=True), "Reset the prefix cache, preempting running requests"),
]


@pytest.mark.parametrize(("operation", "message"), DESCRIBED)
def test_an_operation_is_one_line(operation: Operation, message: str) -> None:
    """As written out."""
    assert message == describe_engine(operation)


def test_every_kind_of_operation_is_described() -> None:
    """No kind is missing here."""
    assert set(OPERATIONS) == {type(operation) for operation, _ in DESCRIBED}


def test_a_stage_describes_what_is_switched_on() -> None:
    """And nothing else."""
    assert "at most 8 requests run at once" == describe_stage(Stage())
    assert (
        "at most 1 request runs at once; steps are asynchronous, at most 3 in flight; requests are served by priority; "
        "other nodes offer, load and read blocks; a request whose load failed ends; a step computes at most 16 tokens "
        "of one prompt"
    ) == describe_stage(Stage(1, True, 3, True, True, True, 16))
