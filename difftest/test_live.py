"""A live worker: answers from its cache next to answers without it, its metrics at rest, and its shadow's verdict.

Run with ``--live URL``, or with ``--live-spawn``, which starts vLLM on this machine's CPU. The server is only asked, as
any client asks it; nothing of it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attrs import frozen

from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.judging import TOLERANCE
from kvgate.live.metrics import HITS, held_at_rest, settled_shadow
from kvgate.live.server import Server, connected

Say = Callable[[str], None]


@frozen
class Worker:
    """The server, and what its counters said before it was driven."""

    server: Server
    hits_before: float | None


@pytest.fixture(scope="module")
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    """The server's address."""
    spawned = pytestconfig.getoption("--live-spawn")
    if not spawned:
        given = pytestconfig.getoption("--live")
        if pytestconfig.getoption("--npu"):
            from kvgate.adapters.device.npu import missing_npu

            missing = missing_npu()
            if missing is not None:
                pytest.skip(f"not run: {missing}")
        if not given:
            pytest.skip("not run: give --live URL, the address of a vllm-ascend worker")
        yield given
        return
    from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
    from kvgate.adapters.cpu_engine.serving import Serving, served

    if spawned not in HYBRIDS:
        raise pytest.UsageError(f"--live-spawn {spawned}: there are {', '.join(HYBRIDS)}")
    serving = Serving(
        spawned, environment={"KVGATE_SHADOW": "check"}, preloads=tuple(pytestconfig.getoption("--preload"))
    )
    try:
        with served(serving) as started:
            yield started.url
    except SystemUnavailableError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def worker(url: str) -> Iterator[Worker]:
    """The server, if it answers."""
    try:
        with connected(url) as server:
            yield Worker(server, server.metrics().get(HITS))
    except (SystemUnavailableError, UsageError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Tell what was seen, whether the test passes or not."""

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
    try:
        tally = EXERCISES[exercise](exercises)
    except SystemUnavailableError as error:
        pytest.fail(str(error), pytrace=False)
    say(tally.sentence)
    if tally.complaint is not None:
        pytest.fail(tally.complaint, pytrace=False)


def test_the_cache_was_used(worker: Worker, say: Say) -> None:
    """Goal: the answers that were compared came from the cache. Method: the server's own counter of hits."""
    if worker.hits_before is None:
        pytest.fail(f"the server tells no {HITS} at /metrics, so nothing above is known to be a hit", pytrace=False)
    hits = worker.server.metrics()[HITS] - worker.hits_before
    say(f"{hits:g} tokens were served from the cache")
    assert hits > 0, "is prefix caching on?"


def test_nothing_is_held_at_rest(worker: Worker, say: Say) -> None:
    """Goal: requests leave nothing behind, also those that were given up. Method: gauges, when nobody asks."""
    held = held_at_rest(worker.server.metrics)
    say(held or "nothing runs, waits or is held")
    assert held is None


def test_the_shadow_agrees(worker: Worker, say: Say) -> None:
    """Goal: nothing that the engine's block manager did differs from the reference. Method: the shadow's counters."""
    shadow = settled_shadow(worker.server.metrics)
    if shadow is None:
        pytest.skip("not judged: no shadow in this server; start it with KVGATE_SHADOW=check")
    say(f"shadow: {shadow.sentence}")
    if shadow.differences:
        told = "the stories are in its folder, KVGATE_SHADOW_DIR"
        pytest.fail(f"the shadow saw {shadow.differences} differences; {told}", pytrace=False)
    if not shadow.judged or shadow.lost:
        pytest.fail(f"the shadow did not follow all of it: {shadow.sentence}", pytrace=False)
