"""The table: each figure as published, what was simulated for it, and whether that is within what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen
from benchmarks.headlines.figure import TOLERANCE_POINTS, Accepts, Case, Figure, OutOfReach
from benchmarks.headlines.origin import code_digest, vllm_version
from benchmarks.headlines.store import Store

from kvgate.simulation.comparison import difference
from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job

FORMAT = "kvgate-headlines"
VERSION = 2
AGREE, ASIDE, INSIDE = "arms agree", "for comparison", "in the bracket"
EARLIER = "†"
"""Marks what earlier code computed."""


@frozen
class Line:
    """One case, and what became of it."""

    figure: Figure
    case: Case
    results: tuple[Result | None, ...]
    """In the order of the case's arms; None where it was not run."""
    earlier: tuple[bool, ...] = ()
    """For each arm, whether earlier code computed its result; empty: for none."""
    span_percent: tuple[float, float] | None = None
    """Of the figure's cases that a bracket spans, as far as they were run."""

    @property
    def differs(self) -> str | None:
        """In what the arms differ, request by request."""
        done = [each for each in self.results if each is not None]
        found = (difference(done[0], other) for other in done[1:])
        return next((each for each in found if each), None)

    def points_off(self, result: Result) -> float | None:
        """How far the hit rate is from the expected one, in percentage points."""
        if self.case.expected_percent is None:
            return None
        return self.case.percent(result) - self.case.expected_percent

    @property
    def verdict(self) -> str:
        """In one word, or one sentence if something is wrong."""
        return self.wrong or self._accepted

    @property
    def wrong(self) -> str | None:
        """What may not be so, whoever published what; None if nothing."""
        done = [each for each in self.results if each is not None]
        if any(not each.soundness.sound for each in done):
            return "unsound or not judged"
        if self.differs:
            return f"arms differ: {self.differs}"
        off = max((abs(self.points_off(each) or 0.0) for each in done), default=0.0)
        if self.figure.accepts in (Accepts.EXACT, Accepts.AGREES) and off > TOLERANCE_POINTS:
            return f"{off:.2f} points off"
        return None

    @property
    def _accepted(self) -> str:
        """What is said where nothing is wrong."""
        accepts, case = self.figure.accepts, self.case
        if any(each is None for each in self.results):
            return "not run"
        if accepts is Accepts.BRACKET and case.spans:
            return self._bracket
        if case.expected_percent is None:
            return AGREE if len(self.results) > 1 else ASIDE
        if accepts is Accepts.AGREES:
            return "agrees"
        off = max(abs(self.points_off(each) or 0.0) for each in self.results if each is not None)
        return "within a point" if off <= TOLERANCE_POINTS else f"{off:.2f} points from it"

    @property
    def _bracket(self) -> str:
        """Whether the published figure lies between the cases. It is told if not; it is nobody's fault."""
        rates = [self.case.percent(each) for each in self.results if each is not None]
        low, high = self.span_percent or (min(rates), max(rates))
        published = self.figure.published_percent
        inside = published is not None and low <= published <= high
        return INSIDE if inside else f"outside: {low:.2f} to {high:.2f}"

    @property
    def is_wrong(self) -> bool:
        """Whether it is neither accepted nor left open."""
        return self.wrong is not None


def jobs_of(figures: Sequence[Figure]) -> list[Job]:
    """All simulations that the figures need, each once."""
    jobs = [Job(arm, case.setting) for figure in figures for case in figure.cases for arm in case.arms]
    return list(dict.fromkeys(jobs))


def lines_of(figures: Sequence[Figure], store: Store) -> list[Line]:
    """Every case with what was simulated for it."""
    return [line for figure in figures for line in _with_span([_line(figure, case, store) for case in figure.cases])]


def _line(figure: Figure, case: Case, store: Store) -> Line:
    jobs = [Job(arm, case.setting) for arm in case.arms]
    return Line(figure, case, tuple(map(store.get, jobs)), tuple(map(store.is_earlier, jobs)))


def _with_span(lines: Sequence[Line]) -> list[Line]:
    """The lines of one figure, each with what its bracket spans."""
    rates = [line.case.percent(each) for line in lines if line.case.spans for each in line.results if each is not None]
    return [evolve(line, span_percent=(min(rates), max(rates)) if rates else None) for line in lines]


def markdown(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> str:
    """The table for readers."""
    rows = [
        "| # | figure | published | case | reference | vLLM's scheduler | off, points "
        "| blocks judged when read | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(line) for line in lines),
        "",
        "What is compared with the published figure is the server's hit rate; where the rate per request differs from "
        "it, that stands in brackets. vLLM's scheduler is served with the plug-in, unless the cell says stock: then it "
        "is vLLM as published.",
        "",
        *_origins(lines),
        "",
        "Assumptions:",
        "",
    ]
    figures = {line.figure.number: line.figure for line in lines}
    rows += [f"- {each.number} ({each.source}): {'; '.join(each.assumptions)}." for each in figures.values()]
    rows += ["", "Not to be had from a scheduler alone:", "", "| figure | published | why |", "|---|---|---|"]
    rows += [f"| {each.what} | {each.published} | {each.why} |" for each in out_of_reach]
    return "\n".join(rows) + "\n"


def _origins(lines: Sequence[Line]) -> list[str]:
    """By which code all this was computed."""
    earlier = sum(used for line in lines for used in _earlier(line))
    told = [f"Computed by code {code_digest()}, vLLM {vllm_version() or 'not installed'}."]
    if earlier:
        told += [
            "",
            f"{EARLIER}: {earlier} results were computed by earlier code, or with another vLLM, and kept; without "
            "`--keep` they are simulated again.",
        ]
    return told


def _earlier(line: Line) -> tuple[bool, ...]:
    """For each arm, whether what is told was computed by earlier code."""
    marks = line.earlier or (False,) * len(line.results)
    return tuple(mark and each is not None for mark, each in zip(marks, line.results, strict=True))


def _row(line: Line) -> str:
    fast, real = (*line.results, None, None)[:2]
    arms = (*line.case.arms, "", "")[:2]
    marks = [f" {EARLIER}" if mark else "" for mark in (*_earlier(line), False, False)]
    off = next((line.points_off(each) for each in reversed(line.results) if each is not None), None)
    reads = " / ".join(f"{each.soundness.reads:,}" for each in line.results if each is not None)
    cells = (
        line.figure.number,
        line.figure.what,
        line.figure.published,
        line.case.name,
        _rate(line.case, fast, arms[0], "reference") + marks[0],
        _rate(line.case, real, arms[1], "retention") + marks[1],
        "" if off is None else f"{off:+.2f}",
        reads,
        line.verdict,
    )
    return "| " + " | ".join(cells) + " |"


def _rate(case: Case, result: Result | None, arm: str, usual: str) -> str:
    if result is None:
        return "not run" if arm else "—"
    name = "" if arm == usual else f"{arm}: "
    server, each = f"{100 * result.server.hit_rate:.2f} %", f"{100 * result.hit_rate:.2f} %"
    if case.busy:
        return f"{name}{case.percent(result):.2f} % (of all {each})"
    return f"{name}{server}" if server == each else f"{name}{server} ({each})"


def document(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> dict[str, Any]:
    """The table for programs."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tolerance_points": TOLERANCE_POINTS,
        "code": code_digest(),
        "vllm": vllm_version(),
        "cases": [_case(line) for line in lines],
        "out_of_reach": [{"what": each.what, "published": each.published, "why": each.why} for each in out_of_reach],
    }


def _case(line: Line) -> dict[str, Any]:
    serving = line.case.setting.serving
    return {
        "number": line.figure.number,
        "figure": line.figure.what,
        "published": line.figure.published,
        "source": line.figure.source,
        "published_percent": line.figure.published_percent,
        "accepts": line.figure.accepts.value,
        "assumptions": list(line.figure.assumptions),
        "case": line.case.name,
        "workload": line.case.setting.workload.about,
        "model": serving.model,
        "blocks": serving.blocks,
        "policy": line.case.setting.policy.name,
        "expected_percent": line.case.expected_percent,
        "verdict": line.verdict,
        "spans": line.case.spans,
        "while_all_lanes_are_busy": line.case.busy,
        "wrong": line.is_wrong,
        "arms": [
            _arm(line, arm, each, earlier)
            for arm, each, earlier in zip(line.case.arms, line.results, _earlier(line), strict=True)
        ],
    }


def _arm(line: Line, arm: str, result: Result | None, earlier: bool) -> dict[str, Any]:
    if result is None:
        return {"arm": arm, "run": False}
    return {
        "arm": arm,
        "run": True,
        "compared_percent": line.case.percent(result),
        "earlier_code": earlier,
        "server_percent": 100 * result.server.hit_rate,
        "per_request_percent": 100 * result.hit_rate,
        "points_off": line.points_off(result),
        "sound": result.soundness.sound,
        "reads_judged": result.soundness.reads,
        "evictions_blocks": result.evictions,
        "preemptions": result.preemptions,
        "steps": result.steps,
        "process_seconds": result.seconds,
    }
