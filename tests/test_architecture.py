"""The architecture: which package imports which, names that say what is inside, and no path of one machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {each["id"]: each["name"] for each in SETTINGS["tool"]["importlinter"]["contracts"]}

DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc"}
# The places where people and machines keep their checkouts. Everything here must run anywhere.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|workspace|Users|mnt|opt|data)/\w")
# Suppressed complaints of a checker. The reason follows on the line, or stands in a comment above it.
OVERLOOKED = re.compile(r"#\s*(?:type: ignore(?:\[[^]]*\])?|noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?)")
HEAVY = {"vllm", "torch", "transformers", "hypothesis", "z3", "cvc5"}


def lint_imports(directory: Path) -> dict[str, bool]:
    """Whether each import contract in the directory's pyproject.toml is kept, by its name."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    kept = {name: how == "KEPT" for name, how in re.findall(r"(?m)^(.+) (KEPT|BROKEN)\b", finished.stdout)}
    assert finished.returncode == (0 if all(kept.values()) else 1), finished.stdout + finished.stderr
    assert set(CONTRACTS.values()) == set(kept)
    return kept


@pytest.fixture(scope="module")
def kept() -> Mapping[str, bool]:
    """The contracts, checked on this repository."""
    return lint_imports(ROOT)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_contract_is_kept(contract: str, kept: Mapping[str, bool]) -> None:
    """Goal: nothing imports upwards, the reference does not know what it checks, and so on. Method: import-linter."""
    assert kept[CONTRACTS[contract]], f"run: lint-imports --contract {contract}"


BREACHES = {
    "layers": ("kvgate/kernel/late.py", "def late():\n    import kvgate.cli"),
    "reference": ("kvreference/manager.py", "import cattrs"),
    "proofs": ("kvspec/__init__.py", "import kvgate"),
    "plug-in": ("swa_retention/__init__.py", "def late():\n    import kvreference"),
    "mutants": ("kvgate/cli/app.py", "def late():\n    import kvgate_mutants"),
    "adapters": ("kvgate/gate/campaign.py", "import vllm.v1.core"),
    "monitors": ("kvgate/monitors/ghost.py", "import kvgate.kernel.runner"),
    "sanitizer": ("kvgate/sanitizer/ledger.py", "def late():\n    import kvreference"),
    "independence": ("kvgate/adapters/stock.py", "from kvreference.hit_lookup import longest_hit"),
}
"""For each contract, a file and the lines in it that break this contract."""


@pytest.mark.parametrize("breaks", [False, True])
def test_each_contract_can_be_broken(breaks: bool, tmp_path: Path) -> None:
    """Goal: no contract is kept because it says nothing. Method: packages of empty files keep all; with one breach of
    each, none is kept. They stand in the working directory, which comes first on the path.
    """
    assert set(CONTRACTS) == set(BREACHES)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    layers = next(each for each in SETTINGS["tool"]["importlinter"]["contracts"] if each["id"] == "layers")["layers"]
    packages = {name.strip() for layer in layers for name in layer.split("|")}
    files = dict.fromkeys(("kvreference/hit_lookup.py", "swa_retention/config.py", *dict(BREACHES.values())), "")
    files |= {f"kvgate/{name}/__init__.py": "" for name in packages} | {"kvgate_mutants/__init__.py": ""}
    files |= {"kvgate/kernel/runner.py": "import kvreference.manager"}
    # The exceptions of the contracts have to exist, else import-linter says so.
    files |= {
        "kvgate/adapters/stock.py": "import vllm\nimport torch",
        "kvgate/adapters/retention.py": "import swa_retention.config",
        "kvgate/adapters/device/copies.py": "import swa_retention.config",
        "kvgate/adapters/model_runner/block_sizes.py": "import swa_retention.config",
        "kvgate/shadow/adapter/wrapping.py": "import vllm",
        "kvgate/levels/scheduler/adapter/stage.py": "import vllm\nimport torch",
        "kvgate/campaigns/digests.py": "import vllm",
    }
    for name, lines in BREACHES.values() if breaks else ():
        files[name] = f"{files[name]}\n{lines}\n"
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()
    assert dict.fromkeys(CONTRACTS.values(), not breaks) == lint_imports(tmp_path)


def written() -> Iterator[tuple[str, str]]:
    """Everything that people wrote, by its path from the root."""
    folders = ("docs", "spec", "reference", "impl", "difftest", "mutants", "tests", "benchmarks")
    files = [path for each in folders for path in (ROOT / each).rglob("*") if path.suffix in {".py", ".md", ".toml"}]
    files += [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    for path in sorted(files):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def breaches(name: str, text: str) -> set[str]:
    """The rules that a file breaks."""
    found = set()
    if DRAWERS & set(re.split(r"[/.]", name)):
        found.add("drawer")
    if MACHINE_PATH.search(text):
        found.add("path of one machine")
    if name.endswith(".py") and any(unargued(text.splitlines())):
        found.add("overlooked without a reason")
    return found


def unargued(lines: list[str]) -> Iterator[int]:
    """Where a checker is asked to overlook something, and no reason is given."""
    for number, line in enumerate(lines, start=1):
        found = OVERLOOKED.search(line)
        if found is None:
            continue
        after = OVERLOOKED.sub("", line[found.start() :])
        above = lines[number - 2].strip() if number > 1 else ""
        if not re.search(r"\w", after) and not above.startswith("#"):
            yield number


def test_no_file_breaks_a_rule() -> None:
    """Goal: a file has one idea, which its name says, and runs on any machine. Method: search all of them."""
    found = {name: breaches(name, text) for name, text in written()}
    assert len(found) > 100
    assert {name: rules for name, rules in found.items() if rules} == {}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("tests/common/a.py", "", {"drawer"}),
        ("impl/a/utils.py", "", {"drawer"}),
        ("a.md", "see " + "/ho" + "me/me/kvgate", {"path of one machine"}),
        ("a.py", "a = 1  # " + "type: ignore[misc]  # " + "noqa: E712\n", {"overlooked without a reason"}),
        ("a.py", "a = 1  # " + "type: ignore[misc]  # on purpose\n# Why.\nb = 2  # " + "noqa: E712\n", set()),
        ("a.md", "spec/work/a, ../root/x and the common prefix", set()),
    ],
)
def test_a_breach_would_be_found(name: str, text: str, expected: set[str]) -> None:
    """Goal: the search can fail, and does not without a reason. Method: one breach of each rule, and none."""
    assert expected == breaches(name, text)


def loaded_with(module: str) -> set[str]:
    """The heavy packages that come along when ``module`` is imported in a fresh interpreter."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return HEAVY & set(finished.stdout.split())


def test_the_command_starts_light() -> None:
    """Goal: ``kvgate --help`` answers at once. Method: import the command, and something heavy as a control."""
    assert (set(), {"hypothesis"}) == (loaded_with("kvgate.cli.app"), loaded_with("kvgate.gate.machine"))
