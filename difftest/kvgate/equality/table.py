"""The table of token equality: models by features, each cell with what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from kvgate.adapters.cpu_engine.engines import Engines
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS, Hybrid
from kvgate.adapters.cpu_engine.job import Job, JobResult
from kvgate.equality.ask_rounds import CROWD, rounds
from kvgate.equality.feature import ANSWER_TOKENS, FEATURE, Feature, lacking, with_feature
from kvgate.kernel.errors import UsageError

TOLERANCE = 1e-4
"""How much the log-probability of a first token may differ: sums of 32-bit numbers in another order stay far below."""
MODEL_TOKENS_MAX = 832
"""The longest request: the longest prompt, an answer, another turn and its answer."""
FAULTS = ("last-token-ignored", "parent-ignored")
"""Mutants that serve blocks with other tokens in them."""


class State(str, Enum):
    """The result for one model with one feature."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_SHOWN = "not shown"
    """Equal, and what the feature is about was not seen."""
    NOT_THERE = "not there"
    """The model has nothing for this feature."""
    FAILED = "failed"
    """The engine did not answer."""


@frozen
class Cell:
    """One model with one feature, or with one injected fault."""

    model: str
    feature: str
    state: State
    why: str = ""
    answers: int = 0
    differ: int = 0
    """Answers with another token, or another log-probability of the first."""
    logprob_distance: float = 0.0
    """The largest of the first tokens' log-probabilities."""
    gap: float = 0.0
    """By how much the chosen token was ahead of the next, where that was least, without a cache."""
    result: JobResult | None = None

    @property
    def is_fault_injected(self) -> bool:
        """Whether a fault was injected, so that it should differ."""
        return self.feature in FAULTS

    @property
    def is_as_it_should_be(self) -> bool:
        """Equal, or unequal if a fault was injected."""
        return self.state in ((State.DIFFERS,) if self.is_fault_injected else (State.EQUAL, State.NOT_THERE))


def plain_job(model: str) -> Job:
    """An engine without prefix caching, with blocks for all requests."""
    options = {"enable_prefix_caching": False, "max_model_len": MODEL_TOKENS_MAX, "max_num_seqs": CROWD}
    return Job("without caching", model, rounds(), ANSWER_TOKENS, options)


def fill(
    engines: Engines,
    models: Sequence[str],
    features: Sequence[Feature],
    report: Callable[[str], None] = lambda _text: None,
) -> Iterator[Cell]:
    """The cells, one after the other; ``report`` is called with what is running.

    Raises:
        SystemUnavailableError: the engines' process ended, or an engine without caching did not answer.
    """
    for model in models:
        hybrid, plain = HYBRIDS[model], plain_job(model)
        report(f"{model}: without caching")
        expected = engines.run(plain)
        with_hits: JobResult | None = None
        for feature in features:
            report(f"{model}: {feature.name}")
            if feature.larger_blocks and not hybrid.has_larger_blocks:
                yield Cell(model, feature.name, State.NOT_THERE, "blocks of one size")
                continue
            result = engines.run(with_feature(feature, plain, hybrid.blocks_short))
            with_hits = with_hits or _with_hits(engines, feature, result, plain, hybrid)
            yield compare(model, feature.name, expected, result, lacking(feature, result, with_hits))
        for name in FAULTS:
            report(f"{model}: injected {name}")
            broken = evolve(with_feature(FEATURE["hits"], plain, hybrid.blocks_short), name=name, mutants=(name,))
            yield compare(model, name, expected, engines.run(broken))


def _with_hits(engines: Engines, feature: Feature, result: JobResult, plain: Job, hybrid: Hybrid) -> JobResult:
    """The result of the engine with prefix caching alone, to which the others are compared."""
    hits = FEATURE["hits"]
    return result if feature is hits else engines.run(with_feature(hits, plain, hybrid.blocks_short))


def compare(model: str, feature: str, expected: JobResult, result: JobResult, unseen: Sequence[str] = ()) -> Cell:
    """The cell for two engines' results of the same job."""
    error = expected.error or result.error
    if error is not None or len(expected.answers) != len(result.answers):
        return Cell(model, feature, State.FAILED, error or "not all asks were answered", result=result)
    pairs = list(zip(expected.answers, result.answers, strict=True))
    distances = [abs(plain.first_logprob - other.first_logprob) for plain, other in pairs]
    unlike = [
        plain.tokens != other.tokens or distance > TOLERANCE
        for (plain, other), distance in zip(pairs, distances, strict=True)
    ]
    state = State.DIFFERS if any(unlike) else State.NOT_SHOWN if unseen else State.EQUAL
    return Cell(
        model,
        feature,
        state,
        why="" if state is not State.NOT_SHOWN else f"not seen: {', '.join(unseen)}",
        answers=len(pairs),
        differ=sum(unlike),
        logprob_distance=max(distances),
        gap=min(plain.gap for plain, _ in pairs),
        result=result,
    )


def chosen(models: Sequence[str], features: Sequence[str]) -> tuple[tuple[str, ...], tuple[Feature, ...]]:
    """Those that are named, or all.

    Raises:
        UsageError: one is not there.
    """
    return (
        tuple(HYBRIDS[name].name for name in _known(models, HYBRIDS, "model")) or tuple(HYBRIDS),
        tuple(FEATURE[name] for name in _known(features, FEATURE, "feature")) or tuple(FEATURE.values()),
    )


def _known(names: Sequence[str], there: Mapping[str, object], word: str) -> Sequence[str]:
    for name in names:
        if name not in there:
            raise UsageError(f"no {word} is called {name!r}; there are {', '.join(there)}")
    return names
