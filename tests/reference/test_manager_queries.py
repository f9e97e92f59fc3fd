"""The manager's answers that change nothing: the longest hit, and the common prefix."""

from __future__ import annotations

import pytest

from kvreference.answers import Granted, Hit, Shared
from kvreference.content import Keys, Media
from kvreference.operations import Admit, Arrive, CommonPrefix, Evict, Finish, LookUp, Run, Sample, Schedule

from .stage import BUDGET, FULL, WINDOW, arrive, enter, manager_of, pass_through, perform, seen


def test_a_prompt_that_was_served_hits() -> None:
    """Goal: tokens that one request computed serve the next. Method: block 16, a prompt of 320 and then the same again.

    The 20 blocks are cached; the last token must be computed, so 19 of them serve, 304 tokens.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 320)
    assert Hit(304, (tuple(range(1, 20)),)) == perform(manager, arrive(1, 320), LookUp(1))
    assert Hit(320, (tuple(range(1, 21)),)) == perform(manager, arrive(2, 321), LookUp(2))


def test_a_look_up_takes_nothing() -> None:
    """Goal: asking is free. Method: compare the state before and after, and ask again."""
    manager = manager_of(FULL, WINDOW)
    pass_through(manager, 0, 320)
    perform(manager, arrive(1, 320))
    before = seen(manager)
    answers = [perform(manager, LookUp(1)) for _ in range(2)]
    assert before == seen(manager)
    assert answers[0] == answers[1]


def test_prompts_share_as_far_as_they_agree() -> None:
    """Goal: a hit ends where the tokens part. Method: 40 tokens in common are two blocks of 16 and a half."""
    manager = manager_of(FULL)
    pass_through(manager, 0, 320)
    perform(manager, Arrive(1, (Run(0, 40), Run(5000, 300))))
    assert Hit(32, ((1, 2),)) == perform(manager, LookUp(1))


@pytest.mark.parametrize(
    ("keys", "hit"),
    [
        (Keys(salt="x"), 32),
        (Keys(), 0),
        (Keys(salt="y"), 0),
        (Keys(lora="x"), 0),
        (Keys(salt="x", lora="x"), 0),
        (Keys(salt="x", media=(Media("cat", 20, 4),)), 16),
    ],
)
def test_a_salt_an_adapter_and_an_item_part_equal_tokens(keys: Keys, hit: int) -> None:
    """Goal: tenants, adapters and pictures are kept apart. Method: 40 tokens are cached under the salt 'x'.

    The adapter 'x' is not the salt 'x'. An item in tokens 20..23 parts the second block, not the first.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 40, keys=Keys(salt="x"))
    found = perform(manager, arrive(1, 40, keys=keys), LookUp(1))
    assert isinstance(found, Hit)
    assert hit == found.tokens


def test_an_item_elsewhere_is_another_content() -> None:
    """Goal: the place of an item is part of content. Method: the same item, in its place and one token later."""
    manager = manager_of(FULL)
    pass_through(manager, 0, 40, keys=Keys(media=(Media("cat", 20, 4),)))
    perform(manager, arrive(1, 40, keys=Keys(media=(Media("cat", 20, 4),))))
    perform(manager, arrive(2, 40, keys=Keys(media=(Media("cat", 21, 4),))))
    assert Hit(32, ((1, 2),)) == perform(manager, LookUp(1))
    assert Hit(16, ((1,),)) == perform(manager, LookUp(2))


def test_a_request_may_be_kept_from_the_cache() -> None:
    """Goal: a request that wants prompt log-probabilities computes everything itself, and still serves others.

    Method: prompt of 40; the second request does not read; it computes 3 blocks anew.
    """
    manager = manager_of(FULL)
    pass_through(manager, 0, 40)
    perform(manager, arrive(1, 40, reads_cache=False))
    assert Hit(0, ((),)) == perform(manager, LookUp(1))
    assert Granted(0, ((4, 5, 6),)) == perform(manager, Admit(1, BUDGET))
    perform(manager, Evict(1), Evict(2), arrive(2, 40))
    assert Hit(32, ((4, 5),)) == perform(manager, LookUp(2))


def test_without_prefix_caching_nothing_hits() -> None:
    """Goal: switched off means off: nothing is cached, nothing hits. Method: the same prompt twice, two groups."""
    manager = manager_of(FULL, WINDOW, caches=False)
    pass_through(manager, 0, 320)
    assert Hit(0, ((), ())) == perform(manager, arrive(1, 320), LookUp(1))
    assert {} == manager.snapshot().entries


def test_common_prefix() -> None:
    """Goal: the leading blocks that every request with blocks holds; never reported for a window.

    Method: 48 tokens each, 32 in common: two blocks. A third request shares only the first. One that merely waits
    does not count; alone, a request shares all its blocks with everyone, full or not.
    """
    manager = manager_of(FULL, WINDOW)
    enter(manager, 0, 40)
    assert Shared((3, 0)) == perform(manager, CommonPrefix(0))
    perform(manager, Arrive(1, (Run(0, 32), Run(5000, 16))))
    assert Shared((3, 0)) == perform(manager, CommonPrefix(0))
    perform(manager, Admit(1, BUDGET))
    assert Shared((2, 0)) == perform(manager, CommonPrefix(0))
    perform(manager, Arrive(2, (Run(0, 16), Run(6000, 32))), Admit(2, BUDGET))
    assert [Shared((1, 0))] * 3 == [perform(manager, CommonPrefix(number)) for number in range(3)]
    perform(manager, Finish(2))
    assert Shared((2, 0)) == perform(manager, CommonPrefix(1))


def test_common_prefix_without_prefix_caching() -> None:
    """Goal: blocks are shared through the cache alone. Method: off, and one request holds all blocks there are."""
    manager = manager_of(FULL, caches=False)
    enter(manager, 0, 40)
    assert Shared((0,)) == perform(manager, CommonPrefix(0))


def test_generated_tokens_serve_too() -> None:
    """Goal: an answer is part of the next prompt. Method: 15 tokens and the answer 500, 501: one block is full.

    It is full with token 500, and cached when that is computed.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 15)
    perform(manager, Sample(0, 0, 500, 0), Schedule(0, 1), Sample(0, 0, 501, 0))
    perform(manager, Arrive(1, (Run(0, 15), Run(500, 2))))
    assert Hit(16, ((1,),)) == perform(manager, LookUp(1))


@pytest.mark.parametrize("scratch_first", [False, True])
def test_a_snapshot_has_what_is_promised(scratch_first: bool) -> None:
    """Goal: the check of a state knows whether scratch goes first, KV-INV-08. Method: both settings."""
    assert scratch_first is manager_of(FULL, scratch_first=scratch_first).snapshot().scratch_first
