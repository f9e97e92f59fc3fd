"""User-written connectors at the level of two tiers.

Goal: a sound one passes; a broken one is found; one that cannot be used is rejected in one message. Method: the
example, and what inherits from it; each run in a process that has the release.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.published import published

from kvgate.adapters.releases import release_named

ROOT = Path(__file__).parents[3]
NAME = "native@0.33.0"
EXAMPLE = "examples.connector.host_store:HostStore"
BROKEN = "tests.difftest.tiers.connectors:"
PROGRAM = """
import json, sys
import kvgate.conformance

for connector, config in json.loads(sys.argv[1]):
    report = kvgate.conformance.check_connector(connector, config, operations=6000)
    found = sorted({each.divergence.difference.statement for each in report.verdict.found})
    print("RESULT", json.dumps([report.passed, found, report.verdict.operations, report.error]))
"""


def results(*asked: tuple[str, dict[str, int]]) -> list[list[object]]:
    """The call's result for each."""
    pytest.importorskip("vllm")
    published(release_named(NAME))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "difftest")))},
    )
    assert 0 == ended.returncode, ended.stderr[-3000:]
    lines = [line.removeprefix("RESULT ") for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines]


@pytest.mark.ci
def test_a_sound_connector_passes() -> None:
    for passed, found, operations, error in results((EXAMPLE, {})):
        assert passed, (found, error)
        assert isinstance(operations, int)
        assert operations >= 6000


@pytest.mark.ci
def test_a_broken_connector_is_found() -> None:
    names = "LoadsTheBlockBefore", "SavesTooEarly", "LoadsTooLate", "HitsTheLastToken"
    said = results(*((BROKEN + name, {}) for name in names))
    for name, (passed, found, _operations, error) in zip(names, said, strict=True):
        assert not passed, name
        assert error is None, (name, error)
        assert isinstance(found, list)
        assert {"KV-MEM-01", "KV-SYS-01"}.intersection(found), (name, found)


@pytest.mark.ci
def test_a_connector_that_cannot_be_used_is_rejected() -> None:
    asked = (
        ("nowhere:Connector", "cannot be imported: ModuleNotFoundError"),
        ("json:Connector", "json has no Connector"),
        ("json:JSONDecoder", "is not a subclass of KVConnectorBase_V1"),
        (BROKEN + "Half", "lacks get_num_new_matched_tokens, "),
        (BROKEN + "Raises", "cannot be built: OSError: no room on the host"),
        ("nothing", "there are offloading, simple, multi, and MODULE:CLASS"),
    )
    for (name, words), (passed, _found, operations, error) in zip(
        asked, results(*((name, {}) for name, _ in asked)), strict=True
    ):
        assert (False, 0) == (passed, operations), name
        assert isinstance(error, str)
        assert words in error, (name, error)
