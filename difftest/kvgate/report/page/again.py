"""What was run is performed once more, on what it was run on."""

from __future__ import annotations

from kvgate.adapters.registry import Loaded
from kvgate.gate import case_runner
from kvgate.gate.case_runner import Bench
from kvgate.kernel.case import Case
from kvgate.levels.pair.case import PairCase
from kvgate.levels.scheduler.case import EngineCase
from kvgate.report.page.pages import Record
from kvgate.report.page.recording import Recording, record


def perform(system: Loaded, detectors: tuple[str, ...], case: Case | EngineCase | PairCase) -> Recording:
    """A case on the block manager of ``system``, on a scheduler that drives it, or on two; judged by ``detectors``."""
    if isinstance(case, Case):
        judges = tuple(each for each in detectors if each in case_runner.DETECTORS)
        return record(Bench(system.factory, judges), case)
    # With a scheduler comes vLLM.
    if isinstance(case, PairCase):
        from kvgate.levels.pair import detectors as of_pairs
        from kvgate.levels.registry import pair_bench
        from kvgate.report.page.pair_recording import record_pair

        return record_pair(pair_bench(system.name, tuple(each for each in detectors if each in of_pairs.GATE)), case)
    from kvgate.levels.registry import engine_bench
    from kvgate.levels.scheduler.detectors import GATE
    from kvgate.report.page.engine_recording import record_engine

    return record_engine(engine_bench(system.name, tuple(each for each in detectors if each in GATE)), case)


def once_more(system: Loaded, detectors: tuple[str, ...]) -> Record:
    """How to perform what ``detectors`` found on ``system``."""
    return lambda found: perform(system, detectors, found.case if found.engine is None else found.engine)
