"""vLLM-Ascend changes vLLM before this plug-in does.

vLLM-Ascend replaces specs of vLLM by its own, and that must happen before vLLM's managers are imported. vLLM loads
plug-ins in no particular order, so the first one asks for it. A second request does nothing.
"""

from __future__ import annotations

import importlib
import logging

from swa_retention.unimported import installed

logger = logging.getLogger("vllm.swa_retention")

ASCEND = "vllm_ascend"


def let_ascend_go_first() -> None:
    """Let vLLM-Ascend change vLLM now, where it is installed."""
    if not installed(ASCEND):
        return
    try:
        # It is asked in the way of its own plug-ins.
        importlib.import_module(f"{ASCEND}.utils").adapt_patch(is_global_patch=True)
    except ImportError as error:
        # Then it serves nothing here either: another machine's package, say.
        logger.warning("swa_retention: vLLM-Ascend is installed, and cannot be imported: %s", error)
    except Exception as error:
        raise RuntimeError(
            f"swa_retention asked vLLM-Ascend to change vLLM first, and it could not: {error}"
        ) from error
