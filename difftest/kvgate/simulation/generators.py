"""Workloads that are made, and not recorded: each follows from its numbers and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kvgate.kernel.errors import UsageError
from kvgate.simulation.workload import Session, Turn, Workload, single
from kvreference.operations import Run

UNIQUE_TOKENS = 3
"""What the repeat-rate benchmark puts between the shared prefix and a prompt's own rest, so that all prompts differ."""
TEMPLATE_TOKENS = 4
"""What the chat template adds around a prompt."""

REQUESTS_MAX = 200_000
"""The most requests of a workload that is made. All are there before the first is sent."""
PIECES_MAX = 20_000_000
"""The most sessions times the square of their turns, since a turn repeats all before it."""


def _few(requests: int) -> None:
    if requests > REQUESTS_MAX:
        raise UsageError(f"{requests:,} requests: at most {REQUESTS_MAX:,} are made; give smaller numbers")


class Spellings:
    """Fresh token ids: no two of its runs share a token."""

    def __init__(self) -> None:
        self._next = 0

    def fresh(self, tokens: int) -> Run:
        """``tokens`` tokens that no other request has."""
        run = Run(self._next, tokens)
        self._next += tokens
        return run


def repeat_rate(
    input_tokens: int = 8192,
    answer_tokens: int = 1024,
    lanes: int = 32,
    rate: float = 0.9,
    prompts: int | None = None,
    prefixes: int = 1,
    warm: bool = True,
) -> Workload:
    """The prefix-cache benchmark: every prompt is a shared prefix, three tokens of its own, and a rest of its own.

    ``int(rate * input_tokens)`` tokens are shared; the chat template adds four tokens around the prompt, of which the
    first stands before the prefix in every request. By default, four prompts per lane are sent. ``warm``: the bare
    prefixes are sent before, and not counted.

    Raises:
        UsageError: the rate leaves no room for the tokens of a prompt's own, or no prefix.
    """
    if prefixes < 1:
        raise UsageError(f"{prefixes} prefixes: give at least 1")
    count = 4 * lanes if prompts is None else prompts
    _few(count + prefixes)
    shared_tokens = int(rate * input_tokens)
    if not 0 < shared_tokens <= input_tokens - UNIQUE_TOKENS:
        raise UsageError(
            f"a repeat rate of {rate} shares {shared_tokens} of {input_tokens} tokens: too few or too many"
        )
    words = Spellings()
    begin, end = words.fresh(1), words.fresh(TEMPLATE_TOKENS - 1)
    shared = [words.fresh(shared_tokens) for _ in range(prefixes)]

    def turn(prefix: Run, own_tokens: int, answered: int) -> Turn:
        own = (words.fresh(own_tokens),) if own_tokens else ()
        return Turn((begin, prefix, *own, end), words.fresh(answered))

    turns = [turn(shared[each % prefixes], input_tokens - shared_tokens, answer_tokens) for each in range(count)]
    return Workload(
        f"repeat-rate {input_tokens} x {lanes}, r={rate}",
        single(*turns),
        lanes,
        single(*(turn(prefix, 0, 1) for prefix in shared)) if warm else (),
        f"{count} prompts of {input_tokens} tokens, {lanes} at once, {rate:.0%} of each shared; {answer_tokens} "
        + "answered"
        + ("; the shared prefix was sent before" if warm else "; the cache is empty at first"),
    )


def second_workload(rate: float = 0.9, warm: bool = True) -> Workload:
    """The second workload of the same reports: 32k tokens in, 1k out, 32 at once."""
    return repeat_rate(32768, 1024, 32, rate, warm=warm)


def replays(
    tokens: int = 1_000_000, others: int = 1, lanes: int = 1, answer_tokens: int = 1, replayed: int = 1
) -> Workload:
    """Long prompts one after another (or ``lanes`` at once), and then the first ``replayed`` of them once more.

    ``others`` is how many different prompts lie between a prompt and its replay; only replays are counted.
    """
    _few(others + replayed)
    words = Spellings()
    prompts = [(words.fresh(tokens),) for _ in range(others + replayed)]
    first = [Turn(prompt, words.fresh(answer_tokens)) for prompt in prompts]
    again = [Turn(prompt, words.fresh(answer_tokens)) for prompt in prompts[:replayed]]
    return Workload(
        f"{replayed} of {others + replayed} x {tokens} tokens again",
        single(*again),
        lanes,
        single(*first),
        f"{others + replayed} prompts of {tokens:,} tokens, then the first {replayed} again; {lanes} at once",
    )


def fractions(
    tokens: int = 1_000_000, prompts: int = 14, percent: int = 50, lanes: int = 1, answer_tokens: int = 1
) -> Workload:
    """Long prompts one after another, and then of each the first ``percent`` per cent, with a tail of its own."""
    if not 1 <= percent <= 100:
        raise UsageError(f"a fraction of {percent} per cent: give 1 to 100")
    _few(2 * prompts)
    words = Spellings()
    whole = [words.fresh(tokens) for _ in range(prompts)]
    part = tokens * percent // 100
    again = [(Run(run.first, part),) if part == tokens else (Run(run.first, part), words.fresh(1)) for run in whole]
    return Workload(
        f"{percent} % of {prompts} x {tokens} tokens",
        single(*(Turn(prompt, words.fresh(answer_tokens)) for prompt in again)),
        lanes,
        single(*(Turn((run,), words.fresh(answer_tokens)) for run in whole)),
        f"{prompts} prompts of {tokens:,} tokens, then {percent} % of each again",
    )


def shared_prefixes(
    prefixes: int = 20,
    prefix_tokens: int = 28_000,
    own_tokens: int = 256,
    answer_tokens: int = 64,
    lanes: int = 1,
    rounds: int = 1,
) -> Workload:
    """A sweep over documents: each prefix once to warm up, and then ``rounds`` times with another question."""
    _few(prefixes * (rounds + 1))
    words = Spellings()
    documents = [words.fresh(prefix_tokens) for _ in range(prefixes)]

    def sweep() -> list[Turn]:
        return [Turn((each, words.fresh(own_tokens)), words.fresh(answer_tokens)) for each in documents]

    first = sweep()
    return Workload(
        f"{prefixes} prefixes of {prefix_tokens} tokens",
        single(*(turn for _ in range(rounds) for turn in sweep())),
        lanes,
        single(*first),
        f"{prefixes} shared prefixes of {prefix_tokens:,} tokens, each asked about once to warm up and {rounds} times "
        "after that",
    )


def agents(
    sessions: int = 32,
    turns: int = 8,
    lanes: int = 16,
    system_tokens: int = 4096,
    turn_tokens: int = 2048,
    answer_tokens: int = 256,
    seed: int = 0,
) -> Workload:
    """Multi-turn agents: every turn is the whole conversation before, and something new of a random length.

    All sessions share the system prompt. What is new in a turn is between half and one and a half times
    ``turn_tokens``, and so are the answers around ``answer_tokens``.
    """
    _few(sessions * turns)
    if sessions * turns**2 > PIECES_MAX:
        raise UsageError(
            f"{sessions:,} sessions of {turns:,} turns: every turn repeats all before it, so sessions times the square "
            f"of turns may be {PIECES_MAX:,} at most; give smaller numbers"
        )
    words, random_source = Spellings(), random.Random(seed)
    system = words.fresh(system_tokens)

    def about(tokens: int) -> Run:
        return words.fresh(max(1, random_source.randint(tokens - tokens // 2, tokens + tokens // 2)))

    def talk() -> Iterator[Turn]:
        context: tuple[Run, ...] = (system,)
        for _ in range(turns):
            turn = Turn((*context, about(turn_tokens)), about(answer_tokens))
            context = turn.runs
            yield turn

    return Workload(
        f"{sessions} agents, {turns} turns",
        tuple(Session(tuple(talk())) for _ in range(sessions)),
        lanes,
        (),
        f"{sessions} conversations of {turns} turns after one system prompt of {system_tokens:,} tokens, {lanes} at "
        "once",
    )
