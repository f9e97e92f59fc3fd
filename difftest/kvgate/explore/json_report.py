"""The report of an exploration for programs: the worlds, each with its size, its bounds and what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attrs import asdict

from kvgate.explore.explored import Explored
from kvreference.statements import STATEMENTS

FORMAT = "kvgate-exploration"
VERSION = 1


def json_report(explored: Sequence[Explored]) -> str:
    """The report as JSON."""
    document = {"format": FORMAT, "version": VERSION, "models": [_record(each) for each in explored]}
    return json.dumps(document, indent=1) + "\n"


def _record(each: Explored) -> dict[str, object]:
    exploration, found = each.exploration, each.exploration.found
    return {
        "model": each.world.name,
        "design": each.design and each.design.name,
        "states": exploration.states,
        "edges": exploration.edges,
        "depth": exploration.depth,
        "seconds": round(exploration.seconds, 2),
        "exhaustive": exploration.exhaustive,
        "stopped": exploration.stopped,
        "idle_steps_max": exploration.idle_steps_max,
        "bounds": dict(each.world.bounds),
        "found": found
        and {
            "violations": [
                {"statement": wrong.statement, "sentence": STATEMENTS[wrong.statement], "detail": wrong.detail}
                for wrong in found.violations
            ],
            "moves": [_move(move) for move in found.moves],
            "circle": [_move(move) for move in found.circle],
        },
    }


def _move(move: Any) -> dict[str, object]:
    return {"operation": type(move).__name__, **asdict(move)}
