"""The Grafana dashboard shows what shadows export, all of it, and nothing else."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kvgate.shadow.status import Status, write

pytest.importorskip("prometheus_client")

LABELS = (r"by \((\w+)\)", r"\{(\w+)=", r", (\w+)\)$")
COLUMNS = 24
"""How many columns a dashboard of Grafana has."""


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads((Path(__file__).parents[3] / "difftest" / "grafana-dashboard.json").read_text(encoding="utf-8"))


def exported(folder: Path) -> dict[str, set[str]]:
    """By metric, the labels that shadows export."""
    from kvgate.shadow.adapter.counters import StatusCollector

    write(folder, Status("e", "check", 7, "here", declared={"002": 1}))
    samples = [sample for family in StatusCollector(folder).collect() for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def test_it_shows_every_metric_and_no_other(dashboard: Any, tmp_path: Path) -> None:
    """Goal: no panel is empty. Method: the metrics of all expressions next to those of a status file."""
    metrics = exported(tmp_path)
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    named = {name for text in asked for name in re.findall(r"kvgate_\w+", text)}
    assert set(metrics) == named
    for text in asked:
        (metric,) = re.findall(r"kvgate_\w+", text)
        labels = {label for pattern in LABELS for label in re.findall(pattern, text)}
        assert labels, text
        assert labels <= metrics[metric], text


def test_its_panels_have_places_of_their_own(dashboard: Any) -> None:
    """Goal: nothing is hidden. Method: no two panels overlap or share an id, and none is wider than the page."""
    panels = dashboard["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        is_apart = any(
            first[at] + first[size] <= second[at]
            for at, size in (("x", "w"), ("y", "h"))
            for first, second in ((one, other), (other, one))
        )
        assert is_apart, (one, other)
