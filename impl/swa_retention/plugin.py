"""The entry point that vLLM calls when it starts, in every process."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from swa_retention.additional_config import follow
from swa_retention.config import COMPRESSED, VARIABLES, Configuration, read

if TYPE_CHECKING:
    from swa_retention.register import Patch

logger = logging.getLogger("vllm.swa_retention")


def register() -> None:
    """Read the environment, and put in place what it asks for; have vLLM's ``additional_config`` read once it is there.

    Raises:
        ConfigurationError: a variable has a value that it cannot have.
        UnsupportedError: the plug-in does not do on this release what is asked for; nothing was changed.
        IncompatibleError: this vLLM is not one that the patches fit; nothing was changed.
    """
    configuration = read()
    follow(install)
    if configuration.is_inert:
        return
    install(configuration)


def install(configuration: Configuration) -> None:
    """Put in place what ``configuration`` asks for; every block manager that is built from now on has it.

    Raises:
        UnsupportedError: the plug-in does not do on this release what is asked for; nothing was changed.
        IncompatibleError: this vLLM is not one that the patches fit; nothing was changed.
    """
    # Nothing is imported before it is known to be needed.
    from swa_retention.ascend_first import ASCEND, let_ascend_go_first
    from swa_retention.releases import check_release, handed_over, messages

    release = check_release(configuration)
    for message in messages(configuration, release):
        logger.warning("swa_retention: %s", message)
    configuration = handed_over(configuration, release)
    let_ascend_go_first()
    from swa_retention.features import features_of
    from swa_retention.patches.attach import activate
    from swa_retention.register import State, apply, check
    from swa_retention.unimported import installed

    promised: list[Patch] = []
    features = features_of(configuration)
    for feature in features:
        # All of them before any: two features are put in place together, or neither.
        check(feature.patches)
    for feature in features:
        found = apply(feature.patches)
        count = sum(each.state in (State.FITS, State.PATCHED) for each in found)
        logger.info("swa_retention: %s is on, %d symbols of vLLM are patched", feature.name, count)
        promised += feature.patches
    if promised:
        _announce()
    if configuration.compressed_block_size_slots is not None and not installed(ASCEND):
        logger.warning("swa_retention: vLLM-Ascend is not installed, and %s changes no block size", COMPRESSED)
    activate(configuration, promised)


def _announce() -> None:
    """Register the variables with vLLM: it warns of unknown ones, or ends the start if it is configured to."""
    from vllm.envs import environment_variables

    for name in VARIABLES:
        environment_variables.setdefault(name, partial(os.environ.get, name))
