"""The one call: it raises nothing, says what it asked for and what not, and its findings can be run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from attrs import asdict

import kvgate.conformance
from kvgate.adapters.reference import Reference
from kvgate.conformance import Capabilities, Report
from kvgate.kernel.protocol import Factory
from kvgate.report.document import from_json
from kvreference.answers import Answer
from kvreference.operations import (
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    TakeEvents,
    TakeStatistics,
)
from kvreference.settings import Settings

NONE = Capabilities(
    drafts=False,
    gate=False,
    uncached=False,
    private=False,
    keys=False,
    look_ups=False,
    preempts=False,
    releases=False,
    evicts=False,
    resets=False,
    events=False,
    statistics=False,
    common_prefix=False,
)


class _HeadFirst(Reference):
    """Releases the blocks of a finished request from the head on."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)


class _Frugal(Reference):
    """Has nothing that it does not need, and says so when it is asked."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        asked = settings.drafts_max or settings.full_sequence_must_fit or settings.tells_events or not settings.caches
        assert not asked, "asked for what it has not"

    def apply(self, operation: Operation) -> Answer:
        lacks = (CommonPrefix, Evict, LookUp, Preempt, ReleaseSkipped, Reset, TakeEvents, TakeStatistics)
        assert not isinstance(operation, lacks), "asked for what it has not"
        return super().apply(operation)


def _run(build: Factory | str, capabilities: Capabilities | None = None) -> Report:
    return kvgate.conformance.run(build, models=["swa+eagle"], operations=6_000, capabilities=capabilities)


def test_a_system_in_order_passes() -> None:
    """Goal: a report that says so. Method: the reference, exactly compared."""
    report = _run(Reference)
    assert report.passed
    assert report.text().startswith("no divergence in")
    (about,) = (each for each in from_json(report.json(), "out").tested if each.title == "conformance")
    passed, error, capabilities = (row["value"] for row in about.records())
    assert (True, None, "vllm") == (passed, error, capabilities["order"])
    assert "0" == ElementTree.fromstring(report.junit().encode()).get("failures")


@pytest.mark.ci
def test_what_a_system_lacks_is_not_asked() -> None:
    """Goal: so much is asked as it has, and the report says what not. Method: a system that asserts it."""
    report = _run(_Frugal, NONE)
    assert report.passed, report.text()
    assert "Drafts: the system is said to have none (drafts=False)." in report.text()
    assert "Reset of the cache (resets=False)." in report.text()
    assert not _run(_Frugal).passed
    for name in ("drafts", "gate", "uncached", "look_ups", "preempts", "releases", "evicts", "resets", "events"):
        assert not _run(_Frugal, Capabilities(**{**asdict(NONE), name: True})).passed, name


@pytest.mark.ci
def test_order_is_compared_where_it_is_promised() -> None:
    """Goal: order is a promise. Method: a system of another order, with the promise and without."""
    assert ["KV-OP-07"] == [each.divergence.difference.statement for each in _run(_HeadFirst).verdict.found]
    assert _run(_HeadFirst, Capabilities(order="any")).passed


@pytest.mark.ci
@pytest.mark.parametrize("order", ["vllm", "any"])
def test_what_was_found_can_be_run_again(order: str, tmp_path: Path) -> None:
    """Goal: a finding is data. Method: run its trace on the broken system, and on a sound one."""

    class Broken(_HeadFirst):
        def apply(self, operation: Operation) -> Answer:
            answer = super().apply(operation)
            # Its return value is not an answer.
            return TakeEvents() if isinstance(operation, Finish) else answer  # type: ignore[return-value]

    has = Capabilities(order="any" if order == "any" else "vllm")
    report = _run(Broken, has)
    assert not report.passed
    files = report.write(tmp_path)
    assert {"report.txt", "junit.xml", "divergence-1.jsonl"} <= {file.name for file in files}
    report_text = (tmp_path / "report.txt").read_text()
    assert f"kvgate.conformance.replay({report.verdict.system}, '{tmp_path / 'divergence-1.jsonl'}'" in report_text
    again = kvgate.conformance.replay(Broken, tmp_path / "divergence-1.jsonl", capabilities=has)
    first, second = (each.verdict.found[0].divergence.difference.statement for each in (report, again))
    assert first == second
    assert kvgate.conformance.replay(Reference, tmp_path / "divergence-1.jsonl", capabilities=has).passed


def _refuses(_settings: Settings) -> Reference:
    raise ValueError("no pools of this size")


def _breaks(_settings: Settings) -> Reference:
    raise AssertionError("block size")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (_refuses, "no pools of this size"),
        (_breaks, "the system cannot be built: AssertionError: block size"),
        (lambda _settings: object(), "the system is not one: a object has no 'population'"),
        ("nobody", "unknown system 'nobody'"),
        ("no_such_module:build", "cannot import no_such_module"),
    ],
)
def test_what_cannot_be_run_has_not_passed(build: Factory | str, message: str, tmp_path: Path) -> None:
    """Goal: no exception, and no report that looks like success. Method: systems that cannot be built."""
    report = _run(build)
    assert not report.passed
    assert report.error is not None
    assert message in report.error
    assert report.text().startswith(f"not run: {report.error[:60]}")
    suites = ElementTree.fromstring(report.junit().encode())
    assert "1" == suites.get("errors")
    assert message in str(next(suites.iter("error")).get("message"))
    assert "junit.xml" in {file.name for file in report.write(tmp_path)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["nothing"]}, "unknown model 'nothing'"),
        ({"profile": "endless"}, "unknown profile 'endless'"),
        ({"models": ["gemma-hybrid+pinned"], "capabilities": Capabilities(order="any")}, "a pinned tier"),
        ({"models": ["compressed+partial"], "capabilities": Capabilities(order="any")}, "hits that end inside blocks"),
    ],
)
def test_a_mistake_is_reported(arguments: dict[str, Any], message: str) -> None:
    """Goal: a request for something that does not exist is reported. Method: one mistake each."""
    report = kvgate.conformance.run(Reference, operations=100, **arguments)
    assert not report.passed
    assert message in (report.error or "")
