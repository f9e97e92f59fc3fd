"""A second tier: chunks of the host, to which jobs store blocks of the device, and from which they load them.

The tier is a pool like that of the device: its blocks are called chunks, and its holders are jobs. A job copies one
block. It holds the block and the chunk from its beginning to its end, also if the request ends: neither is used
for anything else before, and if the job never ends, neither ever is. What a job copies is known at the other side once
it has succeeded, and not at all if it has failed. A transfer of several blocks is as many jobs.

A hit ends where both tiers together hold all that a resume there reads, in every group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import evolve, frozen

from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap, Content
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit
from kvreference.state import State


class Stage(Enum):
    """What the tier has of a content."""

    MISSING = "missing"
    STORING = "storing"
    """A job brings it."""
    READABLE = "readable"
    READ = "read"
    """Readable, and a job reads it now."""


class ByUse(FreeQueue, changing=("used",)):
    """Hands out what holds nothing first, then what was used least recently, whenever it was let go."""

    def __init__(self, blocks: Iterable[int] = ()) -> None:
        super().__init__(blocks)
        self.used: dict[int, int] = {}
        """Per block that holds something, or is to hold it, when it was used: a later use is a larger number."""
        self.uses = 0

    def use(self, block: int) -> None:
        """``block`` is used now."""
        self.uses += 1
        self.used[block] = self.uses

    def put(self, blocks: Sequence[int], scratch: Iterable[int]) -> None:
        super().put(blocks, ())
        for block in scratch:
            self.turned_scratch(block)

    def turned_scratch(self, block: int) -> None:
        self.used.pop(block, None)

    def pop(self) -> int:
        block = min(self, key=lambda each: self.used.get(each, 0), default=0)
        self.remove(block)
        return block


@frozen
class Job:
    """A block on its way."""

    content: Content | None
    """What the other side will hold; None if that is not to be known, because of a reset."""
    block: int
    chunk: int
    to_device: bool


class _Both(CachedMap):
    """What a load can bring to the device, or is there: what a look-up of hits asks."""

    def __init__(self, device: CachedMap, host: CachedMap) -> None:
        super().__init__(0)
        self._device, self._host = device, host

    def find(self, content: Content) -> int | None:
        """A block or a chunk that holds it."""
        block = self._device.find(content)
        return self._host.find(content) if block is None else block


class SecondTier(State, changing=("device", "host", "order", "jobs")):
    """A tier of so many chunks after the blocks of a device.

    Raises:
        ValueError: what is to be stored is not cached, or is there; what is to be loaded is not there, or the block
            holds something.
        LookupError: there is no such job, or no chunk can be evicted.
    """

    def __init__(self, device: BlockPool, chunks: int) -> None:
        self.device, self.host = device, BlockPool(chunks + 1)
        self.order = self.host.free = ByUse(range(1, chunks + 1))
        self.jobs: dict[int, Job] = {}
        """The jobs under way, by number."""
        self.begun = 0

    def copy(self) -> SecondTier:
        other = super().copy()
        other.host.free = other.order
        return other

    # Queries

    def stage(self, content: Content) -> Stage:
        """What the tier has of ``content``."""
        chunk = self._chunk(content)
        if chunk is None:
            return Stage.MISSING
        if self.host.cached.content_of(chunk) is None:
            return Stage.STORING
        return Stage.READ if self.host.references[chunk] else Stage.READABLE

    def _chunk(self, content: Content) -> int | None:
        """The chunk that holds ``content``, or is to hold it."""
        stores = (job.chunk for job in self.jobs.values() if job.content == content and not job.to_device)
        chunk = self.host.cached.find(content)
        return next(stores, None) if chunk is None else chunk

    def hit_tokens(self, geometry: Geometry, prefixes: list[Prefix], tokens: int) -> int:
        """Up to where a request of ``tokens`` tokens can resume, once what the device lacks is loaded."""
        both = _Both(self.device.cached, self.host.cached)
        return longest_hit(geometry, both, prefixes, tokens).tokens

    def lacks(self, geometry: Geometry, prefixes: Sequence[Prefix], hit_tokens: int) -> list[Content]:
        """What a resume at ``hit_tokens`` reads and the device does not hold, group by group: what must be loaded."""
        read = (
            (index, prefixes[(place + 1) * group.block_size_tokens // geometry.grain_tokens - 1])
            for index, group in enumerate(geometry.groups)
            for place in range(*group.blocks_needed(hit_tokens))
        )
        return [content for content in read if self.device.cached.find(content) is None]

    # Jobs

    def store(self, block: int) -> int:
        """A job begins that takes what ``block`` of the device is known to hold to a chunk; returns its number."""
        content = self.device.cached.content_of(block)
        if content is None or self.stage(content) is not Stage.MISSING:
            raise ValueError(f"block {block} holds nothing that is to be stored")
        (chunk,), _ = self.host.take(1)
        self.order.use(chunk)
        return self._begin(Job(content, block, chunk, to_device=False))

    def store_all(self, blocks: Sequence[int]) -> list[int] | None:
        """A job begins for each of ``blocks`` whose content the tier lacks; None if there is no room for all of them.

        What is there of the others is not evicted for that.
        """
        contents = {block: self.device.cached.content_of(block) for block in blocks}
        there = [self.host.cached.find(content) for content in contents.values() if content is not None]
        kept = [chunk for chunk in there if chunk is not None]
        new = [block for block, content in contents.items() if content and self.stage(content) is Stage.MISSING]
        self.host.touch(kept)
        jobs = [self.store(block) for block in new] if self.host.make_room(len(new), ()) else None
        self.host.release(kept)
        return jobs

    def load(self, content: Content, block: int) -> int:
        """A job begins that brings ``content`` to ``block``, which its request holds; returns its number."""
        chunk = self.host.cached.find(content)
        if chunk is None or self.device.cached.content_of(block) is not None:
            raise ValueError(f"there is nothing to load into block {block}, or it holds something")
        self.host.touch([chunk])
        return self._begin(Job(content, block, chunk, to_device=True))

    def _begin(self, job: Job) -> int:
        self.device.touch([job.block])
        self.begun += 1
        self.jobs[self.begun] = job
        return self.begun

    def end(self, number: int, succeeded: bool = True) -> None:
        """A job has ended."""
        job = self.jobs.pop(number)
        pool, place = (self.device, job.block) if job.to_device else (self.host, job.chunk)
        if succeeded and job.content is not None:
            pool.register(job.content, place)
        self.host.release([job.chunk])
        self.device.release([job.block])

    def use(self, contents: Sequence[Content]) -> None:
        """A request uses ``contents``, in order: the last of them are evicted first."""
        for content in reversed(contents):
            chunk = self._chunk(content)
            if chunk is not None:
                self.order.use(chunk)

    # Evictions that no store asks for

    def unused(self) -> list[int]:
        """The chunks that hold something and that no job holds, those first that were used least recently."""
        chunks = (chunk for chunk in self.host.free if self.host.cached.content_of(chunk) is not None)
        return sorted(chunks, key=self.order.used.__getitem__)

    def evict(self, chunks: Sequence[int]) -> list[Content]:
        """What these chunks hold is forgotten, where no job holds them; returns it."""
        return [content for chunk in chunks if not self.host.references[chunk] for content in self.host.evict(chunk)]

    def reset(self) -> None:
        """Nothing that the tier holds, or that is on its way, is known any more; jobs go on."""
        for chunk in range(1, len(self.host.references)):
            self.host.evict(chunk)
        self.jobs = {number: evolve(job, content=None) for number, job in self.jobs.items()}
