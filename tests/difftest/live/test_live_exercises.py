"""The exercises, on a server that pretends.

Goal: a server whose cache is right passes every exercise with hits, one whose cache serves a foreign block does not,
and of one that differs from itself nothing is said. Method: a server in this process, right or wrong as told.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvgate.errors import SystemUnavailableError, UsageError
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.judging import Judged, Tally, Verdict, judged
from kvgate.live.metrics import HITS, Shadow, held_at_rest, settled_shadow, shadow_of
from kvgate.live.server import Place, Reply, connected

from .pretended import Pretended, listening

pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")


def exercised(pretended: Pretended, name: str) -> Tally:
    """What is found of a server."""
    with listening(pretended) as url, connected(url) as server:
        return EXERCISES[name](Exercises(server))


@pytest.mark.parametrize("name", EXERCISES)
def test_a_right_cache_passes(name: str) -> None:
    """And prompts were served from it."""
    tally = exercised(Pretended(), name)
    assert None is tally.complaint
    assert len(tally.judged) == tally.count(Verdict.EQUAL)
    assert sum(each.cached_tokens or 0 for each in tally.judged) > 0


def test_a_foreign_block_is_seen() -> None:
    """Goal: the comparison can fail. Method: blocks that are known without their last word."""
    tally = exercised(Pretended(forgets_last_word=True), "near-twins")
    assert tally.count(Verdict.DIFFERS) > 0
    assert "Answers differ with the cache" in str(tally.complaint)


def test_of_noise_nothing_is_said() -> None:
    """A server that differs from itself is not blamed on its cache, and does not pass either."""
    tally = exercised(Pretended(is_noisy=True), "shared-prefixes")
    assert len(tally.judged) == tally.count(Verdict.NOT_JUDGED)
    assert "Nothing could be judged" in str(tally.complaint)


def test_runs_do_not_find_each_other() -> None:
    """Two runs of one seed ask the same prompts, under other salts."""
    pretended = Pretended()
    with listening(pretended) as url, connected(url) as server:
        hits = []
        for _ in range(2):
            before = pretended.hits
            EXERCISES["shared-prefixes"](Exercises(server))
            hits.append(pretended.hits - before)
    assert hits[0] == hits[1]


def test_metrics() -> None:
    """They are summed over their labels, and a shadow is known by its counters."""
    with listening(Pretended()) as url, connected(url) as server:
        assert 0 == server.metrics()[HITS]
        assert None is shadow_of(server.metrics())
    counts = {"judged": 7, "differences": 1, "lost": 2}
    with listening(Pretended(shadow=counts)) as url, connected(url) as server:
        assert Shadow(7, 1, 2) == shadow_of(server.metrics())


def test_what_is_held_at_rest_is_told() -> None:
    """A request that was given up and runs on is seen, and one that does not is not."""
    for leaks, expected in ((False, None), (True, "vllm:num_requests_running is 4")):
        with listening(Pretended(leaks=leaks)) as url, connected(url) as server:
            EXERCISES["aborts"](Exercises(server))
            assert expected == held_at_rest(server.metrics, seconds=0.0)


def test_a_shadow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verdict is what it says when it judges no more."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    judged_so_far = iter([0, 5, 9, 9])

    def read() -> dict[str, float]:
        return {"kvgate_shadow_judged_total": next(judged_so_far)}

    assert Shadow(9, 0, 0) == settled_shadow(read)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("localhost:8000", UsageError, "give an address that begins with http://"),
        ("http://127.0.0.1:9", SystemUnavailableError, "is a server running there"),
    ],
)
def test_no_server(url: str, error: type[Exception], message: str) -> None:
    """It is said what to do."""
    with pytest.raises(error, match=message), connected(url):
        pass


def test_no_models() -> None:
    """Something answers that does not speak the protocol."""
    with (
        listening(Pretended(models={"hello": 1})) as url,
        pytest.raises(SystemUnavailableError, match="no list of models"),
        connected(url),
    ):
        pass


def reply(tokens: str, logprobs: Callable[[int], float] = lambda _place: -0.5, near: float = 1.0) -> Reply:
    """An answer of letters, whose next best letter is ``near`` behind."""
    others = {"a": "b", "b": "a"}
    places = [
        Place(each, logprobs(place), {each: logprobs(place), others[each]: logprobs(place) - near})
        for place, each in enumerate(tokens)
    ]
    return Reply(tokens, tuple(places), 1, 0)


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        (reply("aba"), Verdict.EQUAL),
        (reply("abb"), Verdict.DIFFERS),
        (reply("aba", lambda place: -0.5 - 0.01 * (place == 0)), Verdict.DIFFERS),
        (reply("aba", lambda place: -0.5 - 0.01 * (place == 1)), Verdict.EQUAL),
    ],
)
def test_verdicts(cached: Reply, expected: Verdict) -> None:
    """Tokens count, and the first one's log-probability."""
    assert expected is judged(cached, reply("aba"), reply("aba")).verdict


def test_a_tie_is_no_difference() -> None:
    """Only if both answers were undecided where they part."""
    assert Verdict.TIE is judged(reply("ab", near=1e-6), reply("aa", near=1e-6), reply("aa", near=1e-6)).verdict
    assert Verdict.DIFFERS is judged(reply("ab"), reply("aa", near=1e-6), reply("aa", near=1e-6)).verdict
    assert Tally((Judged(Verdict.TIE),)).complaint is not None
