"""Trace events.

Goal: a trace viewer shows the run: requests as threads, blocks as counters, on an axis of operations. Method: the
document of a faulty system, read back; every event has what its kind must have.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from kvgate.adapters.reference import Reference
from kvgate.levels.manager import Bench
from kvgate.report.page.chrome import OPERATION_US, REFERENCE, REQUESTS, SYSTEM, trace_events
from kvgate.report.page.recording import record
from kvreference.operations import Admit, Arrive, Evict, Preempt

from .stage import ENDED, FULL, HOSTILE, PROMPT, TWICE, HitsNothing, KeepsABlock, case_of, recorded

REQUIRED = {
    "M": {"name", "args"},
    "X": {"name", "cat", "ts", "dur", "args"},
    "C": {"name", "ts", "args"},
    "i": {"name", "ts", "s", "args"},
}
"""The keys that the format requires of each kind of event, besides process and thread."""


def document(factory: Any, operations: Any, **more: Any) -> Any:
    recording, found = recorded(factory, operations, **more)
    return json.loads(trace_events(recording, found.divergence, "stock", "0.20.2"))


def events(of: Any, phase: str) -> list[Any]:
    return [event for event in of["traceEvents"] if event["ph"] == phase]


def test_every_event_is_one() -> None:
    """With the attributes of its kind, and at a whole operation."""
    trace = document(HitsNothing, TWICE)
    assert set(REQUIRED) == {event["ph"] for event in trace["traceEvents"]}
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] | {"ph", "pid", "tid"} <= set(event)
        assert 0 == event.get("ts", 0) % OPERATION_US
    assert "operations: 1 ms is one operation, and no time was measured" == trace["otherData"]["axis"]


def test_requests_are_threads() -> None:
    """With a slice for each state as long as it lasts; a preempted request waits as such."""
    recording = record(
        Bench(Reference, ("lockstep",)), case_of((Arrive(0, PROMPT), Admit(0, 8), Preempt(0), Arrive(1, PROMPT)))
    )
    trace = json.loads(trace_events(recording, None, "stock", "0.20.2"))
    names = {e["tid"]: e["args"]["name"] for e in events(trace, "M") if e["name"] == "thread_name"}
    assert {0: "operations", 1: "request 0", 2: "request 1"} == names
    slices = [
        (e["name"], e["ts"] // OPERATION_US, e["dur"] // OPERATION_US) for e in events(trace, "X") if e["tid"] == 1
    ]
    assert [("waiting", 0, 1), ("running", 1, 1)] == slices[:2]
    assert ("preempted", 2) == slices[2][:2]


def test_slices_of_a_thread_do_not_overlap() -> None:
    """A viewer would draw them wrong."""
    threads = defaultdict(list)
    for event in events(document(KeepsABlock, ENDED), "X"):
        threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert any(len(spans) > 1 for spans in threads.values())
    for spans in threads.values():
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_blocks_are_counted_on_both_sides() -> None:
    """And where they differ the counters do."""
    trace = document(KeepsABlock, ENDED, settings=FULL, detectors=("leak",))
    counted = {(e["pid"], e["name"], e["ts"] // OPERATION_US): e["args"]["blocks"] for e in events(trace, "C")}
    assert (11, 8) == (counted[SYSTEM, "free blocks", 0], counted[SYSTEM, "free blocks", 1])
    assert (10, 11) == (counted[SYSTEM, "free blocks", 2], counted[REFERENCE, "free blocks", 2])
    assert (1, 0) == (counted[SYSTEM, "held blocks", 2], counted[REFERENCE, "held blocks", 2])
    assert 3 == counted[SYSTEM, "cached blocks", 1]


def test_hits_and_losses_and_the_divergence_are_instants() -> None:
    """Each on its request's thread; the divergence across all."""
    recording = record(Bench(Reference, ("lockstep",)), case_of((*TWICE, Evict(1)), FULL))
    trace = json.loads(trace_events(recording, None, "stock", "0.20.2"))
    assert ["hit of 8 tokens", "block 1 forgets"] == [event["name"] for event in events(trace, "i")]
    (divergence,) = events(document(HitsNothing, TWICE), "i")
    assert ("divergence: KV-OP-01", "g", 3 * OPERATION_US, REQUESTS) == (
        divergence["name"],
        divergence["s"],
        divergence["ts"],
        divergence["pid"],
    )


def test_names_from_outside_are_bounded() -> None:
    """And stay what they are."""
    recording, found = recorded(HitsNothing, TWICE)
    trace = json.loads(trace_events(recording, found.divergence, HOSTILE, "x" * 10_000))
    assert trace["otherData"]["system"].startswith("</script>")
    assert 500 > len(trace["otherData"]["system_version"])
