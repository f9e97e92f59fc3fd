"""What a shadow recorded of a live engine, as a workload: who asked for what, and how much was answered.

A recording has a digest for each grain of a prompt and of its answers, so two prompts share here what they shared
there, answers that a later prompt quotes among them. Not simulated: when a request came. The lanes send them in order,
each when it has nothing under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, field

from kvgate.kernel.errors import UsageError
from kvgate.shadow.calls import Arrived, Grew, Stored
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
    parts = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    recordings = sorted((open_recording(part) for part in parts), key=lambda each: each.header.segment)
    if not recordings:
        raise UsageError(f"{path}: no recording in it (*{SUFFIX})")
    if len({each.header.engine for each in recordings}) > 1:
        raise UsageError(f"{path}: recordings of several engines: give one of the files")
    asked: dict[int, _Asked] = {}
    for recording in recordings:
        _read(recording.records(), asked)
    if not asked:
        raise UsageError(f"{path}: no request in it")
    grain = recordings[0].header.settings.geometry.grain_tokens
    turns = list(_turns(list(asked.values())[: requests or None], grain))
    return Workload(
        f"{path.name}, {len(turns)} requests",
        single(*turns),
        lanes,
        about=f"{len(turns):,} requests as recorded in {path.name}, {lanes} at once; when they came is not simulated",
    )


def _read(records: Iterator[Stored], asked: dict[int, _Asked]) -> None:
    for record in records:
        for each in (record,) if isinstance(record, Arrived) else getattr(record, "arrivals", ()):
            asked.setdefault(each.number, _Asked(each.prompt_tokens, each.tokens, list(each.digests)))
        if isinstance(record, Grew) and record.number in asked:
            known = asked[record.number]
            known.tokens = max(known.tokens, record.tokens)
            known.digests += record.digests


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
