"""The manager of vLLM's host tier, operation by operation next to the reference of a second tier.

Goal: the reference says what a published manager does, and a manager that does something else is found. Method: random
operations for both policies of eviction, then the same for mutants of the manager, in one fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.published import published

from kvgate.adapters.releases import release_named

PROGRAM = """
import json
from unittest.mock import patch

from kvgate.adapters.registry import load_system

load_system("native@0.33.0")
from kvgate.levels.tiers.manager_lockstep import run
from kvgate_mutants.mutants.registry import RELEASE_MUTANTS
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy as ARC
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy as LRU

LRU_TOUCH, ARC_EVICT, LRU_EVICT = LRU.touch, ARC.evict, LRU.evict
OF_POLICIES = {
    "uses count from the first key on": ("lru", LRU, "touch", lambda self, keys, at: LRU_TOUCH(self, keys[::-1], at)),
    "requests that leave count as no use": ("lru", LRU, "on_request_finished", lambda *a, **k: None),
    "what is asked for again is evicted": ("lru", LRU, "evict", lambda self, n, protected: LRU_EVICT(self, n, set())),
    "the same with ARC": ("arc", ARC, "evict", lambda self, n, protected: ARC_EVICT(self, n, set())),
    "a chunk more is evicted": ("arc", ARC, "evict", lambda self, n, protected: ARC_EVICT(self, n + 1, protected)),
}


def found(policy):
    try:
        run(policy, 20_000, seed=1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


done = {policy: run(policy, 20_000).done for policy in ("lru", "arc")}
mutants = {}
for mutant in RELEASE_MUTANTS["native@0.33.0"]["tiers"]:
    if "kv_offload.cpu.manager" in str(mutant.targets):
        with mutant.applied():
            mutants[mutant.name] = found("lru")
for name, (policy, owner, method, by) in OF_POLICIES.items():
    with patch.object(owner, method, by):
        mutants[name] = found(policy)
print(json.dumps([done, mutants]))
"""


@pytest.mark.ci
def test_the_published_manager_does_what_the_reference_says() -> None:
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    done, mutants = json.loads(ended.stdout.splitlines()[-1])
    for counts in done.values():
        assert min(counts.values()) > 10, counts
        assert counts["chunks evicted"] > 500, counts
    assert len(mutants) >= 11, mutants
    assert [] == [name for name, difference in mutants.items() if difference is None]
