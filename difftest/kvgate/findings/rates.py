"""How often findings act: in how many cases of a model, as it was counted, and how many are too many.

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
class Counted:
    """The cases of one model at one level."""

    model: str
    level: str
    cases: int
    acted: Mapping[str, int]
    """By finding, in how many of the cases it acted."""


@frozen
class Rates:
    """What was counted of one system."""

    system: str
    version: str
    models: tuple[Counted, ...]

    def most(self, model: str, level: str, finding: str, cases: int) -> int | None:
        """In how many of ``cases`` the finding may act; None where cases of that model and level were not counted."""
        of_model = next((each for each in self.models if (each.model, each.level) == (model, level)), None)
        if of_model is None:
            return None
        acted = of_model.acted.get(finding, 0)
        share = min(1.0, (acted + DEVIATIONS * math.sqrt(acted + 1)) / of_model.cases)
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
