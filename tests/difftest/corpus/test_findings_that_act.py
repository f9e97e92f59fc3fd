"""Defects that are known findings: they count as caught by the guarantee that the report is about, and by it alone.

Goal: a finding that acts does not hide a defect of the corpus, and does not pass for one. Method: the reference with
the findings of a release, instead of that release. Trials of published code whose defect is a finding, each control,
and the same with fewer findings.
"""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.difftest.having import having

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import Loaded
from kvgate.adapters.release_variants import release_of
from kvgate.adapters.releases import RELEASES
from kvgate_mutants.corpus.bug import Contrast, Control, Trial
from kvgate_mutants.corpus.generator import draw_until_found
from kvgate_mutants.corpus.play import play
from kvgate_mutants.corpus.probe import State, as_repaired, tried
from kvgate_mutants.corpus.register import BUGS

SECOND = BUGS["ascend-only-first-full-group-truncated"]
TRIALS = {
    "31 stock": (SECOND.trials[0], "014-second-full-group-not-cut"),
    "31 ascend": (SECOND.trials[1], "013-compressed-block-known-by-its-slots"),
    "36": (BUGS["event-stale-partial-hash-resurrected"].trials[0], "012-prompt-tail-that-serves-nobody"),
}
TAILS = frozenset({TRIALS["36"][1]})


def load(name: str) -> Loaded:
    """The reference with the findings of the system of that name."""
    release = release_of(name)
    return Loaded(name, "1", Reference if release is None else having(release))


@pytest.mark.parametrize(("trial", "finding"), TRIALS.values(), ids=TRIALS)
def test_a_defect_that_is_a_finding_is_caught(trial: Trial, finding: str) -> None:
    """Goal: a finding shows each guarantee that it violates. Method: the trial, against the reference."""
    result = tried("a-defect", 0, evolve(trial, otherwise=Control("the reference", "reference", trial.scenario)), load)
    assert (State.CAUGHT, *trial.statements, finding) == (result.state, result.statement, result.finding), result.says


@pytest.mark.parametrize(("trial", "finding"), TRIALS.values(), ids=TRIALS)
def test_a_control_in_which_the_finding_acts_is_not_silent(trial: Trial, finding: str) -> None:
    """Goal: an alarm without the defect is not a catch. Method: the trial itself as its control."""
    result = tried("a-defect", 0, evolve(trial, otherwise=Control("the same", trial.system, trial.scenario)), load)
    assert State.NOT_CAUGHT is result.state
    assert result.says.startswith(f"found without the defect too (the same): {result.statement}"), finding


def test_a_repair_is_compared_without_the_finding() -> None:
    """Goal: the control of 36 is silent, for its mutant repairs a finding. Method: a release without that finding."""
    trial = TRIALS["36"][0]
    release = RELEASES[trial.system]

    class Repaired(having(evolve(release, findings=release.findings - TAILS))):  # type: ignore[misc]  # made here
        description = release

    repaired = Loaded(trial.system, "1", Repaired)
    assert (Contrast.REPAIR, TAILS) == (trial.control.contrast, trial.control.fixes)
    assert play(trial.scenario, repaired).news
    silent = play(trial.scenario, as_repaired(repaired, trial.control.fixes))
    assert ([], ()) == (silent.news, silent.acted)


def test_a_finding_that_acts_with_another_guarantee_is_not_drawn() -> None:
    """Goal: drawn cases count what the trial counts. Method: one that expects what the finding never violates."""
    trial, finding = TRIALS["31 ascend"]
    loaded = load(trial.system)
    assert draw_until_found(trial, loaded, "", 0.2) is None
    assert draw_until_found(evolve(trial, statements=("KV-OP-09",)), loaded, finding, 2.0) is not None
    assert draw_until_found(evolve(trial, statements=("KV-OP-11",)), loaded, finding, 0.5) is None
