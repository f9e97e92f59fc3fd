"""vLLM's own tests of the block manager, on vLLM 0.20.2 with the plug-in.

Goal: with nothing switched on they say what they say without it; with retention on, all but those that assert the old
order or the dense cache pass; and the tests that came with the features upstream pass on 0.20.2 with the plug-in.
Method: run them in place, in a process of their own, and compare test by test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .archive import archive_of

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed")

HERE = Path(__file__).parent
INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
OLD, NEW = "0.20.2", "0.23.0"
FILES = ("tests/v1/core/test_prefix_caching.py", "tests/v1/core/test_single_type_kv_cache_manager.py")
DENSE = {
    "test_prefill_hybrid_model": "hits in the middle of a prompt, of which retention keeps the last boundary alone",
    "test_prefill_hybrid_model_eagle": "the same, with a draft layer",
    "test_different_block_size": "hits in the middle of a prompt, in blocks of two sizes",
}
"""Tests that assert a dense cache, which retention is there to avoid."""
CAME_WITH_THEM = "retention or prepend or tail_window or swa_free or pure_swa or clamped"
"""The tests that came with the features."""


def outcomes(version: str, *arguments: str, tmp_path: Path, **switches: str) -> dict[str, str]:
    """The tests of vLLM ``version``, run on what is installed: each with how it ended."""
    home = archive_of(version)
    report = tmp_path / f"{len(list(tmp_path.iterdir()))}.xml"
    environment = {name: value for name, value in os.environ.items() if name != INTERVAL}
    path = os.pathsep.join((str(home), str(HERE), os.environ.get("PYTHONPATH", "")))
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": path, **switches}
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=home,
        env=environment,
    )
    assert report.exists(), finished.stdout + finished.stderr
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[str(case.get("name"))] = bad[0] if bad else "passed"
    return found


def test_nothing_changes_before_something_is_switched_on(tmp_path: Path) -> None:
    """Test by test, with the plug-in loaded and without it."""
    without = outcomes(OLD, *FILES, tmp_path=tmp_path)
    assert 66 == len(without)
    assert {"passed"} == set(without.values())
    assert without == outcomes(OLD, *FILES, "-p", "switched_on", tmp_path=tmp_path)


def test_with_retention_what_fails_asserts_a_dense_cache(tmp_path: Path) -> None:
    """Exactly the tests that are named, each with its reason."""
    found = outcomes(OLD, *FILES, "-p", "switched_on", tmp_path=tmp_path, **{INTERVAL: "0"})
    assert 66 == len(found)
    assert set(DENSE) == {name for name, outcome in found.items() if outcome != "passed"}


def test_the_tests_that_came_with_the_features_pass(tmp_path: Path) -> None:
    """Those of vLLM 0.23, which has them."""
    files = (FILES[0], "tests/v1/core/test_kv_cache_utils.py")
    found = outcomes(NEW, *files, "-k", CAME_WITH_THEM, "-p", "newer", tmp_path=tmp_path)
    assert 13 == len(found)
    assert {} == {name: outcome for name, outcome in found.items() if outcome != "passed"}
