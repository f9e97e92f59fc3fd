"""What the shadow writes to the engine's log: rarely, and each thing once."""

from __future__ import annotations

import logging

# Below vLLM's own logger, whose handler and format it then has.
_LOGGER = logging.getLogger("vllm.kvgate_shadow")


def note(text: str) -> None:
    """Log something that may be of interest."""
    _LOGGER.info("kvgate shadow: %s", text)


def warn(text: str) -> None:
    """Log a warning: the shadow does less than it was asked to."""
    _LOGGER.warning("kvgate shadow: %s", text)
