"""Sessions of coding agents, recorded by WEKA's kv-cache-tester: one session a line, its blocks run-length encoded.

An id stands for the content of one block, within its session. A prompt is its ids' blocks, and what is left of it,
which has no id, is text of its own. What sub-agents asked is left out.

Not simulated: when a session began. A lane sends the turns of a session one after the other; with ``step_ms``, each as
long after the answer before it as was recorded, if a step takes so many milliseconds.
"""

from __future__ import annotations

from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import Any

from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.simulation.generators import Spellings
from kvgate.simulation.traces.lines import TOKENS_MAX, read_lines, whole_number
from kvgate.simulation.workload import Session, Turn, Workload
from kvreference.operations import Run

IDS_MAX = 1 << 24
"""Ids in one session stay below this."""
SESSIONS_MAX = 10_000
PAUSE_SECONDS_MAX = 1 << 24


def weka(
    file: str,
    sessions: int = 0,
    turns: int = 0,
    lanes: int = 16,
    skip: int = 0,
    turns_min: int = 1,
    tokens_max: int = 1 << 20,
    requests: int = 0,
    step_ms: int = 0,
) -> Workload:
    """``sessions`` sessions of a trace after the first ``skip``, the first ``turns`` turns of each; 0 being all.

    ``requests``: the lanes stop after so many requests, wherever they stand; 0: at the end. ``step_ms``: how long
    a step takes, for the pauses between turns; 0: no thinking time.

    A session ends before the first turn that is longer than ``tokens_max`` with its answer. Those that have fewer than
    ``turns_min`` turns then are passed over: where ``turns`` of each are taken, all lanes are busy nearly to the end.

    Raises:
        UsageError: the file cannot be read, or is not such a trace; says which line is wrong and how.
    """
    path = Path(file)
    if min(sessions, turns, skip, requests, step_ms) < 0:
        raise UsageError("sessions, turns, skip, requests and step_ms must be at least 0")
    read: list[Session] = []
    spellings = Spellings()
    for number, document in read_lines(path):
        if number <= skip:
            continue
        if len(read) == (sessions or SESSIONS_MAX):
            break
        try:
            talk = list(takewhile(lambda turn: turn.tokens <= tokens_max, _turns(document, spellings, step_ms)))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
        if len(talk) >= max(1, turns_min):
            read.append(Session(tuple(talk[: turns or len(talk)])))
    if not read:
        raise UsageError(f"{path}: no session in it of at least {max(1, turns_min)} turns")
    asked = sum(len(session.turns) for session in read)
    asked = min(asked, requests or asked)
    first = "the first " if requests else ""
    skipped = f" after the first {skip:,}" if skip else ""
    name = path.name.removesuffix(".xz").removesuffix(".jsonl").removesuffix(".rle")
    return Workload(
        f"{name}, {len(read)} sessions{skipped}, {asked} requests, {lanes} lanes",
        tuple(read),
        lanes,
        about=f"{first}{asked:,} requests of {len(read)} coding-agent sessions{skipped}, {lanes} at once; "
        + (f"pauses as recorded, if a step takes {step_ms:,} ms" if step_ms else "no thinking time"),
        requests_max=requests or None,
    )


def _turns(document: dict[str, Any], text: Spellings, step_ms: int) -> list[Turn]:
    """``text`` is for what a trace has no id for, and for the ids of each session."""
    size = whole_number(document, "bs", 1, 1 << 16)
    requests = document.get("requests")
    if not isinstance(requests, list) or not all(isinstance(each, dict) for each in requests):
        raise ValueError("'requests' must be a list of objects")
    # Sub-agents have a list of requests of their own.
    asked = [each for each in requests if "requests" not in each]
    pieces = [_pieces(each.get("h")) for each in asked]
    ids = 1 + max((first + count for piece in pieces for first, count in piece), default=0)
    base = text.fresh(ids * size).first
    turns = [_turn(each, piece, base, size, text) for each, piece in zip(asked, pieces, strict=True)]
    if not step_ms:
        return turns
    return [evolve(turn, pause_steps=_pause(each, step_ms)) for each, turn in zip(asked, turns, strict=True)]


def _pause(document: dict[str, Any], step_ms: int) -> int:
    """How many steps pass before a turn is sent; none where a trace does not say."""
    seconds = document.get("th")
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < PAUSE_SECONDS_MAX:
        raise ValueError(f"'th' must be the seconds before a request, below {PAUSE_SECONDS_MAX:,}, got {seconds!r:.80}")
    return ceil(seconds * 1000 / step_ms)


def _pieces(encoded: object) -> list[tuple[int, int]]:
    if not isinstance(encoded, list):
        raise ValueError("'h' must be a list of [first, count]")
    pieces: list[tuple[int, int]] = []
    for each in encoded:
        if not isinstance(each, list) or len(each) != 2 or not all(type(part) is int for part in each):
            raise ValueError(f"'h' must be a list of [first, count], got {each!r:.80}")
        first, count = each
        if not (0 <= first < IDS_MAX and 1 <= count < IDS_MAX):
            raise ValueError(f"ids must be from 0 to below {IDS_MAX}, got {count} from {first} on")
        pieces.append((first, count))
    return pieces


def _turn(document: dict[str, Any], pieces: list[tuple[int, int]], base: int, size: int, text: Spellings) -> Turn:
    tokens = whole_number(document, "i", 1, TOKENS_MAX)
    answers = whole_number(document, "o", 0, TOKENS_MAX)
    if sum(count for _, count in pieces) != tokens // size:
        raise ValueError(f"{sum(count for _, count in pieces)} blocks of {size} tokens for a prompt of {tokens} tokens")
    prompt = [Run(base + first * size, count * size) for first, count in pieces]
    if tokens % size:
        prompt.append(text.fresh(tokens % size))
    return Turn(tuple(prompt), text.fresh(max(1, answers)))
