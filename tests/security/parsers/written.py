"""Files that kvgate writes and reads again: traces, campaigns, results. They may have been changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.campaigns.plan import FuzzPlan, manifest, read_manifest
from kvgate.campaigns.results import Record, ShardResult, render
from kvgate.campaigns.results import read as read_shard
from kvgate.cli.replay import where_the_reference_changed
from kvgate.gate import trace_codec as traces
from kvgate.gate.regression_test import regression_test
from kvgate.gate.trace_codec import trace_of
from kvgate.gate.verdict import Tally
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.manager import DETECTORS, MANAGER, Bench, run
from kvgate.levels.pair.level import PAIR
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.report.document import from_json, to_json
from kvgate.report.simulations import report_of, results_of
from kvgate.shadow.status import Status, path_of, read_all
from kvgate.shadow.status import write as write_status
from kvgate.simulation.result import Counters, Served, Soundness, Usage
from kvgate.simulation.result import Result as Simulated
from kvgate_mutants.corpus import passing
from kvgate_mutants.corpus.probe import Result, State
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Run, Sample, Schedule, TakeEvents, Transferred
from kvreference.settings import Settings

from .parser import Form, Parser, from_file

_ALL = Settings(
    Geometry(
        (
            Group(Kind.FULL, 4, lookahead=True),
            Group(Kind.SLIDING_WINDOW, 2, 6),
            Group(Kind.MAMBA, 4, states=StateMode.ALL, draft_states=2),
            Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=4),
        )
    ),
    blocks=40,
    drafts_max=2,
    retention_interval_tokens=4,
    scratch_first=True,
    pin_drop_blocks_min=1,
)


_CASE = MANAGER.case(
    _ALL,
    (
        Arrive(0, (Run(0, 9), Run(50, 2)), Keys("salt", "adapter", (Media("cat", 1, 2),))),
        Admit(0, 64),
        Dispatch(),
        Sample(0, 0, 70, 2),
        Schedule(0, 3),
        Arrive(1, (Run(0, 13),)),
        Admit(1, 64, external_tokens=3, loads=True),
        Dispatch(),
        Finish(0, sends=True),
        Transferred(1, succeeded=True),
        TakeEvents(),
    ),
    model="four groups",
    preset="tiny",
    seed=7,
)
_OPERATIONS = 12
"""How many operations of a drawn run are enough to begin from."""
_RUN_ONE_IN = 4
"""Of how many accepted traces one is run: that takes longer than to read it."""
_BLOCKS_RUN_MAX, _TOKENS_RUN_MAX = 5000, 5000
"""Up to which sizes an accepted trace is run against the reference here; larger ones are read and spelt only."""


def _files(write: Sequence[Callable[[Path], None]]) -> Callable[[Path], list[bytes]]:
    """The files that these write."""

    def seeds(folder: Path) -> list[bytes]:
        path = folder / "seed"
        found = []
        for each in write:
            each(path)
            found.append(path.read_bytes())
        return found

    return seeds


def _blocks(path: Path) -> None:
    """Read, and go on as ``kvgate replay`` does, with the reference on both sides."""
    trace = traces.read(path, MANAGER)
    compile(regression_test(trace, trace.header.system), "test", "exec")
    if path.stat().st_size % _RUN_ONE_IN:
        return
    settings = trace.header.settings
    tokens = sum(each.length for one in trace.operations if isinstance(one, Arrive) for each in one.prompt)
    sampled = sum(one.drafts for one in trace.operations if isinstance(one, Sample))
    if settings.blocks <= _BLOCKS_RUN_MAX and tokens + sampled <= _TOKENS_RUN_MAX and len(trace.operations) <= 50:
        where_the_reference_changed(trace)
        run(Bench(Reference, trace.header.detectors), settings, trace.operations)


def _engine(path: Path) -> None:
    trace = traces.read(path, SCHEDULER)
    compile(regression_test(trace, "stock"), "test", "exec")


def _pair(path: Path) -> None:
    trace = traces.read(path, PAIR)
    compile(regression_test(trace, "stock"), "test", "exec")


def _of_blocks() -> Iterator[Callable[[Path], None]]:
    yield partial(traces.write, traces.trace_of(_CASE, None, "reference", "1", DETECTORS))


def _of_engines() -> Iterator[Callable[[Path], None]]:
    """Runs of a scheduler, each cut short."""
    for name, preset in (("full+eagle", "tiny"), ("gpt-oss-hybrid+transfers", "legal")):
        case = SCHEDULER.draw(load(name), preset, "0/1")
        case = evolve(case, operations=case.operations[:_OPERATIONS])
        yield partial(traces.write, trace_of(case, None, "stock", "0.20.2", SCHEDULER.gate))


def _of_pairs() -> Iterator[Callable[[Path], None]]:
    for name, preset in (("full+eagle", "tiny"), ("gpt-oss-hybrid", "legal")):
        case = PAIR.draw(load(name), preset, "0/1")
        case = evolve(case, operations=case.operations[:_OPERATIONS])
        yield partial(traces.write, trace_of(case, None, "stock", "0.20.2", PAIR.gate))


def _of_shards(_folder: Path) -> list[bytes]:
    kind = ("lockstep", "KV-OP-01", "answer to LookUp")
    one = Record("lockstep", "KV-OP-01", "answer to LookUp", kind, "16", "0", 3, False, 4, 2, None, "a\nb\n")
    declared = Record("leak", "KV-LEAK-02", "new_block_ids", kind, "{}", "{1}", 3, True, 4, 2, "001", None, "a\n")
    tallies = (Tally("full", "legal", 2, 100), Tally("swa", "tiny", 1, 10))
    return [render(ShardResult(3, "1", ("lockstep", "twice"), 0.5, 1, tallies, (one, declared))).encode()]


def _of_plans(_folder: Path) -> list[bytes]:
    plan = FuzzPlan("stock", ("full", "swa+eagle"), preloads=("patch.py",), seed=7, shards=6, monitors_only=True)
    return [manifest(plan).encode()]


def _of_corpus(_folder: Path) -> list[bytes]:
    caught = Result("a-defect", 1, State.CAUGHT, "stock", "0.20.2", "ghost", "KV-MEM-01", says="it", seconds=0.5)
    return [passing.written(caught).encode()]


def _passed(data: bytes, _folder: Path) -> object:
    """A line of another process; a line that is not a result is passed over."""
    found = passing.read(data.decode("utf-8", "replace"))
    if found is None:
        raise UsageError("passed over")
    return found


def _of_simulations(_folder: Path) -> list[bytes]:
    result = Simulated(
        *("reference", "replays", "full", "dense", 40, 0),
        (Served(0, 0, 0, True, 100, 5, 64, 41), Served(1, 0, 1, False, 100, 5, 0, 105, 3, 1, 2)),
        Counters(3, 300, 64),
        Soundness(9, 1),
        *(12, 2, (Usage(1, 0, 7, 1),), 0.5),
    )
    return [to_json(report_of([result])).encode()]


def _simulated(path: Path) -> object:
    return results_of(from_json(path.read_bytes(), str(path)), str(path))


def _of_status(folder: Path) -> list[bytes]:
    write_status(folder, Status("e", "check", 1, steps=3, declared={"001": 1}, unjudged={"why": 2}, dumps=["a"]))
    return [path_of(folder, "e").read_bytes()]


def _status(path: Path) -> object:
    """A file that is not a status is passed over."""
    found = list(read_all(path.parent))
    if not found:
        raise UsageError("passed over")
    return found


WRITTEN = (
    Parser("trace", "trace of a block manager", Form.LINES, _files(list(_of_blocks())), from_file(_blocks)),
    Parser("engine-trace", "trace of a scheduler", Form.LINES, _files(list(_of_engines())), from_file(_engine)),
    Parser("pair-trace", "trace of two nodes", Form.LINES, _files(list(_of_pairs())), from_file(_pair)),
    Parser("fuzz-plan", "manifest of a folder to resume", Form.JSON, _of_plans, from_file(read_manifest)),
    Parser("fuzz-shard", "result of a shard in such a folder", Form.LINES, _of_shards, from_file(read_shard)),
    Parser("corpus-result", "line of another process", Form.JSON, _of_corpus, _passed),
    Parser("simulation", "results of simulations", Form.JSON, _of_simulations, from_file(_simulated)),
    Parser("shadow-status", "status of a shadow", Form.JSON, _of_status, from_file(_status, "status-e.json")),
)
"""All of them, but for recordings."""
