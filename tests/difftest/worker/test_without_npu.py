"""``pytest difftest/ --npu-sim`` and ``--npu`` on a machine without an NPU, and the page on what is run there.

Goal: the simulated run tests the published worker and fails where it is broken. A run that asks for a missing device
says so. The page says what is published and what starts. Method: the commands, in processes of their own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.impl.upstream.archive import ascend_sources
from tests.published import published

from kvgate.adapters import ascend_wheel
from kvgate.adapters.ascend_wheel import PACKAGE, WHERE
from kvgate.adapters.model_runner import runner
from kvgate.adapters.model_runner.block_sizes import kernel_sizes, supported
from kvgate.adapters.model_runner.operators import LIMITS, WORKER, names_in, operators
from kvgate.adapters.registry import ASCEND_WORKERS
from kvgate.adapters.releases import LATER_ASCEND
from kvgate.levels.worker.page import AGREES, COMMAND, UNSUPPORTED, page, parsed, rows

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

    from kvgate.adapters.releases.description import Release

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "difftest" / "ASCEND.md"
GATE = ("-m", "pytest", "-p", "no:cacheprovider", "-n0", str(ROOT / "difftest"), "-q")
ONE_LATE = """
import vllm_ascend.worker.block_table as home
original = home.BlockTable.compute_slot_mapping_draft
home.BlockTable.compute_slot_mapping_draft = lambda self, rows, positions: original(self, rows, positions + 1)
"""
BROKEN_BY = ("--profile", "precommit", "--preload")
"""With a profile that gives little time to shrink; the number of cases is the same with any."""
BROKEN = """
import json, sys
from kvgate.adapters.registry import load_system
from kvgate.levels.worker.page import outcomes
load_system(sys.argv[1])
from kvgate_mutants.mutants.worker import slots_one_late
with slots_one_late.applied():
    print(json.dumps(outcomes(sys.argv[1])))
"""
ROW_OF_A_LATER_ONE = "| `ascend-worker@"
ELSEWHERE = """
from attrs import evolve
from kvgate.adapters.device import npu
from kvgate.adapters.model_runner import stand_ins
from kvgate.adapters.registry import load_system
from kvgate.gate.campaign import Campaign
from kvgate.gate.level import LevelChoice
from kvgate.kernel.models import load
from kvgate.levels.registry import prepare
(prepared,) = prepare(LevelChoice.WORKER, load_system("stock"), [load("full")], "precommit")
stand_ins.interpret("vllm.v1.worker.block_table", "_compute_slot_mapping_kernel")
npu._used[0] = "meta"
plan = evolve(prepared.plan, operations=200, kinds_max=1, shrinks=False)
print(Campaign(prepared.trials, plan).run().found[0].divergence.difference.got)
"""
NEVER_RUN = """
import sys
from functools import reduce
from pathlib import Path
from kvgate.adapters.registry import load_system
load_system(sys.argv[2])
import torch, torch_npu
import vllm_ascend.worker.model_runner_v1
from kvgate.adapters.model_runner.operators import operators
for each in operators(Path(sys.argv[1])):
    root, _, rest = each.name.partition(".")
    if each.never_run:
        try:
            reduce(getattr, rest.split("."), {"torch": torch, "torch_npu": torch_npu}[root])
        except AttributeError:
            pass
        else:
            # vLLM-Ascend registers it itself, for an NPU.
            library, name = rest.split(".")[1:]
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{library}::{name}", "CPU"), each.name
        print(each.name)
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where vLLM-Ascend is."""
    return published()


@pytest.mark.ci
@pytest.mark.skipif("torch_npu" in sys.modules, reason="there is one")
@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--npu",), 3, "--npu: no NPU: torch_npu cannot be imported"),
        (("--npu=1",), 3, "Without an NPU, pytest difftest/ --npu-sim runs the same tests on the CPU"),
        (("--npu=first",), 4, "--npu=first: give the number of a device"),
        (("--npu", "--npu-sim"), 4, "--npu and --npu-sim: give one of them"),
    ],
)
def test_a_device_that_is_not_here(options: tuple[str, ...], code: int, says: str, fork_server: ForkServer) -> None:
    """One message, and nothing is run."""
    finished = fork_server.run(*GATE, *options, timeout=120, cwd=ROOT)
    assert code == finished.returncode
    assert says in finished.stdout + finished.stderr
    assert "passed" not in finished.stdout


@pytest.mark.parametrize(("version", "refused"), [("0.20.2rc1", False), ("0.23.0", True)])
def test_on_an_npu_the_installed_package_is_used(
    version: str, refused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is fetched; another version is rejected before anything of it is run. The NPU is a stand-in."""
    home = tmp_path / PACKAGE
    shutil.copytree(published() / PACKAGE, home)
    (home / "__init__.py").write_text("", encoding="utf-8")
    (home / "_version.py").write_text(f"__version__ = version = {version!r}\n", encoding="utf-8")
    (home / "utils.py").write_text("def adapt_patch(is_global_patch):\n    pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    monkeypatch.setattr(runner, "used_device", lambda: "npu:0")
    monkeypatch.setattr(ascend_wheel, "fetch", lambda *_: pytest.fail("fetched"))
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    try:
        if refused:
            with pytest.raises(ascend_wheel.AscendUnavailableError, match=r"holds vllm_ascend 0\.23\.0, and not 0\.20"):
                runner.install_ascend_worker()
        else:
            runner.install_ascend_worker()
            assert tmp_path == ascend_wheel.ascend_folder()
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("driver", "sound"),
    [
        ("are_those_granted", True),
        ("are_those_granted", False),
        pytest.param("hypothesis_asks_for and legal", True, marks=pytest.mark.deep),
        ("hypothesis_asks_for and legal", False),
    ],
)
def test_a_simulated_run(driver: str, sound: bool, fork_server: ForkServer, folder: Path, tmp_path: Path) -> None:
    """Both drivers pass the published worker, and fail one that writes each token a slot late."""
    broken = tmp_path / "one_late.py"
    broken.write_text(ONE_LATE, encoding="utf-8")
    chosen = f"{driver} and ascend-worker and not retention and not mtp"
    options = ("--npu-sim", "--time-budget", "5s", "-k", chosen, *(() if sound else ("-x", *BROKEN_BY, str(broken))))
    finished = fork_server.run(*GATE, *options, env={WHERE: str(folder)}, timeout=300, cwd=ROOT)
    assert (0 if sound else 1) == finished.returncode, finished.stdout[-2000:]
    assert sound is not ("KV-MEM-03" in finished.stdout)


@pytest.mark.ci
def test_the_page_is_current(fork_server: ForkServer, folder: Path) -> None:
    """The names in the published source, and the end of each system's steps, but for later releases."""
    found = {}
    for system in ASCEND_WORKERS:
        program = ("-m", "kvgate.levels.worker.page", system)
        finished = fork_server.run(*program, env={WHERE: str(folder), "VLLM_LOGGING_LEVEL": "ERROR"}, timeout=300)
        assert 0 == finished.returncode, finished.stderr[-2000:]
        found[system] = parsed(finished.stdout)
    later = {each.version: published(each) for each in LATER_ASCEND}
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if not line.startswith(ROW_OF_A_LATER_ONE)]
    assert page(folder, found, later).splitlines() == lines, f"write it with {COMMAND}"


@pytest.mark.deep
@pytest.mark.parametrize("release", LATER_ASCEND, ids=lambda each: each.worker_name)
def test_the_page_has_the_rows_of_later_releases(release: Release) -> None:
    """All of them, in their order."""
    published(release)
    command = [sys.executable, "-m", "kvgate.levels.worker.page", release.worker_name]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    expected = [f"| {' | '.join(row)} |" for row in rows(release.worker_name, parsed(finished.stdout))]
    found = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{release.worker_name}`")
    ]
    assert expected == found, f"write it with {COMMAND}"


@pytest.mark.ci
@pytest.mark.parametrize("system", ASCEND_WORKERS)
def test_the_table_shows_what_is_broken(system: str, fork_server: ForkServer, folder: Path) -> None:
    """No cell of a worker that writes each token a slot late says that it agrees."""
    environment = {WHERE: str(folder), "VLLM_LOGGING_LEVEL": "ERROR"}
    finished = fork_server.run("-c", BROKEN, system, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    cells = {text for by_size in parsed(finished.stdout).values() for text in by_size.values()}
    assert AGREES not in cells
    assert cells > {UNSUPPORTED} if system == "ascend-worker" else UNSUPPORTED not in cells


@pytest.mark.ci
def test_what_is_never_run_cannot_be(fork_server: ForkServer, folder: Path) -> None:
    """In the process in which the worker is run, each of these operators is absent, or has no kernel for a CPU."""
    finished = fork_server.run("-c", NEVER_RUN, str(folder), "ascend-worker", env={WHERE: str(folder)}, timeout=300)
    _check_never_run(finished, folder)


@pytest.mark.deep
@pytest.mark.parametrize("release", LATER_ASCEND, ids=lambda each: each.worker_name)
def test_what_later_releases_never_run_cannot_be(release: Release) -> None:
    """The same of the operators that they name."""
    folder = published(release)
    command = [sys.executable, "-c", NEVER_RUN, str(folder), release.worker_name]
    _check_never_run(subprocess.run(command, capture_output=True, text=True, timeout=400, check=False), folder)


def _check_never_run(finished: Any, folder: Path) -> None:
    assert 0 == finished.returncode, finished.stderr[-2000:]
    absent = {line for line in finished.stdout.splitlines() if line.startswith("torch")}
    assert {each.name for each in operators(folder) if each.never_run} == absent


@pytest.mark.ci
def test_the_device_is_where_tables_are(fork_server: ForkServer) -> None:
    """On a device of torch that computes nothing, nothing can be read back."""
    finished = fork_server.run("-c", ELSEWHERE, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    assert "meta" in finished.stdout.splitlines()[-1]


def test_every_operator_is_named_once() -> None:
    """Dotted names from torch's libraries and torch_npu, where they are called, indexed or passed; and kernels."""
    source = (
        "import torch_npu\n"
        "torch_npu.npu_one(torch.ops.lib.two(x).shape)\n"
        "run(torch.npu.three, torch.zeros(1), other.torch_npu.no, hasattr(torch.ops.lib, 'two'))\n"
        "torch_npu.four.out(y).unflatten(0)\n"
        "_five_kernel[(1,)](x)\n"
    )
    named = ["_five_kernel", "torch.npu.three", "torch.ops.lib.two", "torch_npu.four.out", "torch_npu.npu_one"]
    assert named == sorted(names_in(source))


def test_a_further_operator_is_on_the_page(folder: Path, tmp_path: Path) -> None:
    """A wheel that calls one more has one more row, and a wheel without the worker has no page."""
    shutil.copytree(folder / PACKAGE, tmp_path / PACKAGE)
    with (tmp_path / PACKAGE / WORKER).open("a", encoding="utf-8") as file:
        file.write("\ntorch_npu.npu_new_operator()\n")
    before, after = ({each.name for each in operators(each)} for each in (folder, tmp_path))
    assert {"torch_npu.npu_new_operator"} == after - before
    (tmp_path / PACKAGE / WORKER).unlink()
    with pytest.raises(FileNotFoundError):
        operators(tmp_path)


def test_kernel_block_sizes(folder: Path) -> None:
    """Of 0.20.2rc1, as its source lists them."""
    assert (8, 32, 128) == kernel_sizes(folder)
    assert [False, False, True] == [line.endswith("slots: supported") for line in supported(folder)]


@pytest.mark.deep
def test_limits_of_compiled_operators() -> None:
    """Each is what the source archive says."""
    sources = ascend_sources()
    for each in LIMITS:
        assert re.search(each.says, (sources / each.source).read_text(encoding="utf-8")), each.operator
