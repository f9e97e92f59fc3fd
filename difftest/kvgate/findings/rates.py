"""How often findings act: in how many cases of a model, as it was counted, and how many are too many or too few.

If a finding acts much more often than it did, something has changed, although it is exact where it acts: the system,
the condition that was written for it, or the generator. If it acts much less often, or not at all, the reference may
have the same bug as the system: then the two agree, and no comparison shows it.
``python -m kvgate.report.finding_rates`` counts again.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import cattrs
from attrs import frozen

from kvgate.kernel.structure import strict_converter

FORMAT = "kvgate-finding-rates"
VERSION = 2
PATH = Path(__file__).with_name("rates.json")
DEVIATIONS = 4
"""How many standard deviations a count may lie above what was counted before, and that above the truth."""
SPARE = 2
"""How many cases more are always allowed: few cases say little."""
CHANCE_MAX = 1e-6
"""A finding must act in more cases than a run has in which it acted, if so few have this probability at most."""


@frozen
class AtLeast:
    """In how many cases a finding must act."""

    cases: int
    expected: float
    """In how many it is expected to."""


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

    def least(self, model: str, level: str, cases: int) -> dict[str, AtLeast]:
        """The findings that must act in so many cases of a model.

        As for ``certain``, in how many it acts has a beta-binomial distribution.
        """
        of_model = next((each for each in self.models if (each.model, each.level) == (model, level)), None)
        if of_model is None:
            return {}
        must = {}
        for finding, acted in of_model.acted.items():
            least = _least(cases, acted, of_model.cases - acted + 1)
            if least:
                must[finding] = AtLeast(least, cases * acted / of_model.cases)
        return must

    def certain(self, level: str, cases: Mapping[str, int]) -> dict[str, float]:
        """The findings that must act in a run with so many ``cases`` of each model, each with the expected number.

        The share of cases in which a finding acts is only as certain as the stored counts are many: it has a beta
        distribution, so the probability of none is that of the beta-binomial distribution.
        """
        expected, logarithms = defaultdict[str, float](float), defaultdict[str, float](float)
        for each in self.models:
            run = cases.get(each.model, 0) if each.level == level else 0
            for finding, acted in each.acted.items():
                others = each.cases - acted + 1
                expected[finding] += run * acted / each.cases
                logarithms[finding] += math.lgamma(others + run) - math.lgamma(others)
                logarithms[finding] -= math.lgamma(acted + others + run) - math.lgamma(acted + others)
        return {finding: expected[finding] for finding, none in logarithms.items() if none <= math.log(CHANCE_MAX)}


def _least(cases: int, acted: int, others: int) -> int:
    """The least number of cases of which it is not said that a finding acts in fewer with ``CHANCE_MAX`` at most."""

    def beta(first: float, second: float) -> float:
        return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)

    if not acted:
        return 0
    tail = 0.0
    for number in range(cases + 1):
        ways = math.lgamma(cases + 1) - math.lgamma(number + 1) - math.lgamma(cases - number + 1)
        tail += math.exp(ways + beta(number + acted, cases - number + others) - beta(acted, others))
        if tail > CHANCE_MAX:
            return number
    return cases


@frozen
class _Document:
    format: str
    version: int
    systems: tuple[Rates, ...]


@cache
def counted() -> tuple[Rates, ...]:
    """What is stored, system by system.

    Raises:
        ValueError: the file is of another version.
    """
    document = strict_converter().structure(json.loads(PATH.read_text(encoding="utf-8")), _Document)
    if (document.format, document.version) != (FORMAT, VERSION):
        raise ValueError(f"{PATH.name}: not {FORMAT} {VERSION}")
    return document.systems


def write(rates: Rates) -> None:
    """Store ``rates`` instead of what was stored of their system."""
    others = [each for each in counted() if each.system != rates.system]
    systems = tuple(sorted((*others, rates), key=lambda each: each.system, reverse=True))
    document = cattrs.unstructure(_Document(FORMAT, VERSION, systems))
    PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
