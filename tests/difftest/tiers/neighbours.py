"""Divergences that are almost those of a finding: each changes one fact of a run that has shown it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve

from kvgate.kernel.difference import Divergence

Neighbour: TypeAlias = Callable[[Divergence, Any], Divergence | None]
"""Changes the engine, or gives another divergence."""


def _with(**changed: str) -> Neighbour:
    """Another statement, subject or answer."""
    return lambda divergence, _engine: evolve(divergence, difference=evolve(divergence.difference, **changed))


def _blocks_are_taken(_divergence: Divergence, engine: Any) -> None:
    """All blocks that were free are held, so no request can run."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    pool.get_new_blocks(pool.get_num_free_blocks())


def _a_block_is_taken(_divergence: Divergence, engine: Any) -> None:
    """A block is held that no store reads."""
    engine.scheduler.kv_cache_manager.block_pool.get_new_blocks(1)


def _a_block_is_held_twice(_divergence: Divergence, engine: Any) -> None:
    """A block that a store reads is held once more."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    next(each for each in pool.blocks if each.ref_cnt > 0 and not each.is_null).ref_cnt += 1


def _one_load_has_not_ended(_divergence: Divergence, engine: Any) -> None:
    """The load of a request that waits for it is not known to have ended."""
    engine.scheduler.finished_recving_kv_req_ids.clear()


def _one_reset_less(_divergence: Divergence, engine: Any) -> None:
    """The cache was reset once less since the last step."""
    engine.resets_since_step -= 1


def _no_job_to_flush(_divergence: Divergence, engine: Any) -> None:
    """No job was under way when the cache was reset first."""
    engine.connector.offloading.half._current_batch_jobs_to_flush.clear()


def _made_before_a_reset(_divergence: Divergence, engine: Any) -> None:
    """The store was made when no reset had been since its request got its blocks."""
    for job, _ in engine.memory.culprits:
        job.reset_at = None


def _in_the_window(_divergence: Divergence, engine: Any) -> None:
    """The window had not left the block at the reset."""
    for job, copy in engine.memory.culprits:
        group = engine.settings.geometry.groups[copy.group]
        job.reset_at = copy.index * group.block_size_tokens + group.window_tokens


def _not_from_before(_divergence: Divergence, engine: Any) -> None:
    """The job that is missing was not there at a reset."""
    engine.forgotten.clear()


def _not_preempted(_divergence: Divergence, engine: Any) -> None:
    """No reset has preempted the request."""
    engine.preempted.clear()


def _not_interrupted(_divergence: Divergence, engine: Any) -> None:
    """No reset has preempted the request of the store."""
    engine.interrupted.clear()


def _stored_in_full(_divergence: Divergence, engine: Any) -> None:
    """The store has brought every block of the chunk."""
    engine.memory.left_out.clear()
    for job, copy in engine.memory.culprits:
        job.copies = [copy] * (9 * len(job.copies))


def _holds_what_others_wrote(_divergence: Divergence, engine: Any) -> None:
    """No block holds what a request has computed, and every chunk was stored in full."""
    engine.memory.left_out.clear()
    engine.memory.device.clear()


def _store_has_ended(_divergence: Divergence, engine: Any) -> None:
    """The store that reads the block is not under way."""
    engine.memory.jobs.clear()


def _stores_have_ended(_divergence: Divergence, engine: Any) -> None:
    """No request has a store that the connector knows."""
    engine.connector.offloading.half._jobs.clear()


def _as_many_chunks_as_blocks(_divergence: Divergence, engine: Any) -> None:
    """The tier holds all that the device caches."""
    engine.stage = evolve(engine.stage, chunks=engine.settings.blocks)


def _other_blocks(_divergence: Divergence, engine: Any) -> None:
    """No block is in the tables of two groups."""
    engine.memory.claims = {
        name: evolve(claim, tables=[list(range(9 * place, 9 * place + 9)) for place in range(len(claim.tables))])
        for name, claim in engine.memory.claims.items()
    }


def _named_once(_divergence: Divergence, engine: Any) -> None:
    """No store has named a block twice."""
    engine.connector.simple.stored_again.clear()


def _in_step(_divergence: Divergence, engine: Any) -> None:
    """Steps are not asynchronous."""
    engine.stage = evolve(engine.stage, asynchronous=False)


def _blocks_come_free(_divergence: Divergence, engine: Any) -> None:
    """Enough blocks are free for the next step of any request."""
    engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks = lambda: engine.settings.blocks


def _not_aborted(_divergence: Divergence, engine: Any) -> None:
    """No request was aborted while it loaded."""
    for load in engine.connector.simple.half._reqs_to_load.values():
        load.finished = False


def _of_other_tokens(_divergence: Divergence, engine: Any) -> None:
    """What is read is of other tokens."""
    shown = engine.memory.shown_by
    group, held = engine.memory.device[shown.block]
    other = [engine.memory.prefixes.after(("salt", "other"), 1), *held[1:]]
    engine.memory.device[shown.block] = group, tuple(other)


def _of_its_own_salt(_divergence: Divergence, engine: Any) -> None:
    """What is read begins with the request's own salt, and ends with other tokens."""
    shown = engine.memory.shown_by
    group, held = engine.memory.device[shown.block]
    own = engine.memory.tokens[shown.request][: len(held) - 1]
    engine.memory.device[shown.block] = group, (*own, engine.memory.prefixes.after(own[-1], 1))


def _stored_once(_divergence: Divergence, engine: Any) -> None:
    """What was loaded was stored once."""
    engine.scheduler.connector.was_stored_again = lambda _address: False


def _of_full_attention(_divergence: Divergence, engine: Any) -> None:
    """What is read is of the group of full attention."""
    engine.memory.shown_by = evolve(engine.memory.shown_by, group=5)


def _was_gone(_divergence: Divergence, engine: Any) -> None:
    """The store had lost what was to be loaded."""
    engine.scheduler.connector.was_gone = lambda _address: True


def _by_no_reset(_divergence: Divergence, engine: Any) -> None:
    """No reset has preempted the request."""
    engine.preempted_by_reset.clear()


def _was_reported(_divergence: Divergence, engine: Any) -> None:
    """The connector has reported that the load failed."""
    engine.memory.shown_by.failure.is_reported = True


def _may_read(_divergence: Divergence, engine: Any) -> None:
    """The requests may read the prefix cache."""
    for request in engine.scheduler.requests.values():
        request.skip_reading_prefix_cache = False


NEIGHBOURS: Mapping[str, Sequence[Neighbour]] = {
    "008": (
        _other_blocks,
        _with(statement="KV-TIER-03", subject="what a hit of the tier brings in group 0"),
        _with(subject="AssertionError in build_connector_meta"),
    ),
    "023": (_one_load_has_not_ended, _blocks_come_free, _with(statement="KV-TIER-05")),
    "024": (_blocks_are_taken, _one_load_has_not_ended, _with(statement="KV-TIER-05")),
    "076": (_blocks_are_taken, _one_load_has_not_ended),
    "077": (_stores_have_ended, _with(subject="AssertionError in build_connector_meta")),
    "084": (_one_reset_less, _no_job_to_flush, _with(subject="AssertionError in build_connector_meta")),
    "085": (
        _with(subject="a chunk of the host that a store uses"),
        _made_before_a_reset,
        _in_the_window,
        _with(statement="KV-TIER-01"),
    ),
    "086": (
        _with(subject="AssertionError in update_state_after_alloc", got="AssertionError: "),
        _not_from_before,
        _with(got="KeyError: 99"),
        _with(statement="KV-TIER-05", got="{'_req_status': 99}"),
    ),
    "087": (_not_preempted, _with(subject="AssertionError in update_state_after_alloc")),
    "088": (_stored_in_full, _holds_what_others_wrote, _with(statement="KV-TIER-03")),
    "089": (_with(subject="a chunk of the host that a store uses"), _not_interrupted, _with(statement="KV-TIER-04")),
    "090": (_a_block_is_taken, _a_block_is_held_twice, _with(subject="RuntimeError in schedule")),
    "091": (_a_block_is_taken, _a_block_is_held_twice, _with(statement="KV-MEM-01")),
    "092": (_with(subject="what a store takes of group 0"), _with(statement="KV-TIER-02")),
    "093": (_store_has_ended, _with(statement="KV-TIER-01")),
    "110": (_of_other_tokens, _of_its_own_salt, _with(statement="KV-MEM-01")),
    "111": (_may_read, _with(subject="AssertionError in schedule"), _with(got="AssertionError: ")),
    "112": (_stored_once, _of_full_attention, _with(statement="KV-TIER-03")),
    "113": (_was_gone, _by_no_reset, _was_reported),
    "094": (_as_many_chunks_as_blocks, _with(subject="an engine without requests")),
    "095": (_blocks_are_taken, _one_load_has_not_ended),
    "096": (_named_once, _with(statement="KV-INV-02")),
    "098": (_a_block_is_held_twice, _not_aborted, _a_block_is_taken, _with(statement="KV-TIER-05")),
    "097": (_in_step, _with(subject="a block of the device that a load uses")),
    "099": (_not_from_before, _with(subject="a block of the device that a store uses")),
}
OF_OWN = {"021", "034", "062", "063", "066"}
"""Findings that only loads that fail show, with connectors of one's own: see test_own_connector.py."""
