"""Findings as deltas on rules of the reference: when they are counted, and when one that acts is a divergence.

Goal: a count says how often a rule answers otherwise for a finding, and a condition is checked. Method: rules and
deltas of numbers; traces in which two findings act.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.release_variants import release_of
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.findings.finding import Acts, Finding
from kvgate.findings.modelled import Modelled, findings_of, live_reference, reference_named, reference_of
from kvgate.findings.register import FOLDER, with_ids
from kvgate.gate.case_runner import run_case
from kvgate.gate.trace_codec import Violated
from kvgate.levels.manager import Bench
from kvgate.levels.registry import read
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Evict, LookUp, Operation, Run
from kvreference.rules import Delta
from kvreference.settings import Settings

from .having import having, played

SETTINGS = Settings(Geometry((Group(Kind.FULL, 16),)), blocks=8)
SPREADS, ALIGNS, TAILS = (
    "010-lookahead-spreads-to-equal-groups",
    "006-aligned-before-the-drop",
    "012-prompt-tail-that-serves-nobody",
)


def double(number: int) -> int:
    """A rule."""
    return 2 * number


def finding(name: str, change: Callable[..., int], **more: Any) -> Finding:
    """A finding that changes it."""
    acts = Acts([Delta("double", change)])
    return Finding(id=name, rank=0, statement="KV-OP-01", condition="an odd number", acts=lambda *_run: acts, **more)


def one_more(rule: Callable[[int], int], number: int) -> int:
    return rule(number) + 1


def nothing_of_odds(rule: Callable[[int], int], number: int) -> int:
    return 0 if number % 2 else rule(number)


def asked(findings: Sequence[Finding], *numbers: int) -> tuple[Modelled, list[int]]:
    """The answer for given numbers, and which findings acted."""
    known = Modelled(tuple(findings))
    rules = known.rules(SETTINGS, "")
    answers = []
    for known.step, number in enumerate(numbers):
        answers.append(rules.ask(double, number))
    return known, answers


def test_it_is_counted_where_the_answer_differs() -> None:
    """And the first time is kept, with what the reference would have answered."""
    known, answers = asked([finding("odd", nothing_of_odds)], 2, 4, 5, 7)
    assert [4, 8, 0, 0] == answers
    assert {"odd": 2} == known.times
    first = known.first["odd"]
    assert ("KV-OP-01", 2, "double", "10", "0") == (
        first.statement,
        first.step,
        first.rule,
        first.ideal,
        first.answered,
    )


def test_of_one_rule_each_is_counted_once() -> None:
    """The second builds on the first, and asks it twice."""
    known, answers = asked([finding("odd", nothing_of_odds), finding("more", one_more)], 2, 3)
    assert [5, 1] == answers
    assert {"odd": 1, "more": 2} == known.times
    assert ("4", "5") == (known.first["more"].ideal, known.first["more"].answered)


def test_what_follows_is_not_counted() -> None:
    """And is applied."""
    acts = Acts(follow=[Delta("double", one_more)])
    known, answers = asked([evolve(finding("follows", one_more), acts=lambda *_run: acts)], 2)
    assert ([5], {}) == (answers, known.times)


def test_changed_settings_are_counted_by_what_would_be_without_them() -> None:
    """The rule's own answer stands."""
    acts = Acts(without=[Delta("double", nothing_of_odds)])
    known, answers = asked([evolve(finding("settings", one_more), acts=lambda *_run: acts)], 2, 3)
    assert ([4, 6], {"settings": 1}) == (answers, known.times)
    assert ("0", "6") == (known.first["settings"].ideal, known.first["settings"].answered)


def test_outside_its_condition_it_is_reported_once() -> None:
    """Of the arguments, and of both answers; inside it is not."""

    def is_odd(ideal: int, answered: int, number: int) -> bool:
        return ideal < answered and number % 2 == 1

    known, _ = asked([finding("more", one_more, holds=is_odd)], 3, 5)
    assert known.take_outside() is None
    known, _ = asked([finding("more", one_more, holds=is_odd)], 3, 4)
    outside = known.take_outside()
    assert outside is not None
    assert ("KV-OP-01", "finding more", "acts only with an odd number", "9, and 8 without it") == (
        outside.statement,
        outside.subject,
        outside.expected,
        outside.got,
    )
    assert known.take_outside() is None


# In a run


def test_outside_its_condition_it_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where system and reference agree: 005's trace, with a condition that does not hold there."""
    (known,) = with_ids(["005-lookahead-verified-at-another-length"])
    trace = read(FOLDER / "f005_lookahead_verified_at_another_length" / "trace.jsonl")
    system = having()
    assert [] == played(system, trace.header.settings, trace.operations).found()
    never = evolve(known, holds=lambda *_arguments: False)
    monkeypatch.setattr("kvgate.findings.register._load", lambda _folder: never)
    only = having(evolve(INSTALLED, findings=frozenset([known.id])))
    (found,) = played(only, trace.header.settings, trace.operations).found()
    assert (None, "KV-OP-01", f"finding {known.id}") == (
        found.finding,
        found.divergence.difference.statement,
        found.divergence.difference.subject,
    )


TWO_AT_ONCE = Settings(
    Geometry(
        (
            Group(Kind.FULL, 32),
            Group(Kind.SLIDING_WINDOW, 16, 64),
            Group(Kind.SLIDING_WINDOW, 16, 64, lookahead=True),
        )
    ),
    blocks=32,
    tokens_max=128,
    chunk_tokens=128,
)
"""Blocks of two sizes, for 006; and two windows that are alike, for 010."""
EVICTED: tuple[Operation, ...] = (
    Arrive(0, (Run(0, 81),)),
    Admit(0, 128),
    Evict(8),
    Arrive(1, (Run(0, 82),)),
    LookUp(1),
)


@pytest.mark.parametrize("system", ["reference", "stock"])
def test_two_findings_in_one_look_up_are_both_counted(system: str) -> None:
    """Without the first window's block after 64 tokens, 64 is right and with 006 too, 010 makes it 32, and both 0."""
    if system == "stock":
        pytest.importorskip("vllm")
        from kvgate.adapters.registry import load_system

        bench = Bench(load_system("stock").factory)
    else:
        bench = Bench(having())
    lockstep = bench.set_up(TWO_AT_ONCE)
    assert [None] * 5 == [lockstep.perform(operation) for operation in EVICTED]
    assert {SPREADS: 1, ALIGNS: 1} == lockstep.known.times
    for one in (SPREADS, ALIGNS):
        run = played(having(undescribed=[one]), TWO_AT_ONCE, EVICTED)
        assert "KV-OP-01" == Violated.by(run.divergences[0]).statement


def test_two_findings_in_one_admission_are_both_counted() -> None:
    """The shorter hit of 006, and the end of the prompt that 012 caches."""
    trace = read(FOLDER / "f006_aligned_before_the_drop" / "trace-beside-012.jsonl")
    release = release_of(trace.header.system)
    assert release is not None
    run = played(having(release), trace.header.settings, trace.operations)
    assert {ALIGNS, TAILS} == {each.finding for each in run.known()}
    assert [] == run.found()


# Whose findings


def test_a_system_has_the_findings_of_its_release_that_it_does_not_fix() -> None:
    """In the order of their ranks; one without a release has none."""
    fixed = type("Fixed", (having(),), {"fixes": lambda _self: frozenset([ALIGNS])})
    here = [each.id for each in findings_of(having()(SETTINGS))]
    assert INSTALLED.findings == set(here)
    assert [each.rank for each in findings_of(having()(SETTINGS))] == sorted(each.rank for each in with_ids(here))
    assert set(here) - {ALIGNS} == {each.id for each in findings_of(fixed(SETTINGS))}
    assert () == findings_of(object())


def test_only_those_that_can_act_are_asked() -> None:
    """By the settings: one group of full attention has no window; and by what a scheduler is configured with."""
    _, known = reference_of(having()(SETTINGS), SETTINGS)
    ids = {each.id[:3] for each in known.findings}
    assert {"003", "009"} <= ids
    assert not ids & {"002", "005", "006", "010", "014", "020", "021", "022", "023"}


def test_a_live_reference_has_those_that_a_shadow_can_follow() -> None:
    """Of its version; and the settings that they make."""
    live = live_reference(TWO_AT_ONCE, "stock", "0.20.2")
    assert all(group.lookahead for group in live.settings.geometry.groups if group.window_tokens)
    assert {"005", "006", "010"} & {each.id[:3] for each in live.known.findings} == {"006", "010"}
    assert live.choices.rules.deltas
    newest = live_reference(TWO_AT_ONCE, "stock", "0.33.0").known.findings
    modelled = reference_of(having(RELEASES["native@0.33.0"])(TWO_AT_ONCE), TWO_AT_ONCE)[1].findings
    assert {TAILS} == {each.id for each in modelled} - {each.id for each in newest}


def test_a_plug_in_that_fixes_a_finding_is_compared_without_it() -> None:
    """By its name alone: with compressed groups, the plug-in does not have 014."""
    trace = read(FOLDER / "f014_second_full_group_not_cut" / "trace.jsonl")
    hits = {}
    for name in ("stock", "retention", "other:build"):
        manager = reference_named(name)(trace.header.settings)
        *_, hits[name] = (manager.apply(each) for each in trace.operations if manager.population.resolve(each))
    assert hits["stock"] != hits["retention"] == hits["other:build"]


def test_the_run_of_a_case_counts_them() -> None:
    """With the case up to where each acted first."""
    trace = read(FOLDER / "f015_replay_above_its_look_ahead" / "trace.jsonl")
    release = release_of(trace.header.system)
    assert release is not None
    run = run_case(Bench(having(release)), trace.case)
    assert {"007": 1, "015": 1} == {str(each.finding)[:3]: each.times for each in run.known()}
    assert all(len(each.case.operations) == each.divergence.step + 1 for each in run.known())
