"""The headline table: as JSON, and of that JSON its rows and the page that sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.headlines.figure import TOLERANCE_POINTS, OutOfReach
from benchmarks.headlines.store import vllm_version
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
COLUMNS = (
    *("#", "figure", "published", "case", "sent", "reference", "vLLM's scheduler", "off, points", "arms agree on"),
    *("blocks checked when read", "verdict", "process seconds", "source", "assumptions"),
)
SHOWN = COLUMNS.index("verdict") + 1
"""How many columns are printed; the data file has all."""


def rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of the table: the cases of a document, then what no scheduler alone can show."""
    beyond = "not to be had from a scheduler alone"
    return [
        *map(_row, document["cases"]),
        *(
            ("", each["what"], each["published"], *[""] * 7, f"{beyond}: {each['why']}", "", "", "")
            for each in document["out_of_reach"]
        ),
    ]


def markdown(document: dict[str, Any]) -> str:
    """The table for a terminal: the first columns of all rows, and the page."""
    lines = [f"| {' | '.join(each[:SHOWN])} |" for each in (COLUMNS, ("---",) * SHOWN, *rows(document))]
    return "\n".join((*lines, "", page(document)))


def page(document: dict[str, Any]) -> str:
    """What the rows come to."""
    verdicts = Counter(each["verdict"].partition(":")[0] for each in document["cases"])
    figures = len({each["number"] for each in document["cases"]})
    lines = [
        "# Published hit rates, simulated",
        "",
        f"{len(document['cases'])} cases of {figures} published figures, and",
    ]
    lines += [f"{len(document['out_of_reach'])} figures that no scheduler alone can show: [TABLE.csv](TABLE.csv)."]
    lines += ["", "| verdict | cases |", "|---|--:|"]
    lines += [f"| {verdict} | {count} |" for verdict, count in verdicts.most_common()]
    return "\n".join((*lines, "", *_agreements(document), document["rule"], "", SENT, "", *_origins(document), ""))


def _agreements(document: dict[str, Any]) -> list[str]:
    """What comparing the arms came to, in a sentence."""
    several = [each for each in document["cases"] if sum(arm["run"] for arm in each["arms"]) > 1]
    if not several:
        return []
    agreed = [each["requests_agreed_on"] for each in several if each["requests_agreed_on"] is not None]
    reported = f"{len(several)} cases were served by more than one arm: in {len(agreed)} of them the arms agree, "
    return [reported + f"on each of {sum(agreed):,} requests.", ""]


def _origins(document: dict[str, Any]) -> list[str]:
    """By which code all this was computed."""
    earlier = sum(arm.get("earlier_code", False) for each in document["cases"] for arm in each["arms"])
    arms: dict[str, list[str]] = {}
    for arm, digest in document["code"].items():
        arms.setdefault(digest, []).append(arm)
    code = ", ".join(f"{digest} ({', '.join(names)})" for digest, names in arms.items())
    reported = [f"Computed by code {code}, vLLM {document['vllm'] or 'not installed'}."]
    if earlier:
        reported += [
            "",
            f"{EARLIER}: {earlier} results were computed by earlier code, or with another vLLM, and kept; without "
            "`--keep` they are simulated again.",
        ]
    return reported


def _row(case: dict[str, Any]) -> tuple[str, ...]:
    done = [arm for arm in case["arms"] if arm["run"]]
    rates = list(map(_rate, case["arms"]))
    off = max((arm["points_off"] for arm in done if arm["points_off"] is not None), key=abs, default=None)
    agreed = case["requests_agreed_on"]
    return (
        *(case["number"], case["figure"], case["published"], case["case"], _sent(done)),
        *(rates[0], ", ".join(rates[1:]) or "—", "" if off is None else f"{off:+.2f}"),
        "" if agreed is None else f"{agreed:,} requests",
        " / ".join(f"{arm['reads_judged']:,}" for arm in done),
        case["verdict"],
        f"{sum(arm['process_seconds'] for arm in done):,.0f}",
        case["source"],
        "; ".join(case["assumptions"]),
    )


def _sent(done: Sequence[dict[str, Any]]) -> str:
    """How many prompts are counted, and how long they are."""
    if not done:
        return ""
    counted = done[0]["requests_counted"]
    return f"{counted:,} x {done[0]['prompt_tokens_counted'] / counted:,.0f}"


def _rate(arm: dict[str, Any]) -> str:
    name = "" if arm["arm"] in USUAL else f"{arm['arm']}: "
    if not arm["run"]:
        return f"{name}not run"
    server, each = f"{arm['server_percent']:.2f} %", f"{arm['per_request_percent']:.2f} %"
    shown = f"{name}{server}" if server == each else f"{name}{server} ({each})"
    return f"{shown} {EARLIER}" if arm["earlier_code"] else shown


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
