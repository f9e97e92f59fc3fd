"""The sanitizer on vLLM's own block manager, in this process.

Goal: it finds each kind of misuse, names where the block was allocated, freed and misused, and is silent otherwise.
Method: programs of a few lines, with the misuse in their last lines; mutants of vLLM under the random driver.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.v1.core.block_pool import BlockPool

from kvgate.sanitizer.adapter.hooks import Sanitizer
from kvgate.sanitizer.ledger import DOUBLE_FREE, FOREIGN_HIT, LEAK, RAISED, USE_AFTER_FREE
from kvgate.sanitizer.misuse import Misuse, MisuseError, raise_it
from kvgate_mutants.mutants.registry import mutants_named
from kvgate_mutants.random_driver import SHAPES, Driver, drive
from kvgate_mutants.sanitized import main, outcome_of

REPORTED_MIN = 90
"""How many of the mutants that are not equivalent must be reported."""
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture
def found() -> Iterator[list[Misuse]]:
    """What is reported while a test runs; no check of the sanitizer fails itself."""
    misuses: list[Misuse] = []
    sanitizer = Sanitizer(misuses.append)
    sanitizer.install()
    yield misuses
    sanitizer.remove()
    assert [] == sanitizer.failures


def built() -> Driver:
    """A block manager without requests."""
    return Driver(SHAPES["full"], random.Random(0))


def free_twice(found: list[Misuse]) -> None:
    """One call on a line: ``test_a_double_free_names_three_sites`` counts them."""
    pool: Any = BlockPool(8, enable_caching=True, hash_block_size=4)
    blocks = pool.get_new_blocks(1)
    pool.free_blocks(iter(blocks))
    assert [] == found
    with suppress(Exception):
        pool.free_blocks(blocks)


def test_a_double_free_names_three_sites(found: list[Misuse]) -> None:
    """Where the block was allocated, where it was freed, and where it was freed again."""
    free_twice(found)
    _, first = inspect.getsourcelines(free_twice)
    misuse = found[0]
    assert (DOUBLE_FREE, "block 1 is freed 1 times, and has 0 references") == (misuse.kind, misuse.what)
    expected = [("seen", first + 7), ("allocated", first + 3), ("freed", first + 4)]
    sites = [("seen", misuse.at), *misuse.history]
    assert [(event, f"test_misuse.py:{line}") for event, line in expected] == [
        (event, str(site).rpartition("/")[2]) for event, site in sites
    ]


def test_a_block_that_is_freed_while_a_request_uses_it(found: list[Misuse]) -> None:
    """A connector that frees what is not its own; what it has touched itself it may free."""
    made = built()
    request = made.request(PROMPT)
    assert made.admit(request)
    blocks = made.manager.get_blocks(request.request_id).blocks[0]
    made.manager.block_pool.touch(blocks)
    made.manager.block_pool.free_blocks(blocks)
    assert [] == found
    made.manager.block_pool.free_blocks(blocks[:1])
    assert [(USE_AFTER_FREE, "block 1 is freed outside of the block manager, and 1 tables name it")] == [
        (each.kind, each.what) for each in found
    ]


def test_a_hit_on_other_tokens(found: list[Misuse]) -> None:
    """Two requests whose hashes agree and whose tokens do not; with the same tokens there is nothing to report."""
    made = built()
    assert made.admit(made.request(PROMPT))
    assert made.admit(made.request(PROMPT))
    assert [] == found
    first, other = made.request(PROMPT), made.request([9, *PROMPT[1:]])
    other.block_hashes[:] = first.block_hashes
    assert made.admit(other)
    assert FOREIGN_HIT == found[0].kind
    assert "block 1 serves block 0 of request request-4" in found[0].what


def test_a_leak_when_the_last_request_ends(found: list[Misuse]) -> None:
    """A table that loses a block before its request ends; without that, all blocks are free."""
    made = built()
    for loses in (False, True):
        request = made.request(PROMPT)
        assert made.admit(request)
        assert [] == found
        if loses:
            made.manager.free = _losing(made.manager)
        made.manager.free(request)
    assert {LEAK} == {each.kind for each in found}


def _losing(manager: Any) -> Callable[[Any], None]:
    def free(request: Any) -> None:
        # The table is changed inside the call, as a defect of the block manager would do it.
        group = manager.coordinator.single_type_managers[0]
        original = group.free

        def lose(request_id: str) -> None:
            group.req_to_blocks[request_id].pop()
            original(request_id)

        group.free = lose
        type(manager).free(manager, request)

    return free


def test_an_exception_of_the_block_manager_is_reported(found: list[Misuse]) -> None:
    """An assertion that fails inside; a ValueError, with which it refuses its caller's arguments, is not."""
    made = built()
    request = made.request(PROMPT)
    with pytest.raises(ValueError, match="num_new_tokens must be greater than 0"):
        made.manager.allocate_slots(request, 0)
    assert [] == found
    manager: Any = made.manager
    manager.coordinator.single_type_managers[0].get_num_skipped_tokens = lambda _tokens: [][0]
    with pytest.raises(IndexError):
        made.admit(request)
    assert [RAISED] == [each.kind for each in found]
    assert "allocate_slots for request request-1 raised IndexError: list index out of range" in found[0].what


def test_raising_stops_at_the_misuse() -> None:
    """``KVGATE_SANITIZE=1``: the program gets the report as an exception, and nothing is watched after ``remove``."""
    sanitizer = Sanitizer(raise_it)
    sanitizer.install()
    pool: Any = BlockPool(8, enable_caching=True, hash_block_size=4)
    blocks = pool.get_new_blocks(1)
    pool.free_blocks(blocks)
    with pytest.raises(MisuseError, match=r"double free: block 1 .*\n  seen at .*test_misuse.py:\d+"):
        pool.free_blocks(blocks)
    sanitizer.remove()
    assert not hasattr(BlockPool.free_blocks, "kvgate_sanitizer")


@pytest.mark.parametrize("shape", SHAPES)
def test_vllm_itself_misuses_nothing(shape: str, found: list[Misuse]) -> None:
    """The random driver on every shape of model."""
    drive(shape, 0, 100)
    drive(shape, 1, 100)
    assert [] == found


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        ("hits-not-held", "wrong reference count"),
        ("held-hit-still-queued", USE_AFTER_FREE),
        ("first-block-released-twice", "wrong reference count"),
        ("salt-ignored", FOREIGN_HIT),
        ("part-filled-block-cached", FOREIGN_HIT),
        ("last-block-kept-after-preemption", LEAK),
        ("window-never-released", LEAK),
        ("window-one-token-short", USE_AFTER_FREE),
        ("taken-from-the-back", "broken free queue"),
        ("duplicate-not-listed", "broken prefix cache"),
        ("new-block-named-twice", USE_AFTER_FREE),
        ("last-event-not-told", "wrong KV events"),
        ("tables-told-in-reverse", "wrong block table"),
    ],
)
def test_a_defect_of_vllm_is_reported(mutant: str, kind: str) -> None:
    """One of each kind, under the driver."""
    (broken,) = mutants_named([mutant])
    assert kind == outcome_of(broken).kind


def test_a_mutant_that_wastes_time_survives(capsys: pytest.CaptureFixture[str]) -> None:
    """The count is honest: what misuses no block is not reported, and is named."""
    assert 1 == main(["all-blocks-hashed-again", "salt-ignored", "--seeds", "1", "--least", "2"])
    printed = capsys.readouterr().out
    assert "1 of 2 mutants are reported" in printed
    assert "not reported: all-blocks-hashed-again: " in printed
    assert "without a mutant: nothing is reported" in printed


@pytest.mark.deep
def test_most_mutants_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Of all that are not equivalent."""
    assert 0 == main(["--least", str(REPORTED_MIN)])
    assert "of 113 mutants are reported" in capsys.readouterr().out
