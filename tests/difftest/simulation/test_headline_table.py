"""The headline table.

Goal: a figure counts as reproduced only if every arm is within a point of it, read nothing unsound, and served every
request as the others did. No result is simulated twice. Method: one small figure, checked with results that are changed
one at a time; a store that is written, read, and damaged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from benchmarks.headlines import __main__ as program
from benchmarks.headlines import repeat_rate, store
from benchmarks.headlines.figure import TOLERANCE_POINTS, Accepts, Case, Figure, OutOfReach
from benchmarks.headlines.report import COLUMNS, FORMAT, VERSION, document, markdown, page, rows
from benchmarks.headlines.store import Store
from benchmarks.headlines.table import RULE, Line, jobs_of, lines_of

from kvgate.kernel.data_file import csv_text
from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.result import Counters, Result, Soundness
from kvgate.simulation.sweep import Job

from .made_workloads import WORKLOADS, small

SETTING = small(WORKLOADS["prefixes"], "compressed", "dense")


@pytest.fixture(scope="module")
def result() -> Result:
    """The reference's result."""
    return arm_of("reference").run(SETTING)


def figure(expected: float | None, accepts: Accepts = Accepts.EXACT) -> Figure:
    """A figure of one case."""
    case = Case("small", SETTING, expected)
    return Figure("1", "a figure", "some", "a report", accepts, (case,), ("an assumption",), 50.0)


def line(expected: float | None, *results: Result | None, accepts: Accepts = Accepts.EXACT) -> Line:
    """Its line in the table."""
    found = figure(expected, accepts)
    arms = ("reference", "retention", "stock")[: len(results)]
    return Line(found, evolve(found.cases[0], arms=arms), results)


def test_a_figure_is_reproduced_within_a_point(result: Result) -> None:
    """Goal: exact means within one percentage point, with every arm. Method: figures near and far, both sides."""
    rate = 100 * result.server.hit_rate
    other = evolve(result, arm="retention")
    for expected, verdict in (
        (rate, "within a point"),
        (rate + 0.99, "within a point"),
        (rate - 1.5, "1.50 points off"),
        (rate + 2.0, "2.00 points off"),
        (None, "for comparison"),
    ):
        assert verdict == line(expected, result, other).verdict
    assert not line(rate, result, other).is_wrong
    assert line(rate - 1.5, result, other).is_wrong
    # Rows without an expectation are for comparison, or to see whether the arms agree: neither is a miss.
    assert not line(None, result, other).is_wrong
    assert ("for comparison", False) == (line(None, result).verdict, line(None, result).is_wrong)


def test_nothing_published_is_not_a_reproduction(result: Result) -> None:
    """Goal: two simulations that agree reproduce nothing. Method: a rate from another simulation, near and far."""
    rate = 100 * result.server.hit_rate
    assert "agrees" == line(rate + 0.9, result, accepts=Accepts.AGREES).verdict
    assert line(rate + 1.1, result, accepts=Accepts.AGREES).is_wrong


def test_the_arm_that_is_farthest_decides(result: Result) -> None:
    """Goal: no arm hides another. Method: three arms, each of them in turn a little or too far off."""
    rate = 100 * result.server.hit_rate
    hits = result.server.hits_tokens
    for off in (-3, 3):
        points = 100 * off / result.server.queries_tokens
        for place in range(3):
            arms = [result] * 3
            arms[place] = evolve(result, server=evolve(result.server, hits_tokens=hits + off))
            assert points == pytest.approx(line(rate, *arms).farthest)
    assert None is line(None, result).farthest is line(rate, None).farthest
    # A bracket's case, too: the rule is one for all rows.
    assert "1.50 points off" == line(rate + 1.5, result, accepts=Accepts.BRACKET).verdict


def test_on_how_many_requests_arms_agree(result: Result) -> None:
    """Goal: agreement is reported, and only where there was something to compare. Method: one arm to three,
    one spoilt.
    """
    spoilt = evolve(result, served=(evolve(result.served[0], look_ups=7), *result.served[1:]))
    several = len(result.served)
    assert len(result.counted) < several
    for results, expected in (
        ((result,), None),
        ((result, None), None),
        ((result, result), several),
        ((result, None, result), several),
        ((result, result, result), several),
        ((result, spoilt), None),
        ((result, result, spoilt), None),
    ):
        assert expected == line(None, *results).compared
    text = markdown(document([line(None, result, result), line(None, result, spoilt), line(None, result)], ()))
    assert f"2 cases were served by more than one arm: in 1 of them the arms agree, on each of {several} req" in text
    assert [f"{several} requests", "", ""] == [row.split(" | ")[8].strip() for row in text.splitlines()[2:5]]


def test_a_bracket_holds_what_was_published_or_this_is_reported(result: Result) -> None:
    """Goal: a bracket is a claim. Method: two cases, and figures between and next to them; one spans nothing."""
    rate = 100 * result.server.hit_rate
    other = evolve(SETTING, serving=evolve(SETTING.serving, blocks=SETTING.serving.blocks + 4000))
    store = Store(None)
    store.put(Job("reference", SETTING), result)
    store.put(Job("reference", other), arm_of("reference").run(other))
    best = 100 * arm_of("infinite").run(other).server.hit_rate
    assert rate < best
    cases = (Case("a", SETTING, arms=("reference",)), Case("b", other, arms=("reference",)))
    for published, spans, verdicts in (
        ((rate + best) / 2, True, ["in the bracket"] * 2),
        (best, True, ["in the bracket"] * 2),
        (best + 0.1, True, [f"outside: {rate:.2f} to {best:.2f}"] * 2),
        (rate - 0.1, True, [f"outside: {rate:.2f} to {best:.2f}"] * 2),
        (best, False, [f"outside: {rate:.2f} to {rate:.2f}", "for comparison"]),
    ):
        shown = Figure(
            "1",
            "a",
            "b",
            "c",
            Accepts.BRACKET,
            (cases[0], evolve(cases[1], spans=spans)),
            (),
            published_percent=published,
        )
        lines = lines_of([shown], store)
        assert verdicts == [each.verdict for each in lines]
        assert not any(each.is_wrong for each in lines)
    with pytest.raises(ValueError, match="a bracket needs a number"):
        evolve(figure(None), accepts=Accepts.BRACKET, published_percent=None)


def test_what_may_not_be_believed_is_not_reproduced(result: Result) -> None:
    """Goal: a rate counts only if it is sound, and the arms agree. Method: the right rate, with one thing wrong."""
    rate = 100 * result.server.hit_rate
    (first, *rest) = result.served
    for other, verdict in (
        (evolve(result, soundness=Soundness(1, 1, "a misread")), "unsound or not checked"),
        (evolve(result, soundness=Soundness(judged=False)), "unsound or not checked"),
        (
            evolve(result, served=(evolve(first, hit_tokens=1), *rest)),
            "arms differ: reference and reference: request 0",
        ),
        (evolve(result, server=Counters(1, 100, 1)), "arms differ: reference and reference: server"),
    ):
        found = line(rate, result, other)
        assert found.verdict.startswith(verdict)
        assert found.is_wrong
    missing = line(rate, result, None)
    assert ("not run: retention", False) == (missing.verdict, missing.is_wrong)


def test_the_table_says_it(result: Result) -> None:
    """Goal: published, simulated, difference, assumptions, and what is out of reach. Method: both forms of a table."""
    rate = 100 * result.server.hit_rate
    lines = [line(rate + 0.25, result, None)]
    took = evolve(result, seconds=60.0)
    lines += [line(None, took, evolve(took, arm="retention", seconds=7.0))]
    beyond = [OutOfReach("TTFT", "14 s", "a time on a device")]
    data = document(lines, beyond)
    text = markdown(data)
    for words in (
        f"| {rate:.2f} % | not run | -0.25 |",
        "| TTFT | 14 s |",
        "not to be had from a scheduler alone: a time on a device",
        "2 cases of 1 published figures, and\n1 figures",
        RULE,
    ):
        assert words in text
    assert [("67", "a report", "an assumption")] == [row[-3:] for row in rows(data)][1:2]
    case, other = data["cases"]
    assert ("not run: retention", rate + 0.25) == (case["verdict"], case["expected_percent"])
    assert [True, False] == [each["run"] for each in case["arms"]]
    assert (None, len(result.served)) == (case["requests_agreed_on"], other["requests_agreed_on"])
    assert ("kvgate-headlines", 3) == (data["format"], data["version"])
    assert {arm: store.code_digest(arm) for arm in ("reference", "retention")} == data["code"]
    assert f"{store.code_digest('retention')} (retention)" in text


def test_arms_stand_side_by_side(result: Result) -> None:
    """Goal: the table says which arm served what. Method: three arms, one of them not run."""
    case = Case("small", SETTING, arms=("ranges", "stock", "retention"))
    found = Line(figure(None), case, (result, result, None))
    row = markdown(document([found], ())).splitlines()[2].split(" | ")
    rate = f"{100 * result.server.hit_rate:.2f} %"
    assert [f"ranges: {rate}", f"stock: {rate}, not run"] == row[5:7]
    assert f"{len(result.counted)} x {result.prompt_tokens / len(result.counted):,.0f}" == row[4]


def test_the_store_keeps_what_was_simulated(result: Result, tmp_path: Path) -> None:
    """Goal: a continued run simulates nothing twice. Method: write, and read again; another setting is another job."""
    path = tmp_path / "store.jsonl"
    job = Job("reference", SETTING)
    Store(path).put(job, result)
    again = Store(path)
    assert result == again.get(job)
    assert None is again.get(Job("retention", SETTING))
    assert None is again.get(Job("reference", evolve(SETTING, seed=1)))
    (found,) = lines_of([figure(None)], again)
    assert (result, None) == found.results
    for spoilt in (
        "[]",
        '{"key": "x", "code": 3, "document": {}}',
        "nonsense",
        '{"key": 3, "document": {}}',
        json.dumps({"key": "x", "document": {"format": "other"}}),
    ):
        path.write_text(spoilt)
        with pytest.raises(UsageError, match=r"store\.jsonl, line 1"):
            Store(path)


@pytest.mark.parametrize("change", ["code", "vllm", "untold"])
def test_what_other_code_computed_is_simulated_again(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Goal: a result of other code is not reused. Method: a store of other code, or with another vLLM."""
    path, job = tmp_path / "store.jsonl", Job("retention", SETTING)
    Store(path).put(job, evolve(result, arm="retention"))
    Store(path).put(Job("reference", SETTING), result)
    if change == "untold":
        entries = [json.loads(each) for each in path.read_text().splitlines()]
        lines = [json.dumps({"key": each["key"], "result": each["result"]}) for each in entries]
        path.write_text("".join(f"{each}\n" for each in lines))
    else:
        monkeypatch.setattr(store, {"code": "code_digest", "vllm": "vllm_version"}[change], lambda *_: "other")
    assert None is Store(path).get(job)
    # The reference knows nothing of vLLM.
    assert (change == "vllm") == (Store(path).get(Job("reference", SETTING)) is not None)
    keeping = Store(path, keep=True)
    assert keeping.get(job) is not None
    lines_ = lines_of([figure(None)], keeping)
    marked = {"vllm": 1}.get(change, 2)
    assert f"†: {marked} results were computed by earlier code" in page(document(lines_, ()))
    (shown,) = document(lines_, ())["cases"]
    assert [change != "vllm", True] == [each["earlier_code"] for each in shown["arms"]]
    keeping.put(job, evolve(result, arm="retention"))
    assert not keeping.is_earlier(job)
    assert Store(path).get(job) is not None


@pytest.mark.ci
def test_the_committed_table() -> None:
    """Goal: the published table is of the current figures, and has no errors. Method: read it."""
    folder = Path(program.__file__).parent
    data = json.loads((folder / "table.json").read_text())
    assert (FORMAT, VERSION, "0.20.2") == (data["format"], data["version"], data["vllm"])
    expected = [
        (figure.number, figure.what, figure.published, list(figure.assumptions), case.name, case.setting.policy.name)
        for figure in program.figures()
        for case in figure.cases
    ]
    names = ("number", "figure", "published", "assumptions", "case", "policy")
    assert expected == [tuple(each[name] for name in names) for each in data["cases"]]
    assert [] == [each["case"] for each in data["cases"] if each["wrong"]]
    cases = [case for figure in program.figures() for case in figure.cases]
    for case, shown in zip(cases, data["cases"], strict=True):
        ran = [each for each in shown["arms"] if each["run"]]
        assert list(case.arms) == [each["arm"] for each in shown["arms"]]
        assert all(each["sound"] for each in ran)
        if shown["verdict"] in ("within a point", "agrees"):
            off = [abs(each["server_percent"] - case.expected_percent) for each in ran]
            assert max(off) <= TOLERANCE_POINTS
        # Arms that were compared agree on every request.
        requests = ran[0]["requests"] if len(ran) > 1 else None
        assert requests == shown["requests_agreed_on"]
    # The page and the rows are those of the document.
    assert page(data) == (folder / "TABLE.md").read_text()
    assert csv_text(COLUMNS, rows(data)) == (folder / "TABLE.csv").read_text()
    assert [(each["number"], each["case"], each["verdict"]) for each in data["cases"]] == [
        (cells[0], cells[3], cells[10]) for cells in rows(data)[: len(data["cases"])]
    ]


@pytest.mark.ci
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
    assert (tmp_path / "TABLE.md").read_text() == page(data)
    assert (tmp_path / "TABLE.csv").read_text().startswith("#,figure,published,")
    assert data == json.loads((tmp_path / "table.json").read_text())
    # It is in the store now, so it is not simulated again.
    monkeypatch.setattr("kvgate.simulation.sweep.arm_of", lambda name: pytest.fail(f"{name} served again"))
    assert 1 == run(rate + 5)[0]
    with pytest.raises(UsageError, match="no such row: there are 1"):
        run(rate, "--row", "99")


def test_an_interrupt_keeps_what_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], result: Result
) -> None:
    """Goal: Ctrl-C loses nothing that is done. Method: it comes in the second of two simulations; then go on."""
    other = evolve(SETTING, seed=1)
    cases = tuple(Case(name, setting, arms=("reference",)) for name, setting in (("a", SETTING), ("b", other)))
    monkeypatch.setattr(program, "figures", lambda: [evolve(figure(None), cases=cases)])
    store = tmp_path / "new" / "store.jsonl"
    monkeypatch.setattr(sys, "argv", ["headlines", "--processes", "1", "--store", str(store), "--json"])

    class Interrupted:
        """An arm whose second simulation is interrupted."""

        def run(self, setting: Setting, _progress: object) -> Result:
            if setting == other:
                raise KeyboardInterrupt
            return result

    monkeypatch.setattr("kvgate.simulation.sweep.arm_of", lambda name: Interrupted())
    assert 130 == program.main()
    shown = json.loads(capsys.readouterr().out)
    assert ["for comparison", "not run: reference"] == [each["verdict"] for each in shown["cases"]]
    assert result == Store(store).get(Job("reference", SETTING))
    served: list[int] = []

    class Going:
        """The same arm, later."""

        def run(self, setting: Setting, _progress: object) -> Result:
            served.append(setting.seed)
            return evolve(result, seed=setting.seed)

    monkeypatch.setattr("kvgate.simulation.sweep.arm_of", lambda name: Going())
    assert 0 == program.main()
    assert [1] == served


def test_what_is_quick_comes_first() -> None:
    """Goal: an interrupted run has most of the table. Method: two cases of three arms, one of them twice."""
    one, other = (
        Case(name, evolve(SETTING, seed=seed), arms=("reference", "stock", "ranges")) for seed, name in enumerate("ab")
    )
    jobs = jobs_of([evolve(figure(None), cases=(one, other, one))])
    assert ["ranges", "ranges", "reference", "reference", "stock", "stock"] == [job.arm for job in jobs]
    assert [0, 1] * 3 == [job.setting.seed for job in jobs]


@pytest.mark.ci
def test_every_figure_can_be_served() -> None:
    """Goal: no row asks for what does not exist. Method: check every setting, and what is expected."""
    figures = program.figures()
    assert len({each.number for each in figures}) == len(figures)
    for job in jobs_of(repeat_rate.FIGURES):
        job.setting.check()
    for each in figures:
        assert each.accepts is not Accepts.EXACT or any(case.expected_percent is not None for case in each.cases)
