"""The free queue: first in, first out, with removal from the middle and a way in at the front."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvreference.free_queue import FreeQueue, ScratchFirstQueue


def test_blocks_leave_in_the_order_in_which_they_came() -> None:
    """Goal: taken from the front, put at the back. Method: start with 3, 1, 2; append 5; take all."""
    queue = FreeQueue([3, 1, 2])
    queue.append(5)
    assert [3, 1, 2, 5] == [queue.pop() for _ in range(4)]
    assert 0 == len(queue)


def test_prepended_blocks_leave_first() -> None:
    """Goal: the front is the way in for what is worth least. Method: prepend 7, then 8, to 1, 2."""
    queue = FreeQueue([1, 2])
    queue.prepend(7)
    queue.prepend(8)
    assert [8, 7, 1, 2] == list(queue)


def test_removal_keeps_the_others_in_order() -> None:
    """Goal: a hit takes its block out wherever it stands. Method: remove from the middle, the front, the back."""
    queue = FreeQueue([1, 2, 3, 4, 5])
    for block in (3, 1, 5):
        queue.remove(block)
    assert [2, 4] == list(queue)
    assert [True, False] == [2 in queue, 3 in queue]


def test_a_block_removed_and_put_back_goes_to_the_back() -> None:
    """Goal: a block used lately outlives the rest. Method: remove 1 of 1, 2, 3 and append it."""
    queue = FreeQueue([1, 2, 3])
    queue.remove(1)
    queue.append(1)
    assert [2, 3, 1] == list(queue)


def test_misuse_is_rejected() -> None:
    """Goal: a double free or a take of what is not there never passes. Method: each, and the queue stays as it was."""
    queue = FreeQueue([1, 2])
    with pytest.raises(ValueError, match="block 2 is already in the free queue"):
        queue.append(2)
    with pytest.raises(ValueError, match="block 2 is already in the free queue"):
        queue.prepend(2)
    with pytest.raises(LookupError, match="block 9 is not in the free queue"):
        queue.remove(9)
    assert [1, 2] == list(queue)
    with pytest.raises(LookupError, match=r"^the free queue is empty$"):
        FreeQueue().pop()


def test_a_copy_is_independent() -> None:
    """Goal: a step leaves the state before it alone. Method: change the copy, then look at the original."""
    queue = FreeQueue([1, 2, 3])
    copy = queue.copy()
    assert [1, 2, 3] == list(copy)
    copy.pop()
    copy.append(9)
    assert ([1, 2, 3], [2, 3, 9]) == (list(queue), list(copy))


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["append", "prepend", "remove", "pop"]), st.integers(1, 6)), max_size=30))
def test_it_is_a_list(steps: list[tuple[str, int]]) -> None:
    """Goal: nothing but order and membership. Method: do the same to a plain list, with any legal operations."""
    queue = FreeQueue()
    plain: list[int] = []
    for what, block in steps:
        if what == "pop":
            if plain:
                assert plain.pop(0) == queue.pop()
        elif (block in plain) == (what == "remove"):
            getattr(queue, what)(block)
            others = [other for other in plain if other != block]
            plain = {"append": [*others, block], "prepend": [block, *others], "remove": others}[what]
        assert plain == list(queue)
        assert len(plain) == len(queue)


@pytest.mark.parametrize(
    ("kind", "expected"), [(FreeQueue, [8, 9, 4, 5, 6, 7]), (ScratchFirstQueue, [5, 7, 8, 9, 4, 6])]
)
def test_where_blocks_that_become_free_go(kind: type[FreeQueue], expected: list[int]) -> None:
    """Goal: with scratch first, scratch goes to the front and what is cached to the back, both in the order of release;
    without, all go to the back. Method: 4, 5, 6, 7 become free after 8, 9; 5 and 7 are scratch.
    """
    queue = kind([8, 9])
    queue.put([4, 5, 6, 7], {5, 7})
    assert expected == list(queue)


@pytest.mark.parametrize(("kind", "expected"), [(FreeQueue, [1, 2, 3]), (ScratchFirstQueue, [3, 1, 2])])
def test_a_queued_block_that_turns_scratch(kind: type[FreeQueue], expected: list[int]) -> None:
    """Goal: a block without content has nothing to lose. Method: 3 of 1, 2, 3 is cached no longer."""
    queue = kind([1, 2, 3])
    queue.turned_scratch(3)
    assert expected == list(queue)


def test_nothing_scratch_becomes_free() -> None:
    """Goal: scratch first says nothing about cached blocks among themselves. Method: put two, both cached; put none."""
    queue = ScratchFirstQueue([1])
    queue.put([3, 2], ())
    queue.put([], ())
    assert [1, 3, 2] == list(queue)


def test_a_copy_keeps_its_kind() -> None:
    """Goal: a step does not change the order of release. Method: the copy of a scratch-first queue is one."""
    queue = ScratchFirstQueue([1])
    copy = queue.copy()
    copy.put([2], {2})
    assert ([1], [2, 1]) == (list(queue), list(copy))
