"""The tests of vLLM 0.33.0 on vLLM 0.33.0 with the plug-in.

Goal: with nothing switched on, the results are those without the plug-in. With pins all tests pass but those that
assert what pins are there to change, and those of HiSparse, with which pins are rejected. Method: that of
``test_upstream``.
"""

from __future__ import annotations

from importlib.metadata import distributions

import pytest

from .archive import wheel_of
from .in_place import InPlace
from .stand_ins import write
from .tables import ALL_FREE_ON_NEWEST, FOLDER, HISPARSE, RUN_ON_NEWEST
from .test_upstream import PIN, failed

INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.deep,
]

VERSION, TESTS = "0.33.0", 504
SELECTED = (*(f"{FOLDER}/{name}.py" for name in RUN_ON_NEWEST), "-p", "on_cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where they run, on the published wheel."""
    hub = write(tmp_path_factory.mktemp("hub"))
    return InPlace(tmp_path_factory.mktemp("reports"), hub, (wheel_of(VERSION),))


def test_nothing_changes_before_something_is_switched_on(place: InPlace) -> None:
    """Test by test, with the plug-in loaded and without it."""
    without = place.outcomes(VERSION, *SELECTED)
    assert (TESTS, set()) == (len(without), failed(without))
    assert without == place.outcomes(VERSION, *SELECTED, "-p", "switched_on")


def test_with_pins_what_fails_asserts_that_everything_is_free(place: InPlace) -> None:
    """Exactly the tests that are named, or need HiSparse."""
    found = place.outcomes(VERSION, *SELECTED, "-p", "switched_on", **{PIN: "1"})
    names = {name.removeprefix("test_prefix_caching::") for name in failed(found)}
    refused = {name for name in names if name.partition("[")[0] in HISPARSE}
    assert (TESTS, set(ALL_FREE_ON_NEWEST)) == (len(found), names - refused)
    assert {name.partition("[")[0] for name in refused} == HISPARSE
