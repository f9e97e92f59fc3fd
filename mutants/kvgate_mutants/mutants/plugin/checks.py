"""What shows mutants of the plug-in that no operation of the alphabet reaches: how it is configured and put in place.

Each check is one small exercise, and says what is wrong, or None. Whatever it changes it puts back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Pool:
    """Something to be patched."""

    def size(self) -> int:
        return 1

    def other(self) -> int:
        return 5


def count() -> int:
    """A function to be patched, that somebody else has imported by name."""
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


def values_that_cannot_be_meant_are_refused() -> str | None:
    """One of each variable."""
    from swa_retention.config import ConfigurationError, read

    for variable, value in (
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "-1"),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "often"),
        ("VLLM_PIN_SWA_TOKENS", "2048"),
        ("VLLM_PIN_MIN_DROP_SIZE", "0"),
        ("VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE", "16"),
        ("VLLM_PREFIX_CACHE_PARTIAL_HITS", "-128"),
    ):
        try:
            read({variable: value})
        except ConfigurationError as error:
            if not {variable, repr(value)} <= set(str(error).replace("=", " ").split()):
                return f"{variable}={value!r} is refused by {error}"
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
        ({"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "auto"}, Configuration(32768)),
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


def whoever_imported_it_has_the_new_one() -> str | None:
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
        (Configuration(pins=True), {PINS.name}),
        (Configuration(0, pins=True), {RETAINS.name, PINS.name}),
    ):
        found = {feature.name for feature in features_of(configuration)}
        if not expected <= found or len(found) > 2 or bool(found) != bool(expected):
            return f"{configuration} has {sorted(found)}"
    return None


def an_interval_between_boundaries_is_refused() -> str | None:
    """One token more than the alignment."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.settings import Settings
    from swa_retention.config import Configuration, ConfigurationError
    from swa_retention.patches.attach import attach

    geometry = load("mixed-blocks").geometry
    coordinator = Stock(Settings(geometry, blocks=16, tokens_max=64)).manager.coordinator
    try:
        attach(coordinator, Configuration(geometry.alignment_tokens + 1))
    except ConfigurationError:
        return None
    return "an interval that is no multiple of the alignment is taken"


def a_mask_leaves_blocks_out() -> str | None:
    """Of four blocks three are wanted, and one of these is the null block."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.operations import Arrive, Run
    from kvreference.settings import Settings

    system = Stock(Settings(load("full").geometry, blocks=16, tokens_max=64, tells_events=True))
    system.apply(Arrive(0, (Run(0, 64),)))
    pool: Any = system.manager.block_pool
    request = system._requests[0]
    blocks = pool.get_new_blocks(3)
    blocks.insert(2, pool.null_block)
    pool.cache_full_blocks(request, blocks, 0, 4, 16, 0, block_mask=[True, False, True, True])
    cached = [block.block_hash is not None for block in blocks]
    if cached != [True, False, False, True]:
        return f"cached are {cached}"
    told = [list(event.token_ids) for event in pool.take_events()]
    return None if told == [list(range(16)), list(range(48, 64))] else f"told are {told}"


def the_doctor_tells_by_its_exit_code() -> str | None:
    """A value that cannot be meant."""
    from swa_retention.doctor import MISCONFIGURED, examine

    code, lines = examine({"VLLM_PIN_SWA_TOKENS": "2048"})
    return None if code == MISCONFIGURED else f"exit code {code} with {lines[-1]}"
