"""vLLM's own tests, run in place on the vLLM that is installed, in a process of their own: each with how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
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
    """What stands in for the hub: see ``stand_ins``."""

    def outcomes(self, version: str, *arguments: str, **switches: str) -> dict[str, str]:
        """The tests of vLLM ``version`` that ``arguments`` select, as ``file::test``, each with how it ended."""
        home = archive_of(version)
        report = self.scratch / f"{len(list(self.scratch.iterdir()))}.xml"
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        path = os.pathsep.join((str(home), str(HERE), os.environ.get("PYTHONPATH", "")))
        environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.hub), "VLLM_LOGGING_LEVEL": "ERROR"}
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
            cwd=home,
            env=environment | {"PYTHONPATH": path, **switches},
        )
        assert report.exists(), finished.stdout + finished.stderr
        return {_name(case): _outcome(case) for case in ElementTree.parse(report).getroot().iter("testcase")}


def _name(case: ElementTree.Element) -> str:
    module = str(case.get("classname")).rpartition(".")[2]
    return f"{module}::{case.get('name')}"


def _outcome(case: ElementTree.Element) -> str:
    bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return bad[0] if bad else "passed"
