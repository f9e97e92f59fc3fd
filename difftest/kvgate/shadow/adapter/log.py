"""What the shadow writes to the engine's log: rarely, and each thing once."""

from __future__ import annotations

import logging
from pathlib import Path

# Below vLLM's own logger, whose handler and format it then has.
_LOGGER = logging.getLogger("vllm.kvgate_shadow")


def note(text: str) -> None:
    """Log something that may be of interest."""
    _LOGGER.info("kvgate shadow: %s", text)


def warn(text: str) -> None:
    """Log a warning: the shadow does less than it was asked to."""
    _LOGGER.warning("kvgate shadow: %s", text)


def raised_at(error: BaseException) -> str:
    """The file below its package, and the line, that raised an exception: nothing of what it says."""
    trace = error.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = Path(trace.tb_frame.f_code.co_filename)
    folders = str(trace.tb_frame.f_globals.get("__name__", "")).count(".") + (file.stem == "__init__")
    return f"{'/'.join(file.parts[-1 - folders :])}:{trace.tb_lineno}"
