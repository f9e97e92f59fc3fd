"""A run of a scheduler written down: what it asked of its block manager, and who waited for whom in the end."""

from __future__ import annotations

from kvgate.levels.scheduler.case import EngineCase
from kvgate.levels.scheduler.case_runner import EngineBench
from kvgate.report.page.recording import Recorder, Recording


def record_engine(bench: EngineBench, case: EngineCase) -> Recording:
    """Perform a case once more, and write it down.

    Where the reference gives up following, the page shows the system alone from there on.
    """
    engine = bench.set_up(case)
    recorder = Recorder(engine.lockstep, case.settings, follows=False)
    for operation in case.operations:
        found = engine.perform(operation)
        if found is not None:
            return recorder.recording([found], engine.progress.waiting)
    found_at_end = engine.close()
    return recorder.recording(found_at_end, engine.progress.waiting)
