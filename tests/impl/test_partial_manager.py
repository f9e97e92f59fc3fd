"""Partial hits in vLLM's block manager, where a drawn case hardly ever goes.

Goal: loaded blocks may be copied at once, a copy is not a holder, a block that is copied twice is free once, the ratios
of all layers are known, and where the model has no use for it the switch has no effect. Method: small managers, and
operations by hand, in lockstep with the reference; the plug-in broken must differ.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench
from kvgate_mutants.mutants.plugin.checks import a_session_keeps_its_new_boundary
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, CommonPrefix, Dispatch, Finish, LookUp, Operation, Run, Transferred
from kvreference.settings import Settings
from swa_retention.config import Configuration, ConfigurationError
from swa_retention.partial.copies import BlockCopy
from swa_retention.partial.dispatch import take_copies
from swa_retention.partial.hits import PartialHits
from swa_retention.register import MARK

pytest.importorskip("vllm")

SETTINGS = Settings(load("compressed+partial").geometry, blocks=200, chunk_tokens=1024)
ALL = 1024


def driven(
    operations: Sequence[Operation], prepare: Callable[[Any], None] = lambda _manager: None
) -> tuple[Lockstep, Divergence | None]:
    """The operations on both sides, with every monitor, until one diverges; vLLM's manager is prepared."""
    lockstep = Bench(load_system("retention").factory).set_up(SETTINGS)
    prepare(lockstep.system.roots()["manager"])
    for operation in operations:
        divergence = lockstep.perform(operation)
        if divergence is not None:
            return lockstep, divergence
    assert list(operations) == list(lockstep.performed)
    return lockstep, None


def arrive(number: int, tokens: int) -> Arrive:
    """A prompt of the first so many tokens of one text."""
    return Arrive(number, (Run(0, tokens),))


LOADED = (
    arrive(0, 49),
    Admit(0, ALL, external_tokens=48, loads=True),
    Dispatch(),
    Transferred(0, True),
    arrive(1, 49),
    Admit(1, ALL),
)
"""A prompt is loaded from another node; in the step in which that is known, another one hits inside its blocks."""
SHARED = (arrive(0, 60), Admit(0, ALL), Dispatch(), arrive(1, 40), Admit(1, ALL), CommonPrefix(0))
"""The first request's block is read by a copy for the second: both counts are two, and only one request holds it."""
TWICE = (
    arrive(0, 60),
    Admit(0, ALL),
    Dispatch(),
    Finish(0),
    arrive(1, 40),
    arrive(2, 40),
    Admit(1, ALL),
    Admit(2, ALL),
    Dispatch(),
)
"""Two requests of one step copy from the same blocks, which no other request holds."""


@pytest.mark.parametrize("operations", [LOADED, SHARED, TWICE], ids=["loaded", "shared", "twice"])
def test_it_agrees(operations: Sequence[Operation]) -> None:
    """With the reference, and with every monitor."""
    lockstep, divergence = driven(operations)
    assert divergence is None
    assert lockstep.answers[0] == lockstep.answers[1]


def _never(_self: PartialHits) -> bool:
    return False


def _ignored(_self: PartialHits, _value: bool) -> None:
    pass


def _each(sources: Any) -> Iterator[Any]:
    yield from sources


BROKEN: dict[str, tuple[Sequence[Operation], str, Any, str]] = {
    "what is loaded counts as computed": (LOADED, "PartialHits.arrived", property(_never, _ignored), "KV-OP-03"),
    "copies are holders": (SHARED, "PartialHits.reads", lambda _self: Counter(), "KV-OP-14"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference names the violated guarantee."""
    operations, target, by, statement = BROKEN[name]
    load_system("retention")
    monkeypatch.setattr(f"swa_retention.partial.hits.{target}", by, raising=not isinstance(by, property))
    _, divergence = driven(operations)
    assert divergence is not None
    assert statement == divergence.difference.statement


@pytest.mark.parametrize(("lets_go", "sound"), [(None, True), (_each, False)], ids=["as it is", "broken"])
def test_with_vllms_own_release(lets_go: Any, sound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in place with partial hits alone, and queues a block as often as it is given it."""
    from vllm.v1.core.block_pool import BlockPool

    def releases_itself(manager: Any) -> None:
        own: Any = BlockPool.free_blocks
        while hasattr(own, MARK):
            own = getattr(own, MARK)
        manager.block_pool.free_blocks = partial(own, manager.block_pool)

    if lets_go is not None:
        monkeypatch.setattr("swa_retention.partial.hits._last_holds", lets_go)
    _, divergence = driven(TWICE, releases_itself)
    assert sound == (divergence is None)


def test_copies_are_taken_once() -> None:
    """The worker receives each, and where nothing is copied, nothing."""
    system = load_system("retention").factory(SETTINGS)
    for operation in SHARED[:-1]:
        system.apply(operation)
    manager = system.roots()["manager"]
    ids = system.snapshot().tables
    expected = (BlockCopy(1, ids[0][1][0], ids[1][1][0], 32),)
    assert expected == take_copies(manager)
    assert () == take_copies(manager)
    plain = load_system("retention").factory(evolve(SETTINGS, geometry=load("gpt-oss-hybrid").geometry))
    assert () == take_copies(plain.roots()["manager"])


def test_a_session_keeps_its_new_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next part of a prompt moves its replay boundary, and the request is awake for it."""
    load_system("retention")
    assert a_session_keeps_its_new_boundary() is None
    monkeypatch.setattr(PartialHits, "wake", lambda _self, _request_id: None)
    assert a_session_keeps_its_new_boundary() is not None


# Where it has no effect, and where it cannot be


def coordinator(*groups: Group, **configuration: Any) -> Any:
    """vLLM's own coordinator for these groups, with partial hits switched on."""
    from swa_retention.patches.attach import activate

    load_system("retention")
    stock = load_system("stock").factory
    activate(Configuration(partial_hits=True, **configuration))
    try:
        manager: Any = stock(Settings(Geometry(groups), 50)).roots()["manager"]
        return manager.coordinator
    finally:
        activate(Configuration())


WINDOW = Group("sliding_window", 16, 32)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((Group("full", 16), WINDOW), "no block is larger than 16 tokens"),
        ((Group("full", 16),), "no block is larger than 16 tokens"),
        ((Group("full", 64), Group("mamba", 16, states="all")), "a group of MambaSpec"),
    ],
)
def test_where_it_has_no_effect(
    groups: tuple[Group, ...], message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says why, and nothing is attached: vLLM works as it is."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.WARNING, "vllm.swa_retention"):
        built = coordinator(*groups)
    assert not hasattr(built, "partial")
    assert message in caplog.text


def test_a_unit_that_does_not_work_stops_the_start() -> None:
    """The variable, its value and what is allowed."""
    with pytest.raises(ConfigurationError, match="VLLM_PREFIX_CACHE_PARTIAL_HITS='24' is not possible: give auto"):
        coordinator(Group("full", 64), WINDOW, partial_unit_tokens=24)
    assert 32 == coordinator(Group("full", 64), WINDOW, partial_unit_tokens=32).partial.unit_tokens
    assert 16 == coordinator(Group("full", 64), WINDOW).partial.unit_tokens


def test_the_scheduler_knows_the_ratios_of_all_layers() -> None:
    """Of layers with the ratios 4 and 128 vLLM's scheduler keeps the first alone; the unit is whole slots of both."""
    import torch
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import (
        KVCacheConfig,
        KVCacheGroupSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        UniformTypeKVCacheSpecs,
    )

    from swa_retention.patches.attach import activate

    load_system("retention")
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    layers = {f"layer.{ratio}": MLAAttentionSpec(block_size=256, compress_ratio=ratio, **shape) for ratio in (4, 128)}
    groups = [
        KVCacheGroupSpec(list(layers), UniformTypeKVCacheSpecs(block_size=256, kv_cache_specs=dict(layers))),
        KVCacheGroupSpec(["window"], SlidingWindowMLASpec(block_size=64, sliding_window=128, **shape)),
    ]
    made: Any = kv_cache_utils.generate_scheduler_kv_cache_config([KVCacheConfig(10, [], groups)])
    assert [(4, 128), (1,)] == [group.compress_ratios for group in made.kv_cache_groups]
    assert [4, 1] == [group.kv_cache_spec.compress_ratio for group in made.kv_cache_groups]
    activate(Configuration(partial_hits=True))
    try:
        manager: Any = KVCacheManager(made, max_model_len=1024, hash_block_size=64)
    finally:
        activate(Configuration())
    assert 128 == manager.coordinator.partial.unit_tokens


def test_with_all_tokens_hit_the_last_is_computed() -> None:
    """A prompt of exactly one block hits inside it, for its last token is computed again."""
    lockstep, divergence = driven((arrive(0, 64), Admit(0, ALL), Dispatch(), arrive(1, 64), LookUp(1)))
    assert divergence is None
    hit: Any = lockstep.answers[1]
    assert (48, [(0, 16), (1, 48)]) == (hit.tokens, [(each.group, each.tokens) for each in hit.partials])


def test_nothing_is_attached_to_what_is_not_asked_for() -> None:
    """Without the switch, a manager for the same model has vLLM's own look-up."""
    manager: Any = load_system("retention").factory(evolve(SETTINGS, geometry=load("dsv4-flash").geometry)).roots()
    assert not hasattr(manager["manager"].coordinator, "partial")
