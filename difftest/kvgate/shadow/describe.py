"""Formats differences in a recording, and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from kvgate.kernel.text import printable
from kvgate.shadow import calls
from kvgate.shadow.calls import Stored
from kvgate.shadow.shadow_checker import Finding
from kvreference.statements import STATEMENTS

ANSWER_CHARACTERS_MAX = 400
"""How much of an answer is printed."""
TEXT_CHARACTERS_MAX = 2**14
"""The longest report of one difference."""
_NOT_RECORDED = (
    "it cannot be reproduced: the calls before it were not written, because the disk budget is used up; "
    "see KVGATE_SHADOW_MAX_BYTES"
)
_CHECKPOINT_MISSING = (
    "it cannot be reproduced from the recording: the checkpoint that it begins with did not fit; "
    "set KVGATE_SHADOW_RING_BYTES higher"
)


def headline(finding: Finding) -> str:
    """A difference in a line."""
    difference = finding.difference
    text = f"expected {difference.expected}, got {difference.got}"
    return printable(
        f"{difference.statement} at step {finding.step}: {difference.subject}: {text}", ANSWER_CHARACTERS_MAX
    )


def utc(unix_ms: int | None) -> str:
    """A time in words; nothing if it is not known."""
    if unix_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return f"{unix_ms} ms since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def at(finding: Finding, started_unix_ms: int | None) -> str:
    """When a difference was, by the clock of the engine's host at its start."""
    return utc(None if started_unix_ms is None else started_unix_ms + finding.since_start_ms)


def format_finding(
    finding: Finding,
    before: Sequence[Stored],
    again: str | None,
    is_whole: bool = True,
    started_unix_ms: int | None = None,
) -> str:
    """A difference with the calls that led there, and how to see it again; ``is_whole`` if that is possible.

    ``again`` is None where no recording was written.
    """
    difference = finding.difference
    when = f", {known}" if (known := at(finding, started_unix_ms)) else ""
    lines = [
        f"{difference.statement}: {STATEMENTS[difference.statement]}",
        f"step {finding.step}, call {finding.call}{when}: {describe(finding.record)}",
        f"expected: {printable(difference.expected, ANSWER_CHARACTERS_MAX)}",
        f"got: {printable(difference.got, ANSWER_CHARACTERS_MAX)}",
        f"differs: {difference.subject}",
    ]
    lines += ["calls:", *(f"      {describe(record)}" for record in before), f">     {describe(finding.record)}"]
    how = ["to see it again:", f"  {again}"] if is_whole else [_CHECKPOINT_MISSING]
    how = [_NOT_RECORDED] if again is None else how
    return "\n".join([*lines, *how])[: TEXT_CHARACTERS_MAX - 1] + "\n"


def describe(record: Stored) -> str:
    """A call in a line."""
    if isinstance(record, calls.Checkpoint):
        held = sum(reference > 0 for reference in record.references[1:])
        text = f"checkpoint: {len(record.arrivals)} requests, {held} blocks held, {len(record.identities)} cached"
    elif isinstance(record, calls.Arrived):
        text = f"request {record.number} arrives, {record.tokens} tokens"
    elif isinstance(record, calls.Grew):
        text = f"request {record.number} has {record.tokens} tokens"
    elif isinstance(record, calls.LookedUp):
        text = f"request {record.number} looks up -> a hit of {record.hit_tokens} tokens {record.blocks}"
    elif isinstance(record, calls.Gated):
        text = f"request {record.number} after {record.computed + record.hit_tokens} tokens -> " + (
            "fits" if record.fits else "does not fit"
        )
    elif isinstance(record, calls.Allocated):
        kind = "is admitted" if record.is_first else "runs"
        outcome = "rejected" if record.given is None else f"{'has' if record.is_whole else 'gets'} {record.given}"
        text = (
            f"request {record.number} {kind}: {record.tokens} tokens after "
            f"{record.computed + record.hit_tokens + record.external_tokens} -> {outcome}, "
            f"{record.after.free} blocks free"
        )
    elif isinstance(record, calls.Sent):
        text = f"the worker is sent of request {record.number}: {'all' if record.is_whole else 'more'}, "
        text += "as it was given" if record.is_as_given else str(record.blocks)
    elif isinstance(record, calls.Published):
        text = "KV events: " + ", ".join(f"{run.kind} of {len(run.hashes)} in group {run.group}" for run in record.runs)
    elif isinstance(record, calls.Raised):
        text = f"{record.headline}, at {record.where}"
    elif isinstance(record, calls.Forgotten):
        text = f"request {record.number} is forgotten by the scheduler ({record.because or 'for no known reason'})"
    elif isinstance(record, calls.Step):
        text = f"step {record.number}"
    else:
        text = str(record)
    return printable(text, ANSWER_CHARACTERS_MAX)
