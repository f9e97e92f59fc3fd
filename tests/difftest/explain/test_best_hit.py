"""How much can hit.

Goal: the formula says what the reference does. Method: prompts that share a part, computed by the reference's block
manager and looked up there, for many geometries, policies and lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from kvgate.adapters.releases import ASCEND, LATER_ASCEND, OF_VLLM
from kvgate.adapters.releases.description import Release
from kvgate.explain.best_hit import Prompts, best_hit, shortest_prompt
from kvgate.explain.chunks import chunk_ends, stands_still
from kvgate.explain.serving import KEEPS_JUNCTIONS, MASKS, RETAINS, RETAINS_LEAST, Serving
from kvgate.findings.modelled import reference_of_release
from kvgate.findings.register import with_ids
from kvgate.kernel.models import load
from kvgate.kernel.versions import version_of
from kvgate_mutants.corpus.scenario import dispatched, ended, tokens
from kvreference.answers import Hit
from kvreference.choices import Choices
from kvreference.manager import Manager
from kvreference.operations import Arrive, LookUp
from kvreference.prefix_cache import new_cache
from kvreference.rules import Rules
from kvreference.settings import Settings

MODELS = (
    "full",
    "gpt-oss-hybrid",
    "two-windows",
    "local",
    "mamba-all",
    "dsv4-flash+mtp",
    "two-windows+eagle",
    "mixed-blocks+eagle",
    "full+eagle+hashed-ahead",
    "gpt-oss-hybrid+eagle+hashed-ahead",
    "mixed-blocks+eagle+hashed-ahead",
    "mamba-all+eagle+hashed-ahead",
    "compressed+mtp",
    "mixed-blocks+partial",
    "compressed+partial+min=48",
)

POLICIES = [
    (name, interval)
    for name in MODELS
    for interval in (None, 0, 2)
    if interval is None or any(group.is_sparse for group in load(name).geometry.groups)
]
"""Each model with the retention intervals that it can have, in alignments."""


def hit_of(manager: Manager, prompts: Prompts) -> int:
    """The second prompt's hit once ``manager`` has computed the first."""
    chunk = manager.settings.chunk_tokens
    for operation in dispatched(ended(0, tokens(0, prompts.first_tokens), chunk)):
        legal = manager.population.resolve(operation)
        if legal is not None:
            manager.apply(legal)
    own = prompts.second_tokens - prompts.shared_tokens
    second = (*tokens(0, prompts.shared_tokens), *(tokens(10**6, own) if own else ()))
    manager.apply(Arrive(1, second))
    answer = manager.apply(LookUp(1))
    assert isinstance(answer, Hit)
    return answer.tokens


def settings_of(name: str, interval_alignments: int | None) -> Settings:
    """A model that has room for all its requests."""
    model = load(name)
    alignment = model.geometry.alignment_tokens
    settings = Settings(
        model.geometry, 5000, tokens_max=6 * alignment + 500, chunk_tokens=max(64, alignment), drafts_max=1
    )
    interval = None if interval_alignments is None else interval_alignments * alignment
    return evolve(model.features.applied_to(settings), retention_interval_tokens=interval)


def prompts_for(settings: Settings) -> Iterator[Prompts]:
    """Replays and prompts that part, near boundaries and between them."""
    alignment, ahead = settings.geometry.alignment_tokens, settings.geometry.lookahead_tokens
    for first in (2 * alignment + 7, 3 * alignment, 4 * alignment + 1 + ahead):
        yield Prompts.replay(first)
        yield Prompts(first, first + 9, first)
        for shared in {first - 1, first // 2, first - alignment, 2 * alignment, alignment + ahead + 1}:
            if 0 < shared <= first:
                yield Prompts(first, shared + 9, shared)


@pytest.mark.parametrize(("name", "interval"), POLICIES)
def test_the_formula_is_the_reference(name: str, interval: int | None) -> None:
    """For every policy that the model can have."""
    settings = settings_of(name, interval)
    for prompts in prompts_for(settings):
        assert hit_of(Manager(settings), prompts) == best_hit(settings, prompts), prompts


def test_a_finding_is_calculated_as_it_acts() -> None:
    """A cache without the look-ahead block serves as little by the formula as in the reference with 011."""
    settings = evolve(settings_of("compressed+mtp", 1), tokens_max=2000)
    (finding,) = with_ids(["011-mask-omits-look-ahead"])
    rules = Rules(finding.acts(settings, "").deltas)
    hits = []
    for prompts in prompts_for(settings):
        hits.append(best_hit(settings, prompts, new_cache(settings, rules)))
        assert hit_of(Manager(settings, Choices(rules=rules)), prompts) == hits[-1], prompts
    assert hits != [best_hit(settings, prompts) for prompts in prompts_for(settings)]


@pytest.mark.ci
@pytest.mark.parametrize("release", [*OF_VLLM, ASCEND], ids=lambda release: release.label)
def test_the_formula_is_the_reference_of_a_release(release: Release) -> None:
    """With the choices and the findings of the release; in some of the cases a finding changes what can hit."""
    changed = 0
    for name, interval in POLICIES:
        settings = settings_of(name, interval)
        groups, grain = settings.geometry.groups, settings.geometry.grain_tokens
        # Finding 013 takes slots for tokens, of which there must be a grain. Only the plug-in hits inside blocks.
        least = grain if "013-compressed-block-known-by-its-slots" in release.findings else 1
        if any(group.copies or group.block_size_tokens // group.compress_ratio < least for group in groups):
            continue
        for prompts in prompts_for(settings):
            hit = best_hit(settings, prompts, reference_of_release(release, settings)[0].cache)
            assert hit_of(reference_of_release(release, settings)[0], prompts) == hit, (name, interval, prompts)
            without: Release = evolve(release, findings=frozenset())
            changed += hit != best_hit(settings, prompts, reference_of_release(without, settings)[0].cache)
    assert bool(changed) == bool(release.findings)


def test_states_are_where_chunks_end() -> None:
    """A prompt that fits into one step has one state, at its last whole block."""
    settings = evolve(settings_of("mamba-align", None), chunk_tokens=512, tokens_max=600)
    assert [96, 100] == chunk_ends(settings, 100)
    assert 96 == best_hit(settings, Prompts.replay(100))
    assert 0 == best_hit(settings, Prompts(100, 100, 95))
    every = evolve(settings, chunk_tokens=16)
    assert [16, 32, 48, 64, 80, 96, 100] == chunk_ends(every, 100)
    assert 80 == best_hit(every, Prompts(100, 100, 95))


def test_a_chunk_below_a_block_stands_still() -> None:
    """It is rounded down to nothing, and the report says so."""
    settings = evolve(settings_of("mamba-align", None), chunk_tokens=10)
    assert stands_still(settings, 100)
    assert not stands_still(evolve(settings, chunk_tokens=16), 100)


def test_the_shortest_prompt_hits_and_no_shorter_one() -> None:
    """With draft layers and without."""
    for name in MODELS[:-2]:
        settings = settings_of(name, None)
        shortest = shortest_prompt(settings)
        assert settings.geometry.alignment_tokens == best_hit(settings, Prompts.replay(shortest)), name
        assert 0 == best_hit(settings, Prompts.replay(shortest - 1)), name


def test_without_caching_nothing_hits() -> None:
    """For any prompts."""
    assert 0 == best_hit(evolve(settings_of("full", None), caches=False), Prompts.replay(90))


@pytest.mark.parametrize("release", OF_VLLM, ids=lambda release: release.label)
def test_explain_dates_what_a_release_keeps_as_its_description_does(release: Release) -> None:
    """Explain takes versions without a description, so it has the first version of each change."""
    version = version_of(release.version)
    described = (release.masks, release.interval is not None, release.retains_least, release.pins_junctions)
    assert described == tuple(version in since for since in (MASKS, RETAINS, RETAINS_LEAST, KEEPS_JUNCTIONS))


@pytest.mark.parametrize("retention", [None, "0", "none"])
@pytest.mark.parametrize(
    ("release", "by_default", "is_read"),
    [(ASCEND, None, True), (LATER_ASCEND[0], 16, True), (LATER_ASCEND[1], 16, False)],
    ids=lambda given: given.version if isinstance(given, Release) else None,
)
def test_explain_takes_the_interval_of_an_ascend_from_its_description(
    release: Release, by_default: int | None, is_read: bool, retention: str | None
) -> None:
    """0.30.0rc2 reads no interval: it keeps what vLLM 0.23.0 keeps by default, whichever interval is set, and no
    junction.
    """
    serving = Serving(platform="ascend", version=release.version, retention=retention)
    expected = by_default if retention is None or not is_read else {"0": 0, "none": None}[retention]
    assert expected == serving.interval_tokens(16, has_states=False)
    assert (release is ASCEND) == serving.keeps_junctions
