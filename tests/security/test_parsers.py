"""Hostile inputs for every parser.

Goal: whatever comes from outside is accepted, or refused in words; and what does neither is seen. Method: some hundred
inputs for each parser, always the same, in a process with bounds of time and memory; and parsers that are broken on
purpose. ``python -m benchmarks.parsers`` tries as many as one likes, ``-m deep`` forty thousand each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from benchmarks.parsers import hostile, trial
from benchmarks.parsers.__main__ import main
from benchmarks.parsers.change import Form, changed
from benchmarks.parsers.entrance import Entrance
from benchmarks.parsers.entrances import ENTRANCES
from benchmarks.parsers.kept import Batch, Kept, Plan
from benchmarks.parsers.running import BATCH_INPUTS, still_to_try
from benchmarks.parsers.trial import Defect, attempt, input_of, smaller

from kvgate.kernel.errors import UsageError

ROOT = Path(__file__).parents[2]


def tried(inputs: int, folder: Path, seconds_max: float) -> str:
    """The table of so many inputs for each parser."""
    command = [sys.executable, "-m", "benchmarks.parsers", "--inputs", str(inputs), "--folder", str(folder)]
    ended = subprocess.run([*command, "--jobs", "1"], cwd=ROOT, capture_output=True, text=True, timeout=seconds_max)
    assert (0, True) == (ended.returncode, "showed a defect:" not in ended.stdout), ended.stdout + ended.stderr
    return ended.stdout


def test_every_parser_accepts_or_refuses(tmp_path: Path) -> None:
    """Goal: no third outcome. Method: 150 inputs for each, fewer for slow ones; some of each kind for most parsers."""
    table = tried(150, tmp_path, 600)
    rows = [row for row in (line.split("|") for line in table.splitlines()) if len(row) > 5]
    rows = [row for row in rows if row[1].strip() in ENTRANCES]
    assert list(ENTRANCES) == [row[1].strip() for row in rows]
    both = [row[1] for row in rows if int(row[4].replace(",", "")) > 1 and int(row[5].replace(",", "")) > 1]
    assert len(both) > 0.75 * len(rows)


@pytest.mark.deep
def test_every_parser_accepts_or_refuses_at_length(tmp_path: Path) -> None:
    """Goal: the same, a million times. Method: forty thousand inputs for each."""
    tried(40_000, tmp_path, 6 * 3600)


@pytest.mark.parametrize("name", ENTRANCES)
def test_what_inputs_are_made_of_is_valid(name: str, tmp_path: Path) -> None:
    """Goal: changes begin at something that is accepted. Method: every seed as it is."""
    entrance = ENTRANCES[name]
    (tmp_path / "seeds").mkdir()
    seeds = entrance.seeds(tmp_path / "seeds")
    assert seeds
    assert {True} == {attempt(entrance, seed, tmp_path) for seed in seeds}


def breaks(data: bytes, _folder: Path) -> object:
    """Refuses what is no JSON, and trips over what is none of its objects."""
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
    if not data.startswith(b"{"):
        raise UsageError("not one")
    raise MemoryError


def says_nothing(_data: bytes, _folder: Path) -> object:
    raise UsageError


@pytest.mark.parametrize(
    ("take", "kind"),
    [
        (breaks, "KeyError in "),
        (spins, "more than "),
        (swells, "MemoryError in "),
        (says_nothing, "UsageError without a word"),
    ],
)
def test_a_broken_parser_is_seen(
    take: Callable[[bytes, Path], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the fuzzer can fail. Method: parsers with one fault each; the input that shows it becomes smaller."""
    monkeypatch.setattr(trial, "SECONDS_MAX", 0.02)
    monkeypatch.setattr(trial, "SMALLER_SECONDS", 0.3)
    entrance = Entrance("broken", "", Form.JSON, lambda _: [b'{"a": [1, 2, {"b": "words"}]}'], take)
    seeds = entrance.seeds(tmp_path)
    found = [(data, attempt(entrance, data, tmp_path)) for data in (input_of(entrance, seeds, 0, n) for n in range(80))]
    defects = [(data, each) for data, each in found if isinstance(each, Defect) and each.kind.startswith(kind)]
    assert defects
    data, defect = max(defects, key=lambda each: len(each[0]))
    least = smaller(entrance, data, defect, tmp_path)
    assert len(least) <= len(data)
    # Whoever swells does so at the first brace, and is soon done with it.
    assert take is not swells or least == b"{"
    again = attempt(entrance, least, tmp_path)
    assert isinstance(again, Defect)
    assert defect.kind == again.kind


def test_memory_is_bounded() -> None:
    """Goal: an input that swells gets no further than its bound. Method: a process that asks for more."""
    program = "from benchmarks.parsers.trial import bound_memory, MEMORY_BYTES_MAX as most; bound_memory(); "
    for size, expected in (("most // 2", 0), ("2 * most", 1)):
        command = [sys.executable, "-c", f"{program}bytearray({size})"]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert expected == ended.returncode
        assert bool(expected) == ("MemoryError" in ended.stderr)


def test_the_same_number_is_the_same_input(tmp_path: Path) -> None:
    """Goal: a defect can be shown again from its number. Method: inputs made twice; hardly any two are alike."""
    entrance = ENTRANCES["model"]
    seeds = entrance.seeds(tmp_path)
    inputs = [[input_of(entrance, seeds, seed, number) for number in range(200)] for seed in (0, 0, 1)]
    assert inputs[0] == inputs[1] != inputs[2]
    assert len(set(inputs[0])) > 150


def test_changes_reach_every_form() -> None:
    """Goal: values are changed, not bytes alone. Method: documents that are still JSON, and verbatim ones."""
    drawn = [changed(Random(number), [b'{"a": [1, {"b": 2}]}'], Form.JSON) for number in range(300)]
    documents = 0
    for data in drawn:
        try:
            documents += json.loads(data) != {"a": [1, {"b": 2}]}
        except (ValueError, RecursionError):
            continue
    assert documents > 100
    assert b'{"a": 1e999}' == hostile.spelt({"a": hostile.Verbatim("1e999")})


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Goal: nothing is tried twice, and nothing is left out. Method: a batch that is done, one in part, a cut line."""
    kept = Kept(tmp_path, Plan(0, 2 * BATCH_INPUTS))
    kept.add(Batch("model", 0, BATCH_INPUTS, 1, BATCH_INPUTS - 1, 0))
    kept.add(Batch("trace", 0, 7, 0, 7, 0))
    with (tmp_path / "tried.jsonl").open("a") as file:
        file.write('{"entrance": "model", "fi')
    left = still_to_try(["model", "trace"], kept.plan.inputs, kept.batches())
    second = BATCH_INPUTS, BATCH_INPUTS
    told = [(each.entrance, each.first, each.count) for each in left]
    assert [("trace", 7, BATCH_INPUTS - 7), ("model", *second), ("trace", *second)] == told
    with pytest.raises(UsageError, match="give another folder"):
        Kept(tmp_path, Plan(1, 2 * BATCH_INPUTS))


def test_bad_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: one message. Method: a parser that there is not."""
    with pytest.raises(UsageError, match="no parser 'nobody'"):
        main(["--only", "nobody"])
    assert 0 == main(["--list"])
    assert "trace: trace of a block manager" in capsys.readouterr().out
