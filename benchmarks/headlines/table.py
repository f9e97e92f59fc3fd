"""The table: each figure as published, what was simulated for it, and whether that is within what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from benchmarks.headlines.figure import TOLERANCE_POINTS, Accepts, Case, Figure, OutOfReach
from benchmarks.headlines.store import Store

from kvgate.simulation.comparison import difference
from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job

FORMAT = "kvgate-headlines"
VERSION = 1


@frozen
class Line:
    """One case, and what became of it."""

    figure: Figure
    case: Case
    results: tuple[Result | None, ...]
    """In the order of the case's arms; None where it was not run."""

    @property
    def differs(self) -> str | None:
        """In what the arms differ, request by request."""
        done = [each for each in self.results if each is not None]
        found = (difference(done[0], other) for other in done[1:])
        return next((each for each in found if each), None)

    def points_off(self, result: Result) -> float | None:
        """How far the server's hit rate is from the published one, in percentage points."""
        if self.case.expected_percent is None:
            return None
        return 100 * result.server.hit_rate - self.case.expected_percent

    @property
    def verdict(self) -> str:
        """In one word, or one sentence if something is wrong."""
        done = [each for each in self.results if each is not None]
        if len(done) < len(self.results):
            return "not run"
        if any(not each.soundness.sound for each in done):
            return "unsound or not judged"
        if self.differs:
            return f"arms differ: {self.differs}"
        if self.figure.accepts is not Accepts.EXACT or self.case.expected_percent is None:
            return self.figure.accepts.value
        off = max(abs(self.points_off(each) or 0.0) for each in done)
        return "within a point" if off <= TOLERANCE_POINTS else f"{off:.2f} points off"

    @property
    def is_wrong(self) -> bool:
        """Whether it is neither accepted nor left open."""
        return self.verdict not in ("within a point", "bracket", "direction", "not run")


def jobs_of(figures: Sequence[Figure]) -> list[Job]:
    """All simulations that the figures need, each once."""
    jobs = [Job(arm, case.setting) for figure in figures for case in figure.cases for arm in case.arms]
    return list(dict.fromkeys(jobs))


def lines_of(figures: Sequence[Figure], store: Store) -> list[Line]:
    """Every case with what was simulated for it."""
    return [
        Line(figure, case, tuple(store.get(Job(arm, case.setting)) for arm in case.arms))
        for figure in figures
        for case in figure.cases
    ]


def markdown(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> str:
    """The table for readers."""
    rows = [
        "| # | figure | published | case | reference | vLLM's scheduler with the plug-in | off, points "
        "| blocks judged when read | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(line) for line in lines),
        "",
        "What is compared with the published figure is the server's hit rate; where the rate per request differs from "
        "it, that stands in brackets.",
        "",
        "Assumptions:",
        "",
    ]
    figures = {line.figure.number: line.figure for line in lines}
    rows += [f"- {each.number} ({each.source}): {'; '.join(each.assumptions)}." for each in figures.values()]
    rows += ["", "Not to be had from a scheduler alone:", "", "| figure | published | why |", "|---|---|---|"]
    rows += [f"| {each.what} | {each.published} | {each.why} |" for each in out_of_reach]
    return "\n".join(rows) + "\n"


def _row(line: Line) -> str:
    fast, real = (*line.results, None, None)[:2]
    arms = (*line.case.arms, "", "")[:2]
    off = next((line.points_off(each) for each in reversed(line.results) if each is not None), None)
    reads = " / ".join(f"{each.soundness.reads:,}" for each in line.results if each is not None)
    cells = (
        line.figure.number,
        line.figure.what,
        line.figure.published,
        line.case.name,
        _rate(fast, arms[0], "reference"),
        _rate(real, arms[1], "retention"),
        "" if off is None else f"{off:+.2f}",
        reads,
        line.verdict,
    )
    return "| " + " | ".join(cells) + " |"


def _rate(result: Result | None, arm: str, usual: str) -> str:
    if result is None:
        return "not run" if arm else "—"
    server, each = f"{100 * result.server.hit_rate:.2f} %", f"{100 * result.hit_rate:.2f} %"
    name = "" if arm == usual else f"{arm}: "
    return f"{name}{server}" if server == each else f"{name}{server} ({each})"


def document(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> dict[str, Any]:
    """The table for programs."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tolerance_points": TOLERANCE_POINTS,
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
        "accepts": line.figure.accepts.value,
        "assumptions": list(line.figure.assumptions),
        "case": line.case.name,
        "workload": line.case.setting.workload.about,
        "model": serving.model,
        "blocks": serving.blocks,
        "policy": line.case.setting.policy.name,
        "expected_percent": line.case.expected_percent,
        "verdict": line.verdict,
        "arms": [_arm(line, arm, each) for arm, each in zip(line.case.arms, line.results, strict=True)],
    }


def _arm(line: Line, arm: str, result: Result | None) -> dict[str, Any]:
    if result is None:
        return {"arm": arm, "run": False}
    return {
        "arm": arm,
        "run": True,
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
