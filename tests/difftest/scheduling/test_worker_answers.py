"""The worker's answers.

Goal: the same case frees the same blocks in the same order in every process. Method: names in an order that a set of
strings has by chance once in 10^18.
"""

from __future__ import annotations

from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.adapter.worker import answer
from kvgate.levels.scheduler.nodes import Signals


def test_transfers_that_have_ended_are_in_one_order() -> None:
    """vLLM goes through them as a set, whose order would depend on the process's hash seed."""
    numbers = list(range(20))
    said = answer([], {}, Signals(received=numbers[::-1], sent=numbers)).kv_connector_output
    names = sorted(map(name_of, numbers))
    assert names == list(said.finished_recving)
    assert names == list(said.finished_sending)
    assert set(names) == said.finished_sending
