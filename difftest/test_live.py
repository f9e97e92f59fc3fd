"""A live worker: answers from its cache next to answers without it, its metrics at rest, and its shadow's verdict.

Run with ``--live URL``, or with ``--live-spawn``, which starts vLLM on this machine's CPU. The server is only asked, as
any client asks it; nothing of it is changed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.live.check_stats import TOLERANCE
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.metrics import HITS, RUNNING, generated, held_at_rest, what_hangs
from kvgate.live.sample import summed
from kvgate.live.server import NotOfferedError, Server, connected
from kvgate.live.shadow_metrics import Shadows, followed, shadows_of

Say = Callable[[str], None]
_ONE_MORE_SECONDS_MAX = 10.0
_METRICS_SECONDS_MAX = 5.0


@frozen
class Address:
    """Where the server is."""

    url: str
    stories: str = "its folder, KVGATE_SHADOW_DIR"
    """Where its shadow reports differences."""


@frozen
class Worker:
    """The server, and what its counters said before it was driven."""

    server: Server
    stories: str
    hits_before: float | None
    generated_before: Mapping[str, float]
    shadows_before: Shadows


@pytest.fixture(scope="module")
def address(pytestconfig: pytest.Config) -> Iterator[Address]:
    """The server's address."""
    spawned = pytestconfig.getoption("--live-spawn")
    if not spawned:
        given = pytestconfig.getoption("--live")
        if not given:
            pytest.skip("not run: give --live URL, the address of a vllm-ascend worker")
        yield Address(given)
        return
    with _shadow_folder() as folder:
        yield from _spawned(spawned, folder, tuple(pytestconfig.getoption("--preload")))


def _spawned(model: str, folder: Path, preloads: tuple[Path, ...]) -> Iterator[Address]:
    from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
    from kvgate.adapters.cpu_engine.serving import Serving, served

    if model not in HYBRIDS:
        raise pytest.UsageError(f"--live-spawn {model}: there are {', '.join(HYBRIDS)}")
    shadow = {"KVGATE_SHADOW": "check", "KVGATE_SHADOW_DIR": str(folder), "KVGATE_SHADOW_WORKER": "1"}
    try:
        with served(Serving(model, shadow, preloads=preloads)) as started:
            yield Address(started.url, str(folder))
    except SystemUnavailableError as error:
        pytest.fail(str(error), pytrace=False)


@contextmanager
def _shadow_folder() -> Iterator[Path]:
    """Where a spawned server's shadow writes: as the caller says, or a folder that stays if it reports a difference."""
    given = os.environ.get("KVGATE_SHADOW_DIR")
    folder = Path(given).resolve() if given else Path(tempfile.mkdtemp(prefix="kvgate-shadow-"))
    try:
        yield folder
    finally:
        if not given and not list(folder.glob("difference-*")):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def worker(address: Address, pytestconfig: pytest.Config) -> Iterator[Worker]:
    """The server, if it answers."""
    try:
        with connected(address.url, pytestconfig.getoption("--api-key")) as server:
            samples = server.metrics()
            hits = summed(samples).get(HITS)
            yield Worker(server, address.stories, hits, generated(samples), shadows_of(samples))
    except (SystemUnavailableError, UsageError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print what was seen, whether the test passes or not."""

    def aloud(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end=" ")

    return aloud


@pytest.mark.parametrize("exercise", EXERCISES)
def test_cached_answers_equal_uncached(worker: Worker, exercise: str, say: Say, pytestconfig: pytest.Config) -> None:
    """Goal: what the cache serves is what would be computed. Method: the same prompts with salts that miss, twice."""
    given = pytestconfig.getoption("--live-tolerance")
    exercises = Exercises(
        worker.server,
        seed=pytestconfig.getoption("--seed"),
        tolerance=TOLERANCE if given is None else given,
    )
    server, seconds = worker.server, pytestconfig.getoption("--live-seconds")
    try:
        with server.within(seconds):
            tally = EXERCISES[exercise](exercises)
    except NotOfferedError as error:
        pytest.skip(f"not checked: {error}")
    except SystemUnavailableError as error:
        unanswered = server.unanswered
        with server.within(_METRICS_SECONDS_MAX):
            pytest.fail(f"{error}{what_hangs(server.metrics, unanswered)}", pytrace=False)
    say(tally.sentence)
    if tally.complaint is not None:
        pytest.fail(tally.complaint, pytrace=False)


def test_the_cache_was_used(worker: Worker, say: Say) -> None:
    """Goal: the answers that were compared came from the cache. Method: the server's own counter of hits."""
    if worker.hits_before is None:
        pytest.fail(f"the server reports no {HITS} at /metrics, so nothing above is known to be a hit", pytrace=False)
    hits = summed(worker.server.metrics())[HITS] - worker.hits_before
    say(f"{hits:g} tokens were served from the cache")
    assert hits > 0, "is prefix caching on?"


def test_nothing_is_held_at_rest(worker: Worker, say: Say) -> None:
    """Goal: no request leaks anything, aborted ones included. Method: gauges, without load."""
    if RUNNING not in summed(worker.server.metrics()):
        pytest.skip(f"not checked: the server reports no {RUNNING} at /metrics")
    held = held_at_rest(worker.server.metrics)
    say(held or "nothing runs, waits or is held")
    assert held is None


def test_the_shadow_agrees(worker: Worker, say: Say) -> None:
    """Goal: nothing that the engine's block manager did differs from the reference. Method: the shadow's counters."""
    seen = followed(worker.server.metrics, worker.shadows_before)
    if not seen.were_met:
        pytest.skip("not checked: no shadow in this server; start it with KVGATE_SHADOW=check")
    if seen.only_records:
        pytest.skip("not checked: the shadow is in mode record; start it with KVGATE_SHADOW=check, or kvgate replay")
    say(f"shadow: {seen.sentence}")
    if seen.complaint is not None:
        stories = f"; the stories are in {worker.stories}" if seen.shadow.differences else ""
        pytest.fail(f"{seen.complaint}{stories}", pytrace=False)
    moved = generated(worker.server.metrics()).items()
    missing = seen.missing([engine for engine, count in moved if count > worker.generated_before.get(engine, 0)])
    if missing is not None:
        pytest.fail(missing, pytrace=False)
    before = shadows_of(worker.server.metrics())
    Exercises(worker.server).one_more()
    if not followed(worker.server.metrics, before, _ONE_MORE_SECONDS_MAX).shadow.checked:
        why = "it has ended, or observes a sample (KVGATE_SHADOW_SAMPLE), and not all was checked"
        pytest.fail(f"the shadow did not check one more request: {why}", pytrace=False)


def test_the_shadow_of_the_worker_agrees(worker: Worker, say: Say, pytestconfig: pytest.Config) -> None:
    """Goal: block tables and slots of the running model runner are those granted. Method: its shadow's counters."""
    seen = followed(worker.server.metrics, worker.shadows_before).of_workers
    if not seen.were_met:
        missing = "no shadow of a model runner in this server: start it with KVGATE_SHADOW=check KVGATE_SHADOW_WORKER=1"
        if pytestconfig.getoption("--npu") is not None or pytestconfig.getoption("--live-spawn"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(f"not checked: {missing}")
    say(f"the worker's shadow: {seen.sentence}")
    if seen.complaint is not None:
        pytest.fail(f"of the worker: {seen.complaint}", pytrace=False)
