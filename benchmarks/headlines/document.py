"""The table for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.headlines.figure import TOLERANCE_POINTS, OutOfReach
from benchmarks.headlines.origin import vllm_version
from benchmarks.headlines.table import RULE, Line, codes_of

from kvgate.simulation.result import Result

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
