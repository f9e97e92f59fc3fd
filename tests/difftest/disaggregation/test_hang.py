"""The reported hang: prompts are computed, but the decode node loops permanently and answers no request.

Goal: it is found on vLLM as published, reported with a wait graph over both nodes, and gone with a repair. Method: the
corpus's run on two nodes as they are, repaired, and with more room; and hangs that neither node can see alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from attrs import evolve

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import release_named
from kvgate.findings import explain_pair
from kvgate.gate.trace_codec import trace_of, write
from kvgate.levels.pair.level import PAIR
from kvgate.levels.pair.operations import Node
from kvgate.levels.pair.pair import Pair
from kvgate.levels.pair.waiting import place_of
from kvgate.monitors.wait_graph import Reason
from kvgate_mutants.corpus.bugs.hangs import PREFILLED_NEVER_DECODED
from kvgate_mutants.mutants.pair import abandoned_before_the_read_is_forgotten
from kvgate_mutants.mutants.reintroduced import loads_leave_room_for_a_step
from kvreference.operations import Abort
from kvreference.settings import Settings

from .rig import D, P, ask, pair, run, settings, undeclared

SCENARIO = PREFILLED_NEVER_DECODED


def reported(of: Settings | None = None, **more: Any) -> Pair:
    return Pair(of or SCENARIO.settings, SCENARIO.stage, with_reference=False, **more)


def test_the_reported_hang_is_found() -> None:
    """A step after it began, on the node that could answer, and as what is declared of vLLM."""
    nodes = reported()
    (found,) = run(nodes, SCENARIO.operations)
    assert ("progress", "KV-LIVE-03", "decode node, progress") == (
        found.detector,
        found.difference.statement,
        found.difference.subject,
    )
    assert "023-parked-loads-leave-no-room" == explain_pair(found, nodes)


def test_the_wait_graph_of_both_nodes_is_reported() -> None:
    """From the prompt that is not computed to the two that wait for each other."""
    (found,) = run(reported(), SCENARIO.operations)
    parts = found.difference.got.split("; ")
    for sentence in (
        "0 blocks are free on the decode node",
        "request 0 on the decode node waits (waiting), 63 of 64 tokens computed, holds 4 blocks",
        "request 1 on the decode node waits (waiting_for_remote_kvs), 48 of 48 tokens computed, holds 3 blocks",
        "request 4 on the prefill node waits for blocks: request 2 on the prefill node holds 4",
        "request 2 on the prefill node waits for its blocks to be read by request 2 on the decode node",
        "request 2 on the decode node waits for request 0 on the decode node, which comes first",
        "request 0 on the decode node waits for blocks: request 1 on the decode node holds 3",
        "request 1 on the decode node waits for request 0 on the decode node, which comes first",
    ):
        assert sentence in parts
    circle = "request 0 on the decode node → request 1 on the decode node → request 0 on the decode node"
    assert f"in a circle: {circle}" == parts[-1]


def test_with_the_repair_it_is_gone() -> None:
    """The same run, and every request is answered: a load waits if it would leave no blocks for a step."""
    with loads_leave_room_for_a_step.applied():
        nodes = reported()
        for operation in SCENARIO.operations:
            assert nodes.perform(operation) is None
        assert [] == [each for each in nodes.close() if explain_pair(each, nodes) is None]


def test_with_more_room_it_is_not_there() -> None:
    """Two blocks more, one for each draft layer."""
    assert [] == undeclared(reported(evolve(SCENARIO.settings, blocks=10)), SCENARIO.operations)


@pytest.mark.deep
def test_with_the_published_fix_it_is_gone(tmp_path: Path) -> None:
    """The same run on the release that has upstream's fix, in a process of its own."""
    fetch(release_named("native@0.33.0"))
    path = tmp_path / "pair.jsonl"
    # That release always has scratch first, and nothing depends on it here.
    settings = evolve(SCENARIO.settings, scratch_first=True)
    case = PAIR.case(settings, SCENARIO.operations, SCENARIO.stage, model="full+eagle", seed="by hand")
    write(trace_of(case, None, "native@0.33.0", "0.33.0", PAIR.gate), path)
    command = [sys.executable, "-m", "kvgate.cli", "replay", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    assert "no divergence in " in ended.stdout


# Hangs that neither node sees alone


def test_a_client_that_is_forgotten_between_the_nodes_stops_both() -> None:
    """The prefill node believes that its blocks are still to be read, and the decode node knows no such request."""
    operations = (ask(0, 64), P, Abort(0), ask(1, 64), P, D, P, D, P)
    assert [] == undeclared(pair(prefill_blocks=8), operations)
    with abandoned_before_the_read_is_forgotten.applied():
        nodes = pair(prefill_blocks=8)
        (found,) = run(nodes, operations)
    assert ("progress", "KV-LIVE-03", "progress of both nodes") == (
        found.detector,
        found.difference.statement,
        found.difference.subject,
    )
    assert nodes.prefill.progress.waiting is None
    waiting = nodes.progress.waiting
    assert waiting is not None
    first, second, gone = place_of(Node.PREFILL, 0), place_of(Node.PREFILL, 1), place_of(Node.DECODE, 0)
    expected = {(first, Reason.READER, gone), (second, Reason.BLOCKS, first)}
    assert expected == {(edge.request, edge.reason, edge.holder) for edge in waiting.edges}
    assert {first, second} == set(waiting.stuck())


def test_a_request_that_waits_for_a_message_is_not_stuck() -> None:
    """Neither progresses, and the message may come any moment."""
    nodes = pair(settings(), prefill_blocks=8)
    for operation in (ask(0, 64), P, D, ask(1, 64), P, D, P, D, P, D, P):
        assert nodes.perform(operation) is None
    assert nodes.prefill.still
    assert nodes.decode.still
    assert () == nodes.progress.graph.wait_for().stuck()
