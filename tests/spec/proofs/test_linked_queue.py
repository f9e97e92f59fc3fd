"""The linked list of the proofs, and the queues of numbered places, are the reference's queues.

Goal: the proofs hold of the reference. Method: the same scripts of random operations on both, everything compared after
each; and the mutants of the proofs injected, each of which a script must find.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvspec.linked_queue import HEAD, TAIL, Blocks, append_n, empty, forward, popleft_n, prepend_n, remove, sequence
from kvspec.maps import FiniteMap
from kvspec.obligation import Mutant
from kvspec.proofs import linked_free_queue
from kvspec.proofs.free_queue import Others, Places, pool_over, queue_over
from kvspec.queue_scripts import LEGAL, WITH_FRONT, Linked, OfReference, observed, random_script

SEEDS = range(40)
CALLS = 150
BLOCKS = 9
MUTANTS = {
    f"{obligation.id}: {mutant.name}": mutant
    for obligation in (*linked_free_queue.OBLIGATIONS, *linked_free_queue.OBLIGATIONS)
    for mutant in obligation.mutants
}


def drift(seeds: Sequence[int]) -> str:
    """The first difference between the linked list and the reference; nothing if they agree."""
    for seed in seeds:
        for names, hostile in ((LEGAL, True), (WITH_FRONT, True)):
            ours = observed(Linked(BLOCKS), random_script(seed, BLOCKS, CALLS, names, hostile))
            theirs = observed(OfReference(BLOCKS), random_script(seed, BLOCKS, CALLS, names, hostile))
            for step, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if one != other:
                    return f"seed {seed}, call {step}: {one}, not {other}"
    return ""


def test_the_linked_list_is_the_reference_queue() -> None:
    """Order in both directions, counter, what is taken and what is rejected, after each of many calls."""
    assert "" == drift(SEEDS)


def test_scripts_reach_what_matters() -> None:
    """An empty queue, many at once, and refusals of each kind are among them."""
    calls = [call for seed in SEEDS for call in random_script(seed, BLOCKS, CALLS, WITH_FRONT, hostile=True)]
    answers = [
        answer
        for seed in SEEDS
        for answer in observed(OfReference(BLOCKS), random_script(seed, BLOCKS, CALLS, WITH_FRONT, hostile=True))
    ]
    assert set(WITH_FRONT) == {name for name, _ in calls}
    assert {"", "ValueError", "LookupError"} == {refused for refused, *_ in answers}
    assert {0, BLOCKS} <= {free for *_, free in answers}
    assert any(len(given) >= 3 for _, given in calls)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_an_injected_drift_is_seen(mutant: Mutant) -> None:
    """Each mutant of the proofs changes what a script shows, or cannot be played at all."""
    with mutant.applied():
        try:
            drifted = drift(SEEDS)
        except (AttributeError, RuntimeError, AssertionError) as error:
            drifted = str(error)
    assert drifted


def test_misuse_is_rejected_and_changes_nothing() -> None:
    """A block twice in one call, one that is there, too many, less than none, one that is not there."""
    queue = append_n(empty(FiniteMap()), [3, 1, 2])
    with pytest.raises(ValueError, match="block 5 is already in the free queue"):
        append_n(queue, [5, 5])
    with pytest.raises(ValueError, match="block 1 is already in the free queue"):
        prepend_n(queue, [4, 1])
    with pytest.raises(LookupError, match="4 blocks are asked for, and 3 are free"):
        popleft_n(queue, 4)
    with pytest.raises(ValueError, match="-1 blocks cannot be taken"):
        popleft_n(queue, -1)
    with pytest.raises(LookupError, match="block 7 is not in the free queue"):
        remove(queue, 7)
    assert ([3, 1, 2], 3) == (forward(queue), queue.blocks_free)


def test_scratch_first_is_two_insertions() -> None:
    """Cached blocks are appended and scratch prepended, each in its order: so the reference puts them too."""
    random = Random(0)
    for _ in range(200):
        blocks = list(range(1, 9))
        random.shuffle(blocks)
        scratch = set(random.sample(blocks, 4))
        reference = ScratchFirstQueue(blocks[:3])
        reference.put(blocks[3:], scratch)
        linked = append_n(empty(FiniteMap()), blocks[:3])
        linked = append_n(linked, [block for block in blocks[3:] if block not in scratch])
        linked = prepend_n(linked, [block for block in blocks[3:] if block in scratch])
        assert list(reference) == forward(linked)
        reference.turned_scratch(blocks[0])
        assert list(reference) == forward(prepend_n(remove(linked, blocks[0]), [blocks[0]]))


# The sequences that the proofs speak of


def blocks_of(order: Sequence[int]) -> Blocks:
    """A sequence that is known."""
    at = FiniteMap(dict(enumerate(order)))
    return sequence(at, FiniteMap({block: place for place, block in enumerate(order)}), len(order))


def read(blocks: Blocks) -> list[object]:
    """A sequence, from its head to its tail."""
    return [blocks.at(place) for place in range(-1, int(blocks.length) + 1)]


@pytest.mark.parametrize("length", range(5))
def test_sequences_are_lists(length: int) -> None:
    """Put in between, without the first, without one: as slices of lists; and each knows where its blocks stand."""
    order, new = list(range(10, 10 + length)), [7, 5]
    made = {
        (*order[:gap], *new, *order[gap:]): blocks_of(order).with_between(gap, blocks_of(new))
        for gap in range(length + 1)
    }
    made |= {tuple(order[count:]): blocks_of(order).without_first(count) for count in range(length + 1)}
    made |= {(*order[:gone], *order[gone + 1 :]): blocks_of(order).without(gone) for gone in range(length)}
    for expected, blocks in made.items():
        assert [HEAD, *expected, TAIL] == read(blocks)
        assert list(range(len(expected))) == [blocks.position(block) for block in expected]
        assert {block for block in range(1, 20) if blocks.holds(block)} == set(expected)


# Places as numbers


@pytest.mark.parametrize("scratch_first", [False, True])
def test_numbered_places_are_the_reference_order(scratch_first: bool) -> None:
    """Sorted by their numbers, blocks stand as the reference has them; others are counted, and shift nothing."""
    random = Random(1)
    for _ in range(200):
        cached = FiniteMap({block: random.randint(0, 1) for block in range(1, 13)})
        places = Places(FiniteMap(), FiniteMap(), 0, 0)
        queue = queue_over(places, ScratchFirstQueue if scratch_first else FreeQueue)
        pool = pool_over(FiniteMap(dict.fromkeys(range(1, 13), 1)), cached, queue)
        reference = OfReference(0, scratch_first).queue
        for release in (range(1, 5), range(5, 8), range(8, 13)):
            blocks = random.sample(release, len(release))
            others = Others(random.randint(0, 3), scratch=random.random() < 0.5)
            # Others stand for any number of blocks.
            pool.release([*blocks[:2], others, *blocks[2:]])  # type: ignore[list-item]
            reference.put(blocks, {block for block in blocks if not cached[block]})
        order = [places.place[block] for block in reference]
        assert all(one < other for one, other in pairwise(order))
        assert all(places.front <= place < places.back for place in order)
