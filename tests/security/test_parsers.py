"""Fuzz targets: every parser of untrusted input accepts an input, or rejects it with a message.

Goal: no other exception, no input that takes seconds or gigabytes. Method: Hypothesis changes valid inputs and draws
junk, under limits of time and memory; and parsers that are broken on purpose fail. The first tier draws the same inputs
every time; ``-m deep`` draws many more, others with each ``--hypothesis-seed``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from kvgate.kernel.errors import UsageError

from . import hostile
from .mutations import inputs
from .parsers import PARSERS, Form, Parser, parser

INPUTS, DEEP_INPUTS = 150, 10_000
RARELY_ACCEPTED = {"model-name", "release", "workload-name", "xz", "dump", "report"}
"""Parsers that accept few changed inputs, or get few because they are slow."""
BY_NAME = {each.name: each for each in PARSERS}


def fuzz(target: Parser, folder: Path, examples: int, *, same_every_time: bool) -> Counter[bool]:
    """Run a parser on drawn inputs; how many it accepted and rejected."""
    (folder / "seeds").mkdir()
    seeds = target.seeds(folder / "seeds")
    outcomes: Counter[bool] = Counter()

    @settings(
        max_examples=-(-examples // target.one_in),
        derandomize=same_every_time,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(seeds, target.form))
    def run(data: bytes) -> None:
        outcomes[target.accepts(data, folder)] += 1

    run()
    return outcomes


@pytest.mark.few(3)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_parser_accepts_or_rejects(name: str, tmp_path: Path) -> None:
    """Goal and method: as above; and the inputs reach both outcomes."""
    outcomes = fuzz(BY_NAME[name], tmp_path, INPUTS, same_every_time=True)
    assert outcomes[False] > 0
    assert name in RARELY_ACCEPTED or outcomes[True] > 0


@pytest.mark.deep
@pytest.mark.parametrize("name", BY_NAME)
def test_every_parser_accepts_or_rejects_at_length(name: str, tmp_path: Path) -> None:
    """Goal and method: the same, with many more inputs. ``-s`` shows the counts."""
    outcomes = fuzz(BY_NAME[name], tmp_path, DEEP_INPUTS, same_every_time=False)
    print(f"{name}: {outcomes[True]} accepted, {outcomes[False]} rejected")
    assert outcomes[False] > 0


@pytest.mark.few(5)
@pytest.mark.parametrize("name", BY_NAME)
def test_seeds_are_valid(name: str, tmp_path: Path) -> None:
    """Goal: changes begin at something that is accepted. Method: every seed as it is."""
    target = BY_NAME[name]
    (tmp_path / "seeds").mkdir()
    seeds = target.seeds(tmp_path / "seeds")
    assert seeds
    assert all(target.accepts(seed, tmp_path) for seed in seeds)


def trips(data: bytes, _folder: Path) -> object:
    """Rejects text that is not JSON, and trips over some documents."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(str(error)) from error
    return document["a"]


def spins(data: bytes, _folder: Path) -> object:
    while data.startswith(b"{"):
        pass
    return True


def swells(data: bytes, _folder: Path) -> object:
    return bytearray(2 * parser.MEMORY_BYTES_MAX) if data.startswith(b"{") else True


def says_nothing(_data: bytes, _folder: Path) -> object:
    raise UsageError


@pytest.mark.parametrize(
    ("parse", "error", "message"),
    [
        (trips, (KeyError, TypeError, IndexError), None),
        (spins, AssertionError, "more than 0.02 s"),
        (swells, MemoryError, None),
        (says_nothing, AssertionError, "UsageError without a message"),
    ],
)
def test_a_broken_parser_fails(
    parse: Callable[[bytes, Path], object],
    error: type[Exception] | tuple[type[Exception], ...],
    message: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the fuzz tests can fail. Method: parsers with one fault each."""
    monkeypatch.setattr(parser, "SECONDS_MAX", 0.02)
    broken = Parser("broken", "", Form.JSON, lambda _: [b'{"a": [1, 2, {"b": "words"}]}'], parse)
    with pytest.raises(error, match=message):
        fuzz(broken, tmp_path, 200, same_every_time=True)


def test_values_are_changed_and_not_bytes_only(tmp_path: Path) -> None:
    """Goal: changes reach into documents. Method: inputs that are still JSON, and another document."""
    original = {"a": [1, {"b": 2}]}
    documents = 0

    def count(data: bytes, _folder: Path) -> None:
        nonlocal documents
        try:
            documents += json.loads(data) != original
        except (ValueError, RecursionError) as error:
            raise UsageError("not JSON") from error

    fuzz(
        Parser("any", "", Form.JSON, lambda _: [json.dumps(original).encode()], count),
        tmp_path,
        300,
        same_every_time=True,
    )
    assert documents > 80
    assert b'{"a": 1e999}' == hostile.spelt({"a": hostile.Verbatim("1e999")})
