"""A process in which vLLM-Ascend's published modules are imported: they change vLLM for good.

What needs an NPU has a stand-in (``kvgate.adapters.model_runner.stand_ins``). The modules under test are the published
ones. Where the wheel cannot be had, the tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE

SECONDS_MAX = 300
SETUP = """
import importlib, json, sys
from kvgate.adapters.ascend_wheel import ascend_folder, enter, import_managers
from kvgate.adapters.model_runner import stand_ins
from swa_retention.config import Configuration
from swa_retention.patches.attach import activate
from swa_retention.plugin import install

folder = ascend_folder()

def tell(**found):
    print("\\n" + json.dumps(found))
"""


def output_of(program: str, **switches: str) -> Any:
    """The output of ``program`` in a process that has vLLM-Ascend's modules."""
    pytest.importorskip("vllm")
    folder = published()
    finished = subprocess.run(
        [sys.executable, "-c", SETUP + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        env={**os.environ, WHERE: str(folder), "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": "", **switches},
    )
    assert 0 == finished.returncode, finished.stderr[-3000:]
    return json.loads(finished.stdout.splitlines()[-1])
