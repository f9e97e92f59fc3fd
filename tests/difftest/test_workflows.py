"""The workflows and the hook that others copy.

Goal: workflows to copy into another repository work there, and may run on any pull request. Method: read them as data,
and look up everything they call; also inputs that must be reported.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kvgate.adapters.registry import BUILT_IN
from kvgate.cli.app import app
from kvgate.cli.options import ProfileName
from kvgate.gate.level import LevelChoice
from kvgate.kernel.output import Format

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = ("difftest/ci/github-actions.yml", ".github/workflows/kvgate.yml")
HOOKS = ".pre-commit-hooks.yaml"
CHOICES: dict[str, set[str]] = {
    "--sut": set(BUILT_IN),
    "--level": {each.value for each in LevelChoice},
    "--profile": {each.value for each in ProfileName},
    "--format": {each.value for each in Format},
}
"""What the options take whose values are known; a value that is an expression is looked up in the matrix."""


def options_of(command: str) -> set[str]:
    """The options of ``kvgate COMMAND``."""
    parameters = vars(typer.main.get_command(app))["commands"][command].params
    return {option for parameter in parameters for option in parameter.opts}


def options_of_the_test_run() -> set[str]:
    """The options that ``difftest/conftest.py`` adds to pytest."""
    return set(re.findall(r'addoption\(\s*"(--[a-z-]+)"', (ROOT / "difftest" / "conftest.py").read_text()))


def complaints(document: dict[Any, Any]) -> list[str]:
    """The mistakes of a workflow."""
    # YAML takes the word ``on`` for a truth value.
    triggers = document.get("on", document.get(True, {}))
    found = ["runs with the rights of the repository"] if "pull_request_target" in triggers else []
    if document.get("permissions") != {"contents": "read"}:
        found.append("asks for more than to read the repository")
    if not document.get("concurrency", {}).get("cancel-in-progress"):
        found.append("runs on for outdated pushes")
    if "secrets" in str(document):
        found.append("needs secrets, which a fork has not")
    for job in document["jobs"].values():
        found += [] if "timeout-minutes" in job else ["may run without end"]
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            if "uses" in step and not re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]):
                found.append(f"{step['uses']} has no version")
            found += wrong_commands(step.get("run", ""), matrix)
    return found


def wrong_commands(run: str, matrix: dict[str, list[str]]) -> Iterator[str]:
    """The mistakes in the commands of one step."""
    called = re.findall(r"(?:^|/|\s)(kvgate|pytest) (\w+) ?(.*)", " ".join(run.split()))
    for program, command, arguments in called:
        known = options_of(command) if program == "kvgate" else options_of_the_test_run()
        words = shlex.split(re.sub(r"\$\{\{ matrix\.(\w+) \}\}", r"@\1", arguments))
        for option, value in zip(words, [*words[1:], ""], strict=True):
            if option.startswith("--") and option not in known:
                yield f"{program} {command} has no {option}"
            values = matrix.get(value[1:], []) if value.startswith("@") else [value]
            wrong = set(values) - CHOICES.get(option, set(values))
            yield from (f"{option} is not {each}" for each in sorted(wrong))
            if value.startswith("@") and not values:
                yield f"the matrix has no {value[1:]}"


def test_publishing_stores_no_token_and_is_started_by_hand() -> None:
    """Goal: an upload needs a person, and no secret. Method: the complaints. One is meant: no upload is interrupted."""
    document = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))
    assert ["runs on for outdated pushes"] == complaints(document)
    assert {"workflow_dispatch": None} == document.get("on", document.get(True))
    assert [None, {"id-token": "write"}] == [job.get("permissions") for job in document["jobs"].values()]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_can_be_copied(name: str) -> None:
    """Goal: nothing is wrong with it, and it keeps what it found. Method: complain, and look at its steps."""
    document = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert [] == complaints(document)
    (job,) = (each for each in document["jobs"].values() if "matrix" in each.get("strategy", {}))
    runs = " ".join(step.get("run", "") for step in job["steps"])
    assert "kvgate check" in runs
    assert {"--format github", "--report kvgate-report"} <= set(re.findall(r"--(?:format|report) [\w-]+", runs))
    kept = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact"))
    assert ("${{ !cancelled() }}", "kvgate-report") == (kept["if"], kept["with"]["path"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("kvgate check --sut", "kvgate check --system"), "kvgate check has no --system"),
        (("--profile ci", "--profile fast"), "--profile is not fast"),
        (("[stock, retention]", "[stock, nobody]"), "--sut is not nobody"),
        (('matrix.level }}" --profile', 'matrix.depth }}" --profile'), "the matrix has no depth"),
        (("contents: read", "contents: write"), "asks for more than to read the repository"),
        (("  pull_request:", "  pull_request_target:"), "runs with the rights of the repository"),
        (("cancel-in-progress: true", "cancel-in-progress: false"), "runs on for outdated pushes"),
        (("timeout-minutes: 45", "continue-on-error: true"), "may run without end"),
        (("actions/checkout@v4", "actions/checkout@main"), "actions/checkout@main has no version"),
        (('KVGATE_OPTIONS: ""', "TOKEN: ${{ secrets.TOKEN }}"), "needs secrets, which a fork has not"),
    ],
)
def test_what_is_wrong_is_complained_about(change: tuple[str, str], expected: str) -> None:
    """Goal: the checks can fail. Method: one change of the workflow each."""
    text = (ROOT / WORKFLOWS[0]).read_text(encoding="utf-8")
    assert change[0] in text
    assert expected in complaints(yaml.safe_load(text.replace(*change)))


@pytest.mark.parametrize(("set_to", "expected"), [("", 2), ("./kvgate[vllm]", 0)])
def test_what_is_installed_must_be_named(set_to: str, expected: int, tmp_path: Path) -> None:
    """Goal: the user names the package that is installed, never an unknown one called kvgate on an index. Method: the
    step itself, with a ``uv`` that prints what it is asked for.
    """
    document = yaml.safe_load((ROOT / WORKFLOWS[0]).read_text(encoding="utf-8"))
    assert "" == document["env"]["KVGATE"]
    (job,) = document["jobs"].values()
    (step,) = (each["run"] for each in job["steps"] if each.get("name") == "Install")
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "uv $*"\n', encoding="utf-8")
    uv.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "KVGATE": set_to}
    ended = subprocess.run(
        ["bash", "-e", "-c", step], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert expected == ended.returncode
    assert ("uv" in ended.stdout, ended.stdout.startswith("::error::KVGATE is not set")) == (bool(set_to), not set_to)


def test_the_hook_calls_what_there_is() -> None:
    """Goal: the hook runs the profile that is meant for it. Method: look its command up."""
    (hook,) = yaml.safe_load((ROOT / HOOKS).read_text(encoding="utf-8"))
    assert "kvgate check --profile precommit" == hook["entry"]
    assert [] == list(wrong_commands(hook["entry"], {}))
    assert (False, "system") == (hook["pass_filenames"], hook["language"])
