"""Shards of a scheduler on stock vLLM: their results alone describe what was found, and a second run is inspected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.campaigns.merging import merge, trace_name
from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import render, understood
from kvgate.campaigns.shard import Known, Shards
from kvgate.campaigns.twice import again
from kvgate.gate.case_runner import kind_of, run_case
from kvgate.gate.level import LevelChoice
from kvgate.kernel.models import load
from kvgate.levels.registry import read
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate_mutants.mutants.registry import SCHEDULER_MUTANTS
from kvreference.snapshot import Snapshot

PLAN = FuzzPlan("stock", ("full",), level=LevelChoice.SCHEDULER.value, shard_operations=150, minimise_seconds=10)


@pytest.fixture(scope="module")
def shards() -> Shards:
    return Shards(PLAN)


def test_what_a_scheduler_does_wrong_is_reported(shards: Shards, tmp_path: Path) -> None:
    """Goal: both traces, of the engine and of its calls to the block manager. Method: inject a fault, merge, and run
    the trace again.
    """
    mutant = next(each for each in SCHEDULER_MUTANTS if each.name == "ended-keeps-its-blocks")
    with mutant.applied():
        result = understood(render(shards.run(0, Known())))
        verdict = merge([result]).verdict(PLAN, tmp_path, "completed")
        assert len(verdict.found) > 0
        for found in verdict.found:
            assert found.driver is not None
            name = trace_name(found.divergence.difference.statement, kind_of(found.divergence))
            case = read(tmp_path / name).case
            shown = run_case(SCHEDULER.bench_named("stock", result.detectors[:-1]), case)
            assert kind_of(found.divergence) in map(kind_of, shown.divergences)
    assert all(record.finding for record in shards.run(0, Known(frozenset(), frozenset())).records)


def test_a_scheduler_by_chance_is_found(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a second run of a scheduler is compared. Method: a free queue that turns by chance."""
    bench = SCHEDULER.bench_named(shards.system.name, ("leak",))
    cases = [SCHEDULER.draw(load("full"), "hostile", str(number)) for number in range(3)]
    assert [None] * 3 == [again(bench, case, 0) for case in cases]
    seen = Followed.snapshot

    def by_chance(followed: Followed) -> Snapshot:
        snapshot = seen(followed)
        return evolve(snapshot, free=list(snapshot.free)[::-1]) if os.urandom(1)[0] < 16 else snapshot

    monkeypatch.setattr(Followed, "snapshot", by_chance)
    found = [each for case in cases if (each := again(bench, case, 0))]
    assert {"KV-SYS-04"} == {each.divergence.difference.statement for each in found}
    assert all(each.driver is not None and each.driver.operations for each in found)
