"""TRUST.md names what a reviewer must read: each file or folder is there, and the prover rests on nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"(?<=\]\()[^)]+|(?<=`)\w+/[\w/]+/(?=`)", (ROOT / "TRUST.md").read_text(encoding="utf-8"))


def test_each_trusted_file_is_there() -> None:
    """Goal: no reviewer is sent to a file that has moved. Method: every link and every folder of the page."""
    assert {"reference/kvreference/", "difftest/kvgate/kernel/comparison.py"} < {*NAMED}
    assert [] == [path for path in NAMED if not (ROOT / path).exists()]


def imported_by(files: list[str]) -> set[str]:
    """The files of ``kvspec`` that these files import from."""
    nodes = (node for file in files for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    names = (node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module)
    modules = [f"spec/{name.replace('.', '/')}" for name in names if name.startswith("kvspec.")]
    return {f"{each}/__init__.py" if (ROOT / each).is_dir() else f"{each}.py" for each in modules}


def test_the_prover_rests_on_no_other_file() -> None:
    """Goal: a proof needs no belief in a file that the page does not name. Method: what the named ones import."""
    named = [path for path in NAMED if path.startswith("spec/kvspec/")]
    folders = [path for path in named if path.endswith("/")]
    inside = [file.relative_to(ROOT).as_posix() for path in folders for file in (ROOT / path).glob("*.py")]
    prover = [*(path for path in named if path not in folders), *inside]
    assert {"spec/kvspec/symbolic.py", "spec/kvspec/obligation.py"} < imported_by(prover)
    # The registry lists the obligations, and proves none.
    assert imported_by(prover) <= {*prover, "spec/kvspec/registry.py"}
