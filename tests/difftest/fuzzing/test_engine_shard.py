"""Shards of a scheduler on stock vLLM: what is found there is told by results alone, and a second run is looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.campaigns.engine_twice import engine_again
from kvgate.campaigns.merging import merge, trace_name
from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import told, understood
from kvgate.campaigns.shard import Known, Shards
from kvgate.gate.campaign import kind_of
from kvgate.gate.level import Level
from kvgate.kernel.models import load
from kvgate.levels.registry import engine_bench
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.case_runner import run_case
from kvgate.levels.scheduler.generator import draw_engine_case
from kvgate.levels.scheduler.trace_codec import read_engine
from kvgate_mutants.mutants.registry import SCHEDULER_MUTANTS
from kvreference.snapshot import Snapshot

PLAN = FuzzPlan("stock", ("full",), level=Level.SCHEDULER.value, shard_operations=150, minimise_seconds=10)


@pytest.fixture(scope="module")
def shards() -> Shards:
    return Shards(PLAN)


def test_what_a_scheduler_does_wrong_is_told(shards: Shards, tmp_path: Path) -> None:
    """Goal: both traces, of the engine and of what it asked. Method: a planted fault; merge; run the trace again."""
    mutant = next(each for each in SCHEDULER_MUTANTS if each.name == "ended-keeps-its-blocks")
    with mutant.applied():
        result = understood(told(shards.run(0, Known())))
        verdict = merge([result]).verdict(PLAN, tmp_path, "completed")
        assert len(verdict.found) > 0
        for found in verdict.found:
            assert found.engine is not None
            name = trace_name(found.divergence.difference.statement, kind_of(found.divergence))
            case = read_engine(tmp_path / name).case
            again = run_case(engine_bench("stock", result.detectors[:-1]), case)
            assert kind_of(found.divergence) in map(kind_of, again.divergences)
    assert () == shards.run(0, Known(frozenset(), frozenset())).records


def test_a_scheduler_by_chance_is_found(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a second run of a scheduler is compared. Method: a free queue that turns by chance."""
    bench = engine_bench(shards.system.name, ("leak",))
    cases = [draw_engine_case(load("full"), "hostile", str(number)) for number in range(3)]
    assert [None] * 3 == [engine_again(bench, case, 0) for case in cases]
    seen = Followed.snapshot

    def by_chance(followed: Followed) -> Snapshot:
        snapshot = seen(followed)
        return evolve(snapshot, free=list(snapshot.free)[::-1]) if os.urandom(1)[0] < 16 else snapshot

    monkeypatch.setattr(Followed, "snapshot", by_chance)
    found = [again for case in cases if (again := engine_again(bench, case, 0))]
    assert {"KV-SYS-04"} == {each.divergence.difference.statement for each in found}
    assert all(each.engine is not None and each.engine.operations for each in found)
