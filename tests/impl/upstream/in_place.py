"""vLLM's own tests, run in place in a process of their own: each with how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from attrs import frozen

from swa_retention.config import VARIABLES

from .archive import archive_of

HERE = Path(__file__).parent
SECONDS_MAX = 900


@frozen
class InPlace:
    """Where vLLM's own tests are run."""

    scratch: Path
    """For reports."""
    hub: Path
    """The stand-in for the hub: see ``stand_ins``."""
    path: tuple[Path, ...] = ()
    """Another release, put in front of the installed vLLM."""

    def outcomes(self, version: str, *arguments: str, **switches: str) -> dict[str, str]:
        """The tests of vLLM ``version`` that ``arguments`` select, as ``file::test``, each with how it ended."""
        report = self.scratch / f"{len(list(self.scratch.iterdir()))}.xml"
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.hub)}
        cases = run_tests(archive_of(version), report, arguments, offline | switches, self.path)
        return {_name(case): outcome_of(case) for case in cases}


def run_tests(
    home: Path, report: Path, arguments: Sequence[str], switches: Mapping[str, str], path: Sequence[Path] = ()
) -> list[ElementTree.Element]:
    """Run the tests below ``home`` that ``arguments`` select, with ``path`` in front; the cases of pytest's report."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    searched = os.pathsep.join((*map(str, (home, HERE, *path)), os.environ.get("PYTHONPATH", "")))
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=home,
        env=environment | {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": searched} | dict(switches),
    )
    assert report.exists(), finished.stdout + finished.stderr
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def _name(case: ElementTree.Element) -> str:
    module = str(case.get("classname")).rpartition(".")[2]
    return f"{module}::{case.get('name')}"


def outcome_of(case: ElementTree.Element) -> str:
    """How a case of pytest's report ended."""
    bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return bad[0] if bad else "passed"
