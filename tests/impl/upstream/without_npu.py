"""A plug-in of pytest with which vLLM-Ascend's own unit tests run on a machine without an NPU.

It comes before the archive's own ``conftest``, which puts mocks in place of parts of ``torch_npu`` and assumes that the
package itself can be imported. ``tables.STAND_INS`` has what stands in for it; no module of vLLM-Ascend is replaced.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from tables import STAND_INS  # type: ignore[import-not-found]  # pytest finds it on the path

_MOCKED = tuple(name for name, stand_in in STAND_INS.items() if stand_in.startswith("a mock"))
SECONDS_MAX = 20
"""How long one test may take: some wait for a peer that never comes."""


class Mocks(MetaPathFinder, Loader):
    """Imports a mock for each module that cannot be had."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        is_mocked = any(name == each or name.startswith(f"{each}.") for each in _MOCKED)
        return ModuleSpec(name, self, is_package=True) if is_mocked else None

    def create_module(self, spec: ModuleSpec) -> Any:
        mock = MagicMock(name=spec.name)
        mock.__path__, mock.__spec__ = [], spec
        return mock

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute."""


# With no visible device vLLM takes Triton without a driver.
os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
sys.meta_path.insert(0, Mocks())
# Before the conftest puts a mock in place of Triton's runtime.
import_module("vllm.triton_utils")
# vLLM-Ascend reloads the one and looks for the other.
for _name in ("torchair.fx_summary", "torchair.npu_fx_compiler"):
    import_module(_name)
vars(import_module("torch"))["npu"] = import_module("torch_npu").npu


def pytest_collection_finish() -> None:
    """Both halves of a buffer are one, from now on."""
    buffers: Any = import_module("vllm.v1.utils").CpuGpuBuffer
    build = buffers.__init__

    def as_one(self: Any, *arguments: Any, **keywords: Any) -> None:
        build(self, *arguments, **keywords)
        if self.gpu.device == self.cpu.device:
            self.gpu = self.cpu

    buffers.__init__ = as_one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """A test that takes too long fails."""

    def late(*_signal: object) -> None:
        raise TimeoutError(f"longer than {SECONDS_MAX} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS_MAX)
    try:
        return (yield)
    finally:
        signal.alarm(0)
