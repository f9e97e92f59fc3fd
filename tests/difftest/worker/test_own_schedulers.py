"""vLLM-Ascend's own schedulers on a CPU.

Goal: the page says of each release which of them import, and which import fails. Method: import every scheduler that is
published, in a process that has started that release's worker, and compare with the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from tests.published import published

from kvgate.adapters.releases import ASCEND, LATER_ASCEND
from kvgate.adapters.releases.description import Release
from kvgate.findings.register import FOLDER

PAGE = Path(__file__).parents[3] / "difftest" / "ASCEND.md"
RELEASES = (ASCEND, *LATER_ASCEND)
PROGRAM = """
import importlib, json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system

load_system(sys.argv[1])
import vllm_ascend

found = {}
for path in sorted(Path(vllm_ascend.__path__[0], "core").glob("*sched*.py")):
    try:
        importlib.import_module(f"vllm_ascend.core.{path.stem}")
        found[path.stem] = "imports"
    except ImportError as error:
        found[path.stem] = str(error)
print(json.dumps(found))
"""


def on_the_page(release: Release) -> dict[str, str]:
    """The table's entry for each scheduler of a published release."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Its own schedulers")
    table = section[section.index("| module") :].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    column = rows[0].index(release.version)
    return {row[0].strip("`"): row[column] for row in rows[2:] if row[column] != "not published"}


@pytest.mark.ci
@pytest.mark.few(1)
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_the_page_says_which_schedulers_import(release: Release) -> None:
    """One that is run imports, too."""
    published(release)
    command = [sys.executable, "-c", PROGRAM, release.worker_name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-2000:]
    said = {module: "imports" if text == "run" else text for module, text in on_the_page(release).items()}
    assert json.loads(ended.stdout.splitlines()[-1]) == said


SHOWS = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.gate.trace_codec import Violated
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER

system, shown = load_system("ascend-recompute"), {}
for name in sys.argv[1:]:
    trace = read(Path(name))
    run = run_case(SCHEDULER.bench(system, SCHEDULER.gate), trace.case)
    shown[name] = [Violated.by(each) == trace.header.violates for each in run.divergences]
model = SCHEDULER.draw(load("compressed+whole-slots"), "legal", "1")
bench = SCHEDULER.bench(system, SCHEDULER.gate)
run = run_case(bench, SCHEDULER.allowed(bench, model))
print(json.dumps([shown, run.performed, [str(each) for each in run.divergences]]))
""".replace("system, shown", "from kvgate.kernel.models import load\nsystem, shown")


@pytest.mark.ci
def test_the_scheduler_that_recomputes_is_followed() -> None:
    """It shows its declared findings, and nothing in a case generated for it."""
    published(ASCEND)
    traces = [str(path) for number in ("073", "074") for path in FOLDER.glob(f"f{number}*/trace.jsonl")]
    command = [sys.executable, "-c", SHOWS, *traces]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-2000:]
    shown, performed, found = json.loads(ended.stdout.splitlines()[-1])
    assert {name: [True] for name in traces} == shown
    assert performed
    assert [] == found
