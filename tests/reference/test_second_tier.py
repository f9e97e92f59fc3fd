"""The second tier: what a job holds, what is known when, what a hit needs, and in which order chunks go."""

from __future__ import annotations

from random import Random

import pytest

from kvreference.block_pool import BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.second_tier import ByUse, SecondTier, Stage

PREFIXES = [Prefix(None, piece, 1) for piece in range(9)]


def tier_of(chunks: int, cached: int = 8) -> SecondTier:
    """A tier next to a device whose blocks 1 to ``cached`` hold a content each, of the prefix of the same number."""
    device = BlockPool(10)
    for block in range(1, cached + 1):
        device.cached.register(content(block), block)
    return SecondTier(device, chunks)


def content(block: int) -> Content:
    return 0, PREFIXES[block]


def stages(tier: SecondTier, *blocks: int) -> list[Stage]:
    return [tier.stage(content(block)) for block in blocks]


def stored(chunks: int, *blocks: int) -> SecondTier:
    """A tier that has stored these blocks, one after the other."""
    tier = tier_of(chunks)
    for block in blocks:
        tier.end(tier.store(block))
    return tier


def test_a_chunk_is_readable_when_its_store_has_succeeded() -> None:
    """Goal: KV-TIER-04. Method: the stages of three contents, one stored, one that failed, one on its way."""
    tier = tier_of(3)
    jobs = [tier.store(block) for block in (1, 2, 3)]
    assert [Stage.STORING] * 3 == stages(tier, 1, 2, 3)
    tier.end(jobs[1], succeeded=False)
    tier.end(jobs[0])
    assert [Stage.READABLE, Stage.MISSING, Stage.STORING, Stage.MISSING] == stages(tier, 1, 2, 3, 4)


def test_a_job_holds_both_ends_until_it_ends() -> None:
    """Goal: KV-TIER-02, for stores and loads. Method: count holders while jobs are under way and after them."""
    tier = stored(2, 1)
    store = tier.store(2)
    tier.device.evict(9)
    load = tier.load(content(1), 9)
    assert (1, 1, [0, 1, 1]) == (*(tier.device.references[each] for each in (2, 9)), sorted(tier.host.references))
    assert (Stage.READ, []) == (tier.stage(content(1)), list(tier.host.free))
    with pytest.raises(LookupError):
        tier.store(3)
    tier.end(load, succeeded=False)
    tier.end(store, succeeded=False)
    assert (None, 0, {}) == (tier.device.cached.content_of(9), sum(tier.device.references), tier.jobs)
    assert [0, 0, 0] == tier.host.references


def test_what_is_loaded_is_known_on_the_device() -> None:
    """Goal: KV-TIER-01. Method: lose a block, load it into another."""
    tier = stored(1, 1)
    tier.device.evict(1)
    tier.end(tier.load(content(1), 9))
    assert 9 == tier.device.cached.find(content(1))


def test_what_cannot_be_copied_is_refused() -> None:
    """Goal: a refusal changes nothing. Method: what holds nothing, what is there or comes, what is not readable."""
    tier = stored(3, 1)
    tier.store(2)
    before = list(tier.host.references), list(tier.device.references)
    for block in (9, 1, 2):
        with pytest.raises(ValueError, match="nothing that is to be stored"):
            tier.store(block)
    for wanted, block in ((2, 9), (1, 3)):
        with pytest.raises(ValueError, match="nothing to load"):
            tier.load(content(wanted), block)
    assert before == (tier.host.references, tier.device.references)


def test_the_least_recently_used_goes_first() -> None:
    """Goal: eviction follows use, and not the end of jobs. Method: use, in an order, what several jobs have stored."""
    tier = tier_of(3)
    jobs = [tier.store(block) for block in (1, 2, 3)]
    for job in reversed(jobs):
        tier.end(job)
    tier.use([content(1), content(5)])
    tier.end(tier.store(4))
    assert [Stage.READABLE, Stage.MISSING, Stage.READABLE, Stage.READABLE] == stages(tier, 1, 2, 3, 4)
    tier.use([content(3), content(1), content(4)])
    tier.end(tier.store(5))
    assert [Stage.READABLE, Stage.READABLE, Stage.MISSING, Stage.READABLE] == stages(tier, 1, 3, 4, 5)


def test_what_holds_nothing_goes_before_what_does() -> None:
    """Goal: nothing is evicted while a chunk is empty. Method: a store that fails, then another."""
    tier = stored(2, 1)
    tier.end(tier.store(2), succeeded=False)
    tier.end(tier.store(3))
    assert [Stage.READABLE, Stage.READABLE] == stages(tier, 1, 3)
    with pytest.raises(LookupError):
        ByUse().pop()


def test_all_or_none_are_stored() -> None:
    """Goal: one call stores what is missing or nothing, and evicts nothing that it names. Method: room for one more."""
    tier = stored(3, 1, 2, 3)
    assert [] == tier.store_all([1, 9])
    jobs = tier.store_all([1, 4])
    assert jobs is not None
    assert 1 == len(jobs)
    assert [Stage.READABLE, Stage.MISSING, Stage.READABLE, Stage.STORING] == stages(tier, 1, 2, 3, 4)
    assert tier.store_all([1, 5, 6]) is None
    assert [Stage.READABLE, Stage.READABLE, Stage.STORING] == stages(tier, 1, 3, 4)
    assert [0, 0, 1] == sorted(tier.host.references[1:])


def test_after_a_reset_nothing_from_before_becomes_known() -> None:
    """Goal: KV-TIER-04 across a reset. Method: a store and a load under way, which succeed afterwards."""
    tier = stored(3, 1)
    tier.device.evict(1)
    jobs = [tier.load(content(1), 9), tier.store(2)]
    tier.reset()
    assert [Stage.MISSING, Stage.MISSING] == stages(tier, 1, 2)
    again = tier.store(3)
    for job in (*jobs, again):
        tier.end(job)
    assert [Stage.MISSING, Stage.MISSING, Stage.READABLE] == stages(tier, 1, 2, 3)
    assert (None, [0, 0, 0, 0]) == (tier.device.cached.content_of(9), tier.host.references)


def test_a_hit_needs_all_groups() -> None:
    """Goal: KV-TIER-03. Method: full attention and a window, each content on the device, in the tier, or nowhere."""
    geometry = Geometry((Group("full", 2), Group("sliding_window", 2, 3)))
    prompt = [Prefix(None, "ab", 2)]
    prompt.append(Prefix(prompt[0], "cd", 4))
    every = [(group, prefix) for group in (0, 1) for prefix in prompt]
    device = BlockPool(5)
    for block, each in enumerate(every, start=1):
        device.cached.register(each, block)
    tier = SecondTier(device, 4)
    tier.end(tier.store(1))
    store = tier.store(4)
    for block in (1, 3, 4):
        device.evict(block)
    # The window reads the tokens 2 and 3 at 4, and 0 and 1 at 2.
    assert 0 == tier.hit_tokens(geometry, prompt, 5)
    tier.end(store)
    assert (4, [every[0], every[3]]) == (tier.hit_tokens(geometry, prompt, 5), tier.lacks(geometry, prompt, 4))
    assert 0 == tier.hit_tokens(geometry, prompt, 4)
    device.evict(2)
    assert 0 == tier.hit_tokens(geometry, prompt, 5)


def test_a_copy_is_independent() -> None:
    """Goal: the explorer may go on from any state. Method: change a copy in every way."""
    tier = stored(2, 1)
    job = tier.store(2)
    other = tier.copy()
    other.end(job)
    other.use([content(1)])
    other.store(3)
    assert [Stage.READABLE, Stage.STORING, Stage.MISSING] == stages(tier, 1, 2, 3)
    assert [Stage.READABLE, Stage.MISSING, Stage.STORING] == stages(other, 1, 2, 3)
    assert (1, 2) == (len(tier.jobs), tier.order.uses)


@pytest.mark.parametrize("seed", range(5))
def test_at_the_end_of_all_jobs_nothing_is_held(seed: int) -> None:
    """Goal: KV-TIER-05. Method: random operations, each of which a tier may refuse, and an end to every job."""
    random, tier = Random(seed), tier_of(3)
    for _ in range(300):
        block = random.randrange(1, 9)
        kind = random.randrange(6)
        if kind < 2 and len(tier.host.free) and tier.stage(content(block)) is Stage.MISSING:
            tier.store(block)
        elif kind == 2 and tier.host.cached.find(content(block)) and not tier.device.references[9]:
            tier.device.evict(9)
            tier.load(content(block), 9)
        elif kind > 2 and tier.jobs:
            tier.end(random.choice(list(tier.jobs)), succeeded=random.random() < 0.7)
        holders = [sum(job.chunk == chunk for job in tier.jobs.values()) for chunk in range(4)]
        assert holders == tier.host.references
        assert {chunk for chunk in range(1, 4) if not holders[chunk]} == set(tier.host.free)
    for job in list(tier.jobs):
        tier.end(job)
    assert 0 == sum(tier.host.references) + sum(tier.device.references)


def test_only_what_no_job_holds_is_evicted() -> None:
    """Goal: an eviction respects jobs. Method: evict all chunks while one is read, one stored to, and one was used."""
    tier = stored(4, 1, 2, 3)
    tier.device.evict(9)
    tier.load(content(2), 9)
    tier.store(4)
    tier.use([content(1)])
    assert [content(3), content(1)] == [tier.host.cached.content_of(chunk) for chunk in tier.unused()]
    assert {content(1), content(3)} == {*tier.evict(range(1, 5))}
    assert [Stage.MISSING, Stage.READ, Stage.MISSING, Stage.STORING] == stages(tier, 1, 2, 3, 4)
    assert [] == tier.unused()
