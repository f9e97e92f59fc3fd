"""vLLM-Ascend is imported first.

Goal: where it is installed it has changed vLLM before this plug-in imports any of it, and if it cannot be imported the
operator gets a message. Method: a package of that name of our own, in interpreters of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swa_retention.ascend_first import let_ascend_go_first

pytestmark = pytest.mark.ci

PROGRAM = """
import sys
from swa_retention.config import Configuration
from swa_retention.plugin import install
install(Configuration(compressed_block_size_slots=64))
print("went first:", sys.modules["vllm_ascend.utils"].before)
"""


def run(folder: Path, utils: str, level: str = "ERROR") -> subprocess.CompletedProcess[str]:
    """The plug-in installed together with a vLLM-Ascend whose ``utils`` are these."""
    pytest.importorskip("vllm")
    package = folder / "vllm_ascend"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "utils.py").write_text(utils)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(folder), "VLLM_LOGGING_LEVEL": level},
    )


def test_it_has_changed_vllm_before_the_plug_in_imports_any_of_it(tmp_path: Path) -> None:
    """It is asked with its own call, for all of it; what does not fit is rejected after that."""
    ended = run(
        tmp_path,
        "import sys\n\ndef adapt_patch(is_global_patch=False):\n    global before\n"
        "    before = is_global_patch and not any(name.startswith('vllm.v1') for name in sys.modules)\n"
        "    print('went first:', before)\n",
    )
    assert "went first: True" == ended.stdout.splitlines()[-1]
    assert "vllm_ascend.utils:refresh_block_size: missing" in ended.stderr


def test_one_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    """The plug-in continues, up to what does not fit."""
    ended = run(tmp_path, "import torch_npu\n", "WARNING")
    # vLLM's loggers print to standard output.
    assert "vLLM-Ascend is installed, and cannot be imported: No module named 'torch_npu'" in ended.stdout
    assert "vllm_ascend.utils:refresh_block_size: missing" in ended.stderr


def test_where_it_is_not_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Most machines have none."""
    let_ascend_go_first()
    assert [] == caplog.records
