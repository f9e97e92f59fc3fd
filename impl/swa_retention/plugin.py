"""The entry point that vLLM calls when it starts, in every process."""

from __future__ import annotations

import logging

from swa_retention.config import Configuration, read

logger = logging.getLogger("vllm.swa_retention")


def register() -> None:
    """Read the environment, and put in place what it asks for; with nothing switched on, do nothing.

    Raises:
        ConfigurationError: a variable has a value that it cannot have.
        IncompatibleError: this vLLM is not one that the patches fit; nothing was changed.
    """
    configuration = read()
    if configuration.is_inert:
        return
    install(configuration)


def install(configuration: Configuration) -> None:
    """Put in place what ``configuration`` asks for; every block manager that is built from now on has it.

    Raises:
        IncompatibleError: this vLLM is not one that the patches fit; nothing was changed.
    """
    # Nothing is imported before it is known to be needed.
    from swa_retention.features import features_of
    from swa_retention.patches.attach import activate
    from swa_retention.register import State, apply

    for feature in features_of(configuration):
        found = apply(feature.patches, feature.upstream)
        if any(each.state is State.NATIVE for each in found):
            logger.warning("swa_retention: vLLM has %s itself; the plug-in stands aside", feature.name)
        else:
            logger.info("swa_retention: %s is on, %d symbols of vLLM are patched", feature.name, len(found))
    activate(configuration)
