"""What shows mutants of the plug-in that no operation of the alphabet reaches: how it is configured and put in place.

Each check is one small exercise, and says what is wrong, or None. It undoes all its changes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

# What shows mutants of the plug-in that no operation of the alphabet reaches: how it is configured and put in place.
# Each check is one small exercise, and says what is wrong, or None. It undoes all its changes.


class Pool:
    """Something to be patched."""

    def size(self) -> int:
        return 1

    def other(self) -> int:
        return 5


def count() -> int:
    """A function to be patched, that another module has imported by name."""
    return 2


def _larger(_self: Any = None) -> int:
    return 10


@contextmanager
def _put_back() -> Iterator[None]:
    """Leave this module as it was."""
    module = sys.modules[__name__]
    size, counts = vars(Pool)["size"], vars(module)["count"]
    try:
        yield
    finally:
        # By name: to mypy a method is nothing that one assigns to.
        setattr(Pool, "size", size)  # noqa: B010
        vars(module)["count"] = counts
        for function in (_larger, size, counts):
            vars(function).pop("__swa_retention__", None)


def _patch(name: str, replaced: Any) -> Any:
    from swa_retention.fingerprint import fingerprint
    from swa_retention.register import Patch

    return Patch(
        f"{__name__}:{name}", "why", "how", "upstream", "until", fingerprint(replaced), lambda _before: _larger
    )


def impossible_values_are_rejected() -> str | None:
    """One of each variable."""
    from swa_retention.config import ConfigurationError, read

    for variable, value in (
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "-1"),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "often"),
        ("VLLM_PIN_SWA_TOKENS", "2048"),
        ("VLLM_PIN_MIN_DROP_SIZE", "-1"),
        ("VLLM_PREFIX_CACHE_MASKED", "2"),
        ("VLLM_PREFIX_CACHE_SCRATCH_FIRST", "2"),
        ("VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE", "16"),
        ("VLLM_PREFIX_CACHE_PARTIAL_HITS", "-128"),
    ):
        try:
            read({variable: value})
        except ConfigurationError as error:
            if not {variable, repr(value)} <= set(str(error).replace("=", " ").split()):
                return f"{variable}={value!r} is rejected by {error}"
        except ValueError as error:
            return f"{variable}={value!r} raises {type(error).__name__}"
        else:
            return f"{variable}={value!r} is taken"
    return None


def values_mean_what_they_say() -> str | None:
    """One of each variable."""
    from swa_retention.config import Configuration, read

    for environment, expected in (
        ({}, Configuration()),
        ({"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"}, Configuration(0)),
        ({"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "auto"}, Configuration(32768, interval_is_auto=True)),
        ({"VLLM_PREFIX_CACHE_MASKED": "1"}, Configuration(masked=True)),
        ({"VLLM_PREFIX_CACHE_SCRATCH_FIRST": "0"}, Configuration(scratch_first=False)),
        ({"VLLM_PIN_MIN_DROP_SIZE": "0"}, Configuration(pin_min_drop_blocks=1)),
        ({"VLLM_PIN_SWA_TOKENS": "off", "VLLM_PIN_MIN_DROP_SIZE": "3"}, Configuration(pin_min_drop_blocks=3)),
        ({"VLLM_PREFIX_CACHE_PARTIAL_HITS": "128"}, Configuration(partial_hits=True, partial_unit_tokens=128)),
        ({"VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE": "64"}, Configuration(compressed_block_size_slots=64)),
    ):
        if read(environment) != expected:
            return f"{environment} means {read(environment)}"
    return None


def all_patches_or_none() -> str | None:
    """Two patches, of which one is for another function."""
    from swa_retention.register import IncompatibleError, apply

    with _put_back():
        try:
            apply((_patch("Pool.size", Pool.size), _patch("Pool.other", count)))
        except IncompatibleError as error:
            if "Pool.other: differs" not in str(error):
                return f"what does not fit is not named: {error}"
        else:
            return "a patch was put in place of what it was not written for"
        return "one patch was put in place without the other" if Pool().size() != 1 else None


def patches_are_put_in_place_once() -> str | None:
    """The same patch twice."""
    from swa_retention.register import State, apply, look

    patch = _patch("Pool.size", Pool.size)
    with _put_back():
        apply((patch,))
        if Pool().size() != 10 or look(patch).state is not State.PATCHED:
            return "a patch that is in place is not known to be"
        apply((patch,))
    return None


def importers_get_the_new_one() -> str | None:
    """A function that another module has imported by its name."""
    from swa_retention.register import apply

    importer = ModuleType("kvgate_importer")
    vars(importer)["count"] = count
    sys.modules[importer.__name__] = importer
    try:
        with _put_back():
            apply((_patch("count", count),))
            return None if importer.count() == 10 else "a module that had imported the function has the old one"
    finally:
        del sys.modules[importer.__name__]


def nothing_is_put_in_place_uninvited() -> str | None:
    """The entry point, with nothing switched on and with one thing."""
    from swa_retention import plugin
    from swa_retention.config import Configuration

    names, installed = vars(plugin), list[Configuration]()
    before = {name: names[name] for name in ("read", "install")}
    names["install"] = installed.append
    try:
        for configuration in (Configuration(), Configuration(0)):
            names["read"] = lambda configuration=configuration: configuration
            plugin.register()
    finally:
        names.update(before)
    return None if installed == [Configuration(0)] else f"what is installed: {installed}"


def every_switch_has_its_feature() -> str | None:
    """Each switch alone, and all of them."""
    from swa_retention.config import Configuration
    from swa_retention.features import PINS, RETAINS, features_of

    for configuration, expected in (
        (Configuration(), set()),
        (Configuration(0), {RETAINS.name}),
        (Configuration(masked=True), {RETAINS.name}),
        (Configuration(scratch_first=True), {RETAINS.name}),
        (Configuration(scratch_first=False), set()),
        (Configuration(pins=True), {PINS.name}),
        (Configuration(0, pins=True), {RETAINS.name, PINS.name}),
    ):
        found = {feature.name for feature in features_of(configuration)}
        if not expected <= found or len(found) > 2 or bool(found) != bool(expected):
            return f"{configuration} has {sorted(found)}"
    return None


def auto_is_rounded_up() -> str | None:
    """To a multiple of an alignment that divides it, that does not, and that is longer."""
    from swa_retention.config import Configuration, ConfigurationError

    auto = Configuration(32768, interval_is_auto=True)
    try:
        found = [auto.interval_tokens(alignment) for alignment in (16, 48, 65536)]
    except ConfigurationError as error:
        return f"auto is rejected: {error}"
    return None if found == [32768, 32784, 65536] else f"auto is {found}"


def junctions_are_on_by_default() -> str | None:
    """Where there is an interval; they can be switched off, and a blank value counts as unset."""
    from swa_retention import config

    interval = {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"}
    values = {None: True, "": True, "0": False, "1": True}
    found = {
        value: config.read(interval if value is None else {**interval, config.JUNCTIONS: value}).junctions
        for value in values
    }
    return None if found == values else f"junctions by the value of their variable: {found}"


def an_interval_between_boundaries_is_rejected() -> str | None:
    """One token more than the alignment."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.settings import Settings
    from swa_retention.config import Configuration, ConfigurationError
    from swa_retention.patches.attach import attach

    geometry = load("mixed-blocks").geometry
    coordinator = Stock(Settings(geometry, blocks=16, tokens_max=64)).manager.coordinator
    try:
        attach(coordinator, Configuration(geometry.alignment_tokens + 1), 64)
    except ConfigurationError:
        return None
    return "an interval that is not a multiple of the alignment is accepted"


def the_doctor_reports_by_its_exit_code() -> str | None:
    """A value that cannot be meant."""
    from swa_retention.doctor import MISCONFIGURED, examine

    code, lines = examine({"VLLM_PIN_SWA_TOKENS": "2048"})
    return None if code == MISCONFIGURED else f"exit code {code} with {lines[-1]}"


# What shows mutants of compressed groups below the block manager: pages, tensors, and vLLM-Ascend's own code. vLLM-
# Ascend is not at hand: what replaces its functions is called in front of stand-ins for them.

SLOT_TOKENS = 8


@dataclass(frozen=True)
class Spec:
    """A layer's spec: what of it the plug-in changes."""

    block_size: int = 128
    page_size_padded: int = 1024
    page_size_bytes: int = 0


@contextmanager
def _block_size(slots: int | None) -> Iterator[None]:
    """Compressed blocks have so many slots."""
    from swa_retention.config import Configuration
    from swa_retention.patches.attach import activate, active

    before = active()
    activate(Configuration(compressed_block_size_slots=slots))
    try:
        yield
    finally:
        activate(before)


def _group(**pages: int) -> Any:
    """Layers with the bytes of their pages; a request needs two blocks of each group."""
    specs = {layer: Spec(page_size_bytes=page) for layer, page in pages.items()}
    spec = SimpleNamespace(kv_cache_specs=specs, max_memory_usage_pages=lambda _config: 2)
    return SimpleNamespace(kv_cache_spec=spec, layer_names=list(pages))


def _groups() -> list[Any]:
    """Two groups; one has a page size that the other has not. The tensors: 10 for a, c and 10 for b, 30 for d."""
    return [_group(a=10, b=10), _group(c=10, d=30)]


def page_sizes_are_those_of_all_groups() -> str | None:
    """A tensor for every layer, and none without a layer."""
    from vllm.v1.core import kv_cache_utils

    return _tensors(vars(kv_cache_utils)["_get_kv_cache_config_deepseek_v4"])


def ascends_tensors_are_those_of_all_groups() -> str | None:
    """The same in front of vLLM-Ascend's own layout."""
    from swa_retention.patches import compressed

    return _tensors(compressed.kv_cache_tensors(_in_slots))


def _tensors(layout: Any) -> str | None:
    config = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks_override=None))
    with _block_size(64):
        try:
            blocks, tensors = layout(config, _groups(), 200)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    found = blocks, sorted((tensor.size, tuple(tensor.shared_by)) for tensor in tensors)
    return None if found == (4, [(40, ("a", "c")), (40, ("b",)), (120, ("d",))]) else f"tensors: {found}"


def a_block_takes_what_its_tensors_take() -> str | None:
    """Over all tensors."""
    from vllm.v1.core import kv_cache_utils

    with _block_size(64):
        try:
            found = vars(kv_cache_utils)["_pool_bytes_per_block"](_groups())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None if found == 50 else f"a block takes {found} bytes"


def a_request_takes_what_its_blocks_take() -> str | None:
    """Two blocks of two groups."""
    from vllm.v1.core import kv_cache_utils

    with _block_size(64):
        try:
            found = vars(kv_cache_utils)["_max_memory_usage_bytes_from_groups"](None, _groups())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None if found == 200 else f"a request takes {found} bytes"


def a_layer_without_a_tensor_is_named() -> str | None:
    """One of two layers has none."""
    from swa_retention.compressed.raw_tensors import RawTensorError
    from swa_retention.patches import compressed

    config = SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(layer_names=["has.one", "has.none"])],
        kv_cache_tensors=[SimpleNamespace(size=2, shared_by=["has.one"])],
    )
    runner = SimpleNamespace(runner_only_attn_layers=set())
    with _block_size(64):
        try:
            compressed.allocate_kv_cache_tensors(lambda _self, _config: {})(runner, config)
        except RawTensorError as error:
            return None if error.missing == ("has.none",) else f"missing is said to be {error.missing}"
    return "no error says that a layer has no tensor"


def _manager() -> Any:
    """A manager of full attention with blocks of 16 tokens, in slots of eight."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.operations import Arrive, Run
    from kvreference.settings import Settings

    system = Stock(Settings(load("full").geometry, blocks=16, tokens_max=64))
    system.apply(Arrive(0, (Run(0, 32),)))
    manager: Any = system.manager.coordinator.single_type_managers[0]
    manager.slot_tokens = SLOT_TOKENS
    manager.request = system._requests[0]
    return manager


def _in_slots(*_arguments: Any, **_named: Any) -> Any:
    """Stands in for vLLM-Ascend's own: it does not know that blocks are counted in tokens."""
    raise LookupError("vLLM-Ascend's own was asked, in slots")


def _without_a_slot_begun(found: Any, expected: Any) -> str | None:
    return None if found == expected else f"{found} in place of {expected}"


def blocks_needed_are_counted_in_tokens() -> str | None:
    """Of 20 tokens two slots are complete, and they are in one block."""
    from swa_retention.patches import ascend_managers

    try:
        needed = ascend_managers.get_num_blocks_to_allocate(_in_slots)(_manager(), "r", 20, [], 0, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(needed, 1)


def blocks_are_taken_for_complete_slots() -> str | None:
    """Of 20 tokens two slots are complete, and they are in one block."""
    from swa_retention.patches import ascend_managers

    try:
        taken = ascend_managers.allocate_new_blocks(_in_slots)(_manager(), "r", 20, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(len(taken), 1)


def loaded_blocks_are_taken_for_complete_slots() -> str | None:
    """Twenty tokens come from elsewhere."""
    from swa_retention.patches import ascend_managers

    manager = _manager()
    try:
        ascend_managers.allocate_new_computed_blocks(_in_slots)(manager, "r", [], 0, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(len(manager.req_to_blocks["r"]), 1)


def blocks_are_cached_under_all_that_they_hold() -> str | None:
    """The second block, under the hash of 32 tokens."""
    from swa_retention.patches import ascend_managers

    manager = _manager()
    request = manager.request
    blocks = manager.allocate_new_blocks(request.request_id, 32, 32)
    try:
        ascend_managers.cache_blocks(_in_slots)(manager, request, 32, retention_interval=None)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(blocks[1].block_hash[:-4], request.block_hashes[1])


def hits_are_looked_up_in_tokens() -> str | None:
    """The look-up is vLLM's."""
    from swa_retention.patches import ascend_managers

    coordinator = SimpleNamespace(looks_up_tokens=True)
    try:
        ascend_managers.find_longest_cache_hit(_in_slots)(coordinator, [], 0)
    except LookupError as error:
        return str(error)
    except AttributeError:
        # vLLM's own was asked, and the coordinator is not one of them.
        return None
    return None


def ascends_factory_takes_newer_keywords() -> str | None:
    """A scheduler says its block."""
    from swa_retention.newer_keywords import said
    from swa_retention.patches import ascend_managers

    def make(size: int) -> tuple[int, Any]:
        return size, said().get("scheduler_block_size")

    try:
        made = ascend_managers.get_kv_cache_coordinator(make)(3, scheduler_block_size=64)
    except TypeError as error:
        return str(error)
    return _without_a_slot_begun(made, (3, 64))


def ascends_coordinator_takes_newer_keywords() -> str | None:
    """A scheduler says its block."""
    from swa_retention.patches import newer_keywords

    built: Any = SimpleNamespace(eagle_group_ids=set())
    try:
        newer_keywords.coordinator(lambda _self: None)(built, scheduler_block_size=64)
    except TypeError as error:
        return str(error)
    return _without_a_slot_begun(getattr(built, "scheduler_block_size", None), 64)


def the_block_size_is_what_was_asked_for() -> str | None:
    """Sixty-four slots, where vLLM-Ascend writes 128."""
    from swa_retention.patches import ascend_layers

    cache = SimpleNamespace(block_size=64, user_specified_block_size=True)
    model = SimpleNamespace(hf_config=SimpleNamespace(model_type="deepseek_v4"))

    def refresh(config: Any) -> None:
        config.cache_config.block_size = 128

    with _block_size(64):
        ascend_layers.refresh_block_size(refresh)(SimpleNamespace(cache_config=cache, model_config=model))
    return _without_a_slot_begun(cache.block_size, 64)


def compressed_layers_have_the_block_size() -> str | None:
    """Sixty-four slots."""
    from swa_retention.patches import ascend_layers

    with _block_size(64):
        spec = ascend_layers.compressed_spec(lambda _self, _config: Spec())(None, None)
    return _without_a_slot_begun(spec, Spec(64))


def windows_have_the_block_size() -> str | None:
    """Thirty-two slots."""
    from swa_retention.patches import ascend_layers

    with _block_size(32):
        spec = ascend_layers.window_spec(lambda _self, _config: Spec())(None, None)
    return _without_a_slot_begun(spec, Spec(32))


def states_shrink_with_the_block_size() -> str | None:
    """A quarter of eight slots, in a quarter of the page."""
    from swa_retention.patches import ascend_layers

    with _block_size(32):
        spec = ascend_layers.state_spec(lambda _self, _config: Spec())(SimpleNamespace(compress_ratio=4), None)
    return _without_a_slot_begun(spec, Spec(2, 256))


def kernels_have_the_block_sizes() -> str | None:
    """Sixty-four slots, and states of four and sixteen, besides those that are listed."""
    from swa_retention.patches import ascend_layers

    with _block_size(64):
        sizes = ascend_layers.supported_kernel_block_sizes(staticmethod(lambda: [8, 32, 128])).__func__()
    return _without_a_slot_begun(sizes, [8, 32, 128, 64, 4, 16])


# What shows mutants of the constructors that take newer keywords, and of the copies' way to the workers.

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
    """A manager of states gets an interval when it caches."""
    states = _coordinator("mamba-align").single_type_managers[1]
    try:
        states.cache_blocks(SimpleNamespace(request_id="nobody"), 0, retention_interval=None)
    except TypeError as error:
        return str(error)
    return None


def the_scheduler_says_its_block_in_tokens() -> str | None:
    """Blocks of slots of 128 tokens, which a scheduler got as blocks of 16."""
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


def a_session_keeps_its_new_boundary() -> str | None:
    """After the first part nothing is due before 32 tokens; the second one moves the replay boundary to 16."""
    from kvgate.kernel.models import load
    from kvgate.levels.scheduler.engine import Engine
    from kvgate.levels.scheduler.operations import Serve, Stage
    from kvreference.operations import Arrive, Continue, Run
    from kvreference.scheduler.operations import Reply, Step
    from kvreference.settings import Settings
    from swa_retention.patches import partial_hits

    geometry = load("compressed+partial").geometry
    settings = Settings(geometry, 50, tokens_max=256, chunk_tokens=64, retention_interval_tokens=0)
    engine = Engine(settings, Stage(4), subject="retention")
    scheduler, name = engine.scheduler, "_update_request_as_session"
    patched = partial_hits.update_request_as_session(getattr(type(scheduler), name).__swa_retention__)
    setattr(scheduler, name, partial(patched, scheduler))
    step = Step((Reply(token=500_000),))
    first = Serve(Arrive(0, (Run(0, 8),)), 1, resumable=True)
    for operation in (first, step, Continue(0, (Run(1000, 12),)), step):
        divergence = engine.perform(operation)
        if divergence is not None:
            return str(divergence.difference)
    return None


def workers_that_copy_nothing_are_rejected() -> str | None:
    """An unknown worker."""
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


def the_scheduler_gets_all_ratios() -> str | None:
    """A group whose layers have ratios of 1, 4 and 128."""
    from vllm.v1.core import kv_cache_utils

    def spec(ratio: int) -> Any:
        return SimpleNamespace(compress_ratio=ratio)

    layers = SimpleNamespace(kv_cache_specs={"a": spec(4), "b": spec(128), "c": spec(1)})
    reported = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=layers)], num_blocks=1)
    # As a module's function is called: it may be another one by now.
    made = vars(kv_cache_utils)["generate_scheduler_kv_cache_config"]([reported])
    found = getattr(made.kv_cache_groups[0], "compress_ratios", None)
    return None if found == (1, 4, 128) else f"the ratios are {found}"


# What shows mutants of metrics.


def _with_pins() -> Any:
    """A block manager with a pinned tier, in which a request holds pinned blocks, and others wait."""
    from kvgate.adapters.retention import Retention
    from kvgate.kernel.models import load
    from kvreference.operations import Admit, Arrive, Finish, Run
    from kvreference.settings import Settings

    system = Retention(Settings(load("full").geometry, 16, tokens_max=64, chunk_tokens=64, pin_drop_blocks_min=1))
    for number, tokens in ((0, 64), (1, 33)):
        for operation in (Arrive(number, (Run(0, tokens),)), Admit(number, 64)):
            system.apply(operation)
        if number == 0:
            system.apply(Finish(0))
    return system.manager.block_pool


def usage_counts_what_requests_hold() -> str | None:
    """Of 15 blocks a request holds three, two of them pinned; two more are pinned, and wait."""
    usage = _with_pins().get_usage()
    return None if abs(usage - 3 / 15) < 1e-9 else f"usage is {usage}"


def demoted_blocks_are_counted() -> str | None:
    """One of two that wait is demoted, and of the other the content is forgotten."""
    pool = _with_pins()
    tier = pool.pinned_tier
    tier.make_room(pool.get_num_free_blocks() + 1, ())
    tier.forget(next(iter(tier.queue.get_all_free_blocks())))
    found = tier.demoted, tier.queue.num_free_blocks
    return None if found == (1, 0) else f"demoted are {found[0]}, {found[1]} wait"


# What shows mutants of pins on later releases: the patches of those, around stand-ins for what they replace.


def freed_pins_wait() -> str | None:
    """Of three blocks that are freed two are pinned, and one of these is held by another request too."""
    from swa_retention.patches import pinning

    pool = _with_pins()
    held = [block for block in pool.blocks if block.ref_cnt and not block.is_null]
    pinned, freed = [block for block in held if pool.pinned_tier.holds(block)], list[Any]()
    pinned[0].ref_cnt += 1
    pinning.free_blocks(lambda _pool, blocks: freed.extend(blocks))(pool, held)
    found = [block.ref_cnt for block in pinned], len(freed), pool.pinned_tier.queue.num_free_blocks
    return None if found == ([1, 0], 1, 3) else f"pinned are held {found[0]} times, {found[1]} freed, {found[2]} wait"


def what_is_freed_later_is_pinned() -> str | None:
    """Blocks are taken out of a request's table, and freed when the steps that write them are over."""
    from swa_retention.patches import pinning

    pool = _with_pins()
    held = [block for block in pool.blocks if block.ref_cnt and not block.is_null]
    cached = [block.block_hash is not None for block in held]
    pool.pinned_tier.pinned[:] = bytes(len(pool.blocks))
    manager = SimpleNamespace(block_pool=pool, req_to_blocks={"request": held})
    given = pinning.give_up(lambda manager, request: manager.req_to_blocks.pop(request))(manager, "request")
    found = [pool.pinned_tier.holds(block) for block in given or ()]
    return None if found == cached and True in cached else f"of blocks that are freed later, these are pinned: {found}"


def what_must_stay_free_is_asked_for() -> str | None:
    """The watermark, for a request that waits while others run, and what others that load still need."""
    from vllm.v1.request import RequestStatus

    from swa_retention.patches import pinning

    waiting, runs = SimpleNamespace(status=RequestStatus.WAITING), SimpleNamespace(status=RequestStatus.RUNNING)
    manager: Any = SimpleNamespace(watermark_blocks=4, coordinator=SimpleNamespace())
    allocate_slots = pinning.allocate_slots(lambda manager, _request, **_named: manager.coordinator.kept_free)
    asked: tuple[tuple[Any, dict[str, Any]], ...] = (
        *((waiting, {}), (waiting, {"has_scheduled_reqs": False})),
        *((runs, {}), (waiting, {"reserved_blocks": 3})),
    )
    found = [allocate_slots(manager, request, **named) for request, named in asked]
    return None if found == [4, 0, 0, 7] else f"blocks to stay free: {found}"


def _counting() -> Any:
    """A scheduler with a pinned tier, from which three blocks were demoted, and without partial hits."""
    tier = SimpleNamespace(queue=SimpleNamespace(num_free_blocks=7), demoted=3)
    coordinator = SimpleNamespace(block_pool=SimpleNamespace(pinned_tier=tier))
    return SimpleNamespace(kv_cache_manager=SimpleNamespace(coordinator=coordinator))


def counts_are_sent_once() -> str | None:
    """In two steps, next to what a connector counted, whose own dictionary stays as it is."""
    from swa_retention.patches import metrics

    own, scheduler = {"loads": 1}, _counting()
    make_stats = metrics.make_stats(lambda _self: SimpleNamespace(kv_connector_stats=own))
    found = [dict(make_stats(scheduler).kv_connector_stats) for _ in range(2)]
    due = [{"loads": 1, metrics.CARRIED: {"pinned_blocks": 7, "demoted_blocks": count}} for count in (3, 0)]
    return None if (found, own) == (due, {"loads": 1}) else f"sent is {found}, and the connector has {own}"


def junctions_are_counted_once() -> str | None:
    """A request that is looked up twice before it is admitted, and one without a junction."""
    from swa_retention.patches import junctions, metrics

    counts = Counter[str]()
    kept = SimpleNamespace(counts=counts, find=lambda hashes, _tokens, _hit: len(hashes))
    manager = SimpleNamespace(coordinator=SimpleNamespace(junctions=kept, block_pool=SimpleNamespace()))
    look_up = junctions.get_computed_blocks(lambda _self, _request: ((), 0))
    first, second = (
        SimpleNamespace(skip_reading_prefix_cache=False, block_hashes=hashes, num_tokens=9) for hashes in ([b"one"], [])
    )
    for request in (first, second, first):
        look_up(manager, request)
    sent = [dict(metrics._counts(manager.coordinator)) for _ in range(2)]
    return None if sent == [{"junctions": 1}, {}] else f"sent is {sent}"


def copies_are_done_when_their_step_is_back() -> str | None:
    """A step with two copies, and one without."""
    from swa_retention.patches import dispatch, metrics

    scheduler, counts = _counting(), Counter[str]()
    scheduler.kv_cache_manager.coordinator.partial = SimpleNamespace(counts=counts)
    update = metrics.update_from_output(lambda _self, _output, _answer: None)
    for copies in ((1, 2), ()):
        step = SimpleNamespace(**{dispatch.CARRIED: copies})
        update(scheduler, SimpleNamespace(scheduled_cached_reqs=step), None)
    return None if counts == {"copies_done": 2} else f"counted are {dict(counts)}"


class _Family:
    """A metric of vLLM's endpoint with one engine."""

    def __init__(self, values: dict[str, int], name: str, **_form: Any) -> None:
        self.values, self.name = values, name
        values[name] = 0

    def labels(self, *_labels: object) -> _Family:
        return self

    def set(self, number: int) -> None:
        self.values[self.name] = number

    def inc(self, number: int) -> None:
        self.values[self.name] += number


def counts_reach_the_endpoint() -> str | None:
    """Of two steps; vLLM's loggers see the statistics as if nothing had been added."""
    from functools import partial

    from vllm.v1.metrics.loggers import PrometheusStatLogger

    from swa_retention.config import Configuration
    from swa_retention.patches import metrics
    from swa_retention.patches.attach import activate, active

    values, seen, before = dict[str, int](), list[Any](), active()
    logger: Any = PrometheusStatLogger.__new__(PrometheusStatLogger)
    logger._gauge_cls = logger._counter_cls = partial(_Family, values)
    logger.per_engine_labelvalues = {0: ["model", "0"]}
    manager = SimpleNamespace(stat_loggers=[logger])
    activate(Configuration(pins=True))
    try:
        metrics.loggers(lambda _self: None)(manager)
    finally:
        activate(before)
    record = metrics.record(lambda _self, stats, *_more: seen.append(stats.kv_connector_stats))
    for pinned in (5, 4):
        counts = {metrics.CARRIED: {"pinned_blocks": pinned, "demoted_blocks": 2}}
        record(manager, SimpleNamespace(kv_connector_stats=counts), None)
    due = {f"vllm:{metrics.CARRIED}_pinned_blocks": 4, f"vllm:{metrics.CARRIED}_demoted_blocks": 4}
    return None if (values, seen) == (due, [None, None]) else f"recorded are {values}, and vLLM's loggers saw {seen}"
