"""Results as documents, tables and plots.

Goal: a simulation's results leave the process whole, are rejected if damaged, and can be seen. Method: write and read
results, damage documents, and inspect what is printed and drawn.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.report.document import from_json, to_json
from kvgate.report.simulations import report_of, results_of
from kvgate.report.text import text_report
from kvgate.simulation.arm import arm_of
from kvgate.simulation.comparison import difference, disagreements
from kvgate.simulation.cost import COPIED_WEIGHT, recomputed_tokens, relative_work, work_tokens
from kvgate.simulation.result import Counters, Result, Soundness, from_record, to_record

from .made_workloads import WORKLOADS, outgrowing, small


@pytest.fixture(scope="module")
def result() -> Result:
    """A small simulation."""
    return arm_of("reference").run(small(WORKLOADS["agents"], "compressed", "partial=16"))


def test_a_report_is_read_as_it_was_written(result: Result) -> None:
    """Goal: nothing is lost. Method: write and read."""
    other = evolve(result, workload="another")
    assert [result, other] == results_of(from_json(to_json(report_of([result, other])), "x"), "x")


def test_a_result_that_is_none_is_rejected(result: Result) -> None:
    """Goal: a message that says what is wrong. Method: other values."""
    record = to_record(result)
    assert result == from_record(record, "x")
    for changed, message in ((3, "x: "), (record | {"steps": "many"}, "many"), (record | {"more": 1}, "more")):
        with pytest.raises(UsageError, match=message):
            from_record(changed, "x")


def test_results_that_differ_are_found(result: Result) -> None:
    """Goal: arms that must agree are compared in every result. Method: change one thing at a time."""
    (first, *rest) = result.served
    assert None is difference(result, evolve(result, arm="stock", seconds=9.0))
    for other, message in (
        (
            evolve(result, served=(evolve(first, hit_tokens=first.hit_tokens + 64), *rest)),
            "request 0, hit_tokens: 0 and 64",
        ),
        (evolve(result, served=(evolve(first, preemptions=1), *rest)), "request 0, preemptions"),
        (evolve(result, served=tuple(rest)), "15 and 14 requests were served"),
        (evolve(result, evictions=result.evictions + 1), "evictions"),
        (evolve(result, server=Counters(1, 2, 3)), "server"),
    ):
        assert message in str(difference(result, other))
        assert not report_of([result, other]).agrees
        assert any(story.headline.startswith("DIFFERENT: ") for story in report_of([result, other]).found)
    assert [] == disagreements([result, evolve(result, evictions=0, policy="another")])
    assert [] == disagreements([result, evolve(result, evictions=0, arm="infinite")])


def test_an_unsound_read_is_said(result: Result) -> None:
    """Goal: a hit rate that may not be believed is marked. Method: a result with a misread."""
    assert report_of([result]).agrees
    unsound = evolve(result, soundness=Soundness(3, 1, "request 1, group 0, token 4: block 2 holds nothing"))
    assert 1 == report_of([unsound]).exit_code
    shown = text_report(report_of([result, unsound]))
    assert f" {result.soundness.reads:,}\n" in shown
    assert "UNSOUND: reference, partial=16: request 1, group 0, token 4" in shown
    assert not evolve(result, soundness=Soundness(judged=False)).soundness.sound


def test_the_cost_model(result: Result) -> None:
    """Goal: work is what was computed, and a share of what was copied. Method: its sums; a preemption."""
    assert result.copied_tokens > 0
    assert result.computed_tokens + COPIED_WEIGHT * result.copied_tokens == work_tokens(result)
    cold = sum(each.prompt_tokens + each.answer_tokens - 1 for each in result.counted)
    assert cold - result.hit_tokens == result.computed_tokens
    assert work_tokens(result) / cold == relative_work(result)
    assert 0 == recomputed_tokens(result)
    preempted = arm_of("reference").run(outgrowing())
    assert preempted.preemptions > 0
    assert recomputed_tokens(preempted) > 0


def test_two_hit_rates() -> None:
    """Goal: a request that is looked up again is counted again by the server. Method: requests that wait for room."""
    roomy = arm_of("reference").run(small(WORKLOADS["repeat-rate"], "compressed", "dense", spare=200))
    assert roomy.server.hit_rate == roomy.hit_rate > 0
    waiting = arm_of("reference").run(outgrowing())
    assert waiting.server.queries_tokens > waiting.prompt_tokens
    assert any(each.look_ups > 1 for each in waiting.served)


def test_plots_have_titles_and_units(result: Result, tmp_path: Path) -> None:
    """Goal: a plot can be read by itself, and is the same each time. Method: search its words; draw twice."""
    pytest.importorskip("matplotlib")
    from kvgate.simulation.plots import draw

    other = evolve(result, policy="dense", blocks=result.blocks + 100)
    paths = draw([result, evolve(result, policy="dense")], tmp_path)
    assert ["5-agents-3-turns-hit-rate.svg", "5-agents-3-turns-requests.svg", "5-agents-3-turns-pool.svg"] == [
        path.name for path in paths
    ]
    texts = [path.read_text() for path in paths]
    for text, words in zip(
        texts,
        (
            ("What hits, and what is left to compute", "per cent", "prefix-cache hit rate (% of prompt tokens)"),
            ("Hit of every request", "request, in the order of sending"),
            ("Use of the pool", "blocks held by requests (% of the pool)", "step of the scheduler"),
        ),
        strict=True,
    ):
        assert [] == [word for word in (*words, "5 agents, 3 turns on compressed", "partial=16") if word not in text]
    assert texts == [path.read_text() for path in draw([result, evolve(result, policy="dense")], tmp_path)]
    by_pool = draw([result, other], tmp_path)[0].read_text()
    assert "pool (blocks)" in by_pool
