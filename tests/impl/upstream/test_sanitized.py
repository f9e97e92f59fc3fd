"""vLLM's and vLLM-Ascend's own tests under the sanitizer.

Goal: it reports nothing where nothing is wrong, and takes little time. Method: that of ``test_upstream``; each test
must end as it does without the sanitizer, and its message must not be the sanitizer's. Each run must have watched block
pools, and none of the sanitizer's checks may have failed. With a mutant of vLLM some tests fail by its report.
"""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import distributions
from typing import Any

import pytest

from kvgate.adapters.releases import ASCEND, LATER_ASCEND

from .archive import archive_of, wheel_of
from .ascend import RUN as ASCEND_RUN
from .ascend import RUN_LATER, Result, results
from .in_place import InPlace, outcome_of, run_tests
from .stand_ins import write
from .tables import FOLDER, RUN, RUN_ON_NEWEST
from .test_newest_itself import TESTS as TESTS_ON_NEWEST
from .test_newest_itself import VERSION as NEWEST
from .test_releases_themselves import TESTS as TESTS_LATER
from .test_upstream import FILES, TESTS, VERSION, failed

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.deep,
]

SANITIZED = ("-p", "kvgate.sanitizer")
TIMES_MAX = 2.0
ASCEND_TESTS_MIN = 50


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InPlace:
    """Where vLLM's tests run, with stand-ins for the models that they name."""
    return InPlace(tmp_path_factory.mktemp("reports"), write(tmp_path_factory.mktemp("hub")))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The output of each run."""
    outputs: list[str] = []
    run = subprocess.run

    def noting(*arguments: Any, **named: Any) -> Any:
        finished = run(*arguments, **named)
        outputs.append(f"{finished.stdout}{finished.stderr}")
        return finished

    monkeypatch.setattr(subprocess, "run", noting)
    return outputs


def check_watched(printed: list[str], runs: int, pools_min: int = 1) -> None:
    """So many runs had the sanitizer; it watched pools in each, found nothing, and none of its checks failed."""
    watched = [
        re.findall(r"kvgate sanitizer: \d+ tests, (\d+) block pools, (\d+) tests with", each) for each in printed
    ]
    found = [(int(pools), int(misused)) for each in watched for pools, misused in each]
    assert runs == len(found)
    assert all(pools >= pools_min and misused == 0 for pools, misused in found), found
    assert not any("a check failed and was left out" in each for each in printed), printed


def cpu_seconds(run: Callable[[], Any]) -> tuple[Any, float]:
    """A run's result, and the processor time of the processes that it has started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answer, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_no_false_alarm_in_vllms_own_tests(place: InPlace, printed: list[str]) -> None:
    """All 278 pass, with at most twice the processor time: the less of two runs each, without torch's own threads."""
    seconds: dict[tuple[str, ...], list[float]] = {(): [], SANITIZED: []}
    for arguments in (*seconds, *seconds):
        found, spent = cpu_seconds(partial(place.outcomes, VERSION, *FILES, *arguments, OMP_NUM_THREADS="1"))
        assert (TESTS, set()) == (len(found), failed(found))
        seconds[arguments].append(spent)
    check_watched(printed, 2)
    assert min(seconds[SANITIZED]) < TIMES_MAX * min(seconds[()])


@pytest.mark.parametrize(
    ("version", "files", "tests"),
    [("0.23.0", RUN, TESTS_LATER["0.23.0"]), (NEWEST, RUN_ON_NEWEST, TESTS_ON_NEWEST)],
)
def test_no_false_alarm_in_a_later_release(
    place: InPlace, printed: list[str], version: str, files: Iterable[str], tests: int
) -> None:
    """Only the rules are checked that hold there."""
    later = InPlace(place.scratch, place.hub, (wheel_of(version),))
    found = later.outcomes(version, *(f"{FOLDER}/{name}.py" for name in files), "-p", "on_cpu", *SANITIZED)
    assert (tests, set()) == (len(found), failed(found))
    check_watched(printed, 1)


def test_the_sanitizer_is_on_in_vllms_own_tests(place: InPlace) -> None:
    """A mutant of vLLM, ``taken-from-the-back``: some of its tests fail, and the sanitizer's report says why."""
    cases = run_tests(
        archive_of(VERSION),
        place.scratch / "mutant.xml",
        (f"{FOLDER}/test_prefix_caching.py", "-p", "broken_free_queue", *SANITIZED),
        {"HF_HUB_OFFLINE": "1", "HF_HOME": str(place.hub)},
    )
    bad = [case for case in cases if outcome_of(case) != "passed"]
    reported = [case for case in bad if any("kvgate sanitizer" in f"{child.text}" for child in case)]
    assert reported


@pytest.mark.parametrize(("version", "pools_min"), [(ASCEND.version, 0), ("0.23.0", 1)])
def test_no_false_alarm_in_vllm_ascends_own_tests(version: str, pools_min: int, printed: list[str]) -> None:
    """Each test ends as it does without; those of 0.20.2rc1 build no block pool."""
    release = next(each for each in (ASCEND, *LATER_ASCEND) if each.version == version)
    folders = ASCEND_RUN if release == ASCEND else RUN_LATER

    def outcomes(found: dict[str, Result]) -> dict[str, str]:
        return {name: each.outcome for name, each in found.items()}

    found = results(*folders, *SANITIZED, release=release)
    check_watched(printed, 1, pools_min)
    assert [] == [name for name, each in found.items() if "kvgate sanitizer" in each.message]
    assert outcomes(results(*folders, release=release)) == outcomes(found)
    assert ASCEND_TESTS_MIN <= sum(each.outcome == "passed" for each in found.values())
