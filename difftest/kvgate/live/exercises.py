"""What a live server is put through: prompts of words that share beginnings, sent with several options.

Every exercise asks its prompts under one salt of this run, so that they find each other's blocks and no others, and
then each under a salt of its own, twice, so that they find none. That they found none is not believed: the server must
say so, by answer or by its counter of hits.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from attrs import define, evolve, field

from kvgate.adapters.cpu_engine.words import WORDS_MAX, words
from kvgate.live.check_stats import TOLERANCE, Comparison, Tally, Verdict, tally
from kvgate.live.metrics import HITS, PREEMPTIONS, cache_tokens
from kvgate.live.sample import summed
from kvgate.live.server import Asked, NotOfferedError, Reply, Server

ANSWER_TOKENS = 32
_WORDS = words(min(WORDS_MAX, 480))
_PROBE_WORDS = 64
_SEVERAL = 3
_CHOICES = _WORDS[:2]
_PREEMPTED = 8
_PREEMPTED_TOKENS_MAX = 4096
"""The longest request that is to be preempted: a minute must suffice."""
_LONG_WORDS_MAX = 8192
"""The longest prompt, in words, however long a request the server takes."""


@define(eq=False)
class Exercises:
    """The exercises on one server, with one seed."""

    server: Server
    seed: int = 0
    tolerance: float = TOLERANCE
    answer_tokens: int = ANSWER_TOKENS
    run: str = field(factory=lambda: uuid.uuid4().hex)
    """Part of every salt: what an earlier run left in the cache is not found."""
    _salts: int = 0

    def one_more(self) -> Reply:
        """The answer to a short prompt that was never asked before."""
        return self.server.complete(self._asked(self._random_words("one more", _PROBE_WORDS), self._salt()))

    def shared_prefixes(self) -> Tally:
        """A prompt, then others that leave it after more and more words, one after the other."""
        first = self._random_words("shared", 200)
        prompts = [
            first,
            *(f"{self._begun(first, count)} {self._random_words(str(count), 9)}" for count in range(10, 200, 27)),
        ]
        salt = self._salt()
        return self._compared(prompts, [self.server.complete(self._asked(prompt, salt)) for prompt in prompts])

    def burst(self) -> Tally:
        """Many at once: some the same, some with a common beginning, after one that cached it."""
        first, salt = self._random_words("burst", 150), self._salt()
        self.server.complete(self._asked(first, salt))
        prompts = [
            f"{self._begun(first, 40 * (number % 4))} {self._random_words(f'b{number % 6}', 12)}"
            for number in range(16)
        ]
        return self._compared(prompts, self.server.together([self._asked(prompt, salt) for prompt in prompts]))

    def aborts(self) -> Tally:
        """Requests that are aborted after their first token, and others that find what these left."""
        first, salt = self._random_words("aborts", 180), self._salt()
        prompts = [f"{self._begun(first, count)} {self._random_words(f'a{count}', 5)}" for count in (30, 90, 150, 180)]
        for prompt in prompts:
            self.server.abort(self._asked(prompt, salt, answer_tokens=4 * self.answer_tokens))
        return self._compared(prompts, self.server.together([self._asked(prompt, salt) for prompt in prompts]))

    def long_contexts(self) -> Tally:
        """Prompts near the longest that the server takes, each a turn longer than the one before."""
        salt, room = self._salt(), self._words_that_fit()
        whole = self._random_words("long", room)
        prompts = [self._begun(whole, room * part // 4) for part in (2, 3, 4)] + [whole]
        return self._compared(prompts, [self.server.complete(self._asked(prompt, salt)) for prompt in prompts])

    def near_twins(self) -> Tally:
        """Prompts that differ in one word, whose beginnings alone are the same."""
        salt, base = self._salt(), self._random_words("twins", 160).split()
        prompts = [" ".join(base)]
        for place in (15, 16, 31, 63, 64, 127, 150):
            twin = [*base]
            twin[place] = next(word for word in _WORDS if word != base[place])
            prompts.append(" ".join(twin))
        return self._compared(prompts, [self.server.complete(self._asked(prompt, salt)) for prompt in prompts])

    def several_answers(self) -> Tally:
        """Prompts to each of which three answers are asked for at once: they share its blocks, and part after it."""
        # vLLM rejects several answers without sampling; so little sampling chooses the likeliest token.
        like = self._asked("", "", further={"temperature": 1e-4})
        salt, whole = self._salt(), self._random_words("several", 120)
        prompts = [self._begun(whole, count) for count in (50, 90, 120)]
        cached = [self.server.several(evolve(like, prompt=prompt, salt=salt), _SEVERAL) for prompt in prompts]
        return self._compared([each for each in prompts for _ in range(_SEVERAL)], [*chain(*cached)], like)

    def structured_output(self) -> Tally:
        """Prompts whose answers a grammar limits to two words."""
        rules = {"structured_outputs": {"choice": list(_CHOICES)}, "ignore_eos": False}
        like = self._asked("", "", further=rules)
        salt, whole = self._salt(), self._random_words("structured", 120)
        prompts = [self._begun(whole, count) for count in (60, 90, 120, 120)]
        cached = [self._complete(like, prompt, salt) for prompt in prompts]
        without, again = self._without_cache(prompts, like)
        found = tally(cached, without, again, self.tolerance)
        wrong = [reply for reply in (*cached, *without, *again) if reply.text.strip() not in _CHOICES]
        why = f"{len(wrong)} answers are none of {', '.join(_CHOICES)}: {wrong[0].text!r:.80}" if wrong else ""
        return Tally((*found.comparisons, Comparison(Verdict.DIFFERS, why))) if wrong else found

    def adapters(self) -> Tally:
        """Prompts that were asked of the model, and then of an adapter: its blocks are others."""
        if not self.server.adapters:
            raise NotOfferedError("the server offers no LoRA adapter")
        like = evolve(self._asked("", ""), model=self.server.adapters[0])
        salt, whole = self._salt(), self._random_words("adapters", 150)
        prompts = [self._begun(whole, count) for count in (70, 110, 150, 150)]
        for prompt in prompts:
            self.server.complete(self._asked(prompt, salt))
        return self._compared(prompts, [self._complete(like, prompt, salt) for prompt in prompts], like)

    def preemption(self) -> Tally:
        """Requests that together outgrow the cache: some are preempted, and computed again."""
        capacity = cache_tokens(self.server.metrics())
        if capacity is None:
            raise NotOfferedError("the server does not report how large its cache is (vllm:cache_config_info)")
        tokens = min(self.server.tokens_max * 3 // 4, max(256, capacity // 6), _PREEMPTED_TOKENS_MAX)
        if _PREEMPTED * tokens < capacity:
            raise NotOfferedError(f"{_PREEMPTED} requests do not fill a cache of {capacity} tokens in a minute")
        salt, words_each = self._salt(), self._words_of(tokens * 2 // 3)
        prompts = [self._random_words(f"p{number}", words_each) for number in range(_PREEMPTED)]
        like = self._asked("", "", answer_tokens=tokens // 3)
        before = self._count(PREEMPTIONS)
        cached = self.server.together([evolve(like, prompt=prompt, salt=salt) for prompt in prompts])
        if before is None or self._count(PREEMPTIONS) == before:
            raise NotOfferedError("no request was preempted")
        return self._compared(prompts, cached, like)

    def _complete(self, like: Asked, prompt: str, salt: str) -> Reply:
        return self.server.complete(evolve(like, prompt=prompt, salt=salt))

    def _compared(self, prompts: list[str], cached: list[Reply], like: Asked | None = None) -> Tally:
        """The answers next to those without the cache."""
        return tally(cached, *self._without_cache(prompts, like or self._asked("", "")), self.tolerance)

    def _without_cache(self, prompts: list[str], like: Asked) -> tuple[list[Reply], list[Reply]]:
        """The answers without the cache, which are asked for one by one, and then all together."""
        hits_before = self._hits()
        without = [self._complete(like, prompt, self._salt()) for prompt in prompts]
        again = self.server.together([evolve(like, prompt=prompt, salt=self._salt()) for prompt in prompts])
        if hits_before is not None and hits_before == self._hits():
            without, again = ([_uncached(reply) for reply in replies] for replies in (without, again))
        return without, again

    def _hits(self) -> float | None:
        """The server's own count of tokens from the cache, if it has one."""
        return self._count(HITS)

    def _count(self, metric: str) -> float | None:
        return summed(self.server.metrics()).get(metric)

    def _asked(
        self,
        prompt: str,
        salt: str,
        answer_tokens: int | None = None,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> Asked:
        return Asked(prompt, salt, answer_tokens or self.answer_tokens, further=further)

    def _salt(self) -> str:
        self._salts += 1
        return f"kvgate-{self.run}-{self._salts}"

    def _random_words(self, what: str, count: int) -> str:
        chance = random.Random(f"{self.seed} {what}")
        return " ".join(chance.choice(_WORDS) for _ in range(count))

    @staticmethod
    def _begun(prompt: str, count: int) -> str:
        return " ".join(prompt.split()[:count])

    def _words_that_fit(self) -> int:
        """How many words fill most of the longest request."""
        return self._words_of(0.9 * (self.server.tokens_max - 2 * self.answer_tokens))

    def _words_of(self, tokens: float) -> int:
        """About how many words are so many tokens."""
        probe = self.server.complete(
            self._asked(self._random_words("probe", _PROBE_WORDS), self._salt(), answer_tokens=1)
        )
        return max(1, min(_LONG_WORDS_MAX, int(tokens * _PROBE_WORDS / probe.prompt_tokens)))


def _uncached(reply: Reply) -> Reply:
    """An answer that came when nothing was served from the cache, which the server may not report."""
    return reply if reply.cached_tokens is not None else evolve(reply, cached_tokens=0)


EXERCISES: Mapping[str, Callable[[Exercises], Tally]] = MappingProxyType(
    {
        "shared-prefixes": Exercises.shared_prefixes,
        "near-twins": Exercises.near_twins,
        "burst": Exercises.burst,
        "aborts": Exercises.aborts,
        "long-contexts": Exercises.long_contexts,
        "preemption": Exercises.preemption,
        "several-answers": Exercises.several_answers,
        "structured-output": Exercises.structured_output,
        "adapters": Exercises.adapters,
    }
)
"""Every exercise, by its name."""
