"""What was run is performed once more, on what it was run on."""

from __future__ import annotations

from kvgate import runner
from kvgate.case import Case
from kvgate.disaggregation.case import PairCase
from kvgate.reports.page.pages import Record
from kvgate.reports.page.recording import Recording, record
from kvgate.runner import Bench
from kvgate.scheduling.case import EngineCase
from kvgate.systems import Loaded


def perform(system: Loaded, detectors: tuple[str, ...], case: Case | EngineCase | PairCase) -> Recording:
    """A case on the block manager of ``system``, on a scheduler that drives it, or on two; judged by ``detectors``."""
    if isinstance(case, Case):
        judges = tuple(each for each in detectors if each in runner.DETECTORS)
        return record(Bench(system.factory, judges), case)
    # With a scheduler comes vLLM.
    if isinstance(case, PairCase):
        from kvgate.disaggregation import detectors as of_pairs
        from kvgate.levels import pair_bench
        from kvgate.reports.page.pair_recording import record_pair

        return record_pair(pair_bench(system.name, tuple(each for each in detectors if each in of_pairs.GATE)), case)
    from kvgate.levels import engine_bench
    from kvgate.reports.page.engine_recording import record_engine
    from kvgate.scheduling.detectors import GATE

    return record_engine(engine_bench(system.name, tuple(each for each in detectors if each in GATE)), case)


def once_more(system: Loaded, detectors: tuple[str, ...]) -> Record:
    """How to perform what ``detectors`` found on ``system``."""
    return lambda found: perform(system, detectors, found.case if found.engine is None else found.engine)
