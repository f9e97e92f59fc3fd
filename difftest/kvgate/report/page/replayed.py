"""A stored run as a page: what ``kvgate replay`` writes when it is asked to."""

from __future__ import annotations

from pathlib import Path

from kvgate.adapters.registry import load_system
from kvgate.gate import trace_codec as traces
from kvgate.gate.story import command_to_replay
from kvgate.gate.verdict import Verdict
from kvgate.kernel.case import Case
from kvgate.levels.pair.case import PairCase
from kvgate.levels.pair.trace_codec import is_pair_trace, read_pair
from kvgate.levels.scheduler.case import EngineCase
from kvgate.levels.scheduler.trace_codec import is_engine_trace, read_engine
from kvgate.report.contents import contents_of
from kvgate.report.page.again import perform
from kvgate.report.page.pages import write_page
from kvgate.report.page.render import About


def draw(verdict: Verdict, file: Path, html: Path | None, chrome: Path | None) -> None:
    """Write what replaying ``file`` showed: the first divergence, or that there is none.

    Raises:
        OSError: a file cannot be written.
    """
    found = verdict.found[0] if verdict.found else None
    case = stored_case(file) if found is None else found.case if found.engine is None else found.engine
    # It is loaded, and its preloads were run: they are not run twice.
    system = load_system(verdict.system)
    contents = contents_of(verdict, (), {})
    about = About(
        system=verdict.system,
        version=verdict.version,
        model=case.model,
        preset=case.preset,
        seed=str(case.seed),
        command=command_to_replay(file, verdict.system, verdict.preloads, instead=verdict.instead),
        title=f"divergence 1 of {len(verdict.found)}" if found is not None else "",
        claims=contents.claims,
        tested=contents.circumstances,
        not_tested=contents.not_tested,
    )
    write_page(perform(system, verdict.detectors, case), found, about, html=html, chrome=chrome)


def stored_case(file: Path) -> Case | EngineCase | PairCase:
    """The case that a trace holds, of any level.

    Raises:
        UsageError: it is none.
    """
    if is_pair_trace(file):
        return read_pair(file).case
    if is_engine_trace(file):
        return read_engine(file).case
    trace = traces.read(file)
    header = trace.header
    return Case(header.settings, trace.operations, header.model, header.preset, header.seed)
