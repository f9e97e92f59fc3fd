"""Trace files of two nodes, and their generator.

Goal: a stored case is read again as it was, a file that is not a trace is rejected with its line, and the same seed
generates the same. Method: every generated case written and read; files with one thing wrong.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.gate import trace_codec
from kvgate.gate.generator import PRESETS
from kvgate.gate.regression_test import regression_test
from kvgate.gate.shrink import simpler
from kvgate.gate.trace_codec import Line, level_of, trace_of, write
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.pair.level import PAIR, fits
from kvgate.levels.pair.operations import OPERATIONS, Ask, describe_pair, describe_pair_stage

CASES = [PAIR.draw(load(name), preset, "0/1") for name in ("full+eagle", "gpt-oss-hybrid") for preset in PRESETS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.preset}")
def test_what_is_written_is_read(case: Any, tmp_path: Path) -> None:
    """All of it; and it says what kind it is."""
    path = tmp_path / "pair.jsonl"
    trace = trace_of(case, None, "stock", "0.20.2", PAIR.gate)
    write(trace, path)
    assert level_of(path, [PAIR])
    assert (trace, case) == (trace_codec.read(path, PAIR), trace_codec.read(path, PAIR).case)


def test_the_same_seed_draws_the_same() -> None:
    """And another seed generates something else; every kind of operation is generated but the one that never comes."""
    again = [PAIR.draw(load("full+eagle"), preset, "0/1") for preset in PRESETS]
    assert CASES[: len(again)] == again
    assert CASES[0] != PAIR.draw(load("full+eagle"), CASES[0].preset, "0/2")
    drawn = {type(operation) for case in CASES for operation in case.operations}
    assert {kind.__name__ for kind in OPERATIONS} - {"Lost"} == {kind.__name__ for kind in drawn}


def test_generated_requests_fit_on_both_nodes() -> None:
    """A request that never fits shows another defect, and is left out."""
    asks = [(case, each) for case in CASES for each in case.operations if isinstance(each, Ask)]
    assert all(fits(case.settings, case.stage, each) for case, each in asks)


def spoilt(lines: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    header, first, *rest = lines
    if where == "format":
        header["level"] = "scheduler"
    elif where == "version":
        header["version"] = 6
    elif where == "detectors":
        header["detectors"] = ["somebody"]
    elif where == "blocks":
        header["stage"]["prefill_blocks"] = 10**9
    elif where == "places":
        header["stage"]["decode"]["running_max"] = 10**9
    elif where == "node":
        first |= {"operation": "StepOn", "node": "third", "replies": []}
    elif where == "kind":
        first["operation"] = "Serve"
    elif where == "prompt":
        first["arrival"]["prompt"][0]["length"] = 10**9
    return [header, first, *rest]


@pytest.mark.parametrize(
    ("where", "line", "says"),
    [
        ("format", 1, "not the trace of two nodes"),
        ("version", 1, "this kvgate reads 1 to 5"),
        ("detectors", 1, '"detectors" are one or more of'),
        ("blocks", 1, "PairStage.prefill_blocks: 1000000000, at most"),
        ("places", 1, "Stage.running_max: 1000000000, at most"),
        ("node", 2, "node"),
        ("kind", 2, "unknown operation 'Serve'"),
        ("prompt", 2, "prompt tokens in all"),
    ],
)
def test_what_is_not_a_trace_is_rejected(where: str, line: int, says: str, tmp_path: Path) -> None:
    """With the line, and what is wrong there."""
    case = CASES[0]
    asks = tuple(each for each in case.operations if isinstance(each, Ask))[:2]
    path = tmp_path / "pair.jsonl"
    trace = trace_of(case, None, "stock", "0.20.2", PAIR.gate)
    write(evolve(trace, lines=tuple(map(Line, asks))), path)
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(each) + "\n" for each in spoilt(lines, where)))
    with pytest.raises(UsageError) as refused:
        trace_codec.read(path, PAIR)
    assert f"line {line}: " in str(refused.value)
    assert says in str(refused.value)


def test_the_blocks_of_both_nodes_are_work(tmp_path: Path) -> None:
    """All are compared after each operation: so many lines of two million blocks are too much."""
    case = CASES[0]
    large = evolve(case, stage=evolve(case.stage, prefill_blocks=2_000_000))
    asked = next(each for each in case.operations if isinstance(each, Ask))
    trace = trace_of(large, None, "stock", "0.20.2", PAIR.gate)
    for count, refused in ((900, False), (1_000, True)):
        write(evolve(trace, lines=(Line(asked),) * count), path := tmp_path / f"{count}.jsonl")
        with pytest.raises(UsageError, match="all blocks are compared") if refused else nullcontext():
            trace_codec.read(path, PAIR)


def test_every_operation_is_described_on_one_line() -> None:
    """And so is the stage."""
    for case in CASES:
        assert "\n" not in describe_pair_stage(case.stage)
        lines = {describe_pair(operation) for operation in case.operations}
        assert not [line for line in lines if "\n" in line or not line]


def test_a_simpler_operation_is_another_of_its_kind() -> None:
    """Every operation that shrinking tries is an operation on two nodes, and differs from the one before."""
    for operation in {operation for case in CASES for operation in case.operations}:
        assert all(type(each) is type(operation) and each != operation for each in simpler(operation, PAIR.simpler))


def test_a_trace_is_printed_as_a_test() -> None:
    """One that a parser takes, with everything that it names imported."""
    source = regression_test(trace_of(CASES[0], None, "stock", "0.20.2", PAIR.gate), "stock")
    compile(source, "test_regression.py", "exec")
    for name in ("LEVELS", "PairStage", "StepOn", "Node", "Ask", "run_case"):
        assert name in source.partition("def test_replay")[0]
