"""vLLM's own tests of the block manager and of the scheduler, on vLLM 0.20.2 with the plug-in.

Goal: with nothing switched on their results are those without it. With something on, all pass but those that assert
what it changes, and each of these is named with its reason. Method: run them in place, in processes of their own, and
compare test by test.
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from .archive import archive_of
from .in_place import InPlace
from .stand_ins import write
from .tables import ALL_FREE, BLAST, DENSE, FOLDER, NOT_RUN, RUN

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.deep,
]

VERSION, TESTS = "0.20.2", 278
FILES = tuple(f"{FOLDER}/{name}.py" for name in RUN)
INTERVAL, PIN = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where vLLM's tests run, with stand-ins for the models that they name."""
    return InPlace(tmp_path_factory.mktemp("reports"), write(tmp_path_factory.mktemp("hub")))


def failed(outcomes: dict[str, str]) -> set[str]:
    """The tests that did not pass: failed, broken or skipped."""
    return {name for name, outcome in outcomes.items() if outcome != "passed"}


def test_every_file_is_run_or_has_a_reason() -> None:
    """Nothing in vLLM's folder of tests is left out silently."""
    there = {path.stem for path in Path(archive_of(VERSION), FOLDER).glob("test_*.py")}
    assert {*RUN, BLAST, *NOT_RUN} == there


def test_nothing_changes_before_something_is_switched_on(place: InPlace) -> None:
    """Test by test, with the plug-in loaded and without it."""
    without = place.outcomes(VERSION, *FILES)
    assert (TESTS, set()) == (len(without), failed(without))
    assert without == place.outcomes(VERSION, *FILES, "-p", "switched_on")


@pytest.mark.parametrize("interval", ["0", "auto"])
def test_with_retention_what_fails_asserts_a_dense_cache(place: InPlace, interval: str) -> None:
    """Exactly the tests that are named, each with its reason."""
    found = place.outcomes(VERSION, *FILES, "-p", "switched_on", **{INTERVAL: interval})
    assert (TESTS, set(DENSE)) == (len(found), failed(found))


def test_with_pins_what_fails_asserts_that_everything_is_free(place: InPlace) -> None:
    """Exactly the tests that are named, each with its reason."""
    found = place.outcomes(VERSION, *FILES, "-p", "switched_on", **{PIN: "1"})
    assert (TESTS, set(ALL_FREE)) == (len(found), failed(found))


def test_preemption_with_pins(place: InPlace) -> None:
    """Thousands of random steps, with priorities, drafts and a pool that is always full: no request waits
    permanently.
    """
    found = place.outcomes(VERSION, f"{FOLDER}/{BLAST}.py", "-k", "preemption", "-p", "switched_on", **{PIN: "1"})
    assert (6, set()) == (len(found), failed(found))
