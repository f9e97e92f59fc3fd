"""The tests that came with the features upstream, on vLLM 0.20.2 with the plug-in.

Goal: those of the release that first had them pass, and so do those of a late one, but for what is named with its
reason. Method: run them in place, through a thin shim for what was renamed since.
"""

from __future__ import annotations

from importlib.metadata import distributions

import pytest

from .in_place import InPlace
from .stand_ins import write
from .tables import FOLDER, NEWEST

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.deep,
]

FILES = (f"{FOLDER}/test_prefix_caching.py", f"{FOLDER}/test_kv_cache_utils.py")
FIRST = "retention or prepend or tail_window or swa_free or pure_swa or clamped"
SWA = "swa_reachable or eagle_swa or eagle_grouped_swa or eagle_with_sliding or different_block_size"
LATE = f"({FIRST} or {SWA} or reachable_block_mask_s or shared_prefix_reuse) and not hisparse"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where vLLM's tests run, with stand-ins for the models that they name."""
    return InPlace(tmp_path_factory.mktemp("reports"), write(tmp_path_factory.mktemp("hub")))


def test_those_of_the_first_release_pass(place: InPlace) -> None:
    """vLLM 0.23: every one."""
    found = place.outcomes("0.23.0", *FILES, "-k", FIRST, "-p", "newer")
    assert 13 == len(found)
    assert {"passed"} == set(found.values())


def test_those_of_a_late_release_pass_or_are_named(place: InPlace) -> None:
    """vLLM 0.33: what it does otherwise, or besides, is named, and nothing is named that passes.

    The one in its other file, of ``prepend_n``, is the same as that of 0.23.
    """
    found = place.outcomes("0.33.0", FILES[0], "-k", LATE, "-p", "newest")
    failed = {name.partition("::")[2] for name, outcome in found.items() if outcome != "passed"}
    assert set(NEWEST) == failed
    assert 17 == len(found) - len(failed)
