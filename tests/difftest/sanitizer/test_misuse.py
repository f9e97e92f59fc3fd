"""The sanitizer on vLLM's own block manager, in this process.

Goal: it finds each kind of misuse, names where the block was allocated, freed and misused, and is silent otherwise.
Method: programs of a few lines, with the misuse in their last lines; mutants of vLLM under the random driver.
"""

from __future__ import annotations

import inspect
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("vllm")

import vllm
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager

from kvgate.sanitizer.adapter import hooks
from kvgate.sanitizer.adapter.hooks import Sanitizer
from kvgate.sanitizer.content import Contents
from kvgate.sanitizer.ledger import DOUBLE_FREE, FOREIGN_HIT, LEAK, RAISED, USE_AFTER_FREE
from kvgate.sanitizer.misuse import Misuse, MisuseError, raise_it
from kvgate_mutants import random_driver, sanitized
from kvgate_mutants.mutants.registry import mutants_named
from kvgate_mutants.random_driver import FULL, SHAPES, Driver, Shape, drive
from kvgate_mutants.sanitized import main, outcome_of

REPORTED_MIN = 90
"""How many of the mutants that are not equivalent must be reported."""
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.fixture
def found() -> Iterator[list[Misuse]]:
    """The reports while a test runs; no check of the sanitizer fails itself."""
    misuses: list[Misuse] = []
    sanitizer = Sanitizer(misuses.append)
    sanitizer.install()
    yield misuses
    sanitizer.remove()
    assert [] == sanitizer.failures


def built(shape: Shape = SHAPES["full"]) -> Driver:
    """A block manager without requests."""
    return Driver(shape, random.Random(0))


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
    """A connector that frees blocks of others; blocks that it has touched itself it may free."""
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
    """Two requests whose hashes agree and whose tokens do not; with the same tokens nothing is reported."""
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


def test_parameters_of_other_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.33.0's ``get_computed_blocks`` is watched; a method with another name for the parameter is not."""
    original, touch = KVCacheManager.get_computed_blocks, BlockPool.touch
    lengths: list[int | None] = []

    def get_computed_blocks(self: Any, request: Any, max_cache_hit_length: int | None = None) -> Any:
        lengths.append(max_cache_hit_length)
        return original(self, request)

    def renamed(self: Any, items: Any) -> None:
        touch(self, items)

    monkeypatch.setattr(KVCacheManager, "get_computed_blocks", get_computed_blocks)
    monkeypatch.setattr(BlockPool, "touch", renamed)
    misuses: list[Misuse] = []
    sanitizer = Sanitizer(misuses.append)
    sanitizer.install()
    try:
        assert ["BlockPool.touch is not watched: parameter 1 is items, and not blocks"] == sanitizer.failures
        made = built()
        assert made.admit(made.request(PROMPT))
        pool, other = made.manager.block_pool, made.request([9, *PROMPT[1:]])
        assert [pool.blocks[1]] == pool.get_cached_block(
            block_hash=made.running[0].block_hashes[0], kv_cache_group_ids=[0]
        )
        pool.touch(items=[pool.blocks[1]])
        other.block_hashes[:] = made.running[0].block_hashes
        made.manager.get_computed_blocks(other, max_cache_hit_length=8)
    finally:
        sanitizer.remove()
    assert [None, 8] == lengths
    assert [FOREIGN_HIT] == [each.kind for each in misuses][:1]
    assert 1 == len(sanitizer.failures)


def test_blocks_that_are_passed_by_name(found: list[Misuse]) -> None:
    """An iterator, which the sanitizer reads: vLLM gets the blocks all the same."""
    pool: Any = BlockPool(8, enable_caching=True, hash_block_size=4)
    blocks = pool.get_new_blocks(num_blocks=2)
    pool.free_blocks(ordered_blocks=iter(blocks))
    assert ([0, 0], []) == ([block.ref_cnt for block in blocks], found)


@pytest.mark.ci
def test_the_work_grows_with_the_blocks(found: list[Misuse], monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 30 calls of the sanitizer's functions a block: 8,192 are allocated, freed outside, and freed."""
    blocks = 8192
    monkeypatch.setattr(random_driver, "TOKENS_MAX", 4 * blocks)
    made = built(Shape(((FULL, 4),), blocks=blocks + 1))
    request = made.request([1] * 4 * blocks)
    calls = 0

    def count(frame: Any, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == hooks.__file__

    sys.setprofile(count)
    try:
        assert made.manager.allocate_slots(request, 4 * blocks) is not None
        table = made.manager.get_blocks(request.request_id).blocks[0]
        made.manager.block_pool.touch(table)
        made.manager.block_pool.free_blocks(table)
        made.manager.free(request)
    finally:
        sys.setprofile(None)
    assert [] == found
    assert blocks < calls < 30 * blocks


def test_a_failed_check_is_logged_once_and_kept_from_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that lacks what the sanitizer reads: its caller notices nothing, and failures do not pile up."""
    sanitizer = Sanitizer(raise_it)
    sanitizer.install()
    logged: list[str] = []
    logger = logging.getLogger("vllm.kvgate_sanitizer")
    monkeypatch.setattr(logger, "error", lambda text, *values: logged.append(text % values))
    try:
        for _ in range(3):
            pool: Any = BlockPool(8, enable_caching=True, hash_block_size=4)
            pool.null_block = None
            pool.free_blocks(pool.get_new_blocks(1))
        for number in range(hooks.FAILURES_MAX):
            sanitizer._failed(str(number))
    finally:
        sanitizer.remove()
    failure = "free_blocks: AttributeError: 'NoneType' object has no attribute 'next_free_block'"
    assert (failure, hooks.FAILURES_MAX) == (sanitizer.failures[0], len(sanitizer.failures))
    assert [f"kvgate sanitizer: a check failed and was left out: {failure}"] == logged[:1]
    assert hooks.FAILURES_MAX == len(logged)


@pytest.mark.parametrize("unseen", ["a failed check", "a registration"])
def test_content_that_was_not_seen_is_unknown(unseen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block whose content was evicted is cached again without the sanitizer's knowledge: its hit is correct."""
    misuses: list[Misuse] = []
    sanitizer = Sanitizer(misuses.append)
    sanitizer.install()
    try:
        made = built(Shape(((FULL, 4),), blocks=4))
        first, second, third = (made.request(PROMPT) for _ in range(3))
        assert made.admit(first)
        pool = made.manager.block_pool
        block, key = pool.blocks[1], pool.blocks[1].block_hash
        made.manager.evict_blocks({1, 2})
        if unseen == "a registration":
            block.block_hash = key
            pool.cached_block_hash_to_block.insert(key, block)
        else:
            made._end(first)
            with monkeypatch.context() as broken:
                broken.setattr(Contents, "of", lambda *_arguments: [][0])
                assert made.admit(second)
            made._end(second)
        assert made.manager.get_computed_blocks(third)[1]
        assert [] == misuses
    finally:
        sanitizer.remove()
    assert bool(sanitizer.failures) == (unseen == "a failed check")


def test_a_version_that_cannot_be_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither all rules are checked nor those on tables."""
    for version, expected in (("0.20.2", (True, True)), ("0.23.0", (False, True)), ("dev", (False, False))):
        monkeypatch.setattr(vllm, "__version__", version)
        sanitizer = Sanitizer(raise_it)
        assert expected == (sanitizer.is_exact, sanitizer.knows_tables)


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


@pytest.mark.ci
def test_a_mutant_that_wastes_time_survives(capsys: pytest.CaptureFixture[str]) -> None:
    """The count is honest: what misuses no block is not reported, and is named."""
    assert 1 == main(["all-blocks-hashed-again", "salt-ignored", "--seeds", "1", "--least", "2"])
    printed = capsys.readouterr().out
    assert "1 of 2 mutants are reported, 1 without those of the kind 'exception in the block manager'" in printed
    assert "not reported: all-blocks-hashed-again: " in printed
    assert "without a mutant: nothing is reported" in printed


def test_failures_of_reported_mutants_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report does not hide that a check failed before it."""
    monkeypatch.setattr(Sanitizer, "_pool_built", lambda _sanitizer, _pool, *_more, **_named: iter([][0]))
    (broken,) = mutants_named(["taken-from-the-back"])
    outcome = outcome_of(broken)
    assert ("broken free queue", ("__init__: IndexError: list index out of range",)) == (outcome.kind, outcome.failures)


@pytest.mark.ci
def test_a_mutant_that_loses_the_first_timeout_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the garbage collector does it: what a callback raises goes nowhere."""

    def loops(*_arguments: object) -> None:
        for loses in (True, False):
            try:
                while True:
                    pass
            except sanitized.LateError:
                if not loses:
                    raise

    monkeypatch.setattr(sanitized, "SECONDS_MAX", 0.1)
    monkeypatch.setattr(sanitized, "outcome_of", loops)
    assert "longer than 0.1 s" in sanitized._child("", 1, 1)


@pytest.mark.deep
def test_most_mutants_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Of all that are not equivalent."""
    assert 0 == main(["--least", str(REPORTED_MIN)])
    assert "of 113 mutants are reported" in capsys.readouterr().out
