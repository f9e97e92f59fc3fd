"""The entry point that vLLM calls in each of its processes: the sanitizer for scripts and servers.

``KVGATE_SANITIZE=1`` raises ``MisuseError`` where a block is misused. ``KVGATE_SANITIZE=log`` writes to vLLM's log and
never raises. With the variable unset, or 0, this imports and changes nothing.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

from kvgate.sanitizer import VARIABLE

if TYPE_CHECKING:
    from kvgate.sanitizer.adapter.hooks import Sanitizer
    from kvgate.sanitizer.misuse import Misuse

SAME_MAX = 3
"""How often the same misuse is logged: of one kind, seen at one place."""
LOGGED_MAX = 200
"""How many misuses are logged at all."""
# Below vLLM's own logger, whose handler and format it then has.
_LOGGER = logging.getLogger("vllm.kvgate_sanitizer")
installed: list[Sanitizer] = []
"""The sanitizer of this process, once there is one."""


def register() -> None:
    """Watch every block manager of this process, if the environment asks for it. Never raises."""
    mode = os.environ.get(VARIABLE, "")
    if mode in ("", "0") or installed:
        return
    try:
        if mode not in ("1", "log"):
            raise ValueError(f"{VARIABLE}={mode} is unknown: it is 1 or log")
        from kvgate.sanitizer.adapter.hooks import Sanitizer
        from kvgate.sanitizer.misuse import raise_it

        sanitizer = Sanitizer(raise_it if mode == "1" else Log())
        # Not now: swa_retention replaces functions only if they are vLLM's own, and may be loaded after this.
        sanitizer.install_at_first_pool()
        installed.append(sanitizer)
        _LOGGER.info("kvgate sanitizer: is on")
    except Exception as error:
        _LOGGER.warning("kvgate sanitizer: is off: %s: %s", type(error).__name__, error)


class Log:
    """Writes misuses to the log: each a few times, and not without end."""

    def __init__(self) -> None:
        self._logged: Counter[tuple[str, str]] = Counter()

    def __call__(self, misuse: Misuse) -> None:
        same = misuse.kind, str(misuse.at)
        if self._logged.total() >= LOGGED_MAX or self._logged[same] >= SAME_MAX:
            return
        self._logged[same] += 1
        _LOGGER.error("%s", misuse)
        if self._logged.total() == LOGGED_MAX:
            _LOGGER.error("kvgate sanitizer: %d misuses were logged; no more are", LOGGED_MAX)
