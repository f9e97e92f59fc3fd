"""vLLM-Ascend's own unit tests of block table, worker and scheduler, on a CPU, with the plug-in off and on.

Goal: the plug-in changes the result of none of them; each that fails has a cause, and the page says so. Method: run
them in place, in processes of their own, and compare test by test; and once with a block table that is broken.
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions

import pytest
from tests.published import published

from kvgate.adapters.releases import LATER_ASCEND

from .ascend import PAGE, Result, page, results, with_plug_in

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="what vLLM-Ascend needs is pinned for Python 3.11"),
    pytest.mark.deep,
]
BLOCK_TABLE = "worker/test_block_table"


@pytest.fixture(scope="module")
def arms() -> tuple[dict[str, Result], dict[str, Result]]:
    """With the plug-in off, and on."""
    published()
    return results(), with_plug_in()


@pytest.fixture(scope="module")
def later() -> dict[str, dict[str, Result]]:
    """Of later releases."""
    return {each.version: results(release=each) for each in LATER_ASCEND}


def test_every_failure_has_a_cause(
    arms: tuple[dict[str, Result], dict[str, Result]], later: dict[str, dict[str, Result]]
) -> None:
    """In both arms, and of later releases."""
    failed = [
        (name, each) for arm in (*arms, *later.values()) for name, each in arm.items() if each.outcome != "passed"
    ]
    assert [] == [(name, each.message[:300]) for name, each in failed if each.cause is None]


def test_the_plug_in_changes_no_result(arms: tuple[dict[str, Result], dict[str, Result]]) -> None:
    """Test by test, with the cause."""
    off, on = ({name: (each.outcome, each.cause) for name, each in arm.items()} for arm in arms)
    assert off == on


def test_the_page_says_so(
    arms: tuple[dict[str, Result], dict[str, Result]], later: dict[str, dict[str, Result]]
) -> None:
    """It is what the command writes."""
    assert page(*arms, later) == PAGE.read_text(encoding="utf-8")


def test_a_broken_block_table_shows(arms: tuple[dict[str, Result], dict[str, Result]]) -> None:
    """Its tests pass, and with a fault injected they fail, for none of the causes that are known."""
    names = {name for name in arms[0] if name.startswith(f"{BLOCK_TABLE}::")}
    assert {"passed"} == {arms[0][name].outcome for name in names}
    broken = results(f"tests/ut/{BLOCK_TABLE}.py", "-p", "broken_block_table")
    assert names == set(broken)
    assert {("failure", None)} == {(each.outcome, each.cause) for each in broken.values()}
