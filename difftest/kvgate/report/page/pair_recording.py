"""A run of two nodes written down: what the node on which it shows asked of its block manager."""

from __future__ import annotations

from kvgate.levels.pair.case import PairCase
from kvgate.levels.pair.case_runner import PairBench, run_case
from kvgate.report.page.recording import Recorder, Recording


def record_pair(bench: PairBench, case: PairCase) -> Recording:
    """Perform a case once more, and write down the node on which something is found; else the decode node.

    Where the reference gives up following, the page shows the system alone from there on. The numbers are the node's
    own, and of who waits for whom it is that node's part.
    """
    # On which node, only a run tells.
    seen = run_case(bench, case).pair.seen
    pair = bench.set_up(case)
    engine = pair.engine(seen[0].engine.node) if seen else pair.decode
    recorder = Recorder(engine.lockstep, engine.settings, follows=False)
    for operation in case.operations:
        found = pair.perform(operation)
        if found is not None:
            return recorder.recording([found], engine.progress.waiting)
    found_at_end = pair.close()
    return recorder.recording(found_at_end, engine.progress.waiting)
