"""What a shadow recorded of a live engine, as a workload: who asked for what, and how much was answered.

A recording has a digest for each grain of a prompt and of its answers, so two prompts share here what they shared
there, answers that a later prompt quotes among them. Not simulated: when a request came. The lanes send them in order,
each when it has nothing under way. A request that may not read the cache is simulated as one that may. What was not
recorded is not simulated either; how much that is, as far as it is known, is said in ``about``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, field

from kvgate.kernel.errors import UsageError
from kvgate.shadow.calls import Arrived, Checkpoint, Grew, Restart, Stored
from kvgate.shadow.recording import SUFFIX, open_recording
from kvgate.simulation.generators import Spellings
from kvgate.simulation.workload import Turn, Workload, cut, joined, single
from kvreference.operations import Run


@define
class _Asked:
    prompt_tokens: int
    tokens: int
    digests: list[bytes] = field(factory=list)


def recorded(file: str, requests: int = 0, lanes: int = 16) -> Workload:
    """The first ``requests`` requests of a recording, 0 being all; ``lanes`` of them at once.

    ``file`` is a recording, or a folder with the parts of one.

    Raises:
        UsageError: it cannot be read, is of several engines, or no request is in it.
    """
    path = Path(file)
    if requests < 0:
        raise UsageError("requests must be at least 0")
    parts = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    recordings = sorted((open_recording(part) for part in parts), key=lambda each: each.header.segment)
    if not recordings:
        raise UsageError(f"{path}: no recording in it (*{SUFFIX})")
    if len({each.header.engine for each in recordings}) > 1:
        raise UsageError(f"{path}: recordings of several engines: give one of the files")
    asked: dict[int, _Asked] = {}
    missing: list[str] = []
    for before, recording in zip((None, *recordings), recordings, strict=False):
        if before is not None and recording.header.segment != before.header.segment + 1:
            missing.append(f"{recording.header.segment - before.header.segment - 1} parts are not here")
        lost = _read(recording.records(), asked)
        missing += [f"{lost} calls or more were lost"] * bool(lost) + [recording.ended] * bool(recording.ended)
    if not asked:
        raise UsageError(f"{path}: no request in it")
    grain = recordings[0].header.settings.geometry.grain_tokens
    turns = list(_turns(list(asked.values())[: requests or None], grain))
    return Workload(
        f"{path.name}, {len(turns)} requests",
        single(*turns),
        lanes,
        about="; ".join((f"{len(turns):,} requests as recorded in {path.name}, {lanes} at once", *missing)),
    )


def _read(records: Iterator[Stored], asked: dict[int, _Asked]) -> int:
    """Read who asked for what; how many calls were lost, at least."""
    lost = 0
    for record in records:
        if isinstance(record, Restart):
            lost += max(1, record.lost)
        arrivals = (record,) if isinstance(record, Arrived) else ()
        for each in record.arrivals if isinstance(record, Checkpoint) else arrivals:
            # A checkpoint has all of a request, also what came in a gap.
            asked[each.number] = _Asked(each.prompt_tokens, each.tokens, list(each.digests))
        if isinstance(record, Grew) and record.number in asked:
            known = asked[record.number]
            known.tokens = max(known.tokens, record.tokens)
            known.digests += record.digests
    return lost


def _turns(asked: Sequence[_Asked], grain: int) -> Iterator[Turn]:
    text, known = Spellings(), dict[bytes, tuple[Run, ...]]()
    for each in asked:
        whole, rest = divmod(each.prompt_tokens, grain)
        prompt: list[Run] = []
        for digest in each.digests[:whole]:
            if digest not in known:
                known[digest] = (text.fresh(grain),)
            prompt += known[digest]
        if rest:
            prompt.append(text.fresh(rest))
        turn = Turn(joined(prompt), text.fresh(max(1, each.tokens - each.prompt_tokens)))
        for place, digest in enumerate(each.digests[whole:], whole):
            known.setdefault(digest, cut(turn.runs, place * grain, grain))
        yield turn
