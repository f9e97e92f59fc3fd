"""``kvgate fetch``.

Goal: the command lists what is known, and fetches what is asked for or says why not. Method: the command with a cache
of its own and a stand-in for the fetch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvgate.adapters import fetching
from kvgate.adapters.fetching import folder_of
from kvgate.adapters.releases import FETCHED, NEWEST, RELEASES
from kvgate.adapters.releases.description import Release
from kvgate.cli.app import app
from kvgate.kernel.errors import SystemUnavailableError, UsageError

from .stage import rows_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one release in it."""
    monkeypatch.setenv(fetching.CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "vllm-code" / "0.23.0" / "vllm").mkdir(parents=True)
    return tmp_path


def test_all_releases_are_listed(cache: Path) -> None:
    """With those that are here."""
    assert f"in {cache}:" == CliRunner().invoke(app, ["fetch", "--list"]).output.splitlines()[0]
    rows = rows_of(CliRunner().invoke(app, ["fetch", "--list", "--format", "json"]).output, f"in {cache}:")
    assert list(FETCHED) == [row["name"] for row in rows]
    assert ["native@0.23.0"] == [row["name"] for row in rows if row["fetched"]]


def test_what_is_here_is_not_fetched_again(cache: Path) -> None:
    """It says where."""
    ended = CliRunner().invoke(app, ["fetch", "native@0.23.0"])
    assert (0, f"native@0.23.0 was in {cache / 'vllm-code' / '0.23.0'}\n") == (ended.exit_code, ended.output)


def test_several_are_fetched_in_turn(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its place."""

    def fetch(release: Release, _say: object) -> Path:
        return folder_of(release)

    monkeypatch.setattr(fetching, "fetch", fetch)
    ended = CliRunner().invoke(app, ["fetch", "native", "vllm-ascend"])
    expected = [f"{name} is in {folder_of(RELEASES[name])}" for name in (NEWEST, "ascend@0.20.2rc1")]
    assert expected == ended.output.splitlines()
    assert str(cache) in ended.output


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "nothing to fetch: name a release"), (["stock"], "no release 'stock': give one of")]
)
def test_bad_usage_is_reported(arguments: list[str], message: str) -> None:
    """With what to do instead."""
    error = CliRunner().invoke(app, ["fetch", *arguments]).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_what_cannot_be_fetched_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the fetching code."""

    def fetch(_release: Release, _say: object) -> Path:
        raise SystemUnavailableError("vllm==0.33.0 cannot be fetched")

    monkeypatch.setattr(fetching, "fetch", fetch)
    error = CliRunner().invoke(app, ["fetch", "native"]).exception
    assert isinstance(error, SystemUnavailableError)
    assert "vllm==0.33.0 cannot be fetched" == str(error)
