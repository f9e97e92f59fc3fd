"""A finding of two tiers is shown by its release, and excuses nothing but itself.

Goal: each trace shows its finding; where one fact of the finding's condition does not hold, the same divergence is new.
Method: each trace on the release that it names, in one process per release; then one fact of the engine or of the
divergence is changed, and the findings of the release are asked again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.difftest.tiers.neighbours import NEIGHBOURS, OF_OWN
from tests.published import published

from kvgate.adapters.releases import LMCACHE, release_named
from kvgate.findings.register import FOLDER, all_findings, id_of
from kvgate.gate.trace_codec import level_of
from kvgate.levels.registry import read
from kvgate.levels.tiers.level import TIERS

ROOT = Path(__file__).parents[3]
TRACES = [path for path in sorted(FOLDER.glob("*/*.jsonl")) if level_of(path, [TIERS])]
PROGRAM = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.findings import explain_tiers
from kvgate.gate.case_runner import run_case
from kvgate.levels.registry import read
from kvgate.levels.tiers.level import TIERS, take_connector
from tests.difftest.tiers.neighbours import NEIGHBOURS

bench, said = TIERS.bench(load_system(sys.argv[1]), TIERS.gate), {}
for name in sys.argv[2:]:
    case = read(Path(name)).case
    take_connector(case.stage, case.stage.own or None)
    said[name] = [[each.finding for each in run_case(bench, case).found()]]
    for change in NEIGHBOURS[Path(name).parent.name[1:4]]:
        run = run_case(bench, case)
        (divergence,) = run.divergences
        (engine,) = TIERS.parts(run.world, case)
        said[name].append([explain_tiers(change(divergence, engine) or divergence, engine)])
print(json.dumps(said))
"""


def system_of(path: Path) -> str:
    return read(path).header.system


def test_each_finding_has_a_neighbour() -> None:
    """Goal: none is left out. Method: compare with the findings that this level knows."""
    known = {finding.id[:3] for finding in all_findings() if finding.explains_tiers} - OF_OWN
    assert known == NEIGHBOURS.keys()
    assert known == {path.parent.name[1:4] for path in TRACES}


@pytest.mark.ci
@pytest.mark.parametrize("system", sorted({system_of(path) for path in TRACES}))
def test_a_release_shows_its_findings_and_these_excuse_no_neighbour(system: str) -> None:
    pytest.importorskip("vllm")
    published(release_named(system))
    published(LMCACHE)
    paths = [path for path in TRACES if system_of(path) == system]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, system, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=ROOT,
    )
    assert 0 == ended.returncode, ended.stderr[-3000:]
    said = json.loads(ended.stdout.splitlines()[-1])
    for path in paths:
        shown, *neighbours = said[str(path)]
        assert [id_of(path.parent.name)] == shown
        assert neighbours
        assert [[None]] * len(neighbours) == neighbours, path
