"""A finding as a story, a report and a trace file.

Goal: a reader sees the guarantee, the shortest path and the last state, can run it again, and never reads that more was
explored than was. Method: a design that is refuted, worlds given as graphs, and the reference as control.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import load_system
from kvgate.explore.designs import DESIGNS
from kvgate.explore.exploration import Limits
from kvgate.explore.explored import Explored
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.reproducer import command_of, trace_of
from kvgate.explore.story import render
from kvgate.explore.tiny_models import MODELS
from kvgate.gate import trace_codec
from kvgate.levels.manager import MANAGER, Bench, run
from kvgate.report.document import from_json, to_json
from kvgate.report.exploration import report_of
from kvgate.report.text import text_report
from kvreference.answers import Answer
from kvreference.operations import Operation, Preempt

from .stage import FULL, Drawn, explore, world_of

EARLY = DESIGNS["released-early"]


def refuted() -> ManagerWorld:
    """The world of a design that does not work."""
    world = MODELS[EARLY.model].world(design=EARLY)
    assert isinstance(world, ManagerWorld)
    return world


def test_a_story_has_fixed_parts() -> None:
    """The guarantee in its own words, what was seen, the way with its answers, and the state at its end."""
    world = refuted()
    found = explore(world).found
    assert found is not None
    assert render(world, found).splitlines() == [
        "KV-MEM-01: All that a computed token reads is in its slot: the state of its own request's prefix.",
        "seen: request 0, group 0: expected token 0 in its slot, got the block was freed: null block",
        "the shortest way there, 4 steps:",
        "     0  Request 0 arrives, prompt of 3 tokens: 0..2 -> done",
        "     1  Admit request 0, at most 1 token -> granted, a hit of 0 tokens, new blocks by group: [1]",
        "     2  Schedule request 0, at most 1 token -> granted, a hit of 0 tokens, new blocks by group: [2]",
        ">    3  Schedule request 0, at most 1 token -> granted, a hit of 0 tokens, new blocks by group: [3]",
        "the last state that was reached:",
        "  request 0: group 0 [1 null, 2..3]",
        "  counted as held: block 2 1 times, block 3 1 times",
        "  free, the next one first: 4, 1",
        "  cached: 1..3",
    ]


class Trips(Reference):
    """Cannot be asked to preempt."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Preempt):
            raise ZeroDivisionError("no way\nback")
        return super().apply(operation)


def test_a_move_that_raised_has_no_answer_and_the_state_before_it_is_printed() -> None:
    """On one line, for any exception."""
    world = world_of(FULL, factory=Trips)
    found = explore(world).found
    assert found is not None
    lines = render(world, found).splitlines()
    assert [r"seen: ZeroDivisionError: no way\nback", "the shortest way there, 3 steps:"] == lines[1:3]
    assert ">    2  Preempt request 0 -> raised" in lines
    assert "  request 0: group 0 [1]" in lines


def test_a_cycle_is_printed_after_the_path_to_it() -> None:
    """And both together lead to where the cycle began."""
    world = Drawn({"a": "b", "b": "c", "c": "B"}, idle=frozenset({"bc", "cb"}))
    found = explore(world).found
    assert found is not None
    assert render(world, found).splitlines()[:7] == [
        "KV-LIVE-03: Nothing spins: no sequence of steps returns to the same state without progress.",
        "seen: back in the same state after 2 steps",
        "the shortest way there, 1 step:",
        "     0  to b: ab",
        "and without progress back to the same state, 2 steps:",
        "     1  to c: bc",
        ">    2  to B: cb",
    ]


def test_everything_that_is_wrong_is_reported() -> None:
    """One statement first, then the others; the initial state has no path to print."""
    world = Drawn({"a": "b"}, wrong=frozenset({"ab", "b"}))
    found = explore(world).found
    assert found is not None
    assert "and KV-INV-01: b" == render(world, found).splitlines()[2]
    at_once = explore(Drawn({}, wrong=frozenset({"a"}))).found
    assert at_once is not None
    assert "the shortest way there, 0 steps:" in render(world, at_once)


DRAWN = Drawn({"a": "b", "b": "c"})


@pytest.mark.parametrize(
    ("explored", "first", "verdict"),
    [
        (
            [Explored(DRAWN, explore(DRAWN))],
            "nothing wrong in 3 states of 1 model, which are all that can be reached within the bounds",
            "nothing wrong",
        ),
        (
            [Explored(DRAWN, explore(DRAWN, Limits(2, 60)))],
            "nothing wrong in 2 states of 1 model; not exhaustive: drawn",
            "stopped at 2 states: not exhaustive",
        ),
        (
            [Explored(DRAWN, explore(DRAWN)), Explored(DRAWN, explore(evolve(DRAWN, wrong=frozenset({"b"}))))],
            "drawn: violates KV-INV-01, in 5 states of 2 models",
            "violates KV-INV-01",
        ),
        (
            [Explored(DRAWN, explore(DRAWN), EARLY)],
            "NOT REFUTED: nothing wrong in 3 states of 1 model, which are all that can be reached within the bounds",
            "NOT REFUTED",
        ),
        (
            [Explored(refuted(), explore(refuted()), EARLY)],
            "tiny-swa: refuted by KV-MEM-01, in 70 states of 1 model",
            "refuted by KV-MEM-01",
        ),
    ],
)
def test_a_report_says_first_what_it_comes_to(explored: list[Explored], first: str, verdict: str) -> None:
    """And nothing of what it did not see."""
    report = text_report(report_of(explored))
    assert first == report.splitlines()[0]
    assert verdict == explored[-1].verdict
    row = next(line for line in reversed(report.splitlines()) if line.startswith(f" {explored[-1].world.name} "))
    assert row.endswith(verdict)
    sections = ["Claimed", "Explored", "Bounds", "Found", "Not tested"]
    assert sections == [line for line in report.splitlines() if line in sections]


def test_a_design_that_violates_something_else_is_reported() -> None:
    """A reader who expects one statement must not read another in its place."""
    other = evolve(EARLY, statement="KV-INV-01")
    assert "released-early was expected to violate KV-INV-01, and violates KV-MEM-01:" in text_report(
        report_of([Explored(refuted(), explore(refuted()), other)])
    )


def test_the_report_for_programs_has_the_operations() -> None:
    """And the bounds, and whether it is all."""
    report = from_json(to_json(report_of([Explored(refuted(), explore(refuted()), EARLY)])), "out")
    (row,), (found,) = report.tested[0].records(), report.found
    assert ("tiny-swa", "released-early", 70, False, None) == (
        *(row["model"], row["design"], row["states"], row["exhaustive"], row["stopped"]),
    )
    assert "groups" in row["bounds"]
    assert ["Arrive", "Admit", "Schedule", "Schedule"] == [move["operation"] for move in found.details["moves"]]
    assert {"operation": "Schedule", "request": 0, "tokens": 1} == found.details["moves"][-1]
    assert "KV-MEM-01" == found.details["violations"][0]["statement"]
    sound = report_of([Explored(DRAWN, explore(DRAWN))])
    (row,) = sound.tested[0].records()
    assert (None, True, 0, ()) == (row["design"], row["exhaustive"], row["idle steps"], sound.found)


def test_a_trace_is_read_and_run_again(tmp_path: Path) -> None:
    """On the design it violates the same statement, and on the reference it violates none."""
    world, path = refuted(), tmp_path / "early.jsonl"
    found = explore(world).found
    assert found is not None
    trace_codec.write(trace_of(world, found), path)
    again = trace_codec.read(path, MANAGER)
    assert found.moves == again.operations
    assert "granted, a hit of 0 tokens, new blocks by group: [3]" == again.lines[-1].answer
    for system, statements in ((again.header.system, ["KV-MEM-01"]), ("reference", [])):
        bench = Bench(load_system(system).factory, again.header.detectors)
        _, divergences = run(bench, again.header.settings, again.operations)
        assert statements == [each.difference.statement for each in divergences]
    assert f"kvgate replay {path} --sut kvgate.explore.designs:ReleasesEarly" == command_of(world, path)


def test_a_trace_of_the_reference_says_how_it_stood() -> None:
    """With digests, which those of another design would only confuse; a move that raised is its last."""
    world = world_of(FULL)
    found = explore(world_of(FULL, factory=Trips)).found
    assert found is not None
    assert all(line.digest for line in trace_of(world, found).lines)
    assert "kvgate replay a.jsonl" == command_of(world, Path("a.jsonl"))
    raised = trace_of(world_of(FULL, factory=Trips), found)
    assert ("raised ZeroDivisionError", "") == (raised.lines[-1].answer, raised.lines[-1].digest)
