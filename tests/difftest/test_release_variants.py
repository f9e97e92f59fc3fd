"""How newer releases decide differently by design.

Goal: a release's choices change the rules that they name, and no other; and findings act next to them.
Method: the same few operations on the reference with its own choices and with those of each release; their free queues,
hits and answers by hand.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.release_variants import CHOICES, choices_of, choices_of_release, drops_look_ahead
from kvgate.adapters.releases import ASCEND, INSTALLED, RELEASES
from kvgate.adapters.releases.description import Release
from kvgate.adapters.retention import CACHED_BY_PLUG_IN
from kvgate.findings.modelled import reference_named, reference_of
from kvreference.answers import Hit, Shared
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.manager import OWN, Manager
from kvreference.operations import Abort, Admit, Arrive, CommonPrefix, Evict, Finish, LookUp, Operation, Run
from kvreference.retention import junction
from kvreference.settings import Settings

from .having import having

FULL, WINDOW = Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 5)


def built(choices: str, *groups: Group, caches: bool = True, scratch_first: bool = True) -> Manager:
    settings = Settings(Geometry(groups), 8, 32, 32, caches=caches, scratch_first=scratch_first)
    return Manager(settings, CHOICES[choices] if choices else OWN)


def performed(manager: Manager, *operations: Operation) -> Manager:
    for operation in operations:
        resolved = manager.population.resolve(operation)
        assert resolved is not None
        manager.apply(resolved)
    return manager


ENDS = (Arrive(0, (Run(0, 6),)), Admit(0, 6), Finish(0))
"""A full block 1, and a begun one, 2."""
SCRATCH = sorted(set(CHOICES) - {"counts-shared"})
QUEUES = {
    "": [2, 3, 4, 5, 6, 7, 1],
    "scratch": [2, 3, 4, 5, 6, 7, 1],
    "scratch-of-caches": [2, 3, 4, 5, 6, 7, 1],
    "look-ahead-at-the-end": [2, 3, 4, 5, 6, 7, 1],
    "scratch-of-windows": [3, 4, 5, 6, 7, 2, 1],
    "scratch-of-windows-alone": [3, 4, 5, 6, 7, 2, 1],
    "scratch-and-shared": [2, 3, 4, 5, 6, 7, 1],
    "scratch-of-windows-and-shared": [3, 4, 5, 6, 7, 2, 1],
}


def test_all_choices_are_those_of_a_release() -> None:
    """Or what is left of them with the plug-in. Control of what follows: none is left out, and none is idle."""
    own = {release.choices for release in RELEASES.values() if release.choices}
    assert set(CHOICES) == own | set(CACHED_BY_PLUG_IN.values())
    assert own >= set(CACHED_BY_PLUG_IN)
    assert set(QUEUES) == {"", *SCRATCH}


@pytest.mark.parametrize(("choices", "queue"), QUEUES.items(), ids=lambda value: str(value) or "reference")
def test_what_a_request_gives_up(choices: str, queue: list[int]) -> None:
    """Its scratch goes first, but for that of a group without a window where only windows do that."""
    assert queue == list(performed(built(choices, FULL), *ENDS).pool.free)


def test_what_a_window_gives_up_goes_first_everywhere() -> None:
    """The control of the one before."""
    assert [2, 3, 4, 5, 6, 7, 1] == list(performed(built("scratch-of-windows", WINDOW), *ENDS).pool.free)


@pytest.mark.parametrize("choices", SCRATCH)
def test_what_is_forgotten_stays_where_it_is(choices: str) -> None:
    """The reference puts it first."""
    end = performed(built(choices, WINDOW), *ENDS, Evict(1))
    assert [2, 3, 4, 5, 6, 7, 1] == list(end.pool.free)
    assert [1, 2, 3, 4, 5, 6, 7] == list(performed(built("", WINDOW), *ENDS, Evict(1)).pool.free)


@pytest.mark.parametrize("choices", SCRATCH)
def test_without_caching_scratch_goes_first_in_all_but_one(choices: str) -> None:
    """In that one everything is queued in the order of release."""
    appended = [3, 4, 5, 6, 7, 2, 1]
    expected = appended if choices == "scratch-of-caches" else [2, 1, 3, 4, 5, 6, 7]
    assert expected == list(performed(built(choices, WINDOW, caches=False), *ENDS).pool.free)


LOOKAHEAD = (Group(Kind.FULL, 4, lookahead=True), Group(Kind.SLIDING_WINDOW, 4, 5, lookahead=True))
TWICE = (Arrive(0, (Run(0, 8),)), Admit(0, 8), Arrive(1, (Run(0, 8),)))


@pytest.mark.parametrize(("choices", "tokens"), [("", 0), ("scratch", 0), ("look-ahead-at-the-end", 4)])
def test_a_look_ahead_block_may_hold_the_last_token(choices: str, tokens: int) -> None:
    """With several groups; a hit after which nothing is matched is still none."""
    manager = performed(built(choices, *LOOKAHEAD), *TWICE)
    answer = manager.apply(LookUp(1))
    assert isinstance(answer, Hit)
    assert tokens == answer.tokens
    single = performed(built(choices, LOOKAHEAD[0]), *TWICE)
    assert Hit(0, ((),)) == single.apply(LookUp(1))


@pytest.mark.parametrize(("choices", "shared"), [("", (2,)), ("scratch", (2,)), ("look-ahead-at-the-end", (0,))])
def test_what_all_share_is_not_asked_for_any_more(choices: str, shared: tuple[int, ...]) -> None:
    """It is answered with none."""
    manager = performed(built(choices, FULL), *TWICE[:2])
    assert Shared(shared) == manager.apply(CommonPrefix(0))


def test_vllm_ascend_counts_what_is_shared_without_caching() -> None:
    """The reference does not; and nothing else is another's: the queue is that of the reference."""
    counted = performed(built("counts-shared", FULL, caches=False, scratch_first=False), *TWICE[:2])
    assert Shared((2,)) == counted.apply(CommonPrefix(0))
    plain = performed(built("", FULL, caches=False, scratch_first=False), *TWICE[:2])
    assert Shared((0,)) == plain.apply(CommonPrefix(0))
    assert list(plain.pool.free) == list(counted.pool.free)


RETAINED = Settings(
    Geometry((FULL, Group(Kind.SLIDING_WINDOW, 4, 9))), 16, 64, 32, scratch_first=True, retention_interval_tokens=0
)


@pytest.mark.parametrize(
    ("choices", "cached"),
    [("", [1, 2]), ("scratch", [1, 2, 4]), ("scratch-of-windows", [1, 2, 4]), ("scratch-of-windows-alone", [1, 2])],
)
def test_what_a_boundary_will_read_is_cached_when_it_is_full(choices: str, cached: list[int]) -> None:
    """A prompt of 14 tokens has its boundary at 12; after 8 tokens the reference has cached full attention alone."""
    own = CHOICES[choices] if choices else OWN
    manager = performed(Manager(RETAINED, own), Arrive(0, (Run(0, 14),)), Admit(0, 8))
    known = [block for block, content in enumerate(manager.pool.cached.contents()) if content is not None]
    assert cached == known


def of(release: str | None) -> Any:
    """A system that is of a release, or that does not say so."""
    return SimpleNamespace() if release is None else SimpleNamespace(description=RELEASES[release])


@pytest.mark.parametrize("release", [release for release in RELEASES.values() if release.choices])
def test_findings_act_next_to_the_choices(release: Release) -> None:
    """The choices are made, and rules have the deltas of the findings; nothing else is changed."""
    settings = Settings(Geometry((FULL, WINDOW)), 8, 32, 32, scratch_first=True)
    manager, known = reference_of(having(release)(settings), settings)
    own = CHOICES[str(release.choices)]
    assert evolve(own, rules=manager.choices.rules) == manager.choices
    assert bool(known.findings) == bool(manager.choices.rules.deltas)


def test_a_system_without_choices_has_the_reference() -> None:
    """Whether it says so or does not know; but the plug-in's interval is for windows alone."""
    assert OWN is choices_of(of(None))
    own = choices_of(SimpleNamespace(description=INSTALLED))
    assert evolve(OWN, rules=own.rules) == own
    assert ["due_tokens"] == [delta.rule for delta in own.rules.deltas]


STATES = Group(Kind.MAMBA, 4, states=StateMode.ALL)


@pytest.mark.parametrize(("release", "kept"), [(None, 1), ("native@0.23.0", 3), ("native@0.33.0", 1)])
def test_an_interval_is_for_states_in_later_releases(release: str | None, kept: int) -> None:
    """Goal: older releases keep every state. Method: an interval of 0, a prompt of which a replay hits 12 tokens."""
    settings = evolve(RETAINED, geometry=Geometry((FULL, WINDOW, STATES)), blocks=32)
    manager = performed(Manager(settings, choices_of(of(release))), Arrive(0, (Run(0, 14),)), Admit(0, 14))
    contents = [content for content in manager.pool.cached.contents() if content is not None]
    assert kept == sum(content[0] == 2 for content in contents)


@pytest.mark.parametrize(
    ("groups", "looks_ahead"),
    [((LOOKAHEAD[0], STATES), True), ((LOOKAHEAD[0], WINDOW, STATES), False), ((FULL, STATES), False)],
)
def test_states_count_as_drafting_if_all_others_draft(groups: tuple[Group, ...], looks_ahead: bool) -> None:
    """Goal: as vLLM takes it, that flags no group then. Method: all others with a draft layer, one of two, none."""
    assert looks_ahead == drops_look_ahead(Geometry(groups), STATES)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("stock", None),
        ("native@0.22.1", None),
        ("native@0.33.0", "look-ahead-at-the-end"),
        ("ascend-retention", ASCEND.choices),
        ("other:build", None),
    ],
)
def test_a_trace_is_annotated_with_the_choices_of_its_system(name: str, choices: str | None) -> None:
    """By its name alone, for the system need not be here."""
    manager = reference_named(name)(Settings(Geometry((FULL,)), 8))
    own = OWN if choices is None else CHOICES[choices]
    assert evolve(own, rules=manager.choices.rules) == manager.choices


def test_a_copy_has_the_same_choices() -> None:
    """The explorer takes copies."""
    manager = performed(built("scratch-of-windows", FULL), *ENDS[:2]).copy()
    assert QUEUES["scratch-of-windows"] == list(performed(manager, Abort(0)).pool.free)


@pytest.mark.parametrize(("version", "boundary"), [("0.27.1", 96), ("0.30.0", 96), ("0.33.0", 64)])
def test_a_junction_before_the_last_token(version: str, boundary: int) -> None:
    """Of a prompt of 97 tokens all but the last match; in 0.33.0 a window's look-ahead, and it alone, may match that.

    So there ``readable`` counts it, and full attention, which has no draft layer here, matches one token less.
    """
    geometry = Geometry((evolve(FULL, block_size_tokens=32), Group(Kind.SLIDING_WINDOW, 32, 40, lookahead=True)))
    rules = choices_of_release(RELEASES[f"native@{version}"]).rules
    assert boundary == rules.ask(junction, geometry, 96, 96, 0)
