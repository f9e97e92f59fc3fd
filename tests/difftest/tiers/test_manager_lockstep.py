"""The managers of the host tiers of vLLM and of LMCache, operation by operation next to the reference of a second tier.

Goal: the reference says what a published manager does, and a manager that does something else is found. Method: random
operations for both policies of eviction, then the same for mutants of the manager, in one fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.published import published

from kvgate.adapters.releases import LMCACHE as LMCACHE_RELEASE
from kvgate.adapters.releases import release_named
from kvgate.adapters.releases.description import Published

VLLM = """
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


LMCACHE = """
import json
from unittest.mock import patch

from kvgate.levels.tiers.manager_lockstep import load, run

build = load("lmcache@0.5.6")
from lmcache.v1.distributed.eviction_policy.arc import ARCEvictionPolicy as ARC
from lmcache.v1.distributed.eviction_policy.lru import LRUEvictionPolicy as LRU
from lmcache.v1.distributed.l1_manager import L1Manager as Manager
from lmcache.v1.distributed.memory_manager import L1MemoryManager as Memory

ALLOCATE, DELETE, FINISH_WRITE, FINISH_READ = Memory.allocate, Manager.delete, Manager.finish_write, Manager.finish_read
RESERVE_READ, CLEAR, CREATED, LRU_EVICT, ARC_EVICT = (
    Manager.reserve_read, Manager.clear, LRU.on_keys_created, LRU.get_eviction_actions, ARC.get_eviction_actions
)


def twice_the_first(self, layout, count):
    word, objects = ALLOCATE(self, layout, count)
    return word, objects[:1] * len(objects)


def freed_early(self, keys, tag=""):
    answers = FINISH_WRITE(self, keys, tag)
    self._memory_manager.free([self._objects[key].memory_obj for key in keys])
    return answers


def unlocked_at_once(self, keys, read_locks=1):
    answers = RESERVE_READ(self, keys, read_locks)
    for key in keys:
        if key in self._objects:
            self._objects[key].read_lock.unlock()
    return answers


def unlocked_by_the_first(self, keys, read_locks=1):
    answers = FINISH_READ(self, keys, read_locks)
    for key in keys:
        while key in self._objects and self._objects[key].read_lock.is_locked():
            self._objects[key].read_lock.unlock()
    return answers


def staging_kept(self, force=False):
    kept = dict(self._staging)
    self._staging.clear()
    CLEAR(self, force)
    self._staging.update(kept)


def created_in_order(self, keys):
    CREATED(self, keys[::-1])


MUTANTS = {
    "keys share memory": ("lru", Memory, "allocate", twice_the_first),
    "memory is not freed": ("lru", Memory, "free", lambda self, objects: None),
    "memory is freed when a store ends": ("lru", Manager, "finish_write", freed_early),
    "a load does not hold": ("lru", Manager, "reserve_read", unlocked_at_once),
    "the first load that ends lets go for all": ("lru", Manager, "finish_read", unlocked_by_the_first),
    "a load holds for good": ("lru", Manager, "finish_read", lambda self, keys, n=1: dict.fromkeys(keys, OK)),
    "a failed store is kept": ("lru", Manager, "finish_write_and_delete", FINISH_WRITE),
    "what is read is deleted": ("lru", Manager, "delete", lambda self, keys, force=False: DELETE(self, keys, True)),
    "a reset keeps what is being stored": ("lru", Manager, "clear", staging_kept),
    "what is held counts as evictable": ("lru", Manager, "is_key_evictable", lambda self, key: True),
    "uses count from the first key on": ("lru", LRU, "on_keys_created", created_in_order),
    "a use does not count": ("lru", LRU, "on_keys_touched", lambda self, keys: None),
    "what is gone stays in the order": ("lru", LRU, "on_keys_removed", lambda self, keys: None),
    "twice as much is evicted": ("lru", LRU, "get_eviction_actions", lambda self, n, **k: LRU_EVICT(self, 2 * n, **k)),
    "all is evicted with ARC": ("arc", ARC, "get_eviction_actions", lambda self, n, **k: ARC_EVICT(self, 1.0, **k)),
}
from lmcache.v1.distributed.error import L1Error

OK = L1Error.SUCCESS


def found(policy):
    try:
        run(policy, 5_000, seed=1, manager=build)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


done = {policy: run(policy, 20_000, manager=build).done for policy in ("lru", "arc")}
mutants = {}
for name, (policy, owner, method, by) in MUTANTS.items():
    with patch.object(owner, method, by):
        mutants[name] = found(policy)
print(json.dumps([done, mutants]))
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("release", "program", "mutants_min"),
    [(release_named("native@0.33.0"), VLLM, 11), (LMCACHE_RELEASE, LMCACHE, 15)],
    ids=["vllm", "lmcache"],
)
def test_the_published_manager_does_what_the_reference_says(release: Published, program: str, mutants_min: int) -> None:
    pytest.importorskip("vllm")
    published(release)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    done, mutants = json.loads(ended.stdout.splitlines()[-1])
    for counts in done.values():
        assert min(counts.values()) > 10, counts
        assert counts["chunks evicted"] > 500, counts
    assert len(mutants) >= mutants_min, mutants
    assert [] == [name for name, difference in mutants.items() if difference is None]
