"""The reference follows a live scheduler: it agrees with vLLM, and with no vLLM that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.levels.scheduler.adapter.arrivals import new_request
from kvgate.levels.scheduler.adapter.worker import abort
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.adapter.geometry import settings_of
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.calls import Decoding
from kvgate.shadow.sampling import Sampling
from kvgate.shadow.sink_protocol import DifferenceError
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Submit

from .live import Kept, Server, watched

MODELS = [
    ("full", 0),
    ("gemma-hybrid", 0),
    ("gpt-oss-hybrid+eagle", 2),
    ("mixed-blocks", 2),
    ("two-windows+mtp", 1),
    ("dsv4-flash", 0),
    ("local", 0),
    ("mamba-all", 0),
    ("gpt-oss-hybrid+retention=64+scratch", 0),
]
GATE = "002-gate-subtracts-skipped-blocks"
EVENTS = "007-events-span-null-blocks"
KNOWN = {("mixed-blocks", False): {GATE}, ("mixed-blocks", True): {GATE}, ("local", False): {GATE}}
KNOWN[("local", True)] = {GATE, EVENTS}
"""Which findings act in a short life on each model, with steps that wait and with steps that do not."""


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("model", "drafts_max"), MODELS)
def test_vllm_is_followed(model: str, drafts_max: int, asynchronous: bool) -> None:
    """Goal: zero differences, with steps that wait and with steps that do not. Method: a short life on each model."""
    server = Server(model, asynchronous=asynchronous, drafts_max=drafts_max, blocks=200 if "dsv4" in model else 60)
    sink = watched(server)
    server.serve(120)
    assert [] == sink.found
    assert KNOWN.get((model, asynchronous), set()) == set(sink.judge.known.times)
    assert 500 < sink.judge.stats.judged
    assert 2 <= sink.judge.stats.checkpoints


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("model", "drafts_max"), [each for each in MODELS if each[0] != "mamba-all"])
def test_calls_passed_on_together_are_the_calls(model: str, drafts_max: int, asynchronous: bool) -> None:
    """Goal: batching calls for speed loses none. Method: the same life, recorded with and without batches."""
    kept = []
    for is_immediate in (True, False):
        server = Server(model, asynchronous=asynchronous, drafts_max=drafts_max, blocks=200 if "dsv4" in model else 60)
        sink = Kept(server.settings, is_immediate)
        Observer(server.scheduler, sink, sink.fail)
        server.serve(120)
        kept.append(sink)
    each_call, together = kept
    assert together.is_as(each_call)
    assert 50 < sum(len(each.numbers) for each in together.raw if isinstance(each, Decoding))


def test_a_junction_survives_a_checkpoint() -> None:
    """Goal: the plug-in's blocks at a junction are not a difference after a checkpoint. Method: a checkpoint every few
    calls.
    """
    server = Server("gpt-oss-hybrid+retention=0+junctions+scratch")
    sink = watched(server, checkpoint_calls=8)
    server.serve(300)
    assert [] == sink.found
    assert sink.judge.stats.checkpoints > 50


def test_a_call_is_made_as_it_was_made() -> None:
    """Goal: no engine gets another exception than without a shadow. Method: all arguments in their places."""
    server = Server("full")
    sink = watched(server)
    server.serve(10)
    manager, request = server.scheduler.kv_cache_manager, server.scheduler.running[0]
    before = sink.judge.stats.judged
    assert manager.allocate_slots(request, 1, 0, None, 0) is not None
    server.serve(2)
    assert before < sink.judge.stats.judged


@pytest.mark.parametrize(("model", "drafts_max"), [*MODELS, ("swa", 0), ("mamba-align", 0)])
def test_the_settings_of_a_scheduler(model: str, drafts_max: int) -> None:
    """Goal: the reference has the model that vLLM has. Method: from a model to vLLM and back."""
    server = Server(model, drafts_max=drafts_max)
    theirs, ours = settings_of(server.scheduler), server.settings
    assert ours.geometry == theirs.geometry
    for name in (
        "blocks",
        "tokens_max",
        "chunk_tokens",
        "drafts_max",
        "caches",
        "full_sequence_must_fit",
        "scratch_first",
    ):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.retention_interval_tokens == theirs.retention_interval_tokens


def test_a_load_is_followed() -> None:
    """Goal: a finding about loads holds in a shadow too. Method: 051: a state that was just loaded is hit."""
    server = Server("mamba-all")
    sink = watched(server)
    server.serve(20)
    scheduler, manager = server.scheduler, server.scheduler.kv_cache_manager
    loads, hits = (new_request(server.settings, Submit(Arrive(number, (Run(0, 33),)), 8)) for number in (1000, 1001))
    scheduler.add_request(loads)
    scheduler.add_request(hits)
    manager.get_computed_blocks(loads)
    manager.allocate_slots(loads, 0, num_external_computed_tokens=32, delay_cache_blocks=True)
    loads.num_computed_tokens = 32
    manager.cache_blocks(loads, 32)
    abort(scheduler, [1000])
    blocks, hit_tokens = manager.get_computed_blocks(hits)
    assert (32, None) == (hit_tokens, manager.allocate_slots(hits, 1, 32, blocks))
    server.step()
    assert [] == sink.found
    assert {"051-loaded-state-waits-for-a-step": 1} == sink.judge.known.times


# Broken

Acted = Callable[[], None]


def released_early(patch: pytest.MonkeyPatch, acted: Acted) -> None:
    """A window frees its blocks sixteen tokens too early."""
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    original = SlidingWindowManager.get_num_skipped_tokens

    def early(self: Any, num_computed_tokens: int) -> int:
        skipped = int(original(self, num_computed_tokens))
        if skipped >= self.block_size:
            acted()
        return skipped + 16 if skipped >= self.block_size else skipped

    patch.setattr(SlidingWindowManager, "get_num_skipped_tokens", early)


def foreign_block(patch: pytest.MonkeyPatch, acted: Acted) -> None:
    """A hit is served by a block that holds something else."""
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager

    original = KVCacheManager.get_computed_blocks

    def foreign(self: Any, request: Any) -> Any:
        blocks, tokens = original(self, request)
        held = {block.block_id for group in blocks.blocks for block in group}
        others = [block for block in self.block_pool.blocks[1:] if block.block_hash and block.block_id not in held]
        if not tokens or not others:
            return blocks, tokens
        acted()
        return KVCacheBlocks(tuple([*group[:-1], others[0]] for group in blocks.blocks)), tokens

    patch.setattr(KVCacheManager, "get_computed_blocks", foreign)


def freed_in_reverse(patch: pytest.MonkeyPatch, acted: Acted) -> None:
    """A request's first blocks are freed first."""
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.free_blocks

    def reversed_(self: Any, ordered_blocks: Any) -> None:
        blocks = list(ordered_blocks)
        if sum(block.ref_cnt == 1 and not block.is_null for block in blocks) > 1:
            acted()
        original(self, reversed(blocks))

    patch.setattr(BlockPool, "free_blocks", reversed_)


MUTANTS = [released_early, foreign_block, freed_in_reverse]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_reported_in_its_first_wrong_step(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch, Acted], None], asynchronous: bool
) -> None:
    """Goal: within the first wrong step, while the server runs on. Method: note when a fault acts first."""
    acted: list[int] = []
    steps = [0]
    mutant(monkeypatch, lambda: acted.append(steps[0]))
    server = Server("gpt-oss-hybrid", asynchronous=asynchronous, blocks=100)
    sink = watched(server)
    for step in range(1, 61):
        steps[0] = step
        server.serve(1)
        if sink.found:
            break
    answered = server.answered
    if mutant is not foreign_block:
        # A foreign block ends in vLLM's own assertions: it would be released twice.
        server.serve(20)
        assert server.answered > answered
    # Between steps, requests are aborted: that is reported with the step before.
    assert acted[0] - sink.found[0].step in (0, 1)


def test_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a test that has the shadow in strict fails where the fault is. Method: the same mutant, and none."""
    server = Server("gpt-oss-hybrid", blocks=100)
    assert attach(server.scheduler, Switch(Mode.STRICT)) is not None
    server.serve(20)
    released_early(monkeypatch, lambda: None)
    with pytest.raises(DifferenceError, match="KV-OP-06"):
        server.serve(60)


# Parts that were not checked


@pytest.mark.parametrize(("model", "unjudged_min"), [("full", 1), ("gpt-oss-hybrid", 0)])
def test_a_sample_is_followed(model: str, unjudged_min: int) -> None:
    """Goal: periods are checked, and blocks cached between them are not. Method: a third, in short ones."""
    server = Server(model)
    sink = watched(server, sampling=Sampling(0.3, 15))
    server.serve(200)
    tally = sink.judge.stats
    assert [] == sink.found
    assert 60 == tally.steps
    unjudged = tally.unjudged.get("a hit on blocks that were cached while calls were not observed", 0)
    assert unjudged_min <= unjudged < tally.judged


def test_after_a_gap_it_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a loss is counted, and costs no more. Method: a sink that takes nothing, then a mutant."""
    server = Server("gpt-oss-hybrid", blocks=100)
    sink = watched(server)
    server.serve(30)
    sink.is_ready, sink.lost = False, 7
    server.serve(30)
    steps = sink.judge.stats.steps
    sink.is_ready = True
    server.serve(30)
    assert [] == sink.found
    assert [30, 7, 0] == [sink.judge.stats.steps - steps, sink.judge.stats.lost, sink.lost]
    released_early(monkeypatch, lambda: None)
    server.serve(30)
    assert "KV-OP-06" == sink.found[0].difference.statement


def test_after_a_difference_it_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the second defect is found as well. Method: a mutant that comes, goes, and comes again."""
    server = Server("gpt-oss-hybrid", blocks=100)
    sink = watched(server, checkpoint_calls=100)
    for _ in range(2):
        with monkeypatch.context() as patch:
            freed_in_reverse(patch, lambda: None)
            found = len(sink.found)
            while len(sink.found) == found:
                server.serve(1)
        server.serve(60)
        assert sink.judge.is_following
        assert found + 1 == len(sink.found)
