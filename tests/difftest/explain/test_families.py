"""The table of families.

Goal: every family that ``kvgate explain`` reads has the groups that each release of vLLM makes, as far as a release
makes any here, and the published table says so. Method: the stored answers of the releases against what kvgate reads
now; a family read wrongly must show; one release asked again in a process of its own.
"""

from __future__ import annotations

from itertools import chain

import pytest

from kvgate.adapters.releases import INSTALLED
from kvgate.explain import families as read
from kvgate.explain import load, states
from kvgate.explain.families import FAMILIES
from kvgate.explain.layers import Layer
from kvgate.kernel.data_file import data_name
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import Span

from .families import (
    CAUSES,
    KNOWN,
    NAMES,
    PAGE,
    REFUSED,
    REFUSED_BY_KVGATE,
    VERSIONS,
    Row,
    ask,
    asked,
    data,
    page,
    rows,
    spans,
)

TABLE = PAGE.with_name(data_name(PAGE))
FAMILIES_MIN = 60


@pytest.fixture(scope="module", name="found")
def found_rows() -> list[Row]:
    """The table's rows, as they are now."""
    return rows()


def test_the_table_is_current(found: list[Row]) -> None:
    """Generated from the configurations, what is read of them now, and the releases' answers."""
    assert page(found) == PAGE.read_text(encoding="utf-8"), "run: python -m tests.difftest.explain.families"
    assert data(found) == TABLE.read_text(encoding="utf-8"), "run: python -m tests.difftest.explain.families"


def test_no_release_makes_other_groups(found: list[Row]) -> None:
    """All blocks, windows and layers, in order, for each release that makes groups of a file; but for what is known."""
    assert {row.name: row.different for row in found if row.different} == KNOWN
    assert set(KNOWN) == set(CAUSES)


def test_kvgate_refuses_no_other_configuration(found: list[Row]) -> None:
    """The configurations that vLLM groups and kvgate does not read are known, with kvgate's own message."""
    versions = {row.name: tuple(chain.from_iterable(row.not_read.values())) for row in found if row.not_read}
    assert REFUSED_BY_KVGATE == versions
    assert all("has no model of its own" in message for row in found for message in row.not_read)


def test_a_rejected_family_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that is not known is a difference, not a release that makes no groups."""

    def refuses(*_arguments: object) -> list[Layer]:
        raise UsageError("it is not read")

    monkeypatch.setattr(read, "FAMILIES", {**FAMILIES, "gpt2": refuses})
    found = rows()
    (row,) = [row for row in found if row.name == "gpt2"]
    assert {"it is not read": VERSIONS} == row.not_read
    assert not row.refused
    assert "it is not read" in data(found)


def test_every_release_was_asked() -> None:
    """Of every configuration, once."""
    found = {
        name: sorted(version for said_by in said.values() for version in said_by) for name, said in asked().items()
    }
    assert dict.fromkeys(NAMES, sorted(VERSIONS)) == found


def test_every_family_is_in_it(found: list[Row]) -> None:
    """More than sixty, each with some release that makes the same groups, the installed one among them."""
    equal = {row.family for row in found if INSTALLED.version in row.equal}
    assert set(FAMILIES) == equal
    assert len(equal) >= FAMILIES_MIN


@pytest.mark.ci
@pytest.mark.parametrize("family", ["gpt_oss", "jamba", "deepseek_v3"])
def test_a_family_that_is_read_wrongly_shows(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer too many, of its first kind: the table changes, and names the releases."""
    original = FAMILIES[family]
    broken = {**FAMILIES, family: lambda config, serving: [*original(config, serving), original(config, serving)[0]]}
    monkeypatch.setattr(read, "FAMILIES", broken)
    found = rows()
    assert {family, "qwen2_moe"} == {row.family for row in found if row.different}
    assert data(found) != TABLE.read_text(encoding="utf-8")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("owner", "rule", "families"),
    [
        (states, "WIDE_STATES", {"falcon_h1", "jamba", "qwen3_next", "zamba2"}),
        (states, "KEEPS_LAST_STATES", {"falcon_h1", "jamba", "mamba", "mamba2", "nemotron_h"}),
        (read, "SEES_ONE_MORE", {"cohere2"}),
        (load, "PADS_LESS", {"gpt_oss"}),
    ],
)
def test_what_a_release_changed_counts(
    owner: object, rule: str, families: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file has other groups in later releases: without the rule, later releases differ from what is read."""
    monkeypatch.setattr(owner, rule, Span("1000.0.0"))
    assert families <= {row.family for row in rows() if row.different}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((), ""),
        (VERSIONS[:1], VERSIONS[0]),
        (VERSIONS, f"{VERSIONS[0]} to {VERSIONS[-1]}"),
        ((*VERSIONS[:2], VERSIONS[4]), f"{VERSIONS[0]} to {VERSIONS[1]}, {VERSIONS[4]}"),
    ],
)
def test_releases_in_a_row_are_a_span(versions: tuple[str, ...], expected: str) -> None:
    """From the first to the last of those without a gap."""
    assert expected == spans(versions)


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_release_said_it_says_again(version: str) -> None:
    """All configurations, in a process of its own; a refusal is any, since its words may depend on the machine."""
    stored = {name: text for name, said in asked().items() for text, said_by in said.items() if version in said_by}

    def comparable(said: dict[str, str]) -> dict[str, str]:
        return {name: REFUSED if text.startswith(REFUSED) else text for name, text in said.items()}

    assert comparable(stored) == comparable(ask(version))
