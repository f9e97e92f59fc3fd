"""Ghost memory of two tiers, without vLLM.

Goal: each thing that may not happen to a block or a chunk is reported, and what may is not. Method: a request of two
blocks, written by hand; jobs that copy them, one broken in each test.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvgate.levels.tiers.files import FileJob
from kvgate.levels.tiers.memory import Claim, Computed, Copy, Job, StepUse, TierMemory
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 5))), 20, 100, 100, 4)
TABLES = [1, 2], [3, 4]
A, B = b"first block", b"both blocks"


def memory(tokens: int = 8) -> TierMemory:
    """Both blocks of a request are computed, in both groups, as far as it has tokens."""
    found = TierMemory(SETTINGS, blocks_per_chunk=1)
    chain: list[int] = []
    for token in range(max(8, tokens)):
        chain.append(found.prefixes.after(chain[-1] if chain else "no salt", token))
    found.name(A, chain[3])
    found.name(B, chain[7])
    chain = found.tokens["one"] = chain[:tokens]
    for group, table in enumerate(TABLES):
        found.write(group, table, 0, chain)
    assert found.found is None
    return found


def store(number: int = 0, block: int = 1, chunk: int = 7, key: bytes = A, group: int = 0, index: int = 0) -> Job:
    return Job((0, number, 0), False, "one", (Copy(group, block, chunk, 0, index),), {chunk: (key, group)})


def load(number: int = 1, block: int = 9, chunk: int = 7, key: bytes = A, group: int = 0, index: int = 0) -> Job:
    return Job((0, number, 0), True, "one", (Copy(group, block, chunk, 0, index),), {chunk: (key, group)})


def seen(found: TierMemory) -> str | None:
    return found.found.statement if found.found else None


def test_what_was_stored_is_loaded() -> None:
    found = memory()
    found.begin(store())
    found.end((0, 0, 0))
    found.begin(load())
    found.end((0, 1, 0))
    assert found.found is None
    assert (1, 1) == (found.blocks_stored, found.blocks_loaded)
    assert found.device[1] == found.device[9]


def test_load_of_what_was_never_stored() -> None:
    found = memory()
    found.begin(load())
    found.end((0, 1, 0))
    assert "KV-TIER-01" == seen(found)
    assert found.culprits


def test_load_of_another_chunk() -> None:
    found = memory()
    found.begin(store())
    found.end((0, 0, 0))
    found.begin(load(key=B, index=1))
    found.end((0, 1, 0))
    assert "KV-TIER-01" == seen(found)


def test_load_to_another_place() -> None:
    found = memory()
    found.begin(store())
    found.end((0, 0, 0))
    found.begin(load(index=1))
    found.end((0, 1, 0))
    assert "KV-TIER-01" == seen(found)


def test_blocks_and_chunks_that_jobs_use() -> None:
    for broken in (store(1), store(1, block=2), load(1), load(1, block=1, chunk=8)):
        found = memory()
        found.begin(store())
        found.begin(broken)
        assert broken.loads or broken.copies[0].chunk == 7
        assert "KV-TIER-02" == seen(found), broken


def test_two_stores_may_read_a_block_and_two_loads_a_chunk() -> None:
    found = memory()
    found.begin(store())
    found.begin(store(1, chunk=8))
    found.end((0, 0, 0))
    found.end((0, 1, 0))
    found.begin(load(2))
    found.begin(load(3, block=10))
    assert found.found is None


def test_the_copy_is_named_that_is_concerned() -> None:
    """Of a store of two blocks, the second is written by a step, or its chunk is read to from a file."""
    copies = Copy(0, 1, 7, 0, 0), Copy(0, 2, 8, 0, 1)
    actions: list[Callable[[TierMemory], None]] = [
        lambda each: each.write(0, TABLES[0], 4, each.tokens["one"][4:]),
        lambda each: each.begin_file(FileJob(1, True, "one", {8: (B, 0)})),
    ]
    for action in actions:
        found = memory()
        job = Job((0, 0, 0), False, "one", copies, {7: (A, 0), 8: (B, 0)})
        found.begin(job)
        action(found)
        assert "KV-TIER-02" == seen(found)
        assert ((job, copies[1]),) == found.culprits


def test_a_step_writes_where_a_store_reads() -> None:
    found = memory()
    found.begin(store())
    found.write(0, TABLES[0], 0, found.tokens["one"][:1])
    assert "KV-TIER-02" == seen(found)


def test_a_block_is_cleared_or_copied_to_while_a_load_writes_it() -> None:
    actions: list[Callable[[TierMemory], None]] = [lambda each: each.clear(9), lambda each: each.copy(1, 9)]
    for action in actions:
        found = memory()
        found.begin(store())
        found.end((0, 0, 0))
        found.begin(load())
        action(found)
        assert "KV-TIER-02" == seen(found)


def test_a_hit_brings_too_little() -> None:
    """The second block of a hit of two is in no job; of the window's group, both are there."""
    found = memory()
    found.begin(store())
    found.end((0, 0, 0))
    found.claims["one"] = Claim(8, ([9, 11], TABLES[1]))
    found.begin(load())
    found.end((0, 1, 0))
    assert "KV-TIER-03" == seen(found)


def test_a_window_needs_no_more_than_it_reads() -> None:
    found = memory()
    found.begin(store())
    found.end((0, 0, 0))
    found.device[11] = found.device[2]
    found.claims["one"] = Claim(8, ([9, 11], [0, 4]))
    found.begin(load())
    found.end((0, 1, 0))
    assert found.found is None


def test_stored_before_it_is_computed() -> None:
    found = memory(tokens=6)
    found.begin(store(block=2, key=B, index=1))
    assert "KV-TIER-04" == seen(found)


def test_stored_by_the_key_of_another_group_or_of_none() -> None:
    for broken in (store(block=3), store(key=b"of no request")):
        found = memory()
        found.begin(broken)
        assert "KV-TIER-04" == seen(found)


def test_parts_that_a_store_leaves_out() -> None:
    found = TierMemory(SETTINGS, blocks_per_chunk=2)
    found.begin(Job((0, 0, 0), False, "one", (), {7: (A, 0)}))
    assert {(0, 7, 0), (0, 7, 1)} == found.left_out


def test_one_hash_of_two_prefixes() -> None:
    found = memory()
    found.name(A, found.tokens["one"][0])
    assert "KV-OP-09" == seen(found)


def test_reads_what_is_not_there() -> None:
    found = memory()
    assert found.wrong(0, TABLES[0], 7, found.tokens["one"]) is None
    wrong = found.wrong(0, [1, 5], 7, found.tokens["one"])
    assert wrong is not None
    found.misread("one", wrong)
    assert "KV-MEM-01" == seen(found)


# Loads that fail


def read(found: TierMemory, table: list[int], claim: Claim | None = None) -> None:
    """A request reads the first eight tokens."""
    wrong = found.wrong(0, table, 7, found.tokens["one"])
    assert wrong is not None
    found.misread("one", wrong, claim)


def test_a_load_brings_nothing_and_is_not_reported() -> None:
    found = memory()
    claim = Claim(8, ([1, 5],), 4)
    found.expect("one", claim)
    read(found, [1, 5], claim)
    assert "KV-TIER-01" == seen(found)
    assert found.found is not None
    assert "brought nothing, and was not reported" in found.found.got


def test_what_a_load_brings_may_be_read() -> None:
    found = memory()
    claim = Claim(8, ([1, 5],), 4)
    found.expect("one", claim)
    found.device[5] = found.device[2]
    assert found.wrong(0, [1, 5], 7, found.tokens["one"]) is None


def test_a_hit_of_what_a_failed_load_left() -> None:
    found = memory()
    found.expect("one", Claim(8, ([1, 5],), 4))
    (failure,) = found.fail({5}, ())
    assert failure.is_reported
    read(found, [1, 5])
    assert "KV-MEM-01" == seen(found)
    assert found.shown_by is not None
    assert (failure, "") == (found.shown_by.failure, found.shown_by.computed_by)


def test_what_was_computed_from_a_failed_load_is_stored_and_loaded() -> None:
    """Another request computed block 6 from it; it comes back as block 5."""
    found = memory()
    found.expect("other", Claim(4, ([7],), 0))
    (failure,) = found.fail((), {"other"})
    found.spoil(0, [7, 6], 4, 8, Computed(failure, "other"))
    claim = Claim(8, ([1, 5],), 4)
    found.expect("one", claim)
    found.device[5] = found.device[6]
    read(found, [1, 5], claim)
    assert "KV-TIER-04" == seen(found)
    assert found.shown_by is not None
    assert "other" == found.shown_by.computed_by


def test_only_blocks_of_a_load_can_fail() -> None:
    found = memory()
    found.expect("one", Claim(8, ([1, 5],), 4))
    assert [] == found.fail({1, 9}, ())
    assert found.wrong(0, [1], 3, found.tokens["one"][:4]) is None


def test_what_was_computed_from_a_failed_load_counts() -> None:
    found = memory()
    found.expect("one", Claim(8, ([1, 5],), 4))
    found.fail({5}, ())
    wrong = found.wrong(0, [1, 5], 7, found.tokens["one"])
    assert wrong is not None
    found.counts("one", wrong)
    assert "KV-SYS-02" == seen(found)


def test_no_slot_for_a_token() -> None:
    found = memory()
    found.write(0, [1], 4, found.tokens["one"][4:])
    assert "KV-MEM-02" == seen(found)


def test_chunks_of_two_tiers_are_not_one() -> None:
    """Two tiers number their chunks alike."""
    found = memory()
    found.begin(store())
    found.begin(evolve(store(), number=(1, 0, 0)))
    assert found.found is None
    assert [(0, 0, 0)] == [*found.under_way(False, 0)]
    assert [(0, 0, 0), (1, 0, 0)] == [*found.under_way(False)]


def test_jobs_that_wait_for_no_step() -> None:
    """A store may not read what a step in flight writes, and a load may not write what one reads."""
    for loads, block, statement in (
        (False, 2, "KV-TIER-04"),
        (True, 1, "KV-TIER-02"),
        (False, 1, None),
        (True, 5, None),
    ):
        found = memory()
        found.in_flight = [StepUse(), StepUse(frozenset({1, 2}), frozenset({2}))]
        found.check_unordered([block], loads)
        assert statement == seen(found), (loads, block)


def test_a_job_without_a_chunk_for_each_block() -> None:
    for loads, statement in ((True, "KV-TIER-01"), (False, "KV-TIER-04")):
        found = memory()
        found.misfit(loads, "2 blocks and 1 chunk")
        assert statement == seen(found)


STATES = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.MAMBA, 4, states=StateMode.ALIGN))), 20, 100, 100, 4)


def with_states(tokens: int = 8) -> TierMemory:
    """A request whose chunks end where its blocks end: block 3 has the state after four tokens, block 4 after all."""
    found = TierMemory(STATES, blocks_per_chunk=1)
    chain: list[int] = []
    for token in range(tokens):
        chain.append(found.prefixes.after(chain[-1] if chain else "no salt", token))
    found.tokens["one"] = chain
    found.name(A, chain[3])
    found.name(B, chain[7] if tokens > 7 else chain[-1])
    found.write(0, [1, 2], 0, chain)
    for end in (4, tokens):
        found.write_states(1, [3, 4], 0, chain[:end], passing=False)
    assert found.found is None
    return found


def test_state_is_stored_and_loaded() -> None:
    found = with_states()
    found.begin(store(block=4, key=B, group=1, index=1))
    found.end((0, 0, 0))
    found.begin(load(key=B, group=1, index=1))
    found.end((0, 1, 0))
    assert found.found is None
    assert found.device[4] == found.device[9]


def test_state_of_another_boundary_is_stored() -> None:
    found = with_states()
    found.begin(store(block=3, key=B, group=1, index=1))
    assert "KV-TIER-04" == seen(found)
    assert found.found is not None
    assert "the state after 4 tokens" in found.found.got


def test_state_that_a_step_continues_from() -> None:
    found = with_states()
    chain = found.tokens["one"]
    assert found.wrong_state(1, [3, 4], chain) is None
    assert found.wrong_state(1, [3, 4], []) is None
    wrong = found.wrong_state(1, [3, 4], chain[:7])
    assert wrong is not None
    assert "the state after 8 tokens" in wrong.got
    found.misread("one", wrong)
    assert "KV-MEM-01" == seen(found)


def test_load_brings_the_state_after_another_token() -> None:
    """Attention has all the tokens before the last one; the state after that one does not serve."""
    found = with_states()
    found.claims["one"] = Claim(7, [[1, 2], [0, 9]])
    found.begin(store(block=4, key=B, group=1, index=1))
    found.end((0, 0, 0))
    found.begin(load(key=B, group=1, index=1))
    found.end((0, 1, 0))
    assert "KV-TIER-03" == seen(found)


def test_state_without_a_block() -> None:
    found = with_states()
    found.write_states(1, [3, 0], 4, found.tokens["one"], passing=False)
    assert "KV-MEM-02" == seen(found)


def test_step_overwrites_a_state_that_a_store_reads() -> None:
    found = with_states()
    found.begin(store(block=4, key=B, group=1, index=1))
    found.write_states(1, [3, 4], 7, found.tokens["one"], passing=False)
    assert "KV-TIER-02" == seen(found)


def test_step_writes_after_the_part_of_a_block_that_a_store_names() -> None:
    """A hit may end inside a block: what a store takes after its key's tokens is of no use."""
    found = with_states(tokens=6)
    found.begin(store(block=2, key=B, index=1))
    later = found.prefixes.after(found.tokens["one"][-1], 6)
    found.write(0, [1, 2], 6, [later])
    assert found.found is None
    found.write(0, [1, 2], 5, [later])
    assert "KV-TIER-02" == seen(found)


def test_part_of_a_block_is_loaded() -> None:
    found = with_states(tokens=6)
    found.begin(store(block=2, key=B, index=1))
    found.end((0, 0, 0))
    found.begin(load(key=B, index=1))
    found.end((0, 1, 0))
    assert found.found is None
    assert found.device[9] == found.device[2]
