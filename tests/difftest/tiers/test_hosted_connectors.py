"""LMCache's connector under a release's scheduler, as a user runs it.

Goal: the published connector loads what it has stored, and shows nothing but its findings; one that loads too little is
found. Method: some thousand operations by the command, with LMCache as it is, and with a mutant of its copies.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.published import published

from kvgate.adapters.releases import LMCACHE, release_named

CHECK = ("check", "--level", "tiers", "--sut", "native@0.33.0", "--connector", "lmcache", "--model", "full+scratch")
MUTANT = """
from kvgate.levels.tiers.adapter import lmcache_connector

made = lmcache_connector._copies


def copies(engines):
    class Wrong(made(engines)):
        def to_gpu(self, memory_obj, start, end, **named):
            if start:
                super().to_gpu(memory_obj, start, end, **named)

    return Wrong


lmcache_connector._copies = copies
"""


def _checked(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvgate.cli", *CHECK, "--time-budget", "25s", "--jobs", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=folder)


@pytest.mark.ci
def test_the_published_connector_shows_its_findings_alone(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    published(LMCACHE)
    ended = _checked(tmp_path)
    assert ended.returncode in (0, 4), ended.stdout[-3000:] + ended.stderr[-2000:]
    assert "no new divergences" in ended.stdout
    assert "Loads within a step: none happened" not in ended.stdout
    (tmp_path / "mutant.py").write_text(MUTANT, encoding="utf-8")
    broken = _checked(tmp_path, "--preload", "mutant.py")
    assert 1 == broken.returncode, broken.stdout[-3000:]
    assert "KV-TIER-01" in broken.stdout
