"""Traces of findings in releases other than the installed one, each run on its own.

Goal: each shows its finding and nothing else. Method: one process per release plays them; it has one vLLM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.published import published

from kvgate.adapters.releases import LMCACHE, release_named
from kvgate.findings.register import FOLDER, id_of

PROGRAM = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.levels.registry import read
from kvgate.levels.tiers.level import take_connector

system, shown = load_system(sys.argv[1]), {}
for name in sys.argv[2:]:
    case = read(Path(name)).case
    if case.level.name == "tiers":
        take_connector(case.stage, case.stage.own or None)
    run = run_case(case.level.bench(system, case.level.gate), case)
    shown[name] = [each.finding for each in (*run.known(), *run.found())]
print(json.dumps(shown))
"""


def traces_by_release() -> Mapping[str, list[Path]]:
    found = defaultdict(list)
    for path in sorted(FOLDER.glob("f*/*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            system = json.loads(next(lines))["system"]
        if system.startswith("native@"):
            found[system].append(path)
    return found


TRACES = traces_by_release()


@pytest.mark.ci
@pytest.mark.parametrize("name", TRACES)
def test_each_shows_its_finding_on_its_own_release(name: str) -> None:
    pytest.importorskip("vllm")
    published(release_named(name))
    published(LMCACHE)
    paths = TRACES[name]
    command = [sys.executable, "-c", PROGRAM, name, *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    shown = json.loads(ended.stdout.splitlines()[-1])
    assert {str(path): True for path in paths} == {
        path: id_of(Path(path).parent.name) in found and None not in found for path, found in shown.items()
    }, shown


def test_there_are_such_traces() -> None:
    """Control: of several releases, at both levels."""
    assert {"native@0.23.0", "native@0.27.1", "native@0.33.0"} <= TRACES.keys()
    assert "trace-state-alone.jsonl" in [path.name for path in TRACES["native@0.33.0"]]
