"""The functions that the obligations execute.

Goal: an obligation counts as P only if functions of the reference run while it is proved, and none that was transcribed
from them and runs in their place. Method: compare the stored
trace with a new one, for all obligations or for some; and check the tracer's report on obligations made here.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvreference import attention
from kvspec.executed import (
    NOT_EXECUTED,
    functions_executed,
    never_executed,
    of_the_reference,
    stored,
    trace,
    transcriptions,
)
from kvspec.functions import functions
from kvspec.obligation import Count, Obligation, Tier, is_transcription
from kvspec.progress.counted import CountedHoldings, CountedPool, CountedTable
from kvspec.registry import obligations

TRANSCRIBED = Obligation(
    id="blocks-and-references.conserved",
    statements=("KV-INV-03",),
    title="It holds.",
    unknowns={"computed": Count(), "window": Count(2)},
    claim=lambda u: u.computed >= 0,
    witnesses={},
    mutants=(),
)


def _executes(u: Any) -> Any:
    return attention.tokens_skipped(u.computed, u.window) <= u.computed


def test_the_tracer_sees_what_runs() -> None:
    """One that runs a formula, and one that says something of numbers alone."""
    assert () == functions_executed(TRANSCRIBED)
    assert ("attention:tokens_skipped",) == functions_executed(evolve(TRANSCRIBED, claim=_executes))


IN_THE_PLACE_OF_THE_REFERENCE = "kvspec.progress.counted:CountedHoldings.release_all"


def _executes_a_transcription(u: Any) -> Any:
    held: Any = object.__new__(CountedHoldings)
    held.pool, held.tables = CountedPool(u.window), {1: [CountedTable(u.computed, 0)]}
    held.release_all(1)
    return _executes(u) & (held.pool.blocks_free == u.window + u.computed)


def test_the_tracer_sees_what_runs_in_its_place() -> None:
    """One that runs a formula of the reference, and a method that was transcribed from it; makers are none."""
    obligation = evolve(TRANSCRIBED, claim=_executes_a_transcription)
    assert ("attention:tokens_skipped", IN_THE_PLACE_OF_THE_REFERENCE) == functions_executed(obligation)
    assert IN_THE_PLACE_OF_THE_REFERENCE in transcriptions().values()
    assert [] == [each for each in transcriptions().values() if not is_transcription(each) or "__" in each]


def test_with_a_transcription_it_is_not_p(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same trace with it, and without it."""
    traces = {TRANSCRIBED.id: ["attention:tokens_skipped", IN_THE_PLACE_OF_THE_REFERENCE]}
    monkeypatch.setattr("kvspec.obligation.executed", lambda: traces)
    assert Tier.MODEL is evolve(TRANSCRIBED).tier
    assert Tier.BOUNDED is evolve(TRANSCRIBED, bound="up to 3").tier
    assert IN_THE_PLACE_OF_THE_REFERENCE == traces[TRANSCRIBED.id].pop()
    assert Tier.ALL is evolve(TRANSCRIBED).tier


def test_no_proof_about_code_runs_a_transcription() -> None:
    """Of all that are registered; some run one."""
    running = {name for name, names in stored().items() if any(map(is_transcription, names))}
    assert "external-tokens.held-until-the-transfer-is-over" in running
    assert [] == [each.id for each in obligations().values() if each.tier is Tier.ALL and each.id in running]


def test_without_functions_it_is_not_p() -> None:
    """By the stored trace; a proof within a bound stays B."""
    assert () == tuple(stored()[TRANSCRIBED.id])
    assert Tier.MODEL is TRANSCRIBED.tier
    assert Tier.BOUNDED is evolve(TRANSCRIBED, bound="up to 3").tier


@pytest.mark.ci
@pytest.mark.parametrize("tier", [Tier.ALL, Tier.BOUNDED])
def test_every_proof_about_code_runs_code(tier: Tier) -> None:
    """On the first path already, traced anew: nothing that counts as P executes no function of the reference."""
    found = [each for each in obligations().values() if each.tier is tier]
    assert found
    assert [] == [each.id for each in found if not of_the_reference(functions_executed(each, ways=1))]


def test_the_stored_trace_is_of_these_obligations_and_functions() -> None:
    """``python -m kvspec.executed`` writes it anew."""
    assert sorted(obligations()) == sorted(stored())
    known = {each.name for each in functions()}
    assert set() == {name for names in stored().values() for name in names} - known - set(transcriptions().values())


WAYS = 4
"""For how many execution paths of each obligation a commit traces anew: all of them take minutes."""


@pytest.mark.ci
@pytest.mark.few(12)
@pytest.mark.parametrize("name", obligations())
def test_the_stored_trace_has_what_runs(name: str) -> None:
    """On its first execution paths; obligations that execute something execute some of it there."""
    found = functions_executed(obligations()[name], WAYS)
    assert set(found) <= set(stored()[name])
    assert bool(found) == bool(stored()[name])


@pytest.mark.deep
@pytest.mark.parametrize("name", obligations())
def test_the_stored_trace_is_current(name: str) -> None:
    """All its execution paths, traced anew in a process of its own: code that caches an earlier result is
    not run again.
    """
    ((_, found),) = trace([name], 1)
    assert tuple(stored()[name]) == found


def test_what_is_not_executed_has_a_reason() -> None:
    """Every function that changes state and that no obligation executes, and no other one."""
    assert {*NOT_EXECUTED} == {each.name for each in never_executed(stored()) if each.changes_state}


def test_what_changes_state_comes_first() -> None:
    """Of what no obligation executes; and a function that writes is distinguished from one that asks."""
    left = [each.changes_state for each in never_executed({})]
    assert left == sorted(left, reverse=True)
    by_name = {each.name: each.changes_state for each in functions()}
    assert by_name["block_pool:BlockPool.touch"]
    assert by_name["block_pool:BlockPool.evict"]
    assert not by_name["block_pool:BlockPool.is_cached"]
