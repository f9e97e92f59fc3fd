"""Cases run a second time, on a fresh system: what comes of the same operations must be the same.

A system whose answers depend on the clock, on the order of a set, on an address or on what it served before cannot be
checked by one run. Contents are numbered as they appear, for a fresh system may well name them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import blake2b

from attrs import evolve, frozen

from kvgate.gate.level import Bench, Case, World
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvreference.answers import Answer, Happened
from kvreference.events import Event, Removed, Stored
from kvreference.operations import Operation

TWICE = "twice"
"""The detector."""
STATEMENT = "KV-SYS-04"
ANSWER_CHARACTERS_MAX = 500
ATTEMPTS = 20
"""How often what was found by chance is looked for again."""


PARTS = (
    "answer",
    "tables",
    "references",
    "free queue",
    "blocks free",
    "contents",
    "cached map",
    "pins",
    "copies",
    "begun blocks",
)
"""What is compared of a step, in the order of the report."""


class Recorder:
    """A monitor that finds nothing, and keeps a digest of every part of every step."""

    name = TWICE

    def __init__(self) -> None:
        self.steps: list[tuple[str, ...]] = []
        self.operations: list[Operation] = []
        self.ends: list[int] = []
        """How many steps were seen after each operation of the case."""
        self._numbers: dict[Hashable, int] = {None: 0}

    def observe(self, step: Step) -> Difference | None:
        """Remember the step."""
        seen = step.snapshot
        entries = {self._number(content): sorted(blocks) for content, blocks in seen.entries.items()}
        said = (
            sorted((number, [list(table) for table in tables]) for number, tables in seen.tables.items()),
            list(seen.references),
            list(seen.free),
            seen.blocks_free,
            [self._number(content) for content in seen.contents],
            sorted(entries.items()),
            (sorted(seen.pinned.blocks), list(seen.pinned.queue)),
            seen.copies,
            sorted(seen.begun),
        )
        # A short answer is kept as it is; everything else is too large to keep.
        answer = repr(self._answer(step.answer))
        parts = (answer if len(answer) <= ANSWER_CHARACTERS_MAX else _digest(answer), *map(_digest, map(repr, said)))
        self.steps.append(parts)
        self.operations.append(step.operation)
        return None

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing."""
        del system
        return ()

    def _number(self, content: Hashable) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def _answer(self, answer: Answer) -> object:
        return [self._event(event) for event in answer.events] if isinstance(answer, Happened) else answer

    def _event(self, event: Event) -> object:
        """An event without the identities that may be named anew: which come again, the numbers say."""
        if isinstance(event, Removed):
            return "removed", self._number(("event", event.content))
        if isinstance(event, Stored):
            contents = tuple(self._number(("event", content)) for content in event.contents)
            parent = self._number(None if event.parent is None else ("event", event.parent))
            return evolve(event, contents=contents, parent=parent)
        return event


def again(bench: Bench, case: Case, campaign_seed: int) -> Found | None:
    """Run a case twice; the first operation of a block manager at which the two runs differ."""
    level, first, second = case.level, _recorded(bench, case), _recorded(bench, case)
    for part, mine, others in zip(level.parts(first.world, case), first.recorders, second.recorders, strict=True):
        longer = max(mine.operations, others.operations, key=len)
        divergence = differing(mine.steps, others.steps, longer)
        if divergence is None:
            continue
        asked = longer[: divergence.step + 1]
        where_from = {"model": case.model, "preset": case.preset, "seed": campaign_seed}
        driver = None
        if level.stage_type is not None:
            ends = mine.ends
            performed = next((number for number, end in enumerate(ends, start=1) if end > divergence.step), len(ends))
            driver = evolve(case, operations=case.operations[:performed])
        return Found(divergence, level.below.case(part.settings, asked, **where_from), driver=driver)
    return None


def in_one_of(run: Callable[[], Found | None]) -> list[Found]:
    """What one of ``ATTEMPTS`` shows: chance does not come when it is called."""
    for _ in range(ATTEMPTS):
        found = run()
        if found is not None:
            return [found]
    return []


def differing(
    first: Sequence[tuple[str, ...]], second: Sequence[tuple[str, ...]], operations: Sequence[Operation]
) -> Divergence | None:
    """Where two runs of the same operations differ."""
    for step, (mine, others) in enumerate(zip(first, second, strict=False)):
        for part, expected, got in zip(PARTS, mine, others, strict=True):
            if expected != got:
                difference = Difference(STATEMENT, f"{part} in a second run", expected, got)
                return Divergence(step, operations[step], TWICE, difference)
    if len(first) == len(second):
        return None
    # One of them went on where the other had raised, or was found out.
    step = min(len(first), len(second), len(operations) - 1)
    reported = (f"{len(steps)} operations" for steps in (first, second))
    return Divergence(step, operations[step], TWICE, Difference(STATEMENT, "length of a second run", *reported))


def _digest(text: str) -> str:
    return f"digest {blake2b(text.encode(), digest_size=8).hexdigest()}"


@frozen
class _Recorded:
    """A run that was recorded."""

    world: World
    recorders: tuple[Recorder, ...]
    """One for each block manager."""


def _recorded(bench: Bench, case: Case) -> _Recorded:
    world = bench.build(case)
    recorders = []
    for part in case.level.parts(world, case):
        recorders.append(Recorder())
        # Asked first: a monitor that finds something is the last that is asked.
        part.lockstep.monitors = [recorders[-1], *part.lockstep.monitors]
    for operation in case.operations:
        divergence = world.perform(operation)
        for recorder in recorders:
            recorder.ends.append(len(recorder.steps))
        if divergence is not None:
            break
    return _Recorded(world, tuple(recorders))
