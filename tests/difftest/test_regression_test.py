"""A stored case as a plain pytest file.

Goal: the file does what the trace does, needs no trace, and nothing in a trace becomes code. Method: run what was
written, on a system in order and on a faulty one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import CaseRun, Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.gate.regression_test import regression_test
from kvgate.gate.trace_codec import Trace, trace_of
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvgate.levels.manager import DETECTORS, MANAGER, draw_case
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.settings import Settings

CASE = MANAGER.case(
    Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16),
    (Arrive(0, (Run(0, 9),)), Admit(0, 64), Finish(0)),
    model="m",
    preset="p",
    seed=0,
)
DIVERGENCE = Divergence(2, Finish(0), "lockstep", Difference("KV-OP-07", "free queue", "1", "2"))

FAULTY = """
from kvgate.adapters.reference import Reference
from kvreference.operations import Finish

class HeadFirst(Reference):
    def apply(self, operation):
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)
"""

WHOLE = '''\
"""reference 1 on m: KV-OP-07 holds."""

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.levels.registry import LEVELS
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.settings import Settings


def test_replay() -> None:
    """Goal: KV-OP-07 holds. Method: the operations that once showed otherwise."""
    level = LEVELS['blocks']
    settings = Settings(geometry=Geometry(groups=(Group(kind=Kind.FULL, block_size_tokens=4),)), blocks=16)
    operations = [
        Arrive(request=0, prompt=(Run(first=0, length=9),)),
        Admit(request=0, tokens=64),
        Finish(request=0),
    ]
    bench = level.bench(load_system('reference'), ('lockstep', 'check', 'ghost', 'leak', 'work'))
    run = run_case(bench, level.case(settings, operations))
    assert [each for each in run.found() if each.finding is None] == []
'''


def trace(system: str = "reference", divergence: Divergence | None = DIVERGENCE, case: Case = CASE) -> Trace:
    return trace_of(case, divergence, system, "1", DETECTORS)


def test_the_file_says_everything_that_happens() -> None:
    """Word for word; defaults are left out."""
    assert WHOLE == regression_test(trace(), "reference")


def test_a_case_that_shows_nothing_is_a_test_as_well() -> None:
    """Of agreement."""
    assert '"""reference 1 on m: the system and the reference agree."""' in regression_test(
        trace(divergence=None), "reference"
    )


def test_a_patch_goes_with_the_case() -> None:
    """Without the files that were run before it, the system is another one."""
    source = regression_test(trace(), "reference", [Path("my patch.py"), Path("b.py")])
    compile(source, "test", "exec")
    assert "\nfrom pathlib import Path\n" in source
    assert "load_system('reference', [Path('my patch.py'), Path('b.py')])" in source


EVERYTHING = ("compressed+mtp+partial+masked+scratch+pinned=2+transfers", "mamba-align+transfers", "local")


@pytest.mark.parametrize(
    ("name", "preset"),
    [*(("gpt-oss-hybrid+eagle", preset) for preset in PRESETS), *((name, "hostile") for name in EVERYTHING)],
)
def test_nothing_is_lost_on_the_way(name: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings and operations of a whole case come out as they went in: keys, media, drafts, transfers and all."""
    ran: list[Case] = []
    model = load(name)
    case = draw_case(Generator(PRESETS[preset], model.geometry, model.features), Lane(model, preset), "0", 0)
    stored = trace(case=case)

    def note(_bench: object, case: Case) -> CaseRun:
        ran.append(case)
        return CaseRun(case, MANAGER.bench(load_system("reference"), DETECTORS).build(case), (), 0)

    monkeypatch.setattr("kvgate.gate.case_runner.run_case", note)
    names: dict[str, object] = {}
    exec(compile(regression_test(stored, stored.header.system), "test", "exec"), names)
    test_replay = names["test_replay"]
    assert callable(test_replay)
    test_replay()
    (again,) = ran
    assert (case.settings, stored.operations) == (again.settings, again.operations)


HOSTILE = 'x"""\nimport os\nos.abort()\n"""\\" \ud800 \x1b[2J {boom} \\'


def test_nothing_in_a_trace_becomes_code() -> None:
    """Names of systems and models, statements, detectors, salts: the file has a docstring, imports and a test."""
    stored = trace()
    assert stored.header.violates is not None
    header = evolve(
        stored.header,
        system=HOSTILE,
        system_version=HOSTILE,
        model=HOSTILE,
        detectors=(HOSTILE,),
        violates=evolve(stored.header.violates, statement=HOSTILE),
    )
    source = regression_test(evolve(stored, header=header), HOSTILE)
    assert ["Expr", *["ImportFrom"] * 7, "FunctionDef"] == [type(node).__name__ for node in ast.parse(source).body]
    assert all(line.isprintable() for line in source.splitlines())


@pytest.mark.ci
def test_the_file_is_run_by_pytest(tmp_path: Path) -> None:
    """It passes on a system in order and fails on the one that the case was found on."""
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    (tmp_path / "test_sound.py").write_text(regression_test(trace(), "reference"), encoding="utf-8")
    (tmp_path / "test_faulty.py").write_text(
        regression_test(trace("faulty:HeadFirst"), "faulty:HeadFirst"), encoding="utf-8"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfp", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "PASSED test_sound.py::test_replay" in finished.stdout
    assert "FAILED test_faulty.py::test_replay" in finished.stdout
    assert "1 failed, 1 passed" in finished.stdout
