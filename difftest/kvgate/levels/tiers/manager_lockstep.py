"""A manager of host chunks in lockstep with the reference of a second tier, without an engine.

``python -m kvgate.levels.tiers.manager_lockstep native@0.33.0 20000`` does it with the manager of that release, once
for each policy of eviction; with ``lmcache@0.5.6`` it is that of LMCache.
A manager is asked what a connector asks it: what is there, to store, to load, that transfers have ended or failed, that
a request has used something or is gone, to reset. After each operation both must say the same: which keys are stored,
being stored or missing; in which chunk; what is evicted; when there is no room; how many chunks can be evicted.

With LRU the order of eviction is the reference's own. With another policy the reference evicts what the manager does,
if that may be evicted. Requests here have no positions in their prompts.

vLLM's manager evicts where a store needs room. LMCache's evicts a share of its keys when it is asked to, and also
forgets keys that are named, and all that no job holds. It knows no requests, and a key is used as well when its store
begins and when it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from attrs import define, field

from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import LMCACHE
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, UNAVAILABLE
from kvgate.levels.tiers.adapter.host_manager import ChunkManager, HostManager
from kvgate.levels.tiers.operations import POLICIES
from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.second_tier import SecondTier, Stage

KEYS, CHUNKS, LOADS_MAX = 16, 8, 5
"""How many keys there are, how many chunks, and how many loads of a key may be under way."""


class DivergedError(Exception):
    """Both say something else."""


@define
class Transfer:
    """A transfer of several chunks, and the reference's jobs for it."""

    keys: Sequence[int]
    jobs: Sequence[int]
    request: Any


@define
class ManagerLockstep:
    """Both, with what is under way."""

    manager: ChunkManager
    follows: bool
    """Whether the reference evicts what the manager evicts, and not what was used least recently."""
    random: Random
    tier: SecondTier = field(init=False)
    stores: list[Transfer] = field(factory=list)
    loads: list[Transfer] = field(factory=list)
    requests: list[tuple[Any, list[int]]] = field(factory=list)
    """The requests alive, each with the keys that it has used, in order."""
    places: dict[int, int] = field(factory=dict)
    """The manager's chunk of each key that is there, or is being stored."""
    operations: int = 0
    done: dict[str, int] = field(factory=dict)
    """How often each operation happened, and what it led to."""

    def __attrs_post_init__(self) -> None:
        device = BlockPool(1 + KEYS + KEYS * LOADS_MAX)
        for key, block in enumerate(device.take(KEYS)[0]):
            device.cached.register((0, Prefix(None, key, 1)), block)
        self.tier = SecondTier(device, CHUNKS)

    def _content(self, key: int) -> Any:
        return self.tier.device.cached.content_of(1 + key)

    def _place(self, key: int) -> int:
        """The reference's chunk of a key that is there."""
        chunk = self.tier.host.cached.find(self._content(key))
        assert chunk is not None, "it is there"
        return chunk

    def _stage(self, key: int) -> Stage:
        return self.tier.stage(self._content(key))

    def _empty(self) -> int:
        """How many chunks hold nothing, and no job holds."""
        return len(self.tier.order) - len(self.tier.unused())

    def _agree(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise DivergedError(f"operation {self.operations}, {what}: expected {expected}, got {got}")

    def _count(self, what: str, times: int = 1) -> None:
        self.done[what] = self.done.get(what, 0) + times

    def run(self, operations: int) -> None:
        """Perform so many operations.

        Raises:
            DivergedError: the two part.
        """
        kinds = [self.store] * 6 + [self.load] * 2 + [self.end_store] * 5 + [self.end_load] * 4
        kinds += [self.touch] * 2
        kinds += [self.evict] * 3 + [self.delete] if self.manager.evicts_apart else [self.leave] * 3
        while self.operations < operations:
            rare = self.clear if self.manager.evicts_apart and self.operations % 2 else self.reset
            (rare if self.random.random() < 0.002 else self.random.choice(kinds))()
            self.operations += 1
            self.check()

    def check(self) -> None:
        """What both say of every key, and of how much is in use."""
        for key in range(KEYS):
            stage = self._stage(key)
            there = {Stage.MISSING: "MISS", Stage.STORING: "HIT_PENDING"}.get(stage, "HIT")
            self._agree(f"look-up of {key}", there, self.manager.look_up(key))
        self._agree("chunks that can be evicted", len(self.tier.unused()), self.manager.evictable)
        self._agree("chunks in use", CHUNKS - self._empty(), self.manager.used)
        self._agree("chunks that are being stored", sum(len(each.keys) for each in self.stores), self.manager.storing)

    def _request(self) -> tuple[Any, list[int]]:
        """A request that is alive, or a new one."""
        if not self.requests or self.random.random() < 0.3:
            self.requests.append((self.manager.request(), []))
        return self.random.choice(self.requests)

    def _some(self, keys: Sequence[int]) -> list[int]:
        return self.random.sample(keys, self.random.randint(1, min(4, len(keys)))) if keys else []

    def store(self) -> None:
        """Several keys are to be stored; those that are there are used."""
        request, used = self._request()
        keys = self._some(range(KEYS))
        new = [key for key in keys if self._stage(key) is Stage.MISSING]
        counted = [key for key in keys if key in new or self._stage(key) in (Stage.READABLE, Stage.READ)]
        before = self._readable() - {*keys}
        answer = self.manager.store(keys, request)
        if answer is not None and set(answer.evicted) <= before:
            self._follow(answer.evicted)
        has_room = not self.manager.evicts_apart or len(new) <= self._empty()
        jobs = self.tier.store_all([1 + key for key in keys]) if has_room else None
        self._agree("room for a store", jobs is not None, answer is not None)
        used += [key for key in counted if key not in used]
        self._count("stores" if jobs else "nothing to store" if jobs is not None else "no room")
        if jobs is None or answer is None:
            return
        self._agree("what is stored", new, answer.keys)
        self._gone("what is evicted", before, answer.evicted)
        if self.manager.evicts_apart:
            self.tier.use([self._content(key) for key in new])
        self.places.update(zip(new, answer.chunks, strict=True))
        self._agree("keys of which each has a chunk", len(self.places), len(set(self.places.values())))
        if jobs:
            self.stores.append(Transfer(new, jobs, request))

    def _follow(self, evicted: Sequence[int]) -> None:
        """If the policy is not the reference's, what the manager evicts is what was used least recently."""
        for key in reversed(evicted if self.follows else ()):
            chunk = self._place(key)
            self.tier.order.used[chunk] = min(0, *self.tier.order.used.values()) - 1

    def _gone(self, what: str, before: set[int], evicted: Sequence[int]) -> None:
        """Of what was readable before, the manager has evicted what the reference has."""
        gone = {key for key in before if self._stage(key) is Stage.MISSING}
        self._agree(what, gone, set(evicted))
        self._count("chunks evicted", len(gone))
        self.places = {key: chunk for key, chunk in self.places.items() if key not in gone}

    def _readable(self) -> set[int]:
        """The keys that are there, and that no job reads."""
        return {key for key in range(KEYS) if self._stage(key) is Stage.READABLE}

    def evict(self) -> None:
        """A share of the keys is to be evicted: at least one, and none that a job holds."""
        share, before = self.random.choice((0.1, 0.2, 0.5, 1.0)), self._readable()
        count = max(1, int(len(self.places) * share))
        evicted = self.manager.evict(share)
        if set(evicted) <= before:
            self._follow(evicted)
        self.tier.evict(self.tier.unused()[:count])
        self._gone("what is evicted", before, evicted)

    def delete(self) -> None:
        """Keys are to be forgotten: those that no job holds are."""
        keys, before = self._some(range(KEYS)), self._readable()
        self._agree("what is not forgotten", [key for key in keys if key not in before], self.manager.delete(keys))
        self.tier.evict([self._place(key) for key in keys if key in before])
        self._gone("what is forgotten", before, [key for key in keys if key in before])
        self._count("deletions")

    def clear(self) -> None:
        """All is forgotten that no job holds."""
        before = self._readable()
        self.manager.clear()
        self.tier.evict(self.tier.unused())
        self._gone("what is forgotten", before, [*before])
        self._count("clearances")

    def end_store(self) -> None:
        """A store ends, or fails."""
        if not self.stores:
            return
        transfer = self.stores.pop(self.random.randrange(len(self.stores)))
        succeeded = self.random.random() < 0.8
        if succeeded and self.manager.evicts_apart and self.random.random() < 0.2:
            self._end_and_load(transfer)
            return
        refused = self.manager.end_store(transfer.keys, transfer.request, succeeded)
        self._agree("what of a store cannot end", [], refused)
        for job in transfer.jobs:
            self.tier.end(job, succeeded)
        if succeeded and self.manager.evicts_apart:
            self.tier.use([self._content(key) for key in transfer.keys])
        if not succeeded:
            self.places = {key: chunk for key, chunk in self.places.items() if key not in transfer.keys}
        self._count("stores that succeed" if succeeded else "stores that fail")

    def _end_and_load(self, transfer: Transfer) -> None:
        """A store ends, and a load of the same begins before anything can come between."""
        chunks = self.manager.end_store_and_load(transfer.keys)
        self._agree("chunks to load from", [self.places[key] for key in transfer.keys], chunks)
        for job in transfer.jobs:
            self.tier.end(job)
        self.tier.use([self._content(key) for key in transfer.keys])
        self.loads.append(Transfer(transfer.keys, self._load(transfer.keys), transfer.request))
        self._count("stores that loads follow")

    def load(self) -> None:
        """Several keys that can be read are to be loaded."""
        under_way = [key for transfer in self.loads for key in transfer.keys]
        ready = [key for key in self.places if self._stage(key) is not Stage.STORING]
        keys = self._some([key for key in ready if under_way.count(key) < LOADS_MAX])
        if not keys:
            return
        request, used = self._request()
        chunks = self.manager.load(keys, request)
        self._agree("chunks to load from", [self.places[key] for key in keys], chunks)
        self.loads.append(Transfer(keys, self._load(keys), request))
        used += [key for key in keys if key not in used]
        self._count("loads")

    def _load(self, keys: Sequence[int]) -> list[int]:
        """The reference's jobs of a load that begins."""
        blocks, _ = self.tier.device.take(len(keys))
        jobs = [self.tier.load(self._content(key), block) for key, block in zip(keys, blocks, strict=True)]
        self.tier.device.release(blocks)
        return jobs

    def end_load(self) -> None:
        """A load ends. The manager is not asked whether it has failed."""
        if not self.loads:
            return
        transfer = self.loads.pop(self.random.randrange(len(self.loads)))
        self._agree("what is not what was read", [], self.manager.end_load(transfer.keys, transfer.request))
        self._end_loads(transfer, self.random.random() < 0.8)
        self._count("loads that end")

    def _end_loads(self, transfer: Transfer, succeeded: bool) -> None:
        for number in transfer.jobs:
            block = self.tier.jobs[number].block
            self.tier.end(number, succeeded)
            # It is needed for other loads.
            self.tier.device.evict(block)

    def touch(self) -> None:
        """A request uses keys, which may not be there."""
        keys = self._some(range(KEYS))
        self.manager.touch(keys, self._request()[0])
        self.tier.use([self._content(key) for key in keys])
        self._count("uses")

    def leave(self) -> None:
        """A request is gone: what it has used was used now."""
        if not self.requests:
            return
        request, used = self.requests.pop(self.random.randrange(len(self.requests)))
        self.manager.leave(request)
        self.tier.use([self._content(key) for key in used])
        self._count("requests that leave")

    def reset(self) -> None:
        """All is forgotten. What is under way is over for the manager, as the connector promises it."""
        self.manager.reset()
        self.tier.reset()
        for transfer in self.stores:
            for job in transfer.jobs:
                self.tier.end(job)
        for transfer in self.loads:
            self._end_loads(transfer, succeeded=True)
        self.stores, self.loads, self.places = [], [], {}
        self.requests = [(request, []) for request, _ in self.requests]
        self._count("resets")


def run(
    policy: str, operations: int, seed: int = 0, manager: Callable[[int, str], ChunkManager] = HostManager
) -> ManagerLockstep:
    """The manager of the release that is loaded, with this policy, in lockstep.

    Raises:
        DivergedError: the two part.
    """
    lockstep = ManagerLockstep(manager(CHUNKS, policy), policy != "lru", Random(seed))
    lockstep.run(operations)
    return lockstep


def load(name: str) -> Callable[[int, str], ChunkManager]:
    """Load a release; returns what builds its manager of chunks.

    Raises:
        UsageError: there is no such release.
        SystemUnavailableError: it cannot be fetched or imported.
    """
    if name == LMCACHE.name:
        from kvgate.levels.tiers.adapter.lmcache_manager import LMCacheManager, load_lmcache

        load_lmcache()
        return LMCacheManager
    load_system(name)
    return HostManager


def main(name: str, operations: int) -> int:
    """Run both policies; returns the exit code."""
    try:
        manager = load(name)
        for policy in POLICIES:
            ran = run(policy, operations, manager=manager)
            print(f"{policy}: no difference in {ran.operations:,} operations: {dict(sorted(ran.done.items()))}")
    except SystemUnavailableError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    except DivergedError as error:
        print(f"{policy}: {error}")
        return DIVERGENCE
    return AGREEMENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
