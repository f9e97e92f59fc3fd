"""The cache that never evicts.

Goal: nothing hits more, and it hits all that was sent before. Method: drawn workloads under it and under the reference;
a pool in which everything fits; hits that end inside blocks; and the arm made forgetful.
"""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.infinite import BLOCKS, endless
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.workload import Turn, Workload, single
from kvreference.compressed import dsv4_flash
from kvreference.operations import Run

from .small_workloads import draw


def is_beaten(setting: Setting) -> bool:
    """Whether any request hits more than with an endless cache. Only lanes that wait for each other can: they meet
    otherwise.
    """
    alone = evolve(setting, workload=evolve(setting.workload, lanes=1))
    best, reference = arm_of("infinite").run(alone), arm_of("reference").run(alone)
    return any(one.hit_tokens < other.hit_tokens for one, other in zip(best.served, reference.served, strict=True))


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(20))
def test_no_request_hits_more(seed: int) -> None:
    """Goal: it is an upper bound. Method: drawn workloads, one request at a time, request by request."""
    assert not is_beaten(draw(Random(seed)))


@pytest.mark.ci
def test_a_small_pool_would_be_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the comparison above can fail. Method: the endless pool is as small as a pool can be."""
    monkeypatch.setattr(
        "kvgate.simulation.infinite.endless", lambda setting: evolve(setting, policy=policy_of("dense"))
    )
    assert any(is_beaten(draw(Random(seed))) for seed in range(60))


def test_it_hits_what_a_pool_hits_in_which_everything_fits() -> None:
    """Goal: without evictions the two are one. Method: a dense cache and 100,000 blocks."""
    setting = draw(Random(3))
    roomy = evolve(setting, serving=evolve(setting.serving, blocks=100_000), policy=policy_of("dense"))
    best, reference = arm_of("infinite").run(roomy), arm_of("reference").run(roomy)
    assert 0 == best.evictions == reference.evictions
    assert [each.hit_tokens for each in reference.served] == [each.hit_tokens for each in best.served]


def test_hits_end_where_the_policy_lets_them() -> None:
    """Goal: partial hits count. Method: a prompt again, of DeepSeek-V4's groups, with and without."""
    turns = [Turn((Run(0, 1000),), Run(first, 1)) for first in (5000, 6000)]
    serving = Serving("dsv4", dsv4_flash(), 3000)
    reference = {
        policy: arm_of("infinite").run(Setting(Workload("twice", single(*turns)), serving, policy_of(policy)))
        for policy in ("dense", "partial=128")
    }
    assert [768, 896] == [each.served[1].hit_tokens for each in reference.values()]
    assert ["dense", "partial=128"] == [each.policy for each in reference.values()]
    assert [3000, 3000] == [each.blocks for each in reference.values()]
    assert BLOCKS == endless(Setting(Workload("twice", single(*turns)), serving, policy_of("dense"))).serving.blocks
