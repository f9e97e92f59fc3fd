"""What shows mutants of the constructors that take newer keywords, and of the copies' way to the workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

BLOCK_TOKENS = 64


def _coordinator(model: str, **newer: Any) -> Any:
    """The coordinator of a manager that is built as a newer scheduler builds it."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.settings import Settings
    from swa_retention.newer_keywords import saying

    with saying(newer):
        return Stock(Settings(load(model).geometry, blocks=16, tokens_max=64)).manager.coordinator


def the_coordinator_knows_the_schedulers_block() -> str | None:
    """It is said to the manager, and known to the coordinator."""
    found = _coordinator("mixed-blocks", scheduler_block_size=BLOCK_TOKENS).scheduler_block_size
    return None if found == BLOCK_TOKENS else f"the coordinator counts in blocks of {found} tokens"


def every_group_knows_the_schedulers_block() -> str | None:
    """It is said to the manager, and known to the managers of all groups."""
    managers = _coordinator("mixed-blocks", scheduler_block_size=BLOCK_TOKENS).single_type_managers
    found = {getattr(manager, "scheduler_block_size", None) for manager in managers}
    return None if found == {BLOCK_TOKENS} else f"the groups count in blocks of {found} tokens"


def _built(name: str) -> str | None:
    """A coordinator's constructor that is given a keyword of a newer vLLM."""
    from vllm.v1.core import kv_cache_coordinator
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvgate.adapters.groups import group_specs
    from kvgate.kernel.models import load

    model, caches = {
        "KVCacheCoordinatorNoPrefixCache": ("full", False),
        "UnitaryKVCacheCoordinator": ("full", True),
        "HybridKVCacheCoordinator": ("mixed-blocks", True),
    }[name]
    geometry = load(model).geometry
    counts: dict[str, Any] = {"max_model_len": 64, "max_num_batched_tokens": 64, "use_eagle": False}
    if caches:
        counts["enable_caching"] = True
    try:
        built = getattr(kv_cache_coordinator, name)(
            KVCacheConfig(num_blocks=16, kv_cache_tensors=[], kv_cache_groups=group_specs(geometry)),
            enable_kv_cache_events=False,
            dcp_world_size=1,
            pcp_world_size=1,
            hash_block_size=geometry.grain_tokens,
            scheduler_block_size=BLOCK_TOKENS,
            **counts,
        )
    except TypeError as error:
        return str(error)
    return None if built.scheduler_block_size == BLOCK_TOKENS else "what was said is forgotten"


def one_without_a_cache_takes_newer_keywords() -> str | None:
    """``KVCacheCoordinatorNoPrefixCache``."""
    return _built("KVCacheCoordinatorNoPrefixCache")


def one_of_one_group_takes_newer_keywords() -> str | None:
    """``UnitaryKVCacheCoordinator``."""
    return _built("UnitaryKVCacheCoordinator")


def one_of_several_groups_takes_newer_keywords() -> str | None:
    """``HybridKVCacheCoordinator``."""
    return _built("HybridKVCacheCoordinator")


def states_take_newer_keywords() -> str | None:
    """A manager of states is told of an interval when it caches."""
    states = _coordinator("mamba-align").single_type_managers[1]
    try:
        states.cache_blocks(SimpleNamespace(request_id="nobody"), 0, retention_interval=None)
    except TypeError as error:
        return str(error)
    return None


def the_scheduler_says_its_block_in_tokens() -> str | None:
    """Blocks of slots of 128 tokens, which a scheduler was told are blocks of 16."""
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec

    from swa_retention.newer_keywords import said
    from swa_retention.patches import newer_keywords

    seen: list[Any] = []

    def build(_self: Any, kv_cache_config: Any, block_size: int, hash_block_size: int | None = None) -> None:
        seen.extend((len(kv_cache_config.kv_cache_groups), block_size, hash_block_size, dict(said())))

    slots = type("Slots", (MLAAttentionSpec,), {"__module__": "vllm_ascend.stand_in"})
    spec: Any = slots(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32, compress_ratio=128)
    newer_keywords.scheduler(build)(
        None, SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)]), block_size=16
    )
    expected = [1, 2048, 16, {"scheduler_block_size": 2048}]
    return None if seen == expected else f"built with {seen}"


def a_step_carries_its_copies() -> str | None:
    """From a manager that has two for the step, through the output, to the worker."""
    from swa_retention.patches import dispatch

    copies: Any = ("one", "two")
    done: list[Any] = []
    manager = SimpleNamespace(coordinator=SimpleNamespace(partial=SimpleNamespace(dispatch=lambda: copies)))
    step = SimpleNamespace(scheduled_cached_reqs=SimpleNamespace())
    dispatch.update_after_schedule(lambda _self, _output: None)(SimpleNamespace(kv_cache_manager=manager), step)
    if tuple(dispatch.copies_of(step)) != copies:
        return "the step carries nothing"
    from swa_retention.copying import runner

    names = vars(runner)
    before, names["copy_blocks"] = names["copy_blocks"], lambda _runner, ordered: done.extend(ordered)
    try:
        dispatch.update_states(lambda _self, _output: done.append("states"))(None, step)
    finally:
        names["copy_blocks"] = before
    return None if done == ["states", *copies] else f"the worker did {done}"


def workers_that_copy_nothing_are_refused() -> str | None:
    """A worker that nobody knows."""
    from swa_retention.config import ConfigurationError
    from swa_retention.patches import dispatch

    scheduler = SimpleNamespace(
        kv_cache_manager=SimpleNamespace(coordinator=SimpleNamespace(partial=object())),
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(worker_cls="somebody.else.Worker"), kv_transfer_config=None
        ),
        use_v2_model_runner=False,
    )
    try:
        dispatch.started(lambda _self: None)(scheduler)
    except ConfigurationError:
        return None
    return "a worker that does no copies is taken"


def sources_are_let_go_of_once() -> str | None:
    """A block that two copies read is given to vLLM's pool once, when the last of them is done."""
    from swa_retention.partial import hits

    block, other = SimpleNamespace(block_id=1, ref_cnt=2), SimpleNamespace(block_id=2, ref_cnt=1)
    released = list(vars(hits)["_last_holds"]([block, other, block]))
    counts = block.ref_cnt, other.ref_cnt
    return None if (released, counts) == ([other, block], (1, 1)) else f"released are {released}, counts {counts}"


def the_scheduler_is_told_all_ratios() -> str | None:
    """A group whose layers have ratios of 1, 4 and 128."""
    from vllm.v1.core import kv_cache_utils

    def spec(ratio: int) -> Any:
        return SimpleNamespace(compress_ratio=ratio)

    layers = SimpleNamespace(kv_cache_specs={"a": spec(4), "b": spec(128), "c": spec(1)})
    told = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=layers)], num_blocks=1)
    # As a module's function is called: it may be another one by now.
    made = vars(kv_cache_utils)["generate_scheduler_kv_cache_config"]([told])
    found = getattr(made.kv_cache_groups[0], "compress_ratios", None)
    return None if found == (1, 4, 128) else f"told are {found}"
