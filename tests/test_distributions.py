"""The three distributions: what each wheel contains and requires, and what works where only that wheel is installed.

Goal: a serving container that installs the plug-in gets the plug-in and attrs; attaching a shadow to a server brings no
solver and no mutants. Method: build the wheels and read them; install each into an empty environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[1]
UV = os.environ.get("UV", "uv")
HEAVY = ("z3-solver", "hypothesis", "vllm", "torch", "ray", "matplotlib", "pytest")
"""Packages that may not be hard dependencies of kvgate."""


SOURCES = {
    "reference": "kvreference",
    "spec": "kvspec",
    "difftest": "kvgate",
    "mutants": "kvgate_mutants",
    "impl": "swa_retention",
}
"""The package in each folder of the repository."""


@frozen
class Wheel:
    """A built distribution."""

    path: Path
    packages: frozenset[str]
    """The packages at the top."""
    files: frozenset[str]
    requires: tuple[str, ...]
    """Its hard dependencies: the names, with their extras."""
    version: str
    described_in: str | None
    """The content type of its description, if it has one."""
    entry_points: dict[str, dict[str, str]]
    """By group."""


def wheel_at(path: Path) -> Wheel:
    """Read a wheel."""
    with zipfile.ZipFile(path) as archive:
        files = archive.namelist()
        (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = ConfigParser()
        entry_points.optionxform = str  # type: ignore[assignment, method-assign]  # as configparser documents
        entry_points.read_string(archive.read(f"{info}/entry_points.txt").decode())
    hard = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    return Wheel(
        path,
        frozenset(name.partition("/")[0] for name in files) - {info},
        frozenset(files),
        tuple(sorted(each.partition(">")[0].partition("=")[0] for each in hard)),
        metadata["Version"],
        metadata["Description-Content-Type"] if str(metadata.get_payload()).strip() else None,
        {group: dict(entry_points[group]) for group in entry_points.sections()},
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    """All wheels of the workspace, by distribution."""
    folder = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [UV, "build", "--all-packages", "--wheel", "--out-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return {path.name.partition("-")[0]: wheel_at(path) for path in folder.glob("*.whl")}


@pytest.mark.ci
def test_all_wheels_are_of_the_newest_version_in_the_changelog(wheels: dict[str, Wheel]) -> None:
    """Goal: what is uploaded is what the changelog and the citation describe. Method: read all of them."""
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert cited
    assert {newest[1]} == {cited[1], *(each.version for each in wheels.values())}
    assert {"text/markdown"} == {each.described_in for each in wheels.values()}


@pytest.mark.ci
def test_there_are_three_wheels(wheels: dict[str, Wheel]) -> None:
    """Goal and method: as above; each wheel has its packages, and no test, no vLLM, no file of another."""
    assert {
        "kvgate": {"kvgate", "kvreference", "kvspec"},
        "kvgate_mutants": {"kvgate_mutants"},
        "swa_retention": {"swa_retention"},
    } == {name: set(wheel.packages) for name, wheel in wheels.items()}
    assert [] == [name for wheel in wheels.values() for name in wheel.files if "test_" in name or "conftest" in name]
    assert all(any(name.endswith("licenses/LICENSE") for name in wheel.files) for wheel in wheels.values())
    expected = {
        str(file.relative_to(ROOT / folder))
        for folder, package in SOURCES.items()
        for file in (ROOT / folder / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert expected == {name for wheel in wheels.values() for name in wheel.files if ".dist-info/" not in name}


@pytest.mark.ci
def test_each_wheel_requires_as_little_as_it_needs(wheels: dict[str, Wheel]) -> None:
    """Goal and method: as above; hard dependencies only, for an extra is the installer's choice."""
    assert ("attrs",) == wheels["swa_retention"].requires
    assert ("kvgate[gate,prove]",) == wheels["kvgate_mutants"].requires
    assert ("attrs", "cattrs", "jinja2", "msgspec", "platformdirs", "rich", "typer") == wheels["kvgate"].requires
    assert not {*HEAVY} & {*wheels["kvgate"].requires}


@pytest.mark.ci
def test_each_wheel_has_its_entry_points(wheels: dict[str, Wheel]) -> None:
    """Goal: vLLM and pytest load what is for them, and nothing else. Method: the metadata that they read."""
    assert {"vllm.general_plugins": {"swa_retention"}} == groups(wheels["swa_retention"])
    expected = {
        "console_scripts": {"kvgate"},
        "pytest11": {"kvgate.sanitizer"},
        "vllm.general_plugins": {"kvgate_shadow", "kvgate_sanitizer"},
    }
    assert expected == groups(wheels["kvgate"])
    assert {"kvgate.commands": {"mutants", "corpus"}, "kvgate.mutants": {"named"}} == groups(wheels["kvgate_mutants"])


def groups(wheel: Wheel) -> dict[str, set[str]]:
    """The names in each group of entry points."""
    return {group: set(names) for group, names in wheel.entry_points.items()}


@frozen
class Installed:
    """An environment with one distribution and what it requires."""

    python: Path
    names: frozenset[str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in it, away from the clone, with no plug-in of pytest or vLLM and no vLLM in reach."""
        keep = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.python.parent,
            env={**keep, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def kvgate(self, *arguments: str) -> tuple[int, str]:
        """The exit code and what was printed, which must not be a traceback."""
        ended = self.run(str(self.python.with_name("kvgate")), *arguments)
        said = ended.stdout + ended.stderr
        assert "Traceback" not in said, said
        return ended.returncode, said


def installed(wheel: Wheel, folder: Path) -> Installed:
    """Install ``wheel`` into an empty environment."""
    python = folder / "bin" / "python"
    for command in (
        (UV, "venv", "--quiet", "--python", sys.executable, str(folder)),
        (UV, "pip", "install", "--quiet", "--python", str(python), str(wheel.path), "--find-links", wheel.path.parent),
    ):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == 0, ended.stderr
    listed = subprocess.run(
        (UV, "pip", "freeze", "--python", str(python)), capture_output=True, text=True, timeout=60, check=True
    )
    names = (line.partition("==")[0].partition(" @")[0] for line in listed.stdout.splitlines())
    return Installed(python, frozenset(names))


def loaded(environment: Installed, program: str) -> set[str]:
    """Which heavy modules ``program`` imports, of those that could be there."""
    heavy = {"z3", "hypothesis", "vllm", "torch", "kvgate_mutants", "matplotlib"}
    ended = environment.run("-c", f"{program}; import sys; print(*{heavy} & set(sys.modules))")
    assert ended.returncode == 0, ended.stderr
    return {*ended.stdout.split()}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("check", "--sut", "reference", "--time-budget", "1s", "--jobs", "1"), 0, "no divergences"),
        (("conform",), 2, "kvgate conform needs z3"),
    ],
)
def test_commands_where_kvgate_is_alone(arguments: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    """Goal: they work, or say what is missing. Method: what other distributions bring cannot be imported."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({('numpy', 'torch', 'vllm', 'z3', 'hypothesis')}))\n"
        "from kvgate.cli.__main__ import main\nmain()"
    )
    command = (sys.executable, "-c", program, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert (code, True) == (ended.returncode, says in ended.stdout + ended.stderr), ended.stdout + ended.stderr


@pytest.mark.deep
def test_the_plug_in_alone(wheels: dict[str, Wheel], tmp_path: Path) -> None:
    """Goal: a container gets the plug-in and attrs. Method: its doctor reports that vLLM is missing."""
    environment = installed(wheels["swa_retention"], tmp_path / "swa")
    assert {"swa-retention", "attrs"} == environment.names
    assert set() == loaded(environment, "from swa_retention.plugin import register; register()")
    ended = environment.run("-m", "swa_retention", "doctor")
    assert (3, "") == (ended.returncode, ended.stderr)
    assert "vLLM" in ended.stdout


@pytest.mark.deep
def test_kvgate_alone(wheels: dict[str, Wheel], tmp_path: Path) -> None:
    """Goal: explain, simulate and the shadow install without vLLM, z3 and hypothesis; commands that need one of these
    say so.

    Method: every command, as typed, in that environment.
    """
    environment = installed(wheels["kvgate"], tmp_path / "kvgate")
    assert not {*HEAVY, "kvgate-mutants", "swa-retention"} & environment.names
    assert set() == loaded(environment, "from kvgate.shadow.adapter.plugin import register; register()")
    assert set() == loaded(
        environment,
        "import kvgate.shadow.recording, kvgate.shadow.recheck, kvgate.explain.explanation, "
        "kvgate.simulation.arm, kvgate.cli.app",
    )
    assert 0 == environment.kvgate("--help")[0]
    assert 3 == environment.kvgate("doctor")[0]
    assert 1 == environment.kvgate("explain", "dsv4-flash-ascend-128+mtp", "--prompt-tokens", "16384")[0]
    small = ("simulate", "repeat-rate:lanes=2,input_tokens=4096", "--blocks", "2000", "--policy", "dense")
    code, said = environment.kvgate(*small, "--arm", "reference", "--arm", "ranges")
    assert (0, True) == (code, "8 requests counted" in said)
    assert 0 == environment.kvgate("check", "--sut", "reference", "--time-budget", "5s")[0]
    assert 0 == environment.kvgate("fetch", "--list")[0]
    for arguments, code, needed in (
        (("check",), 3, "vLLM is not installed"),
        (("fuzz", "--time-budget", "5s", "--out", str(tmp_path / "fuzz")), 3, "vLLM is not installed"),
        (("prove",), 2, "kvgate prove needs z3"),
        (("conform",), 2, "kvgate conform needs z3"),
        (("explain", "full", "--plot", "x.png"), 2, "--plot needs matplotlib"),
        (("mutants", "--list"), 2, "kvgate mutants comes with kvgate-mutants"),
        (("corpus", "9"), 2, "kvgate corpus comes with kvgate-mutants"),
    ):
        ended, said = environment.kvgate(*arguments)
        assert (code, True, True) == (ended, needed in said, "PATH-OF-A-CLONE" in said), said


@pytest.mark.deep
def test_the_mutants(wheels: dict[str, Wheel], tmp_path: Path) -> None:
    """Goal: installing the mutants brings the gate, z3 and hypothesis. Method: its two commands, and one proof."""
    environment = installed(wheels["kvgate_mutants"], tmp_path / "mutants")
    assert {"kvgate", "kvgate-mutants", "hypothesis", "z3-solver"} <= environment.names
    assert not {"vllm", "torch", "swa-retention"} & environment.names
    assert 0 == environment.kvgate("mutants", "--all", "--list")[0]
    assert 0 == environment.kvgate("corpus", "--list")[0]
    assert 0 == environment.kvgate("prove", "--obligation", "hit-lookup.last-token-is-computed", "--proof-only")[0]
    code, said = environment.kvgate("mutants")
    assert (3, True) == (code, "vLLM is not installed" in said)
