"""The places that run code, and that nothing else does.

Goal: bytes from outside never become code, commands or objects, unless the user names them as code on a command line.
Method: look through the syntax tree of every file for what could do it. Each place that remains has its reason here,
and a reason without its place fails as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("reference", "spec", "impl", "difftest", "mutants", "benchmarks")
UNPACKS_OBJECTS = frozenset(
    {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "yaml", "ctypes"}
)
RUNS = frozenset({"eval", "exec", "__import__"})
CALLS = frozenset(
    {
        *(f"os.{name}" for name in ("system", "popen", "execv", "execve", "execvp", "execvpe", "spawnv", "startfile")),
        *("builtins.eval", "builtins.exec", "subprocess.getoutput", "subprocess.getstatusoutput", "tempfile.mktemp"),
        *(
            "torch.load",
            "numpy.load",
            "np.load",
            "code.interact",
            "pdb.set_trace",
            "runpy.run_path",
            "runpy.run_module",
        ),
        *("pty.spawn", "asyncio.create_subprocess_shell", "commands.getoutput", "types.CodeType", "types.FunctionType"),
    }
)
METHODS = frozenset({"extractall", "extract", "exec_module", "import_module", "unpack_archive"})
"""Called on any object; ``import_module`` of a literal name is an import like any other."""

_OURS = "the names stand in a table of this repository"
ARGUED = {
    (
        "mutants/kvgate_mutants/mutants/scheduler/edited.py",
        "exec",
    ): "an injected fault: the installed vLLM's own source, with a line of ours in it",
    ("spec/kvspec/pictures/gallery.py", "exec"): "the examples of our own chapters, when pictures are drawn",
    ("difftest/kvgate/adapters/fetching.py", "extractall"): "a wheel whose sha256 is one in its release's description",
    ("difftest/kvgate/adapters/registry.py", "import_module"): "--sut module:factory: the user names the code",
    ("difftest/kvgate/adapters/registry.py", "exec_module"): "--preload FILE.py: likewise",
    ("difftest/kvgate/levels/tiers/adapter/own.py", "import_module"): "--connector MODULE:CLASS: likewise",
    ("difftest/kvgate/levels/tiers/adapter/ascend_store.py", "import_module"): _OURS,
    ("difftest/kvgate/levels/tiers/adapter/ascend_store.py", "ctypes"): "the model of the store copies what the "
    "connector's worker points at: bytes of tensors of this process",
    ("difftest/kvgate/adapters/cpu_engine/answering.py", "import_module"): "what the process that started it says, "
    "through a pipe that no other process has",
    ("difftest/kvgate/adapters/cpu_engine/checkpoint.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/ascend_wheel.py", "import_module"): _OURS,
    ("difftest/kvgate/levels/scheduler/adapter/stage.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/signatures.py", "import_module"): _OURS,
    ("spec/kvspec/executed.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/model_runner/runner.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/model_runner/block_memory.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/model_runner/stand_ins.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/model_runner/newest.py", "import_module"): _OURS,
    ("difftest/kvgate/shadow/adapter/model_runner.py", "import_module"): _OURS,
    ("difftest/kvgate/adapters/model_runner/later_ascend.py", "import_module"): _OURS,
    ("mutants/kvgate_mutants/mutants/mutant.py", "import_module"): _OURS,
    ("difftest/kvgate/kernel/extras.py", "import_module"): "names of packages that the commands themselves need",
    ("difftest/kvgate/simulation/arm.py", "import_module"): _OURS,
    ("difftest/kvgate/simulation/catalogue.py", "import_module"): _OURS,
    ("impl/swa_retention/ascend_first.py", "import_module"): _OURS,
    ("impl/swa_retention/register.py", "import_module"): _OURS,
    ("difftest/kvgate/doctor/probe.py", "runpy.run_module"): "the plug-in's own doctor, in a process of its own",
    (
        "difftest/kvgate/sanitizer/__main__.py",
        "runpy.run_path",
    ): "the script that the user names, as Python runs it",
    ("spec/kvspec/obligation.py", "import_module"): _OURS,
    ("spec/kvspec/registry.py", "import_module"): _OURS,
    ("benchmarks/registry.py", "import_module"): _OURS,
}
"""Where something is run or unpacked, and why."""


def found_in(text: str) -> Iterator[str]:
    """The code of a file that could run its input."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in UNPACKS_OBJECTS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UNPACKS_OBJECTS:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            yield from _called(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            # A program in a string, such as one after "-c".
            with suppress(SyntaxError, ValueError):
                yield from list(found_in(node.value))


def _called(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    method = name.rpartition(".")[2]
    if name in RUNS or name in CALLS:
        yield name
    elif method in METHODS and not (method == "import_module" and _is_written(node)):
        yield method
    if any(each.arg == "shell" and not _is_false(each.value) for each in node.keywords):
        yield "shell"
    if any(each.arg == "allow_pickle" and not _is_false(each.value) for each in node.keywords):
        yield "allow_pickle"


def _is_written(node: ast.Call) -> bool:
    """Whether the module's name is in the program itself, at least its package."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.JoinedStr):
        first = first.values[0]
    return isinstance(first, ast.Constant)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_nothing_from_outside_is_run() -> None:
    """Goal and method: as above, over all packages and benchmarks."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = {
        (path.relative_to(ROOT).as_posix(), what)
        for path in files
        for what in found_in(path.read_text(encoding="utf-8"))
    }
    assert set(ARGUED) == found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import pickle", ["pickle"]),
        ("from yaml import load", ["yaml"]),
        ("import marshal as m", ["marshal"]),
        ("eval(text)", ["eval"]),
        ("exec(compile(text, 'a', 'exec'))", ["exec"]),
        ("os.system(text)", ["os.system"]),
        ("subprocess.run(text, shell=True)", ["shell"]),
        ("subprocess.run(text, shell=how)", ["shell"]),
        ("subprocess.run([a], shell=False)", []),
        ("archive.extractall(folder)", ["extractall"]),
        ("tempfile.mktemp()", ["tempfile.mktemp"]),
        ("torch.load(path)", ["torch.load"]),
        ("np.load(path, allow_pickle=True)", ["np.load", "allow_pickle"]),
        ("importlib.import_module(name)", ["import_module"]),
        ("importlib.import_module(f'{name}.x')", ["import_module"]),
        ("importlib.import_module('vllm')", []),
        ("importlib.import_module(f'kvgate.{name}')", []),
        ("run([python, '-c', 'import os; os.system(line)'])", ["os.system"]),
        ("run([python, '-c', 'import os; print(os.getcwd())'])", []),
        ("'nobody can import os.system(line)'", []),
        ("model.eval(term)", []),
        ("folder = factory.mktemp('a')", []),
    ],
)
def test_it_would_be_found(line: str, expected: list[str]) -> None:
    """Goal: the scan can fail. Method: a line of each kind, and lines that only look like one."""
    assert expected == list(found_in(line))
