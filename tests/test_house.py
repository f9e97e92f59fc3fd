"""The house: who imports whom, how large a file may be, what the package brings along, and what must be trusted.

``python tests/test_house.py`` writes the table of trusted files, ``TRUST.md``, anew, and its sums in ``README.md``.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TRUST = ROOT / "TRUST.md"
PACKAGES = ("reference/kvreference", "spec/kvspec", "impl/swa_retention", "difftest/kvgate")

LINES_MAX = 400
FUNCTION_LINES_MAX = 70
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc"}
# The places where people and machines keep their checkouts. What is written here must run anywhere.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|workspace|Users|mnt|opt|data)/\w")
# A page that a command writes says so at its beginning: it is looked things up in, and not read through.
BY_A_COMMAND = re.compile(r"\bGenerated\b[^`]*\bby `")
# What a checker is told to overlook. The reason stands behind it, or in a comment above.
OVERLOOKED = re.compile(r"#\s*(?:type: ignore(?:\[[^]]*\])?|noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?)")
HEAVY = {"vllm", "torch", "transformers", "hypothesis", "z3"}

# Who says that a system agrees. Together with the reference, this is what a reviewer must believe.
JUDGES = tuple(
    f"difftest/kvgate/{name}.py"
    for name in (
        "system",
        "adapters/stock",
        "adapters/groups",
        "adapters/words",
        "adapters/native",
        "adapters/work_meter",
        "lockstep",
        "comparison",
        "correspondence",
        "dialects",
        "declared",
        "faults",
        "faults_of_releases",
        "faults_of_ascend",
        "prompt_tails",
        "monitors/invariants",
        "monitors/ghost",
        "monitors/slots",
        "monitors/states",
        "monitors/leak",
        "monitors/work",
    )
)

# Who says that a scheduler does what it should, besides these.
SCHEDULING = (
    *(
        f"difftest/kvgate/scheduling/{name}.py"
        for name in (
            "engine",
            "line",
            "chunks",
            "clients",
            "batch",
            "ends",
            "books",
            "progress",
            "waiting",
            "flight",
            "nodes",
            "sent",
            "known",
            "known_by_slots",
        )
    ),
    *(
        f"difftest/kvgate/adapters/scheduling/{name}.py"
        for name in (
            "arrivals",
            "connector",
            "followed",
            "interception",
            "names",
            "stage",
            "subjects",
            "told",
            "worker",
        )
    ),
    "difftest/kvgate/adapters/retention.py",
    "difftest/kvgate/adapters/ascend.py",
    "difftest/kvgate/adapters/ascend_wheel.py",
    "difftest/kvgate/adapters/fetching.py",
    "difftest/kvgate/adapters/releases/description.py",
)

# Who says that two nodes do what they should, besides all of these.
PAIRS = tuple(
    f"difftest/kvgate/disaggregation/{name}.py"
    for name in ("pair", "node", "handover", "memory", "across", "waiting", "known")
)

# Who says that something is proved: how code is run on terms, what is said of products and counts, what z3 is asked.
PROVERS = tuple(
    f"spec/kvspec/{name}.py" for name in ("symbolic", "paths", "products", "maps", "obligation", "prover", "judgement")
)

# Who says that a live engine does what it should, besides the first of these.
SHADOW = (
    *(f"difftest/kvgate/shadow/{name}.py" for name in ("judging", "following", "known", "salted", "sampling")),
    *(f"difftest/kvgate/adapters/shadow/{name}.py" for name in ("observing", "wrapping", "standing", "geometry")),
)

# What these pass to one another, and nothing more.
VALUES = {
    *(f"difftest/kvgate/{name}.py" for name in ("difference", "errors", "monitors/monitor")),
    *(f"difftest/kvgate/scheduling/{name}.py" for name in ("blame", "case", "operations")),
    *(f"difftest/kvgate/shadow/{name}.py" for name in ("calls", "sink")),
    *(f"difftest/kvgate/disaggregation/{name}.py" for name in ("case", "operations")),
    # Says in a log what went wrong, and decides nothing.
    "difftest/kvgate/shadow/adapter/log.py",
    # The package itself: its modules are named one by one.
    "difftest/kvgate/scheduling.py",
    "difftest/kvgate/disaggregation.py",
    "difftest/kvgate/shadow.py",
    "spec/kvspec/registry.py",
}


def written() -> Iterator[tuple[str, str]]:
    """Everything that people wrote, by its path from the root."""
    rooms = ("spec", "reference", "impl", "difftest", "tests", "benchmarks")
    files = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in {".py", ".md", ".toml"}]
    files += [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    for path in sorted(files):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def breaches(name: str, text: str) -> set[str]:
    """The rules of the house that a file breaks."""
    found = set()
    if len(text.splitlines()) > LINES_MAX and not (name.endswith(".md") and BY_A_COMMAND.search(text[:600])):
        found.add("long file")
    if DRAWERS & set(re.split(r"[/.]", name)):
        found.add("drawer")
    if MACHINE_PATH.search(text):
        found.add("path of one machine")
    if name.endswith(".py"):
        if any(unargued(text.splitlines())):
            found.add("overlooked without a reason")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX:
                found.add("long function")
    return found


def unargued(lines: list[str]) -> Iterator[int]:
    """Where a checker is told to overlook something, and nobody says why."""
    for number, line in enumerate(lines, start=1):
        found = OVERLOOKED.search(line)
        if found is None:
            continue
        behind = OVERLOOKED.sub("", line[found.start() :])
        above = lines[number - 2].strip() if number > 1 else ""
        if not re.search(r"\w", behind) and not above.startswith("#"):
            yield number


def test_no_file_breaks_a_rule() -> None:
    """Goal: one idea a file, read at one sitting, on any machine. Method: measure and search all of them."""
    found = {name: breaches(name, text) for name, text in written()}
    assert len(found) > 100
    assert {name: rules for name, rules in found.items() if rules} == {}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("spec/a.md", "line\n" * (LINES_MAX + 1), {"long file"}),
        ("spec/a.md", "Generated by `kvgate a`.\n" + "line\n" * LINES_MAX, set()),
        ("tests/common/a.py", "", {"drawer"}),
        ("impl/a/utils.py", "", {"drawer"}),
        ("a.md", "see " + "/ho" + "me/me/kvgate", {"path of one machine"}),
        ("a.py", "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX, {"long function"}),
        ("a.py", "a = 1  # " + "type: ignore[misc]  # " + "noqa: E712\n", {"overlooked without a reason"}),
        ("a.py", "a = 1  # " + "type: ignore[misc]  # on purpose\n# Why.\nb = 2  # " + "noqa: E712\n", set()),
        ("a.md", "spec/work/a, ../root/x and the common prefix", set()),
    ],
)
def test_a_breach_would_be_found(name: str, text: str, expected: set[str]) -> None:
    """Goal: the scan can fail, and does not without a reason. Method: one breach of each rule, and none."""
    assert expected == breaches(name, text)


def lint_imports(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Check the import contracts that stand in the directory's pyproject.toml."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60)


def test_nobody_imports_whom_they_must_not() -> None:
    """Goal: the reference knows nothing of what it judges, and so on. Method: the contracts in pyproject.toml."""
    finished = lint_imports(ROOT)
    assert finished.returncode == 0, finished.stdout
    assert "6 kept, 0 broken" in finished.stdout


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        ("reference", "kvreference/manager.py", "import cattrs"),
        ("proofs", "kvspec/__init__.py", "import kvgate"),
        ("plug-in", "swa_retention/__init__.py", "def late():\n    import kvreference"),
        ("adapters", "kvgate/mutants/zoo.py", "import vllm.v1.core"),
        ("monitors", "kvgate/monitors/ghost.py", "import kvgate.gate.case_runner"),
        ("independence", "kvgate/adapters/stock.py", "from kvreference.hit_lookup import longest_hit"),
    ],
)
def test_each_contract_can_be_broken(contract: str, file: str, line: str, tmp_path: Path) -> None:
    """Goal: no contract holds because it says nothing. Method: a house of empty files keeps it, with one line it fails.

    The house stands in the working directory, which comes first on the path, in front of the real packages.
    """
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    house = {f"{name}/__init__.py": "" for name in ("kvreference", "kvspec", "swa_retention", "kvgate")}
    house |= {f"kvgate/{name}/__init__.py": "" for name in ("adapters", "monitors", "mutants", "mutants/plugin")}
    house |= dict.fromkeys(("kvreference/manager.py", "kvreference/hit_lookup.py", "kvgate/monitors/ghost.py"), "")
    house |= {"kvgate/runner.py": "import kvreference.manager", "kvgate/adapters/stock.py": "import vllm\nimport torch"}
    house |= {"kvgate/adapters/retention.py": "import swa_retention.config", "swa_retention/config.py": ""}
    house |= {
        "kvgate/adapters/device/__init__.py": "",
        "kvgate/adapters/device/copies.py": "import swa_retention.config",
    }
    # Those that the contract names because they look at vLLM beside the adapters.
    house |= {f"kvgate/mutants/plugin/checks_{name}.py": "import vllm\nimport torch" for name in ("groups", "newer")}
    house |= {"kvgate/mutants/plugin/zoo.py": "import swa_retention.config", "kvgate/digests.py": "import vllm"}
    for name, text in house.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sound = lint_imports(tmp_path, "--contract", contract)
    assert sound.returncode == 0, sound.stdout
    (tmp_path / file).write_text(f"{house.get(file, '')}\n{line}\n")
    broken = lint_imports(tmp_path, "--contract", contract)
    assert broken.returncode == 1
    assert "0 kept, 1 broken" in broken.stdout


def loaded_with(module: str) -> set[str]:
    """The heavy packages that come along when ``module`` is imported in a fresh interpreter."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return HEAVY & set(finished.stdout.split())


def test_the_command_starts_light() -> None:
    """Goal: ``kvgate --help`` answers at once. Method: import the command, and something heavy as a control."""
    assert (set(), {"hypothesis"}) == (loaded_with("kvgate.cli.app"), loaded_with("kvgate.gate.machine"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """What ``pip install`` would get, built without a network."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.skip("uv builds the wheel, and is not here")
    directory = tmp_path_factory.mktemp("wheel")
    command = [uv, "build", "--wheel", "--offline", "--no-create-gitignore", "-o", str(directory), str(ROOT)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return zipfile.ZipFile(next(directory.glob("*.whl")))


def test_the_wheel_has_all_of_the_four_packages(wheel: zipfile.ZipFile) -> None:
    """Goal: nothing that is ignored by git or by mistake is missing. Method: compare with the folders."""
    expected = {
        path.relative_to((ROOT / package).parent).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".html", ".css", ".js", ".json"}
    }
    assert {"kvgate/reports/text.py", "kvgate/mutants/zoo.py", "kvgate/reports/page/assets/page.js"} < expected
    assert expected == {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_an_installation_pulls_nothing_that_vllm_needs(wheel: zipfile.ZipFile) -> None:
    """Goal: where vLLM is, it stays as it is. Method: read what the wheel requires without extras; INSTALL names it."""
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    requirements = map(Requirement, Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist", []))
    pulled = {each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})}
    assert pulled <= {
        "attrs",
        "cattrs",
        "hypothesis",
        "jinja2",
        "msgspec",
        "platformdirs",
        "rich",
        "typer",
        "z3-solver",
    }
    assert f"pip install {' '.join(sorted(pulled))}" in (ROOT / "INSTALL.md").read_text(encoding="utf-8")


BEGIN, END = "<!-- trusted files: python tests/test_house.py -->\n", "<!-- end of trusted files -->"
SUMS, END_OF_SUMS = "<!-- trusted lines: python tests/test_house.py -->\n", "<!-- end of trusted lines -->"
PARTS = (
    ("what judges by it", JUDGES),
    ("what judges a scheduler", SCHEDULING),
    ("what judges two nodes", PAIRS),
    ("what judges a live engine", SHADOW),
    ("what proves it", PROVERS),
)


def trusted() -> dict[str, dict[str, str]]:
    """What a reviewer must read: the text of each file, by its name, and by the part that it belongs to."""
    reference = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGES[0]).glob("*.py"))
    parts = (("the reference", reference), *PARTS)
    return {title: {name: (ROOT / name).read_text(encoding="utf-8") for name in names} for title, names in parts}


def trusted_files() -> str:
    """The table of trusted files: each with its lines, and what its docstring says first."""
    rows = ["| file | lines | |", "|---|--:|---|"]
    for title, texts in trusted().items():
        rows.append(f"| **{title}** | **{sum(len(text.splitlines()) for text in texts.values())}** | |")
        for name, text in texts.items():
            first_line = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            rows.append(f"| [`{name}`]({name}) | {len(text.splitlines())} | {first_line} |")
    return "\n".join(rows) + "\n"


def trusted_lines() -> str:
    """The sums of that table, a row for each part."""
    rows = ["| | files | lines |", "|---|--:|--:|"]
    for title, texts in trusted().items():
        lines = sum(len(text.splitlines()) for text in texts.values())
        rows.append(f"| {title} | {len(texts)} | {lines:,} |")
    return "\n".join(rows) + "\n"


def test_no_judge_relies_on_another_file() -> None:
    """Goal: the table leaves out nothing that must be believed. Method: whatever one of them imports is in it."""
    judged, proved = (
        imported_by((*JUDGES, *SCHEDULING, *PAIRS, *SHADOW), "difftest/kvgate"),
        imported_by(PROVERS, "spec/kvspec"),
    )
    assert "difftest/kvgate/monitors/slots.py" in judged
    assert "spec/kvspec/symbolic.py" in proved
    assert judged | proved <= VALUES | {*JUDGES, *SCHEDULING, *PAIRS, *SHADOW, *PROVERS}


def imported_by(names: Iterable[str], room: str) -> set[str]:
    """The files of a room that these files import from."""
    folder, _, package = room.partition("/")
    imported = set()
    for name in names:
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
                imported.add(f"{folder}/{node.module.replace('.', '/')}.py")
    return imported


def between(text: str, begin: str, end: str) -> str:
    """What stands between two marks, of which there is one each."""
    assert (1, 1) == (text.count(begin), text.count(end))
    return text.partition(begin)[2].partition(end)[0]


def test_the_trusted_files_are_current() -> None:
    """Goal: the table names all that must be believed, and how long it takes. Method: count again, and compare."""
    readme = README.read_text(encoding="utf-8")
    assert "[TRUST.md](TRUST.md)" in readme
    assert trusted_files() == between(TRUST.read_text(encoding="utf-8"), BEGIN, END), "run: python tests/test_house.py"
    assert trusted_lines() == between(readme, SUMS, END_OF_SUMS), "run: python tests/test_house.py"


def rewrite(path: Path, begin: str, end: str, table: str) -> None:
    """Put a table between its marks."""
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    path.write_text(f"{before}{begin}{table}{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    rewrite(TRUST, BEGIN, END, trusted_files())
    rewrite(README, SUMS, END_OF_SUMS, trusted_lines())
