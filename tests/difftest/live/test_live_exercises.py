"""The exercises, on a server that pretends.

Goal: a server with a correct cache passes every exercise with hits; one that serves a foreign block fails; of one that
is not deterministic nothing is claimed. Method: a server in this process, right or wrong as configured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.live.check_stats import Comparison, Tally, Verdict, compare_answers
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.metrics import HITS, generated, held_at_rest, what_hangs
from kvgate.live.sample import summed
from kvgate.live.server import NotOfferedError, Place, Reply, connected
from kvgate.live.shadow_metrics import Followed, shadows_of

from .pretended import Pretended, listening

pytest.importorskip("httpx")
pytest.importorskip("prometheus_client")


OFFERED = ("several-answers", "preemption", "structured-output", "adapters")
"""The exercises that ask for what a server may not have."""


def exercised(pretended: Pretended, name: str) -> Tally:
    """The findings of an exercise on a server."""
    with listening(pretended) as url, connected(url) as server:
        return EXERCISES[name](Exercises(server))


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in EXERCISES if name not in OFFERED])
def test_a_right_cache_passes(name: str) -> None:
    """And prompts were served from it."""
    tally = exercised(Pretended(), name)
    assert None is tally.complaint
    assert len(tally.comparisons) == tally.count(Verdict.EQUAL)
    assert sum(each.cached_tokens or 0 for each in tally.comparisons) > 0


def test_a_foreign_block_is_seen() -> None:
    """Goal: the comparison can fail. Method: blocks that are known without their last word."""
    tally = exercised(Pretended(forgets_last_word=True), "near-twins")
    assert tally.count(Verdict.DIFFERS) > 0
    assert "Answers differ with the cache" in str(tally.complaint)


def test_of_noise_nothing_is_said() -> None:
    """A server that differs from itself is not blamed on its cache, and does not pass either."""
    tally = exercised(Pretended(is_noisy=True), "shared-prefixes")
    assert len(tally.comparisons) == tally.count(Verdict.NOT_CHECKED)
    assert "Half or more could not be checked" in str(tally.complaint)


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


def test_a_server_that_ignores_salts_is_seen() -> None:
    """Goal: cached answers are not compared with cached ones. Method: a right cache, and one that is wrong too."""
    for forgets in (False, True):
        tally = exercised(Pretended(ignores_salt=True, forgets_last_word=forgets), "near-twins")
        assert len(tally.comparisons) == tally.count(Verdict.SALT_IGNORED)
        assert "8 with a salt of their own were served from the cache" in str(tally.complaint)


@pytest.mark.parametrize(
    ("pretended", "expected"),
    [
        (Pretended(tells_cached=False), Verdict.EQUAL),
        (Pretended(tells_cached=False, tells_metrics=False), Verdict.NOT_CHECKED),
        (Pretended(tells_cached=False, ignores_salt=True), Verdict.NOT_CHECKED),
    ],
    ids=["by its counter", "untold", "the counter moves"],
)
def test_uncached_is_not_believed(pretended: Pretended, expected: Verdict) -> None:
    """Goal: an answer that may have been cached is not a baseline. Method: a server whose answers do not report cached
    tokens.
    """
    tally = exercised(pretended, "near-twins")
    assert len(tally.comparisons) == tally.count(expected)
    assert (expected is not Verdict.EQUAL) == ("not known to be uncached" in str(tally.complaint))


@pytest.mark.parametrize(("equal", "others", "passes"), [(9, 7, True), (8, 8, False), (1, 15, False)])
def test_most_answers_must_be_compared(equal: int, others: int, passes: bool) -> None:
    """A few equal answers say nothing of many that were not compared."""
    for other in (Verdict.NOT_CHECKED, Verdict.TIE):
        tally = Tally((Comparison(Verdict.EQUAL),) * equal + (Comparison(other, "why"),) * others)
        assert passes is (tally.complaint is None)


def test_metrics() -> None:
    """They are summed over their labels."""
    shadows = {("a", "check"): {"judged": 7}, ("b", "check"): {"judged": 2}}
    with listening(Pretended(shadows=shadows)) as url, connected(url) as server:
        sums = summed(server.metrics())
    assert (0, 9) == (sums[HITS], sums["kvgate_shadow_judged_total"])


def test_what_is_held_at_rest_is_reported() -> None:
    """An aborted request that runs on is seen; one that ends is not reported."""
    for leaks, expected in ((False, None), (True, "vllm:num_requests_running is 4")):
        with listening(Pretended(leaks=leaks)) as url, connected(url) as server:
            EXERCISES["aborts"](Exercises(server))
            assert expected == held_at_rest(server.metrics, seconds=0.0)


def test_of_a_server_without_metrics_nothing_is_known() -> None:
    """It is not at rest because it does not report its running requests."""
    with listening(Pretended(tells_metrics=False)) as url, connected(url) as server:
        assert "vllm:num_requests_running is not reported" == held_at_rest(server.metrics, seconds=0.0)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("localhost:8000", UsageError, "give an address that begins with http://"),
        ("http://127.0.0.1:9", SystemUnavailableError, "is a server running there"),
    ],
)
def test_no_server(url: str, error: type[Exception], message: str) -> None:
    """The message says what to do."""
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
    """An answer of letters; the runner-up of each letter is ``near`` below it."""
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
    assert expected is compare_answers(cached, reply("aba"), reply("aba")).verdict


def test_a_tie_is_not_a_difference() -> None:
    """Only if both answers were undecided where they part."""
    assert (
        Verdict.TIE is compare_answers(reply("ab", near=1e-6), reply("aa", near=1e-6), reply("aa", near=1e-6)).verdict
    )
    assert Verdict.DIFFERS is compare_answers(reply("ab"), reply("aa", near=1e-6), reply("aa", near=1e-6)).verdict
    assert Tally((Comparison(Verdict.TIE),)).complaint is not None


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_offered_is_exercised(name: str) -> None:
    """A server with an adapter, a small cache and grammars passes; one without says what it does not offer."""
    models = [{"id": "pretended", "max_model_len": 600}, {"id": "a", "parent": "pretended"}]
    able = Pretended(capacity_tokens=900, preempted=1, choices=("baba", "babe"), models={"data": models})
    assert exercised(able, name).complaint is None
    if name != "several-answers":
        with pytest.raises(NotOfferedError):
            exercised(Pretended(), name)


def test_an_answer_that_the_grammar_does_not_allow_is_seen() -> None:
    found = exercised(Pretended(choices=("baba", "bebe")), "structured-output").complaint
    assert found is not None
    assert "answers are none of baba, babe: ' bebe'" in found


@pytest.mark.parametrize(("given", "passes"), [("secret", True), (None, False)])
def test_the_key_is_sent(given: str | None, passes: bool) -> None:
    """Goal: a server with a key can be driven. Method: one that refuses requests without it."""
    with listening(Pretended(api_key="secret")) as url, connected(url, given) as server:
        if passes:
            assert EXERCISES["near-twins"](Exercises(server)).complaint is None
        else:
            with pytest.raises(SystemUnavailableError, match="the server answered 401"):
                EXERCISES["near-twins"](Exercises(server))


def test_a_server_that_hangs_ends_an_exercise() -> None:
    """Goal: within its time, and with what is known. Method: a server that answers three requests."""
    with listening(Pretended(hangs_after=3)) as url, connected(url) as server:
        begun = time.monotonic()
        with pytest.raises(SystemUnavailableError, match=r"no whole answer within 0\.5 seconds"), server.within(0.5):
            EXERCISES["near-twins"](Exercises(server))
        assert time.monotonic() - begun < 2.5
        assert what_hangs(server.metrics, server.unanswered).startswith(
            "; 1 request not answered: vllm:num_requests_running is 0"
        )


def test_each_engine_needs_a_shadow() -> None:
    """Goal: a shadow that ended is missed where another engine has one. Method: two engines that served."""
    pretended = Pretended(shadows={("0/mine", "check"): {"judged": 5, "calls": 5}}, generated={"0": 7, "1": 9})
    with listening(pretended) as url, connected(url) as server:
        samples = server.metrics()
    seen = Followed(shadows_of(samples))
    assert {"0": 7, "1": 9} == generated(samples)
    assert seen.missing(["0"]) is None
    assert "no shadow followed engine 1, which served requests meanwhile" == seen.missing(["0", "1"])
