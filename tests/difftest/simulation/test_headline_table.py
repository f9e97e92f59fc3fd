"""The headline table.

Goal: a figure counts as reproduced only if every arm is within a point of it, read nothing unsound, and served every
request as the others did; and what was simulated is not simulated again. Method: one small figure, judged with results
that are changed one at a time; a store that is written, read, and spoilt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from benchmarks.headlines import __main__ as program
from benchmarks.headlines import repeat_rate
from benchmarks.headlines.figure import Accepts, Case, Figure, OutOfReach
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import Line, document, jobs_of, lines_of, markdown

from kvgate.errors import UsageError
from kvgate.simulation.arm import arm_of
from kvgate.simulation.result import Counters, Result, Soundness
from kvgate.simulation.sweep import Job

from .made_workloads import WORKLOADS, small

SETTING = small(WORKLOADS["prefixes"], "compressed", "dense")


@pytest.fixture(scope="module")
def result() -> Result:
    """What the reference gives."""
    return arm_of("reference").run(SETTING)


def figure(expected: float | None, accepts: Accepts = Accepts.EXACT) -> Figure:
    """A figure of one case."""
    case = Case("small", SETTING, expected)
    return Figure("1", "a figure", "some", "a report", accepts, (case,), ("an assumption",))


def line(expected: float | None, *results: Result | None, accepts: Accepts = Accepts.EXACT) -> Line:
    """Its line in the table."""
    found = figure(expected, accepts)
    return Line(found, found.cases[0], results)


def test_a_figure_is_reproduced_within_a_point(result: Result) -> None:
    """Goal: exact means within one percentage point, with every arm. Method: figures near and far, both sides."""
    rate = 100 * result.server.hit_rate
    other = evolve(result, arm="retention")
    for expected, verdict in (
        (rate, "within a point"),
        (rate + 0.99, "within a point"),
        (rate - 1.5, "1.50 points off"),
        (rate + 2.0, "2.00 points off"),
        (None, "exact"),
    ):
        assert verdict == line(expected, result, other).verdict
    assert not line(rate, result, other).is_wrong
    assert line(rate - 1.5, result, other).is_wrong
    # A figure that is exact needs to say what is expected of its cases.
    assert line(None, result, other).is_wrong
    assert "bracket" == line(None, result, other, accepts=Accepts.BRACKET).verdict


def test_what_may_not_be_believed_is_not_reproduced(result: Result) -> None:
    """Goal: a rate counts only if it is sound, and the arms agree. Method: the right rate, with one thing wrong."""
    rate = 100 * result.server.hit_rate
    (first, *rest) = result.served
    for other, verdict in (
        (evolve(result, soundness=Soundness(1, 1, "a misread")), "unsound or not judged"),
        (evolve(result, soundness=Soundness(judged=False)), "unsound or not judged"),
        (
            evolve(result, served=(evolve(first, hit_tokens=1), *rest)),
            "arms differ: reference and reference: request 0",
        ),
        (evolve(result, server=Counters(1, 100, 1)), "arms differ: reference and reference: server"),
    ):
        found = line(rate, result, other)
        assert found.verdict.startswith(verdict)
        assert found.is_wrong
    assert ("not run", False) == (line(rate, result, None).verdict, line(rate, result, None).is_wrong)


def test_the_table_says_it(result: Result) -> None:
    """Goal: published, simulated, difference, assumptions, and what is out of reach. Method: both forms of a table."""
    rate = 100 * result.server.hit_rate
    lines = [line(rate + 0.25, result, None)]
    beyond = [OutOfReach("TTFT", "14 s", "a time on a device")]
    text, data = markdown(lines, beyond), document(lines, beyond)
    for words in (f"| {rate:.2f} % | not run | -0.25 |", "- 1 (a report): an assumption.", "| TTFT | 14 s | a time"):
        assert words in text
    (case,) = data["cases"]
    assert ("not run", rate + 0.25) == (case["verdict"], case["expected_percent"])
    assert [True, False] == [each["run"] for each in case["arms"]]
    assert ("kvgate-headlines", 1) == (data["format"], data["version"])


def test_the_store_keeps_what_was_simulated(result: Result, tmp_path: Path) -> None:
    """Goal: whoever goes on simulates nothing twice. Method: write, and read again; another setting is another job."""
    path = tmp_path / "store.jsonl"
    job = Job("reference", SETTING)
    Store(path).put(job, result)
    again = Store(path)
    assert result == again.get(job)
    assert None is again.get(Job("retention", SETTING))
    assert None is again.get(Job("reference", evolve(SETTING, seed=1)))
    (found,) = lines_of([figure(None)], again)
    assert (result, None) == found.results
    for spoilt in ("nonsense", '{"key": 3, "document": {}}', json.dumps({"key": "x", "document": {"format": "other"}})):
        path.write_text(spoilt)
        with pytest.raises(UsageError, match=r"store\.jsonl, line 1"):
            Store(path)


def test_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: one command makes the table, and exits with 1 if a figure is missed. Method: one that is met, or not."""
    arguments = ["headlines", "--arm", "reference", "--processes", "1", "--store", str(tmp_path / "s"), "--json"]
    rate = 100 * arm_of("reference").run(SETTING).server.hit_rate
    case = Case("small", SETTING, rate, ("reference",))

    def run(expected: float, *more: str) -> tuple[int, Any]:
        met = evolve(figure(None), cases=(evolve(case, expected_percent=expected),))
        monkeypatch.setattr(program, "figures", lambda: [met])
        monkeypatch.setattr(sys, "argv", [*arguments, *more])
        code = program.main()
        return code, json.loads(capsys.readouterr().out)

    code, data = run(rate, "--out", str(tmp_path))
    assert (0, "within a point") == (code, data["cases"][0]["verdict"])
    assert (tmp_path / "TABLE.md").read_text().startswith("| # | figure |")
    assert data == json.loads((tmp_path / "table.json").read_text())
    # It is in the store now: nobody serves it again.
    monkeypatch.setattr("kvgate.simulation.sweep.arm_of", lambda name: pytest.fail(f"{name} served again"))
    assert 1 == run(rate + 5)[0]
    with pytest.raises(UsageError, match="no such row: there are 1"):
        run(rate, "--row", "99")


def test_every_figure_can_be_served() -> None:
    """Goal: no row asks for what does not exist. Method: check every setting, and what is expected."""
    figures = program.figures()
    assert len({each.number for each in figures}) == len(figures)
    for job in jobs_of(repeat_rate.FIGURES):
        job.setting.check()
    for each in figures:
        assert each.accepts is not Accepts.EXACT or any(case.expected_percent is not None for case in each.cases)
