"""The tests of vLLM 0.21.0, 0.22.1 and 0.23.0, each on its own release with the plug-in.

Goal: with nothing switched on they say what they say without it; with pins all pass but those that assert what pins are
there to change. Method: that of ``test_upstream``. The tests of 0.20.2 and of 0.33.0 have files of their own.
"""

from __future__ import annotations

from importlib.metadata import distributions

import pytest

from .archive import wheel_of
from .in_place import InPlace
from .stand_ins import write
from .tables import ALL_FREE, FOLDER, RUN
from .test_upstream import PIN, failed

INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.deep,
]

TESTS = {"0.21.0": 278, "0.22.1": 287, "0.23.0": 308}
SPLIT = "test_swa_free_split_keeps_cached_tail_ahead_of_scratch"
"""It came with 0.23.0, and asserts what ``ALL_FREE`` does."""
SELECTED = (*(f"{FOLDER}/{name}.py" for name in RUN), "-p", "on_cpu")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where they run, on the vLLM that is installed."""
    return InPlace(tmp_path_factory.mktemp("reports"), write(tmp_path_factory.mktemp("hub")))


def outcomes(hub: InPlace, version: str, *arguments: str, **switches: str) -> dict[str, str]:
    """On the published wheel of ``version``."""
    return InPlace(hub.scratch, hub.hub, (wheel_of(version),)).outcomes(version, *SELECTED, *arguments, **switches)


@pytest.mark.parametrize("version", TESTS)
def test_nothing_changes_before_something_is_switched_on(hub: InPlace, version: str) -> None:
    """Test by test, with the plug-in loaded and without it."""
    without = outcomes(hub, version)
    assert (TESTS[version], set()) == (len(without), failed(without))
    assert without == outcomes(hub, version, "-p", "switched_on")


@pytest.mark.parametrize("version", TESTS)
def test_with_pins_what_fails_asserts_that_everything_is_free(hub: InPlace, version: str) -> None:
    """Exactly the tests that are named, each with its reason."""
    found = outcomes(hub, version, "-p", "switched_on", **{PIN: "1"})
    split = {name for name in found if name.endswith(f"::{SPLIT}")}
    assert (version == "0.23.0") == bool(split)
    assert (TESTS[version], set(ALL_FREE) | split) == (len(found), failed(found))
