"""The reference's source: it imports the standard library and attrs only, and asks each question once."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import kvreference
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish
from kvreference.settings import Settings

from .flags import flags_of, places

ROOT = Path(kvreference.__file__).parent
SOURCES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text(encoding="utf-8")
    for file in sorted(ROOT.glob("**/*.py"))
}

ALLOWED = {*sys.stdlib_module_names, "attrs", "kvreference"}


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else (node.module or "").partition(".")[0])
    return names


def test_it_imports_the_standard_library_and_attrs_only() -> None:
    """Goal: trusting the reference takes no trust in vLLM, torch or z3. Method: read every import statement."""
    strangers = {module: imported(source) - ALLOWED for module, source in SOURCES.items()}
    assert {} == {module: found for module, found in strangers.items() if found}


def test_a_stranger_would_be_found() -> None:
    """Goal: the scan can fail. Method: imports at the top, inside a function, relative."""
    source = "import vllm.v1\ndef late():\n    from torch.nn import Module\nfrom . import other\nimport math"
    assert {"vllm", "torch", "."} == imported(source) - ALLOWED


FLAGS = flags_of(Settings, Group, Geometry, Arrive, Admit, Finish)

TWICE: dict[str, dict[str, str]] = {
    "scratch_first": {
        "block_pool.BlockPool.__init__": "chooses the queue that keeps the order",
        "manager.Manager.snapshot": "whether the order is promised: by design some releases keep it less strictly",
        "snapshot._check_scratch": "checks whether it was kept, of any system: a check asks for itself",
    },
    "loads": {
        "manager.Manager._admit": "whether the tokens arrive later, and the last one with them",
        "population.Population._compute": "follows what was granted",
    },
}
"""The flags that are tested in more than one function: all of these functions, each with what it asks."""


def test_no_flag_is_tested_in_more_than_one_place() -> None:
    """Goal: an option is decided once, and what follows from it is chosen there: nothing is right with one half of an
    option and wrong with the other.

    Method: find the functions that read each flag of a system or a request (see ``flags``); exceptions are named, and
    none is named without need. Values derived from a flag, such as ``Group.fences``, may be asked anywhere.
    """
    found = {flag: functions for flag, functions in places(SOURCES, FLAGS).items() if len(functions) > 1}
    assert {flag: set(functions) for flag, functions in TWICE.items()} == found


def test_every_flag_is_tested() -> None:
    """Goal: every option has an effect, and the scan loses none. Method: each has a place."""
    assert {"caches", "lookahead", "window_tokens", "states", "reads_cache", "loads", "sends"} < FLAGS
    assert set() == {flag for flag, functions in places(SOURCES, FLAGS).items() if not functions}


SYNTHETIC = """
class System:
    brisk: bool
    window: int | None
    size: int
    @brisk.validator
    def _validate(self, attribute, brisk):
        if brisk and self.window: raise ValueError

class Other:
    window: int
    def length(self): return self.window

def build(system: System): return Queue(system.brisk, window=system.window)

class Queue:
    def __init__(self, brisk: bool, window: int): self.kind = Fast if brisk else Slow
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"brisk": {"m.Queue.__init__"}, "window": set()}),
        # A test in a second function, of the class itself or of an object that holds it, and in a nested one.
        ("def again(system: System): return system.brisk", {"brisk": {"m.Queue.__init__", "m.again"}, "window": set()}),
        ("def far(x): return not x.y[0].window", {"brisk": {"m.Queue.__init__"}, "window": {"m.far"}}),
        ("def f(s):\n def g(): return s.window", {"brisk": {"m.Queue.__init__"}, "window": {"m.f.g"}}),
        # To hand on what follows from it, to let a built-in function test it, and to match it: all of these decide.
        ("def f(s): g(not s.window)", {"brisk": {"m.Queue.__init__"}, "window": {"m.f"}}),
        ("def f(s): g(bool(s.window))", {"brisk": {"m.Queue.__init__"}, "window": {"m.f"}}),
        ("def f(s): w = s.window", {"brisk": {"m.Queue.__init__"}, "window": {"m.f"}}),
        # A parameter that is a flag by its name and by what it may be; one that is not.
        ("def f(window=None): return window", {"brisk": {"m.Queue.__init__"}, "window": {"m.f"}}),
        ("def f(window: int): return window", {"brisk": {"m.Queue.__init__"}, "window": set()}),
        # A write is not a read; a field of another class, and no flag there, is not this one.
        ("def f(s): s.window = 1", {"brisk": {"m.Queue.__init__"}, "window": set()}),
        ("def f(o: Other): return o.window", {"brisk": {"m.Queue.__init__"}, "window": set()}),
    ],
)
def test_a_second_place_would_be_found(more: str, expected: dict[str, set[str]]) -> None:
    """Goal: the scan can fail, and does not without a reason. Method: a small source, with one function more."""
    assert expected == places({"m": SYNTHETIC + more}, ["brisk", "window"])
