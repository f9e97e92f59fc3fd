"""Second tiers with one rule broken, each of which the explorer must refute."""

from __future__ import annotations

from collections.abc import Sequence

from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.second_tier import Job, SecondTier, Stage


class HoldsNoBlock(SecondTier):
    """A request that leaves frees the blocks that a job still uses."""

    def _begin(self, job: Job) -> int:
        number = super()._begin(job)
        self.device.release([job.block])
        return number

    def end(self, number: int, succeeded: bool = True) -> None:
        self.device.touch([self.jobs[number].block])
        super().end(number, succeeded)


class HoldsNoChunk(SecondTier):
    """A chunk that a load reads may be evicted."""

    def load(self, content: Content, block: int) -> int:
        number = super().load(content, block)
        self.host.release([self.jobs[number].chunk])
        return number

    def end(self, number: int, succeeded: bool = True) -> None:
        if self.jobs[number].to_device:
            self.host.touch([self.jobs[number].chunk])
        super().end(number, succeeded)


class EndsForAll(SecondTier):
    """When one of several loads of a chunk ends, the chunk counts as unused."""

    def end(self, number: int, succeeded: bool = True) -> None:
        chunk = self.jobs[number].chunk
        super().end(number, succeeded)
        self.host.release([chunk] * self.host.references[chunk])


class KnownAtOnce(SecondTier):
    """A chunk is a hit while it is still being stored."""

    def store(self, block: int) -> int:
        number = super().store(block)
        job = self.jobs[number]
        assert job.content is not None
        self.host.cached.register(job.content, job.chunk)
        self.jobs[number] = Job(None, job.block, job.chunk, to_device=False)
        return number


class FailureCounts(SecondTier):
    """What a failed job should have brought counts as there."""

    def end(self, number: int, succeeded: bool = True) -> None:
        del succeeded
        super().end(number, True)


class FailureKeepsChunk(SecondTier):
    """A failed job never gives its chunk back."""

    def end(self, number: int, succeeded: bool = True) -> None:
        if not succeeded:
            self.host.touch([self.jobs[number].chunk])
        super().end(number, succeeded)


class ResetForgetsJobs(SecondTier):
    """What is on its way at a reset is known when it has arrived."""

    def reset(self) -> None:
        jobs = self.jobs
        super().reset()
        self.jobs = jobs


class OneGroupIsEnough(SecondTier):
    """A hit is reported where full attention alone can be resumed."""

    def hit_tokens(self, geometry: Geometry, prefixes: list[Prefix], tokens: int) -> int:
        return super().hit_tokens(Geometry(geometry.groups[:1]), prefixes, tokens)


class LoadsOneGroup(SecondTier):
    """What a window needs is not loaded."""

    def lacks(self, geometry: Geometry, prefixes: Sequence[Prefix], hit_tokens: int) -> list[Content]:
        return super().lacks(Geometry(geometry.groups[:1]), prefixes, hit_tokens)


class StoresWhatFits(SecondTier):
    """Of several blocks as many are stored as there is room for."""

    def store_all(self, blocks: Sequence[int]) -> list[int] | None:
        return [
            number
            for each in range(len(blocks))
            for number in super(StoresWhatFits, self).store_all(blocks[each : each + 1]) or ()
        ]


class StoresOverItsOwn(SecondTier):
    """To store a block may evict what the tier has of the others."""

    def store_all(self, blocks: Sequence[int]) -> list[int] | None:
        contents = {block: self.device.cached.content_of(block) for block in blocks}
        new = [block for block, content in contents.items() if content and self.stage(content) is Stage.MISSING]
        return [self.store(block) for block in new] if self.host.make_room(len(new), ()) else None
