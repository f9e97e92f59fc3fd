"""The headline table, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.headlines.figure import TOLERANCE_POINTS, OutOfReach
from benchmarks.headlines.store import REAL, vllm_version
from benchmarks.headlines.table import RULE, Line, codes_of

from kvgate.simulation.result import Result

EARLIER = "†"
"""Marks what earlier code computed."""
SENT = (
    "Sent is how many prompts are counted, and how long they are in tokens on the average; what only warms the cache "
    "is served, compared and checked, but not counted. What is compared with the published figure is the server's hit "
    "rate; where the rate per request differs from it, that stands in brackets. vLLM's scheduler is served with the "
    "plug-in, unless the cell says stock: then it is vLLM as published."
)
USUAL = ("reference", "retention")
"""The arms whose names are left out."""


def markdown(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> str:
    """The table for readers."""
    rows = [
        RULE,
        "",
        "| # | figure | published | case | sent | reference | vLLM's scheduler | off, points "
        "| arms agree on | blocks checked when read | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(line) for line in lines),
        "",
        *_agreements(lines),
        SENT,
        "",
        *_origins(lines),
        "",
        *_times(lines),
        "",
        "Assumptions:",
        "",
    ]
    figures = {line.figure.number: line.figure for line in lines}
    rows += [f"- {each.number} ({each.source}): {'; '.join(each.assumptions)}." for each in figures.values()]
    rows += ["", "Not to be had from a scheduler alone:", "", "| figure | published | why |", "|---|---|---|"]
    rows += [f"| {each.what} | {each.published} | {each.why} |" for each in out_of_reach]
    return "\n".join(rows) + "\n"


def _agreements(lines: Sequence[Line]) -> list[str]:
    """What comparing the arms came to, in a sentence."""
    several = [line for line in lines if len(line.done) > 1]
    if not several:
        return []
    agreed = [line for line in several if line.compared is not None]
    requests = sum(line.compared or 0 for line in agreed)
    reported = f"{len(several)} cases were served by more than one arm: in {len(agreed)} of them the arms agree, "
    return [reported + f"on each of {requests:,} requests.", ""]


def _times(lines: Sequence[Line]) -> list[str]:
    """What it took, per row: process time of one core."""
    rows = ["| # | reference, s | vLLM's scheduler, s |", "|---|--:|--:|"]
    sums = {False: 0.0, True: 0.0}
    for number in dict.fromkeys(line.figure.number for line in lines):
        done = {
            (each.arm, line.case.setting): each for line in lines if line.figure.number == number for each in line.done
        }
        took = {real: sum(each.seconds for each in done.values() if (each.arm in REAL) is real) for real in sums}
        rows.append(f"| {number} | {took[False]:,.0f} | {took[True]:,.0f} |")
        sums = {real: sums[real] + took[real] for real in sums}
    rows.append(f"| all | {sums[False]:,.0f} | {sums[True]:,.0f} |")
    return ["What simulating took, process time on one core:", "", *rows]


def _origins(lines: Sequence[Line]) -> list[str]:
    """By which code all this was computed."""
    earlier = sum(used for line in lines for used in line.marks)
    code = ", ".join(f"{digest} ({', '.join(arms)})" for digest, arms in codes_of(lines).items())
    reported = [f"Computed by code {code}, vLLM {vllm_version() or 'not installed'}."]
    if earlier:
        reported += [
            "",
            f"{EARLIER}: {earlier} results were computed by earlier code, or with another vLLM, and kept; without "
            "`--keep` they are simulated again.",
        ]
    return reported


def _row(line: Line) -> str:
    reported = [
        _rate(each, arm) + f" {EARLIER}" * mark
        for each, arm, mark in zip(line.results, line.case.arms, line.marks, strict=True)
    ]
    off = line.farthest
    cells = (
        line.figure.number,
        line.figure.what,
        line.figure.published,
        line.case.name,
        _sent(line),
        reported[0],
        ", ".join(reported[1:]) or "—",
        "" if off is None else f"{off:+.2f}",
        "" if line.compared is None else f"{line.compared:,} requests",
        " / ".join(f"{each.soundness.reads:,}" for each in line.done),
        line.verdict,
    )
    return "| " + " | ".join(cells) + " |"


def _sent(line: Line) -> str:
    """How many prompts are counted, and how long they are."""
    if not line.done:
        return ""
    first = line.done[0]
    return f"{len(first.counted):,} x {first.prompt_tokens / len(first.counted):,.0f}"


def _rate(result: Result | None, arm: str) -> str:
    name = "" if arm in USUAL else f"{arm}: "
    if result is None:
        return f"{name}not run"
    server, each = f"{100 * result.server.hit_rate:.2f} %", f"{100 * result.hit_rate:.2f} %"
    return f"{name}{server}" if server == each else f"{name}{server} ({each})"


FORMAT = "kvgate-headlines"
VERSION = 3


def document(lines: Sequence[Line], out_of_reach: Sequence[OutOfReach]) -> dict[str, Any]:
    """The table for programs."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tolerance_points": TOLERANCE_POINTS,
        "code": {arm: digest for digest, arms in codes_of(lines).items() for arm in arms},
        "rule": RULE,
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
        "requests_agreed_on": line.compared,
        "wrong": line.is_wrong,
        "arms": [
            _arm(line, arm, each, earlier)
            for arm, each, earlier in zip(line.case.arms, line.results, line.marks, strict=True)
        ],
    }


def _arm(line: Line, arm: str, result: Result | None, earlier: bool) -> dict[str, Any]:
    if result is None:
        return {"arm": arm, "run": False}
    return {
        "arm": arm,
        "run": True,
        "earlier_code": earlier,
        "server_percent": 100 * result.server.hit_rate,
        "per_request_percent": 100 * result.hit_rate,
        "points_off": line.points_off(result),
        "sound": result.soundness.sound,
        "reads_judged": result.soundness.reads,
        "requests": len(result.served),
        "requests_counted": len(result.counted),
        "prompt_tokens_counted": result.prompt_tokens,
        "evictions_blocks": result.evictions,
        "preemptions": result.preemptions,
        "steps": result.steps,
        "process_seconds": result.seconds,
    }
