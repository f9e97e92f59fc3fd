"""The entry point that vLLM calls when it starts, in every process."""

from __future__ import annotations

import logging

from swa_retention.config import Configuration, read
from swa_retention.register import Found, Patch, apply

logger = logging.getLogger("vllm.swa_retention")


def patches_for(configuration: Configuration) -> tuple[Patch, ...]:
    """The patches that ``configuration`` needs: none if nothing is switched on."""
    if configuration.is_inert:
        return ()
    from swa_retention.patches import attach, caching, free_queue, pinning

    retains = caching.PATCHES if configuration.retention_interval_tokens is not None else ()
    pins = pinning.PATCHES if configuration.pins else ()
    return (*free_queue.PATCHES, *retains, *pins, *attach.PATCHES)


def register() -> list[Found]:
    """Read the environment, and put in place what it asks for; with nothing switched on, do nothing.

    Raises:
        ConfigurationError: a variable has a value that it cannot have.
        IncompatibleError: this vLLM is not one that the patches fit; nothing was changed.
    """
    configuration = read()
    found = apply(patches_for(configuration))
    if found:
        from swa_retention.patches.attach import activate

        activate(configuration)
        logger.info("swa_retention: %s; %d symbols of vLLM are patched", configuration, len(found))
    return found
