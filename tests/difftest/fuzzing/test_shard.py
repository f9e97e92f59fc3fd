"""A shard: the same on every worker, in a form that another process understands."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvgate.campaigns.merging import merge, trace_name
from kvgate.campaigns.plan import manifest
from kvgate.campaigns.results import ShardResult, render, understood
from kvgate.campaigns.serving import Server, Task, failure_in
from kvgate.campaigns.shard import Known, Shards
from kvgate.gate.case_runner import kind_of
from kvgate.levels.registry import read

from .stage import PLAN

FAULTY = '''
"""A finished request releases its blocks from the head on; and an answer depends on chance."""
import os
from kvgate.adapters.reference import Reference
from kvreference.operations import Finish, TakeStatistics

class HeadFirst(Reference):
    def apply(self, operation):
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)

class ByChance(Reference):
    def snapshot(self):
        seen = super().snapshot()
        if os.urandom(1)[0] < 8:
            self.pool.free.append(self.pool.free.pop())
        return seen
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "faulty_in_shards.py").write_text(FAULTY)
    return tmp_path


def _run(sut: str, shard: int, known: Known | None = None) -> ShardResult:
    plan = evolve(PLAN, sut=sut, shard_operations=400, minimise_seconds=30)
    return evolve(Shards(plan).run(shard, known or Known()), seconds=0.0)


def test_a_shard_is_the_same_again(here: Path) -> None:
    """Goal: running a shard again gives the same result. Method: run one twice, and another one."""
    assert here == Path.cwd()
    one = _run("faulty_in_shards:HeadFirst", 1)
    assert one == _run("faulty_in_shards:HeadFirst", 1)
    assert one != evolve(_run("faulty_in_shards:HeadFirst", 2), shard=1)
    assert len(one.records) > 0


def test_what_is_known_is_counted_only(here: Path) -> None:
    """Goal: a defect is made small, and stored, once. Method: the same shard when others have shown what it finds."""
    first = _run("faulty_in_shards:HeadFirst", 0)
    known = Known(frozenset(record.kind for record in first.records))
    second = _run("faulty_in_shards:HeadFirst", 0, known)
    assert all(record.trace is not None for record in first.records)
    assert [None] * len(first.records) == [record.trace for record in second.records]
    assert [record.times for record in first.records] == [record.times for record in second.records]
    assert here.exists()


def test_what_was_found_can_be_described(here: Path) -> None:
    """Goal: a verdict from results alone. Method: merge two shards; the trace is there, and shows what it says."""
    results = [understood(render(_run("faulty_in_shards:HeadFirst", shard))) for shard in range(2)]
    verdict = merge(results).verdict(PLAN, here / "corpus", "completed")
    assert {"KV-OP-07"} == {found.divergence.difference.statement for found in verdict.found}
    for found in verdict.found:
        name = trace_name(found.divergence.difference.statement, kind_of(found.divergence))
        path = here / "corpus" / name
        assert found.case.operations == read(path).operations
        assert found.divergence.step == len(found.case.operations) - 1
        assert len(found.case.operations) <= 12
    assert sum(each.operations for each in results) == verdict.operations


def test_an_answer_by_chance_is_found(here: Path) -> None:
    """Goal: some cases run twice to compare outcomes. Method: all of them, in a nondeterministic system."""
    plan = evolve(PLAN, sut="faulty_in_shards:ByChance", shard_operations=400, twice_percent=100, monitors_only=True)
    result = Shards(plan).run(0, Known())
    assert result.twice == sum(tally.cases for tally in result.tallies)
    assert "KV-SYS-04" in {record.statement for record in result.records}
    assert 0 == Shards(evolve(plan, sut="reference", twice_percent=0)).run(0, Known()).twice
    assert here.exists()


def test_a_server_says_why_it_cannot() -> None:
    """Goal: a worker never dies of what it is asked for. Method: a system that is not there."""
    server = Server(manifest(evolve(PLAN, sut="nobody")))
    failure = failure_in(server.run(Task(0).render()))
    assert failure is not None
    assert "usage" == failure[0]
    assert "unknown system 'nobody'" in failure[1]
