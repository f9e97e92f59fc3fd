"""Additions of releases, and how the gate treats them.

Goal: no class, method or option that a release adds goes unnoticed, and the description of each is true. Method: the
sources of the driven releases; their code that a short campaign enters, in a process of its own; and a made-up package.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from tests.published import published

from kvgate.adapters.releases import INSTALLED, OF_VLLM, surface
from kvgate.adapters.releases.description import Additions, Mechanism, Release
from kvgate.adapters.releases.surface import Place, described, main, names_in, source_of, unexplained
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import version_of

PAIRS = described()


def new_in(older: Release, release: Release) -> set[str]:
    for each in (older, release):
        if each.wheels:
            published(each)
    return names_in(source_of(release)).keys() - names_in(source_of(older)).keys()


# Each name is of one mechanism


@pytest.mark.parametrize(("older", "release"), PAIRS, ids=lambda release: release.version)
def test_every_name_that_a_release_adds_is_of_one_mechanism(older: Release, release: Release) -> None:
    """And no mechanism names what is not new."""
    new = new_in(older, release)
    named = Counter(name for mechanism in release.additions.mechanisms for name in mechanism.names)
    found = {
        "of no mechanism": unexplained(new, release.additions.mechanisms),
        "not new": sorted(named.keys() - new),
        "of two mechanisms": [name for name, times in named.items() if times > 1],
    }
    assert not any(found.values()), found


def test_what_no_mechanism_names_is_reported() -> None:
    """The newest release, without each of its mechanisms in turn."""
    older, release = PAIRS[-1]
    new, mechanisms = new_in(older, release), release.additions.mechanisms
    for taken in mechanisms:
        assert sorted(taken.names) == unexplained(new, [each for each in mechanisms if each is not taken])


def test_every_release_of_vllm_says_what_it_adds() -> None:
    """Itself, since the last release before it whose scheduler is driven; if its own is not, it says so."""
    assert len(OF_VLLM) == len({id(release.additions) for release in OF_VLLM})
    driven = [release for release in OF_VLLM if release.scheduler is not None]
    versions = sorted((release.version for release in driven), key=version_of)
    assert INSTALLED.version == versions[0]
    since = dict(zip(versions, [None, *versions], strict=False))
    assert {release.version: since.get(release.version) for release in OF_VLLM} == {
        release.version: release.additions.since for release in OF_VLLM
    }


# The descriptions are true

PROGRAM = """
import json, sys
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.campaigns.branches import Branches
from kvgate.gate.campaign import Campaign
from kvgate.gate.level import LevelChoice
from kvgate.levels.registry import default_models, prepare

name, rounds = sys.argv[1], int(sys.argv[2])
branches = Branches(("*/vllm/v1/core/*",))
with branches.measured():
    system = load_system(name)
    models = default_models(system, "quick")
    prepared = prepare(LevelChoice.BOTH, system, models, "quick")
    # All of its cases: `kvgate check` reports what they find.
    unlimited = {"operations": 10**9, "kinds_max": 10**9, "shrinks": False}
    plans = [evolve(each.plan, cases=rounds * len(each.plan.lanes), **unlimited) for each in prepared]
    outcomes = [Campaign(each.trials, plan).run() for each, plan in zip(prepared, plans, strict=True)]
# From a negative line, a function is entered whose code begins there.
entered = {(path.partition("/vllm/v1/core/")[2], -start) for path, start, _ in branches.take() if start < 0}
print(json.dumps([[each.ended for each in outcomes], sorted(entered)]))
"""
"""A campaign of ``kvgate check --level both`` with so many cases of each model and preset, and the code it entered."""


def entered_in(release: Release, rounds: int) -> frozenset[Place]:
    command = [sys.executable, "-c", PROGRAM, release.name, str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    outcomes, entered = json.loads(ended.stdout)
    assert ["completed", "completed"] == outcomes
    return frozenset((path, line) for path, line in entered)


def untrue(
    mechanisms: Iterable[Mechanism], names: Mapping[str, Collection[Place]], entered: Collection[Place]
) -> Iterator[str]:
    """The names of which a campaign shows that the opposite is the case; of classes and options it shows nothing."""
    for mechanism in mechanisms:
        for name in mechanism.names:
            is_called = not set(entered).isdisjoint(names[name])
            if names[name] and is_called == bool(mechanism.not_driven):
                yield f"{name} is {'' if is_called else 'never '}called, and is said to be {mechanism.kind}"


@pytest.mark.parametrize(
    ("version", "rounds"),
    [
        pytest.param("0.33.0", 3, marks=pytest.mark.ci),
        pytest.param("0.33.0", 12, marks=pytest.mark.deep),
        pytest.param("0.30.0", 3, marks=pytest.mark.deep),
        pytest.param("0.27.1", 3, marks=pytest.mark.deep),
        pytest.param("0.23.0", 3, marks=pytest.mark.deep),
        pytest.param("0.22.1", 3, marks=pytest.mark.deep),
    ],
)
def test_what_is_compared_is_called_and_what_is_not_driven_is_not(version: str, rounds: int) -> None:
    """By a campaign over all models and presets."""
    (release,) = (release for _, release in PAIRS if release.version == version)
    published(release)
    names = names_in(source_of(release))
    entered = entered_in(release, rounds)
    found = list(untrue(release.additions.mechanisms, names, entered))
    assert not found, "\n".join(found)
    # The control: of functions with the opposite description, each is reported.
    opposite = [
        Mechanism(each.names, **{"compared" if each.not_driven else "not_driven": "the opposite"})
        for each in release.additions.mechanisms
    ]
    functions = [name for each in opposite for name in each.names if names[name]]
    assert functions == [text.partition(" ")[0] for text in untrue(opposite, names, entered)]


# Of a package that is made up

MANAGER = """
class Manager:
    @property
    def size(self): ...
    async def take(self): ...
    class Inner:
        def put(self): ...
if TYPE_CHECKING:
    def shape(): ...
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with all that a vLLM must have, and a module that no vLLM has."""
    (tmp_path / "v1" / "core" / "sched").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    for name in ("v1/core/__init__.py", "v1/core/sched/__init__.py", "config/cache.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "config" / "scheduler.py").write_text("class SchedulerConfig:\n    share: float = 0.5\n")
    (tmp_path / "v1" / "core" / "sched" / "another.py").write_text(MANAGER)
    return tmp_path


def test_every_module_of_the_core_is_read(package: Path) -> None:
    """Methods of inner classes too, coroutines, and what stands under a condition."""
    places = {"Manager.size": 3, "Manager.take": 5, "Manager.Inner.put": 7, "shape": 9}
    functions = {name: frozenset({("sched/another.py", line)}) for name, line in places.items()}
    others = dict.fromkeys(("Manager", "Manager.Inner", "SchedulerConfig.share"), frozenset[Place]())
    assert {**functions, **others} == names_in(package)


@pytest.mark.parametrize("name", ["v1/core", "v1/core/sched", "config/cache.py", "config/scheduler.py"])
def test_what_has_moved_is_an_error(name: str, package: Path) -> None:
    """Names would be missed, and a release would seem to have none that is new."""
    (package / name).rename(package / "moved")
    with pytest.raises(UsageError, match=f"{name} is missing or empty"):
        names_in(package)


def test_a_release_that_is_not_described_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its names, and those that are gone; the exit code says so. Without a folder nothing is missing."""
    older, release = PAIRS[-1]
    new, gone = new_in(older, release), new_in(release, older)
    assert 0 == main(None)
    monkeypatch.setattr(surface, "described", lambda: [(older, older)])
    monkeypatch.setattr(surface, "unexplained", lambda new, _mechanisms: sorted(new))
    capsys.readouterr()
    assert 1 == main(str(source_of(release)))
    *_, printed = capsys.readouterr().out.partition(str(source_of(release)))
    assert f"{len(new)} names that {older.version} does not have, and {len(gone)} of its names are gone" in printed
    names = [line.strip() for line in printed.splitlines()[2:] if line[2] != " "]
    assert [*sorted(new), *sorted(gone)] == names


def test_a_folder_that_is_not_a_vllm_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, and before anything is printed."""
    assert 2 == main(str(tmp_path))
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, printed.err.startswith(f"surface: {tmp_path}: "))


def test_a_mechanism_is_compared_or_not() -> None:
    """One of three, and a release has mechanisms or says why it has none."""
    texts = {"compared": "in lockstep", "not_compared": "it reports", "not_driven": "no model has it"}
    for left_out in texts:
        with pytest.raises(ValueError, match="either compared, or not compared, or not driven"):
            Mechanism(("Manager.new",), **{each: text for each, text in texts.items() if each != left_out})
        assert texts[left_out] == Mechanism(("Manager.new",), **{left_out: texts[left_out]}).text
    with pytest.raises(ValueError, match="either compared"):
        Mechanism(("Manager.new",))
    with pytest.raises(ValueError, match="or why there are none"):
        Additions("0.20.2")
    with pytest.raises(ValueError, match="or why there are none"):
        evolve(Additions(reason="it adds no name"), mechanisms=(Mechanism(("Manager.new",), compared="in lockstep"),))
