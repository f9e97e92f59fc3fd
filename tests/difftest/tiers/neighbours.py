"""Divergences that are almost those of a finding: each changes one fact of a run that has shown it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from attrs import evolve

from kvgate.kernel.difference import Divergence
from kvgate.levels.tiers.memory import Failure
from kvreference.scheduler.operations import Reply, Step

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
    """No block holds what a request has computed, and no chunk lacks a block."""
    engine.memory.left_out.clear()
    engine.memory.device.clear()
    _no_block_is_left(engine)


def _store_has_ended(_divergence: Divergence, engine: Any) -> None:
    """The store that reads the block is not under way."""
    engine.memory.jobs.clear()


def _written_by_a_step(divergence: Divergence, engine: Any) -> Divergence | None:
    """A store takes what a step has written to its block."""
    engine.memory.brought.clear()
    return _with(statement="KV-TIER-04", subject="what a store takes of group 0")(divergence, engine)


def _brought_by_its_own(divergence: Divergence, engine: Any) -> Divergence | None:
    """A store takes what a load of its own connector has brought to its block."""
    for job, copy in engine.memory.culprits:
        engine.memory.brought[copy.block] = evolve(job, loads=True)
    return _with(statement="KV-TIER-04", subject="what a store takes of group 0")(divergence, engine)


def _stores_have_ended(_divergence: Divergence, engine: Any) -> None:
    """No request has a store that the connector knows."""
    engine.connector.offloading.half._jobs.clear()


def _as_many_chunks_as_blocks(_divergence: Divergence, engine: Any) -> None:
    """The tier holds all that the device caches."""
    engine.stage = evolve(engine.stage, chunks=engine.settings.blocks)


def _other_blocks(_divergence: Divergence, engine: Any) -> None:
    """No block is in the tables of two groups."""
    shown, claims = engine.memory.shown_by, list(engine.memory.claims.values())
    for claim in [*claims, shown.claim] if shown and shown.claim else claims:
        claim.tables = [list(range(99 * place, 99 * place + 99)) for place in range(len(claim.tables))]


def _of_no_load(_divergence: Divergence, engine: Any) -> None:
    """No request continues from a load."""
    engine.memory.claims.clear()
    if engine.memory.shown_by is not None:
        engine.memory.shown_by = evolve(engine.memory.shown_by, claim=None)


def _was_not_hit(divergence: Divergence, engine: Any) -> None:
    """What was read was to be loaded, and was not hit."""
    if engine.memory.shown_by is None:
        return _of_no_load(divergence, engine)
    engine.memory.shown_by.claim.first = 0
    return None


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
    simple, offloading = engine.connector.simple, engine.connector.offloading
    for load in simple.half._reqs_to_load.values() if simple else ():
        load.finished = False
    if offloading:
        offloading.half._jobs.clear()


def _not_the_end(_divergence: Divergence, engine: Any) -> None:
    """The request has tokens after the block."""
    engine.connector.offloading.ended = {job: tokens + 1 for job, tokens in engine.connector.offloading.ended.items()}


def _computed_in_part(_divergence: Divergence, engine: Any) -> None:
    """Another token than the last was not computed."""
    group, slots = engine.memory.taken
    engine.memory.taken = group, (None, *slots[1:])


def _had_room(_divergence: Divergence, engine: Any) -> None:
    """The tier has had room for every store."""
    engine.connector.offloading.rejected.clear()


def _still_in_the_window(_divergence: Divergence, engine: Any) -> None:
    """The window had not left the block when the store was made."""
    for job, _ in engine.memory.culprits:
        job.left = [0] * len(engine.settings.geometry.groups)


def _raise_for(engine: Any, name: str) -> None:
    def call(request: Any) -> None:
        raise AssertionError(request)

    try:
        call(SimpleNamespace(request_id=name))
    except AssertionError as error:
        engine.raised = error


def _raised_for_another(_divergence: Divergence, engine: Any) -> None:
    """The call that failed was for another request."""
    _raise_for(engine, "another")


def _raised_elsewhere(divergence: Divergence, engine: Any) -> Divergence | None:
    """0.21.0 raises for another request; another release raises what 0.21.0 does, for the same request."""
    import vllm

    names = [job.request for job, _ in engine.memory.culprits] or list(engine.connector.offloading.half._req_status)
    _raise_for(engine, "another" if vllm.__version__ == "0.21.0" else names[0])
    raised = _with(statement="KV-SYS-01", subject="AssertionError in __init__", got="AssertionError: ")
    return raised(divergence, engine)


def _one_job_is_unknown(_divergence: Divergence, engine: Any) -> None:
    """A block is remembered for a job that the connector does not know."""
    engine.connector.offloading.half._block_id_to_pending_jobs[99] = {99}


def _one_job_is_a_load(_divergence: Divergence, engine: Any) -> None:
    """What remains is of a load."""
    for job in engine.connector.offloading.half._jobs.values():
        job.is_store = False


def _chunks_are_whole(_divergence: Divergence, engine: Any) -> None:
    """No chunk of a request lacks a block, and every block of a chunk was stored."""
    _stored_in_full(_divergence, engine)
    _no_block_is_left(engine)


def _too_few_blocks_of_another(divergence: Divergence, engine: Any) -> Divergence | None:
    """A store has fewer blocks than its chunks, and its request is not the one that has a part of a chunk alone."""
    engine.memory.unfit = "another"
    fewer = "1 blocks, 9 chunks and 9 keys"
    return _with(statement="KV-TIER-04", subject="the blocks of a store", got=fewer)(divergence, engine)


def _no_block_is_left(engine: Any) -> None:
    for each in engine.connector.offloading.half._req_status.values():
        for group in each.group_states:
            group.block_ids[:] = [1] * len(group.block_ids)


def _no_load_in_the_step(_divergence: Divergence, engine: Any) -> None:
    """No request loads within the step."""
    engine.connector.offloading.half._current_batch_sync_loads.clear()


def _no_request_is_admitted(_divergence: Divergence, engine: Any) -> None:
    """No request that waits has blocks."""
    engine.scheduler.running += engine.scheduler.waiting


def _claims_begin_at_the_first_token(engine: Any) -> None:
    for claim in engine.memory.claims.values():
        claim.first = 0


def _no_request_waits(_divergence: Divergence, engine: Any) -> None:
    """No request is looked up, and what is loaded follows no hit."""
    _claims_begin_at_the_first_token(engine)
    for request in list(engine.scheduler.waiting):
        engine.scheduler.waiting.remove_request(request)


def _hits_states_as_far(_divergence: Divergence, engine: Any) -> None:
    """Every group hits as many tokens."""
    pool = engine.scheduler.kv_cache_manager.block_pool.blocks
    for claim in engine.memory.claims.values():
        for block in {block for table in claim.tables for block in table}:
            pool[block]._block_hash = b"hit"
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    coordinator.find_longest_cache_hit_per_group = lambda _hashes, _tokens: ((), (88, 80))


def _hits_whole_blocks(_divergence: Divergence, engine: Any) -> None:
    """Attention hits whole blocks alone, and windows have a block for none of them."""
    _claims_begin_at_the_first_token(engine)
    coordinator = engine.scheduler.kv_cache_manager.coordinator
    coordinator.find_longest_cache_hit_per_group = lambda _hashes, _tokens: ((), (80, 0))


def _hits_one_token_less(_divergence: Divergence, engine: Any) -> None:
    """The hit does not end before the last token of a block."""
    for claim in engine.memory.claims.values():
        claim.tokens -= 1


def _has_more_tokens(_divergence: Divergence, engine: Any) -> None:
    """The prompt has more tokens than the hit and one."""
    for tokens in engine.memory.tokens.values():
        tokens += tokens[:1]


def _not_loaded(_divergence: Divergence, engine: Any) -> None:
    """No request was loaded."""
    engine.memory.loaded.clear()


def _loaded_in_part(_divergence: Divergence, engine: Any) -> None:
    """A token less was loaded."""
    engine.memory.loaded = {name: tokens - 1 for name, tokens in engine.memory.loaded.items()}


def _ended_by_itself(_divergence: Divergence, engine: Any) -> None:
    """No request was aborted."""
    from vllm.v1.request import RequestStatus

    for status in engine.connector.offloading.half._req_status.values():
        status.req.status = RequestStatus.FINISHED_STOPPED


def _has_a_block_for_each_token(_divergence: Divergence, engine: Any) -> None:
    """The aborted request had a block for each of its tokens."""
    for status in engine.connector.offloading.half._req_status.values():
        for group in status.group_states:
            group.block_ids = [1] * (status.config.blocks_per_chunk * len(group.offload_keys))


def _nothing_is_evicted(_divergence: Divergence, engine: Any) -> None:
    """No chunk has left the host for one that is read from a file."""
    engine.connector.tiering.evicted_for = {number: set() for number in engine.connector.tiering.evicted_for}


def _no_file_is_read(_divergence: Divergence, engine: Any) -> None:
    """No file is read for a request that waits."""
    engine.memory.file_jobs.clear()


def _other_stores_forgotten(_divergence: Divergence, engine: Any) -> None:
    """The reset has forgotten a store of another chunk."""
    engine.keys_forgotten = {(b"another", 0)}


def _every_chunk_is_readable(_divergence: Divergence, engine: Any) -> None:
    """No chunk of the host waits for a store."""
    half = engine.connector.tiering
    for chunk in map(half.host._policy.get, half._copies.keys):
        if chunk is not None:
            chunk.ref_cnt = max(0, chunk.ref_cnt)


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
    """What was loaded was stored once, and is of no other group."""
    connector = engine.scheduler.connector
    connector.was_stored_again, connector.slots_read = lambda _address: False, lambda _address: ()


def _by_another_key(_divergence: Divergence, engine: Any) -> None:
    """What was loaded was read by the key of another block."""
    engine.scheduler.connector.was_read_by = lambda _address, _hash, _group: False


def _came_as_named(_divergence: Divergence, engine: Any) -> None:
    """What was stored again, and loaded, is what its key names."""
    shown, connector = engine.memory.shown_by, engine.scheduler.connector
    size = engine.settings.geometry.groups[shown.group].block_size_tokens
    tokens = engine.memory.tokens[shown.request][shown.place * size : (shown.place + 1) * size]
    named = [1 + token * engine.memory.device.groups + shown.group for token in tokens]
    connector.was_stored_again, connector.slots_read = lambda _address: True, lambda _address: named


def _stored_from_a_block(_divergence: Divergence, engine: Any) -> None:
    """What was loaded had been stored once, from another block than the null block."""
    connector = engine.scheduler.connector
    connector.was_stored_from = lambda _address, _source: False
    connector.was_stored_again, connector.slots_read = lambda _address: False, lambda _address: ()


def _nothing_came(_divergence: Divergence, engine: Any) -> None:
    """The load brought nothing."""
    engine.memory.shown_by = evolve(engine.memory.shown_by, origin=Failure("the request"))


def _of_full_attention(_divergence: Divergence, engine: Any) -> None:
    """What is read is of the group of full attention."""
    engine.memory.shown_by = evolve(engine.memory.shown_by, group=5)


def _was_gone(_divergence: Divergence, engine: Any) -> None:
    """The store had lost what was to be loaded."""
    engine.scheduler.connector.was_gone = lambda _address: True


def _scheduled_since(_divergence: Divergence, engine: Any) -> None:
    """The request has been scheduled in an earlier step than the last since the reset."""
    engine.perform(Step((Reply(),)))


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
        _of_no_load,
        _was_not_hit,
        _with(statement="KV-TIER-03", subject="what a hit of the tier brings in group 0"),
        _with(subject="AssertionError in build_connector_meta"),
    ),
    "009": (_not_loaded, _loaded_in_part, _with(statement="KV-TIER-01")),
    "023": (_one_load_has_not_ended, _blocks_come_free, _with(statement="KV-TIER-05")),
    "024": (_blocks_are_taken, _one_load_has_not_ended, _with(statement="KV-TIER-05")),
    "076": (_blocks_are_taken, _one_load_has_not_ended),
    "077": (_stores_have_ended, _with(subject="AssertionError in build_connector_meta")),
    "078": (_not_the_end, _computed_in_part, _with(statement="KV-TIER-01")),
    "079": (
        _had_room,
        _still_in_the_window,
        _with(statement="KV-TIER-02", subject="a block that is written by a step"),
        _with(subject="a chunk of the host that a store uses"),
    ),
    "084": (_one_reset_less, _no_job_to_flush, _with(subject="AssertionError in build_connector_meta")),
    "085": (
        _with(statement="KV-TIER-02", subject="a block that is written by a step"),
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
    "088": (
        _raised_elsewhere,
        _too_few_blocks_of_another,
        _chunks_are_whole,
        _holds_what_others_wrote,
        _with(statement="KV-TIER-03"),
    ),
    "089": (_with(subject="a chunk of the host that a store uses"), _not_interrupted, _with(statement="KV-TIER-04")),
    "090": (_a_block_is_taken, _a_block_is_held_twice, _with(subject="RuntimeError in schedule")),
    "091": (_a_block_is_taken, _a_block_is_held_twice, _with(statement="KV-MEM-01")),
    "092": (_with(subject="what a store takes of group 0"), _with(statement="KV-TIER-02")),
    "093": (_store_has_ended, _written_by_a_step, _brought_by_its_own, _with(statement="KV-TIER-01")),
    "110": (_of_other_tokens, _of_its_own_salt, _with(statement="KV-MEM-01")),
    "111": (_may_read, _with(subject="AssertionError in schedule"), _with(got="AssertionError: ")),
    "112": (
        _by_another_key,
        _came_as_named,
        _stored_once,
        _nothing_came,
        _of_full_attention,
        _with(statement="KV-TIER-03"),
    ),
    "114": (_stored_from_a_block, _nothing_came, _of_full_attention, _with(statement="KV-TIER-03")),
    "113": (_scheduled_since, _was_gone, _by_no_reset, _was_reported),
    "094": (_as_many_chunks_as_blocks, _with(subject="an engine without requests")),
    "095": (_blocks_are_taken, _one_load_has_not_ended),
    "096": (_named_once, _with(statement="KV-INV-02")),
    "098": (_a_block_is_held_twice, _not_aborted, _a_block_is_taken, _with(statement="KV-TIER-05")),
    "097": (_in_step, _with(subject="a block of the device that a load uses")),
    "109": (_one_job_is_unknown, _one_job_is_a_load, _with(got="{'_req_status': 99}"), _with(statement="KV-TIER-06")),
    "100": (
        _no_load_in_the_step,
        _no_request_is_admitted,
        _with(got="ValueError: Cannot get 99 free blocks from the pool"),
        _with(subject="ValueError in schedule"),
    ),
    "101": (
        _no_request_waits,
        _hits_states_as_far,
        _hits_whole_blocks,
        _raised_for_another,
        _with(subject="AssertionError in build_connector_meta"),
    ),
    "102": (
        _hits_one_token_less,
        _has_more_tokens,
        _with(subject="what a hit of the tier brings in group 0"),
        _with(statement="KV-TIER-01"),
    ),
    "106": (
        _ended_by_itself,
        _has_a_block_for_each_token,
        _raised_for_another,
        _with(subject="AssertionError in build_connector_meta"),
    ),
    "099": (_not_from_before, _with(subject="a block of the device that a store uses")),
    "103": (_nothing_is_evicted, _no_file_is_read, _with(statement="KV-TIER-05")),
    "104": (_not_from_before, _with(subject="a chunk of the host that a store uses")),
    "105": (_other_stores_forgotten, _every_chunk_is_readable, _with(statement="KV-TIER-04")),
}
OF_OWN = {"021", "034", "062", "063", "066"}
"""Findings that only loads that fail show, with connectors of one's own: see test_own_connector.py."""
