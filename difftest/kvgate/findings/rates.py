"""How often findings act: in how many cases of a model and a preset, as it was counted, and how many are too many.

If a finding acts much more often than it did, something has changed, although it is exact where it acts: the system,
the condition that was written for it, or the generator. ``python -m kvgate.report.finding_rates`` counts again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import cattrs
from attrs import frozen

from kvgate.kernel.structure import strict_converter

FORMAT = "kvgate-finding-rates"
VERSION = 1
PATH = Path(__file__).with_name("rates.json")
DEVIATIONS = 4
"""How many standard deviations a count may lie above what was counted before, and that above the truth."""
SPARE = 2
"""How many cases more are always allowed: few cases say little."""


@frozen
class Lane:
    """The cases of one model with one preset."""

    model: str
    preset: str
    cases: int
    acted: Mapping[str, int]
    """By finding, in how many of the cases it acted."""


@frozen
class Rates:
    """What was counted of one system."""

    system: str
    version: str
    lanes: tuple[Lane, ...]

    def most(self, model: str, preset: str, finding: str, cases: int) -> int | None:
        """In how many of ``cases`` the finding may act; None where cases of that model and preset were not counted."""
        lane = next((lane for lane in self.lanes if (lane.model, lane.preset) == (model, preset)), None)
        if lane is None:
            return None
        counted = lane.acted.get(finding, 0)
        share = min(1.0, (counted + DEVIATIONS * math.sqrt(counted + 1)) / lane.cases)
        return math.ceil(cases * share + DEVIATIONS * math.sqrt(cases * share * (1 - share))) + SPARE


@frozen
class _Document:
    format: str
    version: int
    rates: Rates


@cache
def counted() -> Rates:
    """What is stored.

    Raises:
        ValueError: the file is of another version.
    """
    document = strict_converter().structure(json.loads(PATH.read_text(encoding="utf-8")), _Document)
    if (document.format, document.version) != (FORMAT, VERSION):
        raise ValueError(f"{PATH.name}: not {FORMAT} {VERSION}")
    return document.rates


def write(rates: Rates) -> None:
    """Store ``rates``."""
    document = cattrs.unstructure(_Document(FORMAT, VERSION, rates))
    PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
